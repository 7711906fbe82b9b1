/* How TVM calls a region: checks its arguments, then calls the plain C function. */
#ifndef CONVOY_TVM_ENTRY_H_
#define CONVOY_TVM_ENTRY_H_

#include "convoy/region.h"
#include "convoy/tvm_abi.h"

typedef struct cv_argument {
  const char *name;
  int ndim;
  const int64_t *shape; /* of one image; a batched region's axis 0 is the image axis and 1 here */
} cv_argument;

typedef struct cv_entry {
  const char *name; /* of the function, for messages */
  convoy_region region;
  int inputs, outputs;
  const cv_argument *arguments; /* inputs, then outputs */
  int64_t batch;                /* axis 0 of every argument; -1: any, the same in all */
} cv_entry;

/* Checks `args` against `entry` and runs the region on them.  0, or -1 with a TVM error raised that
 * names the function and the argument: TypeError for a wrong kind or dtype, ValueError for a wrong
 * count, shape, device, layout or alignment, MemoryError if the scratch memory cannot be had. */
int convoy_call_region(const cv_entry *entry, const cv_tvm_any *args, int32_t count);

#endif
