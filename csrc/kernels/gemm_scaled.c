/* What regions share of kernels/gemm_scaled.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_GEMM_SCALED 1
#include "kernels/gemm_scaled.h"
