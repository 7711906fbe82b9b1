/* Products of bfloat16, in all cases of test_product.c. */
#define OF_BF16
#include "tests/test_product.c"
