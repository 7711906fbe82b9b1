/* Attention that multiplies bfloat16, against the peak of its products. */
#define OF_BF16
#include "bench/bench_attention.c"
