/* Between a byte and the number it stands for.
 *
 *   byte q stands for     (q - zero) * scale
 *   number v becomes      round(v / scale) + zero, halves to even, held in the range; a NaN the least byte
 *
 * Every operation rounds by itself (cv_hold keeps a compiler from fusing two), and v / scale is exactly the
 * rounded quotient: so the bytes are those of the definition in float, on every instruction set.
 */
#ifndef CONVOY_KERNELS_QUANTIZE_H_
#define CONVOY_KERNELS_QUANTIZE_H_

#include <math.h>

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

/* 1 / d for cv_quotient; NaN where products are not sure to be exact. */
CV_INLINE cv_vec cv_inverse(cv_vec d) {
  const cv_vec size = cv_abs(d);
  const cv_mask fits = cv_mask_and(cv_lt(cv_set1(0x1p-60f), size), cv_lt(size, cv_set1(0x1p60f)));
  return cv_select(fits, cv_div(cv_set1(1.0f), d), cv_set1(NAN));
}

/* x / d, of which only is read what it is rounded to: below 2^-40 it may be another number, 0 without its
 * sign.  A division takes five times as long as products.  Of a quotient within a unit of its last place
 * the remainder is exact, and what it adds rounds to the quotient (Markstein, 1990); the first is within
 * two. */
CV_INLINE cv_vec cv_quotient(cv_vec x, cv_vec d, cv_vec inverse) {
  if (!CV_FUSES) return cv_div(x, d);
  cv_vec q = cv_mul(x, inverse);
  q = cv_fma(cv_fnma(q, d, x), inverse, q);
  q = cv_fma(cv_fnma(q, d, x), inverse, q);
  if (__builtin_expect(cv_any(cv_unordered(q, q)), 0)) return cv_div(x, d); /* of infinities, too */
  return q;
}

/* As cv_store_bytes takes it. */
CV_INLINE cv_int cv_quantize(cv_vec v, cv_scale s) {
  const cv_vec least = cv_set1((float)(s.low - s.zero)), most = cv_set1((float)(s.high - s.zero));
  const cv_vec scale = cv_set1(s.scale);
  const cv_vec steps = cv_max(cv_quotient(v, scale, cv_inverse(scale)), least);
  return cv_int_add(cv_to_int(cv_min(steps, most)), cv_int_set1(s.zero));
}

/* A scale and zero point that a run computes, in all lanes, with what is made of them once. */
typedef struct cv_computed_scale {
  cv_vec scale, inverse, low, high;
  cv_int zero;
} cv_computed_scale;

/* `zero` is whole, and low and high the least and the greatest byte. */
CV_INLINE cv_computed_scale cv_computed_scale_of(cv_vec scale, cv_vec zero, float low, float high) {
  const cv_vec least = cv_sub(cv_set1(low), zero), most = cv_sub(cv_set1(high), zero);
  return (cv_computed_scale){scale, cv_inverse(scale), least, most, cv_to_int(zero)};
}

/* As cv_quantize. */
CV_INLINE cv_int cv_quantize_computed(cv_vec v, cv_computed_scale s) {
  const cv_vec steps = cv_max(cv_quotient(v, s.scale, s.inverse), s.low);
  return cv_int_add(cv_to_int(cv_min(steps, s.high)), s.zero);
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
