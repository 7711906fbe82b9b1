/* Between a byte and the number it stands for.
 *
 *   byte q stands for     (q - zero) * scale
 *   number v becomes      round(v / scale) + zero, halves to even, held in the range; a NaN the least byte
 *
 * Every operation rounds by itself (cv_hold keeps a compiler from fusing two), and v is divided: so the
 * bytes are those of the definition in float, on every instruction set.
 */
#ifndef CONVOY_KERNELS_QUANTIZE_H_
#define CONVOY_KERNELS_QUANTIZE_H_

#include "simd/simd.h"

/* What a byte stands for. */
typedef struct cv_scale {
  float scale;
  int zero, low, high; /* low is -128 of signed bytes, else 0 */
} cv_scale;

/* The integers of bytes, signed where low is -128; `q` as cv_load_bytes gives it. */
CV_INLINE cv_int cv_byte_value(cv_int q, int low) {
  const cv_int from = cv_int_set1(low);
  return low < 0 ? cv_int_add(cv_int_and(cv_int_sub(q, from), cv_int_set1(255)), from) : q;
}

CV_INLINE cv_vec cv_dequantize(cv_int q, cv_scale s) {
  const cv_int steps = cv_int_sub(cv_byte_value(q, s.low), cv_int_set1(s.zero));
  return cv_hold(cv_mul(cv_from_int(steps), cv_set1(s.scale)));
}

/* As cv_store_bytes takes it. */
CV_INLINE cv_int cv_quantize(cv_vec v, cv_scale s) {
  const cv_vec least = cv_set1((float)(s.low - s.zero)), most = cv_set1((float)(s.high - s.zero));
  const cv_vec steps = cv_max(cv_div(v, cv_set1(s.scale)), least);
  return cv_int_add(cv_to_int(cv_min(steps, most)), cv_int_set1(s.zero));
}

/* How many steps a byte is from its zero point, as a number. */
CV_INLINE cv_vec cv_dequantize_steps(cv_vec steps, float scale) {
  return cv_hold(cv_mul(steps, cv_set1(scale)));
}

/* The same with the inverse of the scale, as sums are quantised (kernels/requantize.h): where v is within
 * two roundings of a tie, the other neighbour.  low and high are less zero. */
CV_INLINE cv_int cv_quantize_by(cv_vec v, float inverse, float low, float high, int zero) {
  const cv_vec steps = cv_max(cv_hold(cv_mul(v, cv_set1(inverse))), cv_set1(low));
  return cv_int_add(cv_to_int(cv_min(steps, cv_set1(high))), cv_int_set1(zero));
}

#endif
