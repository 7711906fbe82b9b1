/* How classic TVM calls a region, with the part of its C ABI (0.14 to 0.19) that this needs, declared anew
 * so that a region compiles without TVM's headers.
 */
#ifndef CONVOY_CLASSIC_ENTRY_H_
#define CONVOY_CLASSIC_ENTRY_H_

#include "convoy/entry.h"

enum { CV_CLASSIC_INT = 0, CV_CLASSIC_NULL = 4 }; /* type codes of values */

typedef union cv_classic_value {
  int64_t integer;
  double number;
  const void *handle; /* of a tensor: its cv_dltensor */
} cv_classic_value;

void TVMAPISetLastError(const char *message);

/* `args`: the name of the function, for messages, then its tensors.  Checks them against `entry` and runs
 * the region on them.  0, or -1 with TVM's last error set to one that names the function and the argument.
 *
 * TVM's ahead-of-time executor describes only what comes from outside: of what it passes from function to
 * function it sets the address alone, and so no more is checked. */
int convoy_call_classic(const cv_entry *entry, const cv_classic_value *args, int count);

#endif
