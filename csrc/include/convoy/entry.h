/* What a TVM of either generation may call a region with, as data; csrc/runtime/arguments.c checks it. */
#ifndef CONVOY_ENTRY_H_
#define CONVOY_ENTRY_H_

#include "convoy/dtype.h"
#include "convoy/region.h"
#include "convoy/tvm_abi.h"

typedef struct cv_argument {
  const char *name;
  int ndim;
  const int64_t *shape; /* of one image; a batched region's axis 0 is the image axis and 1 here */
  cv_dtype dtype;       /* of its elements */
} cv_argument;

/* What a region was compiled for; each has those before it, but that none else has AVX-VNNI. */
typedef enum cv_vectors {
  CV_VECTORS_PORTABLE,
  CV_VECTORS_AVX2,
  CV_VECTORS_AVX2_VNNI,
  CV_VECTORS_AVX512,
  CV_VECTORS_AVX512_VNNI,
  CV_VECTORS_AVX512_BF16
} cv_vectors;

/* Of the unit that includes this. */
#if defined(__AVX512BF16__)
#define CV_VECTORS CV_VECTORS_AVX512_BF16
#elif defined(__AVX512VNNI__)
#define CV_VECTORS CV_VECTORS_AVX512_VNNI
#elif defined(__AVX512F__)
#define CV_VECTORS CV_VECTORS_AVX512
#elif defined(__AVXVNNI__)
#define CV_VECTORS CV_VECTORS_AVX2_VNNI
#elif defined(__AVX2__)
#define CV_VECTORS CV_VECTORS_AVX2
#else
#define CV_VECTORS CV_VECTORS_PORTABLE
#endif

/* Where a size is read that is known at the call: the axis is `times` as long. */
typedef struct cv_open_axis {
  int input, axis, times;
  int64_t least;
} cv_open_axis;

typedef struct cv_entry {
  const char *name; /* of the function, for messages */
  convoy_region region;
  convoy_open_region open_region; /* in its place, where there are sizes known at the call */
  int sizes;
  const cv_open_axis *open_axes; /* of each size */
  /* Writes the lengths of all arguments' axes, one after the other: in their shapes open ones are 0. */
  void (*measure)(const int64_t *sizes, int64_t *lengths);
  cv_vectors vectors; /* the region's */
  int inputs, outputs;
  const cv_argument *arguments; /* inputs, then outputs */
  int64_t batch;                /* axis 0 of every argument; -1: any, the same in all */
} cv_entry;

#endif
