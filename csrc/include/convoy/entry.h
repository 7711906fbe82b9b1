/* What a TVM of either generation may call a region with, as data; csrc/runtime/arguments.c checks it. */
#ifndef CONVOY_ENTRY_H_
#define CONVOY_ENTRY_H_

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

#endif
