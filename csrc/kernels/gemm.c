/* What regions share of kernels/gemm.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_GEMM 1
#include "kernels/gemm.h"
