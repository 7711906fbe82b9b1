/* What regions share of kernels/conv2d_depthwise.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_CONV2D_DEPTHWISE 1
#include "kernels/conv2d_depthwise.h"
