/* What regions share of kernels/recurrent.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_RECURRENT 1
#include "kernels/recurrent.h"
