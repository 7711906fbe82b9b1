/* The product of bytes, requantised, against the peak of their products: as bench_gemm. */
#define OF_BYTES
#include "bench/bench_gemm.c"
