/* What regions share of kernels/gemm_bytes.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_GEMM_BYTES 1
#include "kernels/gemm_bytes.h"
