/* The direct convolution of bytes, requantised, against the peak of their products: as bench_conv2d_direct.
 */
#define OF_BYTES
#include "bench/bench_conv2d_direct.c"
