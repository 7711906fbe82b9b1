/* Matrix products of bytes (gemm.h). */
#ifndef CONVOY_KERNELS_GEMM_BYTES_H_
#define CONVOY_KERNELS_GEMM_BYTES_H_

#include "kernels/gemm.h"

/* As cv_gemm, of bytes: x [m][k], w packed [ceil(n / panel)][k / 4][panel] cells, start [padded n]. */
CV_SHARED void cv_gemm_bytes(cv_thread thread, int m, int k, int n, const void *x, const float *w, int far,
                             const float *start, cv_gemm_requantized ending) CV_SYMBOL(cv_gemm_bytes);

#if CV_DEFINES(GEMM_BYTES)
CV_SHARED void cv_gemm_bytes(cv_thread thread, int m, int k, int n, const void *x, const float *w, int far,
                             const float *start, cv_gemm_requantized ending) {
  cv_gemm_problem g = {
      .m = m, .k = k / CV_BYTES, .n = n, .steps = k / CV_BYTES, .x = x, .w = w, .far = far};
  g.bias = start;
  g.ending = &ending;
  cv_gemm_of(CV_BYTES, thread, g);
}
#endif

#endif
