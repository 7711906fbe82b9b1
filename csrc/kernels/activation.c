/* What regions share of kernels/activation.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_ACTIVATION 1
#include "kernels/activation.h"
