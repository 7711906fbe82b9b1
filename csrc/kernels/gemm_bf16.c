/* What regions share of kernels/gemm_bf16.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_GEMM_BF16 1
#include "kernels/gemm_bf16.h"
