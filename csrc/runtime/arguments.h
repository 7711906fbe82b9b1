/* A call of a region: the same for both generations of TVM, but for where tensors and errors are. */
#ifndef CONVOY_RUNTIME_ARGUMENTS_H_
#define CONVOY_RUNTIME_ARGUMENTS_H_

#include <stdbool.h>

#include "convoy/entry.h"

typedef struct cv_call_form {
  /* The tensor of argument `index`, or NULL and in *type the number TVM gives what is there instead. */
  const cv_dltensor *(*tensor_at)(const void *args, int index, int *type);
  bool has_bare; /* some tensors may be addresses alone, which cannot be checked */
} cv_call_form;

/* Checks the arguments of a call against `entry` and runs the region on them.  0, or what cv_raise returns.
 */
int cv_call(const cv_entry *entry, const cv_call_form *form, const void *args, int count);

/* Of the entry for one generation of TVM: leaves an error to it, of a kind such as ValueError.  Returns -1.
 */
int cv_raise(const char *kind, const char *message);

#endif
