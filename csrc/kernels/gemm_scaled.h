/* Matrix products with weights of 4 or 8 bits that have a scale for each block of steps of k (gemm.h). */
#ifndef CONVOY_KERNELS_GEMM_SCALED_H_
#define CONVOY_KERNELS_GEMM_SCALED_H_

#include "kernels/gemm.h"

/* As cv_gemm; w and its scales as cv_gemm_scales says. */
CV_SHARED void cv_gemm_scaled(cv_thread thread, int m, int k, int n, const float *x, const void *w,
                              const cv_gemm_scales *scales, float *y, const float *bias,
                              const float *residual, cv_activation inner, cv_activation outer)
    CV_SYMBOL(cv_gemm_scaled);

#if CV_DEFINES(GEMM_SCALED)
CV_SHARED void cv_gemm_scaled(cv_thread thread, int m, int k, int n, const float *x, const void *w,
                              const cv_gemm_scales *scales, float *y, const float *bias,
                              const float *residual, cv_activation inner, cv_activation outer) {
  cv_gemm_problem g = {.m = m, .k = k, .n = n, .steps = k, .x = x, .w = w, .y = y, .bias = bias};
  g.residual = residual;
  g.inner = inner;
  g.outer = outer;
  g.scales = scales;
  cv_gemm_of(CV_FLOATS, thread, g);
}
#endif

#endif
