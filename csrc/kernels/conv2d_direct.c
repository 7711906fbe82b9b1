/* What regions share of kernels/conv2d_direct.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_CONV2D_DIRECT 1
#include "kernels/conv2d_direct.h"
