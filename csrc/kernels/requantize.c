/* What regions share of kernels/requantize.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_REQUANTIZE 1
#include "kernels/requantize.h"
