/* What regions share of kernels/product.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_PRODUCT 1
#include "kernels/product.h"
