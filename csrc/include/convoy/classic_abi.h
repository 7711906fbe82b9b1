/* The part of classic TVM's C ABI (0.14 to 0.19) that a region's entry needs, declared anew so that a
 * region compiles without TVM's headers.
 */
#ifndef CONVOY_CLASSIC_ABI_H_
#define CONVOY_CLASSIC_ABI_H_

#include "convoy/tvm_abi.h"

enum { CV_CLASSIC_INT = 0, CV_CLASSIC_NULL = 4 }; /* type codes of values */

/* What an entry returns, beside the status of its region, for arguments of different numbers of images. */
enum { CV_CLASSIC_BATCHES = -1 };

typedef union cv_classic_value {
  int64_t integer;
  double number;
  void *handle;
} cv_classic_value;

void TVMAPISetLastError(const char *message);

/* Where a tensor's elements begin.  TVM has checked the rest, but for a number of images that is known only
 * at run time: otherwise shapes are not even set by its ahead-of-time executor. */
static inline float *convoy_elements(const cv_dltensor *tensor) {
  return (float *)((char *)tensor->data + tensor->byte_offset);
}

#endif
