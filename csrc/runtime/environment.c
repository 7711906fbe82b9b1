#include "runtime/environment.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* A text from outside for a terminal: printable ASCII in one line, cut off. */
static void show(char *shown, size_t room, const char *text) {
  size_t i = 0;
  for (; i + 1 < room && text[i]; ++i) shown[i] = (char)(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
  shown[i] = 0;
}

int cv_number_setting(const char *name, int otherwise) {
  const char *text = getenv(name);
  if (!text || !*text) return otherwise;
  char *end;
  const long value = strtol(text, &end, 10);
  const char *rest = end;
  while (isspace((unsigned char)*rest)) ++rest;
  if (end == text || *rest || value < 0) {
    char shown[80];
    show(shown, sizeof shown, text);
    fprintf(stderr,
            "convoy: %s: expected a number of at least 0, got '%s'; it is ignored, correct or unset it\n",
            name, shown);
    return otherwise;
  }
  return value > INT_MAX ? INT_MAX : (int)value;
}
