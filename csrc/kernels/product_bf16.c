/* What regions share of kernels/product_bf16.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_PRODUCT_BF16 1
#include "kernels/product_bf16.h"
