/* What regions share of kernels/layout.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_LAYOUT 1
#include "kernels/layout.h"
