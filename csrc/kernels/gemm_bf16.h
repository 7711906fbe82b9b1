/* Matrix products of bfloat16 (gemm.h). */
#ifndef CONVOY_KERNELS_GEMM_BF16_H_
#define CONVOY_KERNELS_GEMM_BF16_H_

#include "kernels/gemm.h"

/* As cv_gemm, of bfloat16: w packed [ceil(n / panel)][ceil(k / 2)][panel] cells. */
CV_SHARED void cv_gemm_bf16(cv_thread thread, int m, int k, int n, const float *x, const float *w, int far,
                            float *y, const float *bias, const float *residual, cv_activation inner,
                            cv_activation outer) CV_SYMBOL(cv_gemm_bf16);

#if CV_DEFINES(GEMM_BF16)
CV_SHARED void cv_gemm_bf16(cv_thread thread, int m, int k, int n, const float *x, const float *w, int far,
                            float *y, const float *bias, const float *residual, cv_activation inner,
                            cv_activation outer) {
  cv_gemm_of(CV_BFLOATS, thread,
             (cv_gemm_problem){m, k, n, cv_gemm_steps(1, k), x, w, far, y, bias, residual, inner, outer,
                               NULL, NULL});
}
#endif

#endif
