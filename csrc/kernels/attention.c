/* What regions share of kernels/attention.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_ATTENTION 1
#include "kernels/attention.h"
