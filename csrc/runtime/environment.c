#include "runtime/environment.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

int cv_number_setting(const char *name, int otherwise) {
  const char *text = getenv(name);
  if (!text || !*text) return otherwise;
  char *end;
  const long value = strtol(text, &end, 10);
  const char *rest = end;
  while (isspace((unsigned char)*rest)) ++rest;
  if (end == text || *rest || value < 0) {
    fprintf(stderr,
            "convoy: %s: expected a number of at least 0, got '%s'; it is ignored, correct or unset it\n",
            name, text);
    return otherwise;
  }
  return value > INT_MAX ? INT_MAX : (int)value;
}
