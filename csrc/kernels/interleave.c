/* What regions share of kernels/interleave.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_INTERLEAVE 1
#include "kernels/interleave.h"
