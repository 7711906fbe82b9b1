/* Elementary functions of cv_vec, without branches and without tables.
 *
 *   function           largest error     at the edges
 *   cv_exp             1.5 ulp           inf past the range; 0 below 1.7e-38, before results get denormal
 *   cv_exp2            2.5 ulp           0 at -127; for -127 <= x < 128 only
 *   cv_expm1_negative  1.5 ulp, x <= 0   -1 at -inf
 *   cv_log             1.5 ulp           -inf at 0, NaN below, denormal arguments count
 *   cv_tanh            3 ulp             +-1
 *   cv_sigmoid         3 ulp             1; 0 once exp(-x) is inf, where the result would be denormal
 *   cv_silu            3 ulp             NaN at -inf, as -inf * 0 is; 0 where cv_sigmoid is
 *   cv_erf             2 ulp             +-1
 *   cv_tail            1e-7, absolute    0 from 6 on; for x >= 0 only
 *   cv_pow             1 ulp             every special case of C's powf
 *   cv_rsqrt           1.5 ulp           inf at 0, NaN below
 *   cv_sin, cv_cos     1e-7, absolute    NaN at inf; 2 ulp of sin near 0
 *   cv_atan            2 ulp             +-pi/2
 *
 * NaN in, NaN out.  tests/test_math.c measures these figures.  The polynomials are minimax fits of ours
 * (Lawson's iteration on Chebyshev nodes), each good to 2e-8 of its function at worst, those of cv_exp2,
 * cv_logistic and cv_tail to 1e-7.
 */
#ifndef CONVOY_SIMD_MATH_H_
#define CONVOY_SIMD_MATH_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "simd/simd.h"

/* sign x = n ln 2 + sign r with |r| <= ln(2)/2, sign = 1 or -1: returns r, and 2^(n + bias - 127) in
 * *scale for 0 <= n + bias <= 255 (0 and inf at these ends).  Added to 1.5 2^23, x / ln 2 rounds to an
 * integer in the low bits of the sum. */
CV_INLINE cv_vec cv_exp_reduce(cv_vec x, const float sign, int bias, cv_vec *scale) {
  const cv_vec shift = cv_set1(12582912.0f + (float)bias);
  const cv_vec shifted = cv_fma(x, cv_set1(sign * 0x1.715476p0f), shift);
  const cv_vec n = cv_sub(shifted, shift);
  *scale = cv_as_float(cv_int_shl(cv_as_int(shifted), 23));
  /* The first part of ln 2 has 15 bits: its product with n is exact. */
  return cv_fnma(n, cv_set1(sign * 1.42860677e-6f), cv_fnma(n, cv_set1(sign * 0x1.62e4p-1f), x));
}

/* As 2 exp(r) 2^(n - 1): n - 1 leaves the range of exponents only where the result overflows anyway. */
CV_INLINE cv_vec cv_exp(cv_vec x) {
  cv_vec scale;
  const cv_vec r = cv_exp_reduce(cv_min(cv_set1(89.0f), cv_max(cv_set1(-87.5f), x)), 1.0f, 126, &scale);
  cv_vec p = cv_set1(2 * 0.001394647f);
  p = cv_fma(p, r, cv_set1(2 * 0.008366598f));
  p = cv_fma(p, r, cv_set1(2 * 0.04166628f));
  p = cv_fma(p, r, cv_set1(2 * 0.16666543f));
  p = cv_fma(p, r, cv_set1(2 * 0.5f));
  p = cv_fma(p, r, cv_set1(2.0f));
  return cv_mul(cv_fma(p, r, cv_set1(2.0f)), scale);
}

/* 2^x = 2^n 2^r with |r| <= 1/2. */
CV_INLINE cv_vec cv_exp2(cv_vec x) {
  const cv_vec shift = cv_set1(12582912.0f + 127.0f), shifted = cv_add(x, shift);
  const cv_vec r = cv_sub(x, cv_sub(shifted, shift));
  cv_vec p = cv_set1(0.0013264727f);
  p = cv_fma(p, r, cv_set1(0.009671513f));
  p = cv_fma(p, r, cv_set1(0.055507336f));
  p = cv_fma(p, r, cv_set1(0.24022242f));
  p = cv_fma(p, r, cv_set1(0.693147f));
  return cv_mul(cv_fma(p, r, cv_set1(1.0f)), cv_as_float(cv_int_shl(cv_as_int(shifted), 23)));
}

/* exp(x) - 1 for x <= 0, without cancellation: (exp(r) - 1) 2^n + (2^n - 1). */
CV_INLINE cv_vec cv_expm1_negative(cv_vec x) {
  cv_vec scale;
  const cv_vec r = cv_exp_reduce(cv_max(cv_set1(-87.0f), x), 1.0f, 127, &scale);
  cv_vec p = cv_set1(0.001394647f);
  p = cv_fma(p, r, cv_set1(0.008366598f));
  p = cv_fma(p, r, cv_set1(0.04166628f));
  p = cv_fma(p, r, cv_set1(0.16666543f));
  p = cv_fma(p, r, cv_set1(0.5f));
  return cv_fma(scale, cv_fma(cv_mul(r, r), p, r), cv_sub(scale, cv_set1(1.0f)));
}

CV_INLINE cv_vec cv_log(cv_vec x) {
  const cv_mask tiny = cv_lt(x, cv_set1(0x1p-126f));
  const cv_vec normal = cv_select(tiny, cv_mul(x, cv_set1(0x1p25f)), x);
  /* x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2) */
  const int32_t sqrt_half = 0x3f3504f3;
  const cv_int bits = cv_int_add(cv_as_int(normal), cv_int_set1((127 << 23) - sqrt_half));
  const cv_vec bias = cv_select(tiny, cv_set1(127.0f + 25.0f), cv_set1(127.0f));
  const cv_vec k = cv_sub(cv_from_int(cv_int_shr(bits, 23)), bias);
  const cv_int mantissa = cv_int_and(bits, cv_int_set1(0x7fffff));
  const cv_vec f = cv_sub(cv_as_float(cv_int_add(mantissa, cv_int_set1(sqrt_half))), cv_set1(1.0f));
  cv_vec p = cv_set1(-0.078653775f);
  p = cv_fma(p, f, cv_set1(0.12879173f));
  p = cv_fma(p, f, cv_set1(-0.1312531f));
  p = cv_fma(p, f, cv_set1(0.14181425f));
  p = cv_fma(p, f, cv_set1(-0.16624969f));
  p = cv_fma(p, f, cv_set1(0.20002282f));
  p = cv_fma(p, f, cv_set1(-0.25000796f));
  p = cv_fma(p, f, cv_set1(0.33333316f));
  const cv_vec square = cv_mul(f, f);
  p = cv_fma(k, cv_set1(1.42860677e-6f), cv_mul(cv_mul(square, f), p));
  p = cv_add(f, cv_fnma(square, cv_set1(0.5f), p));
  p = cv_fma(k, cv_set1(0x1.62e4p-1f), p);
  p = cv_select(cv_eq(x, cv_set1(INFINITY)), x, p);
  p = cv_select(cv_eq(x, cv_zero()), cv_set1(-INFINITY), p);
  return cv_select(cv_le(cv_zero(), x), p, cv_set1(NAN));
}

/* log(1 + x) for 0 <= x <= 1: the rounding of 1 + x is put back. */
CV_INLINE cv_vec cv_log1p_unit(cv_vec x) {
  const cv_vec u = cv_add(x, cv_set1(1.0f));
  return cv_add(cv_log(u), cv_div(cv_sub(x, cv_sub(u, cv_set1(1.0f))), u));
}

CV_INLINE cv_vec cv_copy_sign(cv_vec magnitude, cv_vec sign) {
  return cv_as_float(
      cv_int_or(cv_as_int(cv_abs(magnitude)), cv_int_and(cv_as_int(sign), cv_int_set1(INT32_MIN))));
}

/* With e = exp(-2|x|) - 1: tanh |x| = -e / (e + 2). */
CV_INLINE cv_vec cv_tanh(cv_vec x) {
  const cv_vec e = cv_expm1_negative(cv_mul(cv_abs(x), cv_set1(-2.0f)));
  return cv_copy_sign(cv_div(e, cv_add(e, cv_set1(2.0f))), x);
}

/* 1 + exp(-x), inf where exp(-x) is above 2.4e38. */
CV_INLINE cv_vec cv_logistic(cv_vec x) {
  cv_vec scale;
  const cv_vec bounded = cv_min(cv_set1(87.5f), cv_max(cv_set1(-89.0f), x));
  const cv_vec r = cv_exp_reduce(bounded, -1.0f, 127, &scale);
  cv_vec p = cv_set1(-0.0082903146f);
  p = cv_fma(p, r, cv_set1(0.041897931f));
  p = cv_fma(p, r, cv_set1(-0.16667636f));
  p = cv_fma(p, r, cv_set1(0.49999149f));
  p = cv_fma(p, r, cv_set1(-0.99999974f));
  p = cv_fma(p, r, cv_set1(1.0f));
  return cv_fma(p, scale, cv_set1(1.0f));
}

CV_INLINE cv_vec cv_sigmoid(cv_vec x) { return cv_div(cv_set1(1.0f), cv_logistic(x)); }

/* x sigmoid(x) */
CV_INLINE cv_vec cv_silu(cv_vec x) { return cv_div(x, cv_logistic(x)); }

/* x + x S(x^2) up to 1, then 1 - exp(T(x)) with T fitted to log(erfc(x)). */
CV_INLINE cv_vec cv_erf(cv_vec x) {
  const cv_vec a = cv_min(cv_set1(4.0f), cv_abs(x)), square = cv_mul(a, a);
  cv_vec s = cv_set1(7.889119e-5f);
  s = cv_fma(s, square, cv_set1(-0.0008020841f));
  s = cv_fma(s, square, cv_set1(0.005189535f));
  s = cv_fma(s, square, cv_set1(-0.026854444f));
  s = cv_fma(s, square, cv_set1(0.112836f));
  s = cv_fma(s, square, cv_set1(-0.37612626f));
  s = cv_fma(s, square, cv_set1(0.12837917f));
  const cv_vec small = cv_fma(a, s, a);
  cv_vec t = cv_set1(0.00018638009f);
  t = cv_fma(t, a, cv_set1(-0.0029476667f));
  t = cv_fma(t, a, cv_set1(0.021838097f));
  t = cv_fma(t, a, cv_set1(-0.10310682f));
  t = cv_fma(t, a, cv_set1(-0.63814473f));
  t = cv_fma(t, a, cv_set1(-1.1270893f));
  t = cv_fma(t, a, cv_set1(-0.00034151258f));
  const cv_vec large = cv_sub(cv_set1(1.0f), cv_exp(t));
  return cv_copy_sign(cv_select(cv_lt(cv_set1(1.0f), a), large, small), x);
}

/* How likely a normal variable is above x: 2^T(x), T fitted to the logarithm of erfc(x / sqrt(2)) / 2. */
CV_INLINE cv_vec cv_tail(cv_vec x) {
  const cv_vec end = cv_set1(6.0f), a = cv_min(end, x);
  cv_vec t = cv_set1(-1.7166638e-6f);
  t = cv_fma(t, a, cv_set1(2.6763375e-5f));
  t = cv_fma(t, a, cv_set1(-0.00013039757f));
  t = cv_fma(t, a, cv_set1(-0.0002602951f));
  t = cv_fma(t, a, cv_set1(0.0072074994f));
  t = cv_fma(t, a, cv_set1(-0.05258222f));
  t = cv_fma(t, a, cv_set1(-0.45918503f));
  t = cv_fma(t, a, cv_set1(-1.1511072f));
  return cv_select(cv_le(end, x), cv_zero(), cv_exp2(cv_fma(t, a, cv_set1(-1.0f))));
}

/* 2/pi after the point, behind 32 bits of zeros. */
static const uint32_t cv_turn_bits[] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                        0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};

/* x = q pi/2 + r of any finite x of at least 2^8, exact to 70 bits behind the point of x 2/pi: with x = m
 * 2^(e - 23), 96 bits of 2/pi after those that make whole turns with m, times m.  NaN for infinities. */
static __attribute__((noinline, cold, unused)) float cv_huge_angle(float x, uint32_t *quarters) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  const int exponent = (int)(bits >> 23 & 0xff) - 127, first = exponent - 25 + 32;
  *quarters = 0;
  if (exponent == 128) return NAN;
  uint32_t part[3];
  for (int i = 0; i < 3; i++) {
    const uint32_t *word = cv_turn_bits + first / 32 + i;
    part[i] = (uint32_t)(((uint64_t)word[0] << 32 | word[1]) >> (32 - first % 32));
  }
  unsigned __int128 turns = (unsigned __int128)part[0] << 64 | (uint64_t)part[1] << 32 | part[2];
  turns *= (bits & 0x7fffff) | 0x800000;
  turns <<= 32; /* by 2^126: a quarter is 2^126 */
  const unsigned __int128 half = (unsigned __int128)1 << 125;
  const uint32_t nearest = (uint32_t)((turns + half) >> 126);
  const double rest = (double)(__int128)(turns - ((unsigned __int128)nearest << 126));
  const float r = (float)(rest * 0x1p-126 * 1.5707963267948966);
  *quarters = bits >> 31 ? -nearest : nearest;
  return bits >> 31 ? -r : r;
}

/* Up to here the number of quarters has 16 bits. */
#define CV_FAR_ANGLE 102900.0f

/* x = q pi/2 + r with |r| <= pi/4, but for rounding: returns r, and q in the low bits of *quarters.  The
 * parts of pi/2 have so few bits that their products with q are exact, up to 2^16. */
CV_INLINE cv_vec cv_angle(cv_vec x, cv_int *quarters) {
  const cv_vec most = cv_set1(CV_FAR_ANGLE), shift = cv_set1(12582912.0f);
  const cv_vec shifted = cv_fma(x, cv_set1(0.63661975f), shift), q = cv_sub(shifted, shift);
  cv_vec r = cv_fnma(q, cv_set1(0x1.92p0f), x);
  r = cv_fnma(q, cv_set1(0x1.fcp-12f), r);
  r = cv_fnma(q, cv_set1(-0x1.57p-21f), r);
  r = cv_fnma(q, cv_set1(-0x1.de973ep-31f), r);
  *quarters = cv_as_int(shifted);
  if (!cv_any(cv_lt(most, cv_abs(x)))) return r;
  float at[CV_LANES], left[CV_LANES];
  uint32_t turned[CV_LANES];
  cv_storeu(at, x);
  cv_storeu(left, r);
  cv_storeu((float *)(void *)turned, shifted);
  for (int i = 0; i < CV_LANES; i++)
    if (fabsf(at[i]) > CV_FAR_ANGLE) left[i] = cv_huge_angle(at[i], &turned[i]);
  *quarters = cv_as_int(cv_loadu((const float *)(const void *)turned));
  return cv_loadu(left);
}

/* The sine of a quarter turn more or less, and so the cosine. */
CV_INLINE cv_vec cv_sine_of(cv_vec r, cv_int quarters) {
  const cv_vec z = cv_mul(r, r);
  cv_vec s = cv_set1(-0.00019514085f);
  s = cv_fma(s, z, cv_set1(0.008332155f));
  s = cv_fma(s, z, cv_set1(-0.16666655f));
  const cv_vec sine = cv_fma(cv_mul(r, z), s, r);
  cv_vec c = cv_set1(2.4434845e-5f);
  c = cv_fma(c, z, cv_set1(-0.0013887337f));
  c = cv_fma(c, z, cv_set1(0.041666646f));
  const cv_vec cosine = cv_fma(cv_mul(z, z), c, cv_fnma(z, cv_set1(0.5f), cv_set1(1.0f)));
  /* 1 or -1 by a bit that becomes the sign */
  const cv_vec odd = cv_as_float(cv_int_or(cv_int_shl(quarters, 31), cv_as_int(cv_set1(1.0f))));
  const cv_int sign = cv_int_and(cv_int_shl(quarters, 30), cv_int_set1(INT32_MIN));
  return cv_as_float(cv_int_add(cv_as_int(cv_select(cv_lt(odd, cv_zero()), cosine, sine)), sign));
}

CV_INLINE cv_vec cv_sin(cv_vec x) {
  cv_int quarters;
  const cv_vec r = cv_angle(x, &quarters);
  return cv_sine_of(r, quarters);
}

CV_INLINE cv_vec cv_cos(cv_vec x) {
  cv_int quarters;
  const cv_vec r = cv_angle(x, &quarters);
  return cv_sine_of(r, cv_int_add(quarters, cv_int_set1(1)));
}

/* a + a^3 A(a^2) with a = |x| up to 1, else pi/2 less the same of 1 / |x|. */
CV_INLINE cv_vec cv_atan(cv_vec x) {
  const cv_vec one = cv_set1(1.0f), magnitude = cv_abs(x);
  const cv_mask large = cv_lt(one, magnitude);
  const cv_vec a = cv_select(large, cv_div(one, magnitude), magnitude), z = cv_mul(a, a);
  cv_vec p = cv_set1(0.0029745866f);
  p = cv_fma(p, z, cv_set1(-0.016581169f));
  p = cv_fma(p, z, cv_set1(0.043553515f));
  p = cv_fma(p, z, cv_set1(-0.07580576f));
  p = cv_fma(p, z, cv_set1(0.10678939f));
  p = cv_fma(p, z, cv_set1(-0.1421421f));
  p = cv_fma(p, z, cv_set1(0.19994137f));
  p = cv_fma(p, z, cv_set1(-0.33333167f));
  const cv_vec angle = cv_fma(cv_mul(a, z), p, a);
  const cv_vec rest = cv_add(cv_sub(cv_set1(1.57079637f), angle), cv_set1(-4.371139e-8f));
  return cv_copy_sign(cv_select(large, rest, angle), x);
}

CV_INLINE cv_vec cv_rsqrt(cv_vec x) { return cv_div(cv_set1(1.0f), cv_sqrt(x)); }

/* Half the lanes in double precision, only inside cv_pow: no vocabulary, as the compiler knows these. */
typedef double cv_wide __attribute__((vector_size(4 * CV_LANES)));
typedef int64_t cv_wide_int __attribute__((vector_size(4 * CV_LANES)));
typedef float cv_narrow __attribute__((vector_size(2 * CV_LANES)));

#define CV_TWO_OVER_LN2 2.8853900817779268
#define CV_WIDE_SELECT(mask, t, f) ((cv_wide)(((mask) & (cv_wide_int)(t)) | (~(mask) & (cv_wide_int)(f))))

/* 2^(y log2 x) of x from 0 on, in double, where float's exponent range has no edges. */
CV_INLINE cv_narrow cv_pow_magnitude(cv_narrow x, cv_narrow y) {
  const cv_wide zero = {0}, base = __builtin_convertvector(x, cv_wide);
  /* x = 2^k m, sqrt(1/2) <= m < sqrt(2); log2 m = 2/ln 2 atanh(g), g = (m - 1) / (m + 1) */
  const int64_t sqrt_half = 0x3fe6a09e667f3bcd;
  const cv_wide_int offset = (cv_wide_int)base - sqrt_half;
  const cv_wide m = (cv_wide)((offset & 0xfffffffffffff) + sqrt_half);
  const cv_wide g = (m - 1.0) / (m + 1.0), s = g * g, s2 = s * s;
  /* both series in pairs: a sum by Horner waits for each of its terms */
  const cv_wide low = (s * (CV_TWO_OVER_LN2 / 3) + CV_TWO_OVER_LN2) +
                      s2 * (s * (CV_TWO_OVER_LN2 / 7) + CV_TWO_OVER_LN2 / 5);
  const cv_wide high = (s * (CV_TWO_OVER_LN2 / 11) + CV_TWO_OVER_LN2 / 9) + s2 * (CV_TWO_OVER_LN2 / 13);
  cv_wide log2 = g * (low + s2 * s2 * high) + __builtin_convertvector(offset >> 52, cv_wide);
  log2 = CV_WIDE_SELECT(base == 0.0, zero - (double)INFINITY, log2);
  log2 = CV_WIDE_SELECT(base == (double)INFINITY, base, log2);

  cv_wide p = __builtin_convertvector(y, cv_wide) * log2;
  p = CV_WIDE_SELECT(p > 200.0, zero + 200.0, p);
  p = CV_WIDE_SELECT(p < -200.0, zero - 200.0, p);
  const cv_wide shifted = p + 0x1.8p52; /* the low bits of this are p rounded to an integer */
  const cv_wide r = (p - (shifted - 0x1.8p52)) * 0.69314718055994531, r2 = r * r;
  const cv_wide e0 = (r + 1.0) + r2 * (r * (1.0 / 6) + 0.5);
  const cv_wide e1 = (r * (1.0 / 120) + 1.0 / 24) + r2 * (r * (1.0 / 5040) + 1.0 / 720);
  const cv_wide e = (e0 + r2 * r2 * (e1 + r2 * r2 * (1.0 / 40320)));
  const cv_wide_int exponent = (((cv_wide_int)shifted & 0x7ff) + 1023) & 0x7ff;
  return __builtin_convertvector(e * (cv_wide)(exponent << 52), cv_narrow);
}

CV_INLINE cv_vec cv_pow(cv_vec x, cv_vec y) {
  if (!cv_any(cv_mask_not(cv_eq(y, cv_set1(2.0f))))) return cv_mul(x, x); /* most powers are squares */
  const cv_vec one = cv_set1(1.0f), infinity = cv_set1(INFINITY), magnitude = cv_abs(x);
  union {
    cv_vec whole;
    cv_narrow half[2];
  } of = {magnitude}, by = {y}, made;
  made.half[0] = cv_pow_magnitude(of.half[0], by.half[0]);
  made.half[1] = cv_pow_magnitude(of.half[1], by.half[1]);
  cv_vec v = made.whole;
  const cv_mask whole = cv_eq(cv_floor(y), y);
  const cv_vec half = cv_mul(y, cv_set1(0.5f));
  const cv_mask odd = cv_mask_and(whole, cv_mask_not(cv_eq(cv_floor(half), half)));
  v = cv_select(odd, cv_copy_sign(v, x), v);
  const cv_mask negative = cv_mask_and(cv_lt(x, cv_zero()), cv_lt(magnitude, infinity));
  v = cv_select(cv_mask_and(negative, cv_mask_not(whole)), cv_set1(NAN), v);
  v = cv_select(cv_unordered(x, y), cv_set1(NAN), v);
  const cv_mask unit = cv_mask_and(cv_eq(magnitude, one), cv_eq(cv_abs(y), infinity));
  v = cv_select(cv_mask_or(unit, cv_eq(x, one)), one, v);
  return cv_select(cv_eq(y, cv_zero()), one, v);
}

#endif
