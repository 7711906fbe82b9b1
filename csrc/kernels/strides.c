/* What regions share of kernels/strides.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_STRIDES 1
#include "kernels/strides.h"
