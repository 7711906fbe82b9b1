/* Products of computed matrices in bfloat16 (product.h). */
#ifndef CONVOY_KERNELS_PRODUCT_BF16_H_
#define CONVOY_KERNELS_PRODUCT_BF16_H_

#include "kernels/product.h"

CV_SHARED void cv_multiply_stack_bf16(cv_thread thread, const cv_product *p, float *scratch)
    CV_SYMBOL(cv_multiply_stack_bf16);

#if CV_DEFINES(PRODUCT_BF16)
CV_SHARED void cv_multiply_stack_bf16(cv_thread thread, const cv_product *p, float *scratch) {
  cv_multiply_stack_of(1, thread, p, scratch);
}
#endif

#endif
