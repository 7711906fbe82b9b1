/* simd.h in the vector extensions of GCC and Clang: 4 lanes, any machine. */
#ifndef CONVOY_SIMD_PORTABLE_H_
#define CONVOY_SIMD_PORTABLE_H_

#include <string.h>

#define CV_LANES 4
#define CV_REGISTERS 16
#define CV_FUSES 0
#define CV_ASKS_EACH_CHANNEL 0
#define CV_ASK_EVERY 4
#define CV_ISA "portable"

typedef float cv_vec __attribute__((vector_size(16)));
typedef int32_t cv_int __attribute__((vector_size(16)));
typedef uint16_t cv_shorts __attribute__((vector_size(16)));
typedef cv_int cv_mask; /* -1 or 0 */

CV_INLINE cv_vec cv_set1(float f) { return (cv_vec){f, f, f, f}; }
CV_INLINE cv_vec cv_zero(void) { return cv_set1(0.0f); }
CV_INLINE cv_vec cv_load1(const float *p) { return cv_set1(*p); }
CV_INLINE cv_vec cv_load(const float *p) { return *(const cv_vec *)p; }
CV_INLINE cv_vec cv_hold(cv_vec v) { return v; }
CV_INLINE void cv_store(float *p, cv_vec v) { *(cv_vec *)p = v; }
CV_INLINE cv_vec cv_loadu(const float *p) {
  cv_vec v;
  memcpy(&v, p, sizeof v);
  return v;
}
CV_INLINE void cv_storeu(float *p, cv_vec v) { memcpy(p, &v, sizeof v); }
CV_INLINE cv_vec cv_load_n_or(const float *p, int n, float fill) {
  return (cv_vec){n > 0 ? p[0] : fill, n > 1 ? p[1] : fill, n > 2 ? p[2] : fill, n > 3 ? p[3] : fill};
}
CV_INLINE cv_vec cv_load_n(const float *p, int n) { return cv_load_n_or(p, n, 0.0f); }
CV_INLINE void cv_store_n(float *p, cv_vec v, int n) {
  for (int i = 0; i < n; i++) p[i] = v[i];
}

CV_INLINE cv_int cv_as_int(cv_vec v) { return (cv_int)v; }
CV_INLINE cv_vec cv_as_float(cv_int i) { return (cv_vec)i; }
CV_INLINE cv_int cv_int_set1(int32_t n) { return (cv_int){n, n, n, n}; }
/* Through unsigned: a signed overflow wraps, as it does in the other instruction sets. */
typedef uint32_t cv_uint __attribute__((vector_size(16)));
CV_INLINE cv_int cv_int_add(cv_int a, cv_int b) { return (cv_int)((cv_uint)a + (cv_uint)b); }
CV_INLINE cv_int cv_int_sub(cv_int a, cv_int b) { return (cv_int)((cv_uint)a - (cv_uint)b); }
CV_INLINE cv_int cv_int_mul(cv_int a, cv_int b) { return (cv_int)((cv_uint)a * (cv_uint)b); }
CV_INLINE cv_int cv_int_and(cv_int a, cv_int b) { return a & b; }
CV_INLINE cv_int cv_int_or(cv_int a, cv_int b) { return a | b; }
CV_INLINE cv_int cv_int_shl(cv_int i, int n) { return (cv_int)((cv_uint)i << (uint32_t)n); }
CV_INLINE cv_int cv_int_shr(cv_int i, int n) { return (cv_int)((cv_uint)i >> (uint32_t)n); }

CV_INLINE cv_mask cv_lt(cv_vec a, cv_vec b) { return (cv_mask)(a < b); }
CV_INLINE cv_mask cv_le(cv_vec a, cv_vec b) { return (cv_mask)(a <= b); }
CV_INLINE cv_mask cv_eq(cv_vec a, cv_vec b) { return (cv_mask)(a == b); }
CV_INLINE cv_mask cv_unordered(cv_vec a, cv_vec b) { return (cv_mask)(a != a) | (cv_mask)(b != b); }
CV_INLINE cv_vec cv_select(cv_mask m, cv_vec t, cv_vec f) {
  return (cv_vec)((m & (cv_int)t) | (~m & (cv_int)f));
}
CV_INLINE cv_mask cv_mask_and(cv_mask a, cv_mask b) { return a & b; }
CV_INLINE cv_vec cv_load_where(cv_mask m, const float *p, cv_int i) {
  cv_vec v = cv_zero();
  for (int l = 0; l < CV_LANES; l++)
    if (m[l]) v[l] = p[i[l]];
  return v;
}
CV_INLINE cv_mask cv_mask_or(cv_mask a, cv_mask b) { return a | b; }
CV_INLINE cv_mask cv_mask_not(cv_mask a) { return ~a; }
CV_INLINE int cv_any(cv_mask a) { return (a[0] | a[1] | a[2] | a[3]) != 0; }

CV_INLINE cv_vec cv_add(cv_vec a, cv_vec b) { return a + b; }
CV_INLINE cv_vec cv_sub(cv_vec a, cv_vec b) { return a - b; }
CV_INLINE cv_vec cv_mul(cv_vec a, cv_vec b) { return a * b; }
CV_INLINE cv_vec cv_div(cv_vec a, cv_vec b) { return a / b; }
CV_INLINE cv_vec cv_fma(cv_vec a, cv_vec b, cv_vec c) { return a * b + c; }
CV_INLINE cv_vec cv_fma_sum(cv_vec a, cv_vec b, cv_vec c) { return cv_fma(a, b, c); }
CV_INLINE cv_vec cv_fnma(cv_vec a, cv_vec b, cv_vec c) { return c - a * b; }
CV_INLINE cv_vec cv_abs(cv_vec v) { return (cv_vec)((cv_int)v & cv_int_set1(0x7fffffff)); }
CV_INLINE cv_vec cv_neg(cv_vec v) { return -v; }

#if defined(__SSE2__)
#include <emmintrin.h>
CV_INLINE cv_vec cv_min(cv_vec a, cv_vec b) { return _mm_min_ps(a, b); }
CV_INLINE cv_vec cv_max(cv_vec a, cv_vec b) { return _mm_max_ps(a, b); }
CV_INLINE cv_vec cv_sqrt(cv_vec v) { return _mm_sqrt_ps(v); }
#else
CV_INLINE cv_vec cv_min(cv_vec a, cv_vec b) { return cv_select(a < b, a, b); }
CV_INLINE cv_vec cv_max(cv_vec a, cv_vec b) { return cv_select(a > b, a, b); }
CV_INLINE cv_vec cv_sqrt(cv_vec v) {
  for (int i = 0; i < CV_LANES; i++) v[i] = __builtin_sqrtf(v[i]);
  return v;
}
#endif

/* Adding and subtracting 2^23 drops the fraction; the sign is put back for the sake of -0. */
CV_INLINE cv_vec cv_round(cv_vec v) {
  const cv_int sign = (cv_int)v & cv_int_set1(INT32_MIN);
  const cv_vec big = (cv_vec)(sign | (cv_int)cv_set1(8388608.0f));
  const cv_vec rounded = (cv_vec)((cv_int)((v + big) - big) | sign);
  return cv_select(cv_lt(cv_abs(v), cv_set1(8388608.0f)), rounded, v);
}
CV_INLINE cv_vec cv_floor(cv_vec v) {
  const cv_vec r = cv_round(v);
  return r - (cv_vec)((cv_int)(r > v) & (cv_int)cv_set1(1.0f));
}
CV_INLINE cv_vec cv_ceil(cv_vec v) { return -cv_floor(-v); }

#if defined(__SSE2__)
CV_INLINE cv_int cv_to_int(cv_vec v) { return (cv_int)_mm_cvtps_epi32(v); }
CV_INLINE cv_vec cv_from_int(cv_int i) { return _mm_cvtepi32_ps((__m128i)i); }
#else
CV_INLINE cv_int cv_to_int(cv_vec v) {
  const cv_vec r = cv_max(cv_set1(-2147483648.0f), cv_round(v));
  return (cv_int){(int32_t)r[0], (int32_t)r[1], (int32_t)r[2], (int32_t)r[3]};
}
CV_INLINE cv_vec cv_from_int(cv_int i) {
  return (cv_vec){(float)i[0], (float)i[1], (float)i[2], (float)i[3]};
}
#endif

#define CV_DOT_PARTS 2
#if defined(__SSE2__)
CV_INLINE cv_int cv_dot_part(cv_int x, const int part) {
  const __m128i cells = (__m128i)x;
  return (cv_int)(part ? _mm_srli_epi16(cells, 8) : _mm_and_si128(cells, _mm_set1_epi16(0xff)));
}
CV_INLINE cv_int cv_dot(cv_int i, cv_int x, cv_int w) {
  return cv_int_add(i, (cv_int)_mm_madd_epi16((__m128i)x, (__m128i)w));
}
#else
CV_INLINE cv_int cv_dot_part(cv_int x, const int part) {
  uint8_t cells[16];
  uint16_t found[8];
  memcpy(cells, &x, sizeof cells);
  for (int k = 0; k < 8; k++) found[k] = cells[2 * k + part];
  memcpy(&x, found, sizeof x);
  return x;
}
CV_INLINE cv_int cv_dot(cv_int i, cv_int x, cv_int w) {
  int16_t a[8], b[8];
  memcpy(a, &x, sizeof a);
  memcpy(b, &w, sizeof b);
  for (int k = 0; k < 8; k++) i[k / 2] += a[k] * b[k];
  return i;
}
#endif
CV_INLINE cv_int cv_dot_shorts(cv_int i, cv_int x, cv_int w) {
  return cv_int_add(i, cv_dot(cv_int_set1(0), x, w));
}
CV_INLINE cv_shorts cv_load_shorts(const uint8_t *p, const uint8_t *q) {
  return (cv_shorts){p[0], p[1], p[2], p[3], q[0], q[1], q[2], q[3]};
}
CV_INLINE cv_shorts cv_load_signed_shorts(const int8_t *p) {
  cv_shorts s = {0};
  for (int i = 0; i < 2 * CV_LANES; i++) s[i] = (uint16_t)p[i];
  return s;
}

CV_INLINE float cv_reduce_add(cv_vec v) { return (v[0] + v[1]) + (v[2] + v[3]); }
CV_INLINE float cv_reduce_max(cv_vec v) {
  const float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
  return a > b ? a : b;
}

CV_INLINE cv_int cv_load_signed_bytes(const int8_t *p) { return (cv_int){p[0], p[1], p[2], p[3]}; }
CV_INLINE cv_vec cv_nibble(cv_int i, const int n) { return cv_from_int(cv_int_shl(i, 28 - 4 * n) >> 28); }
CV_INLINE cv_int cv_load_bytes(const uint8_t *p) { return (cv_int){p[0], p[1], p[2], p[3]}; }
CV_INLINE cv_int cv_load_bytes_n(const uint8_t *p, int n) {
  return (cv_int){n > 0 ? p[0] : 0, n > 1 ? p[1] : 0, n > 2 ? p[2] : 0, n > 3 ? p[3] : 0};
}
CV_INLINE cv_int cv_load_pairs(const uint8_t *p, const uint8_t *q) {
  return cv_int_or(cv_load_bytes(p), cv_int_shl(cv_load_bytes(q), 16));
}
CV_INLINE void cv_store_bytes_n(uint8_t *p, cv_int i, int n) {
  for (int lane = 0; lane < n; lane++) p[lane] = (uint8_t)i[lane];
}
CV_INLINE void cv_store_bytes(uint8_t *p, cv_int i) { cv_store_bytes_n(p, i, CV_LANES); }

CV_INLINE cv_int cv_load_quad(const uint8_t *p, const int n) {
  cv_int q = cv_int_set1(0);
  memcpy(&q, p, (size_t)n * CV_LANES);
  return q;
}
CV_INLINE void cv_store_quad(uint8_t *p, cv_int q, const int n) { memcpy(p, &q, (size_t)n * CV_LANES); }
CV_INLINE cv_int cv_quad_by_channel(cv_int q) {
  uint8_t from[16], to[16];
  memcpy(from, &q, sizeof from);
  for (int i = 0; i < 16; i++) to[i] = from[i % 4 * 4 + i / 4];
  memcpy(&q, to, sizeof to);
  return q;
}
CV_INLINE void cv_quads_of_cells(cv_int q[1]) { (void)q; } /* four pixels of a cell are a quad */
CV_INLINE void cv_cells_of_quads(cv_int q[1]) { (void)q; }
#if defined(__SSE2__)
CV_INLINE cv_int cv_quad_of(cv_int a, cv_int b, cv_int c, cv_int d, cv_int add) {
  const __m128i pairs = _mm_packs_epi32((__m128i)add, (__m128i)add);
  const __m128i one = _mm_adds_epi16(_mm_packs_epi32((__m128i)a, (__m128i)b), pairs);
  const __m128i two = _mm_adds_epi16(_mm_packs_epi32((__m128i)c, (__m128i)d), pairs);
  return (cv_int)_mm_packus_epi16(one, two);
}
CV_INLINE cv_int cv_max_bytes(cv_int a, cv_int b) { return (cv_int)_mm_max_epu8((__m128i)a, (__m128i)b); }
#else
CV_INLINE int32_t cv_held(int32_t i, int32_t low, int32_t high) {
  return i < low ? low : i > high ? high : i;
}
CV_INLINE cv_int cv_quad_of(cv_int a, cv_int b, cv_int c, cv_int d, cv_int add) {
  const cv_int from[4] = {a, b, c, d};
  uint8_t to[16];
  for (int i = 0; i < 16; i++)
    to[i] = (uint8_t)cv_held(cv_held(from[i / 4][i % 4], -32768, 32767) + add[i % 4], 0, 255);
  cv_int q;
  memcpy(&q, to, sizeof to);
  return q;
}
CV_INLINE cv_int cv_max_bytes(cv_int a, cv_int b) {
  uint8_t x[16], y[16];
  memcpy(x, &a, sizeof x);
  memcpy(y, &b, sizeof y);
  for (int i = 0; i < 16; i++) x[i] = x[i] > y[i] ? x[i] : y[i];
  memcpy(&a, x, sizeof x);
  return a;
}
#endif
CV_INLINE cv_int cv_pick(cv_int q, cv_int i) {
  uint8_t from[16], at[16];
  memcpy(from, &q, sizeof from);
  memcpy(at, &i, sizeof at);
  for (int l = 0; l < 16; l++) at[l] = at[l] < 16 ? from[at[l]] : 0;
  memcpy(&q, at, sizeof at);
  return q;
}

typedef uint8_t cv_pixel __attribute__((vector_size(4)));
CV_INLINE cv_pixel cv_load_pixel(const uint8_t *p) {
  cv_pixel v;
  memcpy(&v, p, sizeof v);
  return v;
}
CV_INLINE void cv_store_pixel(uint8_t *p, cv_pixel v) { memcpy(p, &v, sizeof v); }
CV_INLINE cv_pixel cv_max_pixel(cv_pixel a, cv_pixel b) {
  const cv_pixel larger = (cv_pixel)(a > b);
  return (a & larger) | (b & ~larger);
}

CV_INLINE cv_vec cv_permute(cv_vec v, cv_int i) { return (cv_vec){v[i[0]], v[i[1]], v[i[2]], v[i[3]]}; }

CV_INLINE void cv_transpose(cv_vec v[CV_LANES]) {
  const cv_vec a = v[0], b = v[1], c = v[2], d = v[3];
  v[0] = (cv_vec){a[0], b[0], c[0], d[0]};
  v[1] = (cv_vec){a[1], b[1], c[1], d[1]};
  v[2] = (cv_vec){a[2], b[2], c[2], d[2]};
  v[3] = (cv_vec){a[3], b[3], c[3], d[3]};
}

#endif
