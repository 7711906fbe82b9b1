/* What regions share of kernels/product_bytes.h. */
#define CV_LINKS_KERNELS 1
#define CV_DEFINES_PRODUCT_BYTES 1
#include "kernels/product_bytes.h"
