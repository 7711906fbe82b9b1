/* simd.h in AVX-512 (F, BW, DQ, VL): 16 lanes. */
#ifndef CONVOY_SIMD_AVX512_H_
#define CONVOY_SIMD_AVX512_H_

#include <immintrin.h>
#include <string.h>

#define CV_LANES 16
#define CV_REGISTERS 32
#define CV_FUSES 1
#define CV_ASKS_EACH_CHANNEL 1
#define CV_ASK_EVERY 2
#define CV_ISA "avx512"

typedef __m512 cv_vec;
typedef __m512i cv_int;
typedef uint16_t cv_shorts __attribute__((vector_size(64)));
typedef __mmask16 cv_mask;

CV_INLINE cv_vec cv_zero(void) { return _mm512_setzero_ps(); }
CV_INLINE cv_vec cv_set1(float f) { return _mm512_set1_ps(f); }
CV_INLINE cv_vec cv_load1(const float *p) {
  int bits;
  memcpy(&bits, p, sizeof bits);
  return _mm512_castsi512_ps(_mm512_set1_epi32(bits));
}
CV_INLINE cv_vec cv_load(const float *p) { return _mm512_load_ps(p); }
CV_INLINE cv_vec cv_hold(cv_vec v) {
  __asm__("" : "+v"(v));
  return v;
}
CV_INLINE cv_vec cv_loadu(const float *p) { return _mm512_loadu_ps(p); }
CV_INLINE void cv_store(float *p, cv_vec v) { _mm512_store_ps(p, v); }
CV_INLINE void cv_storeu(float *p, cv_vec v) { _mm512_storeu_ps(p, v); }
CV_INLINE cv_mask cv_first_lanes(int n) { return (cv_mask)((1u << n) - 1u); }
CV_INLINE cv_vec cv_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(cv_first_lanes(n), p); }
CV_INLINE cv_vec cv_load_n_or(const float *p, int n, float fill) {
  return _mm512_mask_loadu_ps(cv_set1(fill), cv_first_lanes(n), p);
}
CV_INLINE void cv_store_n(float *p, cv_vec v, int n) { _mm512_mask_storeu_ps(p, cv_first_lanes(n), v); }

CV_INLINE cv_vec cv_add(cv_vec a, cv_vec b) { return _mm512_add_ps(a, b); }
CV_INLINE cv_vec cv_sub(cv_vec a, cv_vec b) { return _mm512_sub_ps(a, b); }
CV_INLINE cv_vec cv_mul(cv_vec a, cv_vec b) { return _mm512_mul_ps(a, b); }
CV_INLINE cv_vec cv_div(cv_vec a, cv_vec b) { return _mm512_div_ps(a, b); }
CV_INLINE cv_vec cv_fma(cv_vec a, cv_vec b, cv_vec c) { return _mm512_fmadd_ps(a, b, c); }
CV_INLINE cv_vec cv_fma_sum(cv_vec a, cv_vec b, cv_vec c) { return cv_fma(a, b, c); }
CV_INLINE cv_vec cv_fnma(cv_vec a, cv_vec b, cv_vec c) { return _mm512_fnmadd_ps(a, b, c); }
CV_INLINE cv_vec cv_min(cv_vec a, cv_vec b) { return _mm512_min_ps(a, b); }
CV_INLINE cv_vec cv_max(cv_vec a, cv_vec b) { return _mm512_max_ps(a, b); }
CV_INLINE cv_vec cv_sqrt(cv_vec v) { return _mm512_sqrt_ps(v); }
CV_INLINE cv_vec cv_abs(cv_vec v) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), v); }
CV_INLINE cv_vec cv_neg(cv_vec v) { return _mm512_xor_ps(_mm512_set1_ps(-0.0f), v); }
CV_INLINE cv_vec cv_floor(cv_vec v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
CV_INLINE cv_vec cv_ceil(cv_vec v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
CV_INLINE cv_vec cv_round(cv_vec v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

CV_INLINE cv_mask cv_lt(cv_vec a, cv_vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
CV_INLINE cv_mask cv_le(cv_vec a, cv_vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
CV_INLINE cv_mask cv_eq(cv_vec a, cv_vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
CV_INLINE cv_mask cv_unordered(cv_vec a, cv_vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q); }
CV_INLINE cv_vec cv_select(cv_mask m, cv_vec t, cv_vec f) { return _mm512_mask_blend_ps(m, f, t); }
CV_INLINE cv_vec cv_load_where(cv_mask m, const float *p, cv_int i) {
  return _mm512_mask_i32gather_ps(cv_zero(), m, i, p, sizeof *p);
}
CV_INLINE cv_mask cv_mask_and(cv_mask a, cv_mask b) { return (cv_mask)(a & b); }
CV_INLINE cv_mask cv_mask_or(cv_mask a, cv_mask b) { return (cv_mask)(a | b); }
CV_INLINE cv_mask cv_mask_not(cv_mask a) { return (cv_mask)~a; }
CV_INLINE int cv_any(cv_mask a) { return a != 0; }

CV_INLINE float cv_reduce_add(cv_vec v) { return _mm512_reduce_add_ps(v); }
CV_INLINE float cv_reduce_max(cv_vec v) { return _mm512_reduce_max_ps(v); }

CV_INLINE cv_int cv_as_int(cv_vec v) { return _mm512_castps_si512(v); }
CV_INLINE cv_vec cv_as_float(cv_int i) { return _mm512_castsi512_ps(i); }
CV_INLINE cv_int cv_to_int(cv_vec v) { return _mm512_cvtps_epi32(v); }
CV_INLINE cv_vec cv_from_int(cv_int i) { return _mm512_cvtepi32_ps(i); }
CV_INLINE cv_int cv_int_set1(int32_t n) { return _mm512_set1_epi32(n); }
CV_INLINE cv_int cv_int_add(cv_int a, cv_int b) { return _mm512_add_epi32(a, b); }
CV_INLINE cv_int cv_int_sub(cv_int a, cv_int b) { return _mm512_sub_epi32(a, b); }
CV_INLINE cv_int cv_int_mul(cv_int a, cv_int b) { return _mm512_mullo_epi32(a, b); }
CV_INLINE cv_int cv_int_and(cv_int a, cv_int b) { return _mm512_and_si512(a, b); }
CV_INLINE cv_int cv_int_or(cv_int a, cv_int b) { return _mm512_or_si512(a, b); }
/* As the compiler's own operators, which take a constant count as an immediate. */
CV_INLINE cv_int cv_int_shl(cv_int i, int n) { return (cv_int)((__v16su)i << (uint32_t)n); }
CV_INLINE cv_int cv_int_shr(cv_int i, int n) { return (cv_int)((__v16su)i >> (uint32_t)n); }

#if defined(__AVX512VNNI__)
#define CV_DOT_PARTS 1
/* As cv_fma_sum of AVX2: GCC 12 gives sums that fill the registers new ones, and spills. */
CV_INLINE cv_int cv_dot(cv_int i, cv_int x, cv_int w) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(i) : "v"(x), "v"(w));
  return i;
}
#else
#define CV_DOT_PARTS 2
CV_INLINE cv_int cv_dot_part(cv_int x, const int part) {
  return part ? _mm512_srli_epi16(x, 8) : _mm512_and_si512(x, _mm512_set1_epi16(0xff));
}
CV_INLINE cv_int cv_dot(cv_int i, cv_int x, cv_int w) {
  return _mm512_add_epi32(i, _mm512_madd_epi16(x, w));
}
#endif
CV_INLINE cv_int cv_dot_shorts(cv_int i, cv_int x, cv_int w) {
  return _mm512_add_epi32(i, _mm512_madd_epi16(x, w));
}
CV_INLINE cv_shorts cv_load_shorts(const uint8_t *p, const uint8_t *q) {
  const __m128i low = _mm_loadu_si128((const __m128i *)p), high = _mm_loadu_si128((const __m128i *)q);
  return (cv_shorts)_mm512_cvtepu8_epi16(_mm256_set_m128i(high, low));
}
CV_INLINE cv_shorts cv_load_signed_shorts(const int8_t *p) {
  return (cv_shorts)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p));
}
CV_INLINE cv_int cv_load_signed_bytes(const int8_t *p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}
/* Its own lowest bits are all that a permutation takes of an index. */
CV_INLINE cv_vec cv_nibble(cv_int i, const int n) {
  const cv_vec each = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
  return _mm512_permutexvar_ps(cv_int_shr(i, 4 * n), each);
}
CV_INLINE cv_int cv_load_bytes(const uint8_t *p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
CV_INLINE void cv_store_bytes(uint8_t *p, cv_int i) {
  _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(i));
}
CV_INLINE cv_int cv_load_bytes_n(const uint8_t *p, int n) {
  return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(cv_first_lanes(n), p));
}
CV_INLINE void cv_store_bytes_n(uint8_t *p, cv_int i, int n) {
  _mm_mask_storeu_epi8(p, cv_first_lanes(n), _mm512_cvtepi32_epi8(i));
}

CV_INLINE cv_int cv_load_pairs(const uint8_t *p, const uint8_t *q) {
  return cv_int_or(cv_load_bytes(p), cv_int_shl(cv_load_bytes(q), 16));
}

CV_INLINE cv_int cv_load_quad(const uint8_t *p, const int n) {
  const __m128i *from = (const __m128i *)p;
  if (n == 4) return _mm512_loadu_si512(p);
  if (n == 1) return _mm512_zextsi128_si512(_mm_loadu_si128(from));
  const cv_int two = _mm512_zextsi256_si512(_mm256_loadu_si256((const __m256i *)p));
  return n == 2 ? two : _mm512_inserti32x4(two, _mm_loadu_si128(from + 2), 2);
}
/* By parts: a masked store takes longer. */
CV_INLINE void cv_store_quad(uint8_t *p, cv_int q, const int n) {
  __m128i *to = (__m128i *)p;
  if (n == 4) {
    _mm512_storeu_si512(p, q);
    return;
  }
  if (n >= 2) _mm256_storeu_si256((__m256i *)p, _mm512_castsi512_si256(q));
  if (n == 1) _mm_storeu_si128(to, _mm512_castsi512_si128(q));
  if (n == 3) _mm_storeu_si128(to + 2, _mm512_extracti32x4_epi32(q, 2));
}
/* Number 4 i + j of 16 becomes number 4 j + i. */
CV_INLINE cv_int cv_quarters(cv_int i) {
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                                  i);
}
#if defined(__AVX512VBMI__)
CV_INLINE cv_int cv_quad_by_channel(cv_int q) {
  const cv_int lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const cv_int channel = _mm512_mullo_epi32(lane, _mm512_set1_epi32(0x01010101));
  return _mm512_permutexvar_epi8(_mm512_or_si512(channel, _mm512_set1_epi32(0x30201000)), q);
}
#else
CV_INLINE cv_int cv_quad_by_channel(cv_int q) {
  const __m128i square = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_shuffle_epi8(cv_quarters(q), _mm512_broadcast_i32x4(square));
}
#endif
CV_INLINE cv_int cv_quad_of(cv_int a, cv_int b, cv_int c, cv_int d, cv_int add) {
  const cv_int pairs = _mm512_packs_epi32(add, add), one = _mm512_packs_epi32(a, b);
  const cv_int two = _mm512_packs_epi32(c, d);
  return cv_quarters(_mm512_packus_epi16(_mm512_adds_epi16(one, pairs), _mm512_adds_epi16(two, pairs)));
}
/* Transposes the 4x4 quarters of q: q[i]'s number j becomes q[j]'s number i. */
CV_INLINE void cv_exchange_quarters(cv_int q[4]) {
  const cv_int a = _mm512_shuffle_i32x4(q[0], q[1], 0x44), b = _mm512_shuffle_i32x4(q[2], q[3], 0x44);
  const cv_int c = _mm512_shuffle_i32x4(q[0], q[1], 0xee), d = _mm512_shuffle_i32x4(q[2], q[3], 0xee);
  q[0] = _mm512_shuffle_i32x4(a, b, 0x88);
  q[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
  q[2] = _mm512_shuffle_i32x4(c, d, 0x88);
  q[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}
/* Transposes the 4x4 cells of each quarter. */
CV_INLINE void cv_transpose_quarters(cv_int q[4]) {
  const cv_int a = _mm512_unpacklo_epi32(q[0], q[1]), b = _mm512_unpackhi_epi32(q[0], q[1]);
  const cv_int c = _mm512_unpacklo_epi32(q[2], q[3]), d = _mm512_unpackhi_epi32(q[2], q[3]);
  q[0] = _mm512_unpacklo_epi64(a, c);
  q[1] = _mm512_unpackhi_epi64(a, c);
  q[2] = _mm512_unpacklo_epi64(b, d);
  q[3] = _mm512_unpackhi_epi64(b, d);
}
CV_INLINE void cv_quads_of_cells(cv_int q[4]) {
  cv_transpose_quarters(q);
  cv_exchange_quarters(q);
}
CV_INLINE void cv_cells_of_quads(cv_int q[4]) {
  cv_exchange_quarters(q);
  cv_transpose_quarters(q);
}
CV_INLINE cv_int cv_max_bytes(cv_int a, cv_int b) { return _mm512_max_epu8(a, b); }
CV_INLINE cv_int cv_pick(cv_int q, cv_int i) { return _mm512_shuffle_epi8(q, i); }

typedef __m128i cv_pixel;
CV_INLINE cv_pixel cv_load_pixel(const uint8_t *p) { return _mm_loadu_si128((const __m128i *)p); }
CV_INLINE void cv_store_pixel(uint8_t *p, cv_pixel v) { _mm_storeu_si128((__m128i *)p, v); }
CV_INLINE cv_pixel cv_max_pixel(cv_pixel a, cv_pixel b) { return _mm_max_epu8(a, b); }

CV_INLINE cv_vec cv_permute(cv_vec v, cv_int i) { return _mm512_permutexvar_ps(i, v); }

/* Transposes 4x4 inside each 128-bit quarter, then the 4x4 of quarters. */
CV_INLINE void cv_transpose(cv_vec v[CV_LANES]) {
  cv_vec t[16];
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const cv_vec a = _mm512_unpacklo_ps(v[4 * i], v[4 * i + 1]);
    const cv_vec b = _mm512_unpackhi_ps(v[4 * i], v[4 * i + 1]);
    const cv_vec c = _mm512_unpacklo_ps(v[4 * i + 2], v[4 * i + 3]);
    const cv_vec d = _mm512_unpackhi_ps(v[4 * i + 2], v[4 * i + 3]);
    t[4 * i] = _mm512_shuffle_ps(a, c, 0x44);
    t[4 * i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    t[4 * i + 2] = _mm512_shuffle_ps(b, d, 0x44);
    t[4 * i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const cv_vec a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
    const cv_vec b = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
    const cv_vec c = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
    const cv_vec d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
    v[i] = _mm512_shuffle_f32x4(a, b, 0x88);
    v[i + 4] = _mm512_shuffle_f32x4(c, d, 0x88);
    v[i + 8] = _mm512_shuffle_f32x4(a, b, 0xdd);
    v[i + 12] = _mm512_shuffle_f32x4(c, d, 0xdd);
  }
}

#endif
