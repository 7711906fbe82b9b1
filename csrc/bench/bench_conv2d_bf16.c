/* The direct convolution of maps and weights of bfloat16 against the peak of its products: as
 * bench_conv2d_direct, without the first layers, which multiply float32.
 */
#define OF_BF16
#define CV_BFLOAT16_MAPS 1
#include "bench/bench_conv2d_direct.c"
