/* Attention that multiplies bfloat16, in all cases of test_attention.c. */
#define OF_BF16
#include "tests/test_attention.c"
