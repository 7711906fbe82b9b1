/* Plain tensors [outer][axis][inner], any alignment, to bytes and back, a scale and zero point for each
 * number along the middle axis.
 *
 *   cv_quantize_<type>     y = min(max(round(x / scale) + zero, least), most), halves to even; NaN: least
 *   cv_dequantize_<type>   y = (x - zero) * scale, the difference rounded to float once
 *
 * least and most are those of the type.  Threads share the elements.
 */
#ifndef CONVOY_KERNELS_QUANTIZE_ARRAYS_H_
#define CONVOY_KERNELS_QUANTIZE_ARRAYS_H_

#include "kernels/map.h"
#include "kernels/quantize.h"

/* round(v / scale) from low to high: how many steps a byte is from its zero point.  NaN gives low. */
CV_INLINE cv_vec cv_quantize_steps(cv_vec v, cv_vec scale, cv_vec low, cv_vec high) {
  return cv_min(cv_max(cv_round(cv_quotient(v, scale, cv_inverse(scale))), low), high);
}

/* Quantised and dequantised at once.  No steps are 0, not -0, of which the reciprocal is another infinity:
 * bytes have no sign of their own. */
CV_INLINE cv_vec cv_quantize_held(cv_vec v, float scale, float low, float high) {
  const cv_vec step = cv_set1(scale), steps = cv_quantize_steps(v, step, cv_set1(low), cv_set1(high));
  return cv_mul(cv_add(steps, cv_set1(0.0f)), step);
}

#define CV_QUANTIZED(type, element, least, most)                                                          \
  static inline void cv_quantize_run_##type(element *y, const float *x, float scale, int zero,            \
                                            ptrdiff_t count) {                                            \
    const cv_scale s = {scale, zero, least, most};                                                        \
    uint8_t *to = (uint8_t *)y;                                                                           \
    ptrdiff_t i = 0;                                                                                      \
    for (; i + CV_LANES <= count; i += CV_LANES) cv_store_bytes(to + i, cv_quantize(cv_loadu(x + i), s)); \
    const int rest = (int)(count - i);                                                                    \
    if (rest > 0) cv_store_bytes_n(to + i, cv_quantize(cv_load_n(x + i, rest), s), rest);                 \
  }                                                                                                       \
  static inline void cv_dequantize_run_##type(float *y, const element *x, float scale, int zero,          \
                                              ptrdiff_t count) {                                          \
    const cv_scale s = {scale, zero, least, most};                                                        \
    const uint8_t *from = (const uint8_t *)x;                                                             \
    ptrdiff_t i = 0;                                                                                      \
    for (; i + CV_LANES <= count; i += CV_LANES)                                                          \
      cv_storeu(y + i, cv_dequantize(cv_load_bytes(from + i), s));                                        \
    const int rest = (int)(count - i);                                                                    \
    if (rest > 0) cv_store_n(y + i, cv_dequantize(cv_load_bytes_n(from + i, rest), s), rest);             \
  }                                                                                                       \
  static inline void cv_quantize_##type(cv_thread t, element *y, const float *x, const float *scale,      \
                                        const element *zero, ptrdiff_t outer, ptrdiff_t axis,             \
                                        ptrdiff_t inner){CV_EACH_RUN(                                     \
      cv_quantize_run_##type(y + i, x + i, scale[a], zero[a], count))} CV_DEQUANTIZED(type, element)

#define CV_DEQUANTIZED(type, element)                                                                  \
  static inline void cv_dequantize_##type(cv_thread t, float *y, const element *x, const float *scale, \
                                          const element *zero, ptrdiff_t outer, ptrdiff_t axis,        \
                                          ptrdiff_t inner) {                                           \
    CV_EACH_RUN(cv_dequantize_run_##type(y + i, x + i, scale[a], zero[a], count))                      \
  }

static inline void cv_dequantize_run_int32(float *y, const int32_t *x, float scale, int64_t zero,
                                           ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) y[i] = (float)(x[i] - zero) * scale;
}

/* A thread's share of the elements, as runs of one scale: `count` elements from i on, number a of the axis.
 */
#define CV_EACH_RUN(compute)                                                                   \
  const ptrdiff_t whole = outer * axis * inner;                                                \
  const ptrdiff_t end = whole / t.count * (t.id + 1) + whole % t.count * (t.id + 1) / t.count; \
  ptrdiff_t i = whole / t.count * t.id + whole % t.count * t.id / t.count;                     \
  while (i < end) {                                                                            \
    const ptrdiff_t a = i / inner % axis, rest = inner - i % inner;                            \
    const ptrdiff_t count = rest < end - i ? rest : end - i;                                   \
    compute;                                                                                   \
    i += count;                                                                                \
  }

CV_QUANTIZED(uint8, uint8_t, 0, 255)
CV_QUANTIZED(int8, int8_t, -128, 127)
CV_DEQUANTIZED(int32, int32_t)

#endif
