/* simd.h in AVX2 and FMA: 8 lanes. */
#ifndef CONVOY_SIMD_AVX2_H_
#define CONVOY_SIMD_AVX2_H_

#include <immintrin.h>
#include <string.h>

#define CV_LANES 8
#define CV_REGISTERS 16
#define CV_FUSES 1
#define CV_ASKS_EACH_CHANNEL 0
#define CV_ASK_EVERY 4
#define CV_ISA "avx2"

typedef __m256 cv_vec;
typedef __m256i cv_int;
typedef uint16_t cv_shorts __attribute__((vector_size(32)));
typedef __m256 cv_mask; /* all bits of a lane */

CV_INLINE cv_vec cv_zero(void) { return _mm256_setzero_ps(); }
CV_INLINE cv_vec cv_set1(float f) { return _mm256_set1_ps(f); }
CV_INLINE cv_vec cv_load1(const float *p) {
  int bits;
  memcpy(&bits, p, sizeof bits);
  return _mm256_castsi256_ps(_mm256_set1_epi32(bits));
}
CV_INLINE cv_vec cv_load(const float *p) { return _mm256_load_ps(p); }
CV_INLINE cv_vec cv_hold(cv_vec v) {
  __asm__("" : "+x"(v));
  return v;
}
CV_INLINE cv_vec cv_loadu(const float *p) { return _mm256_loadu_ps(p); }
CV_INLINE void cv_store(float *p, cv_vec v) { _mm256_store_ps(p, v); }
CV_INLINE void cv_storeu(float *p, cv_vec v) { _mm256_storeu_ps(p, v); }
CV_INLINE __m256i cv_first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
CV_INLINE cv_vec cv_load_n(const float *p, int n) { return _mm256_maskload_ps(p, cv_first_lanes(n)); }
CV_INLINE cv_vec cv_load_n_or(const float *p, int n, float fill) {
  return _mm256_blendv_ps(cv_set1(fill), cv_load_n(p, n), _mm256_castsi256_ps(cv_first_lanes(n)));
}
/* By parts: masked stores are slow on AMD. */
CV_INLINE void cv_store_n(float *p, cv_vec v, int n) {
  if (n >= CV_LANES) {
    _mm256_storeu_ps(p, v);
    return;
  }
  __m128 part = _mm256_castps256_ps128(v);
  if (n & 4) {
    _mm_storeu_ps(p, part);
    part = _mm256_extractf128_ps(v, 1);
    p += 4;
  }
  if (n & 2) {
    _mm_storel_pi((__m64 *)p, part);
    part = _mm_movehl_ps(part, part);
    p += 2;
  }
  if (n & 1) _mm_store_ss(p, part);
}

CV_INLINE cv_vec cv_add(cv_vec a, cv_vec b) { return _mm256_add_ps(a, b); }
CV_INLINE cv_vec cv_sub(cv_vec a, cv_vec b) { return _mm256_sub_ps(a, b); }
CV_INLINE cv_vec cv_mul(cv_vec a, cv_vec b) { return _mm256_mul_ps(a, b); }
CV_INLINE cv_vec cv_div(cv_vec a, cv_vec b) { return _mm256_div_ps(a, b); }
CV_INLINE cv_vec cv_fma(cv_vec a, cv_vec b, cv_vec c) { return _mm256_fmadd_ps(a, b, c); }
/* GCC 12 gives sums that fill the registers new ones at each step, and spills two of twelve. */
CV_INLINE cv_vec cv_fma_sum(cv_vec a, cv_vec b, cv_vec c) {
  __asm__("vfmadd231ps %2, %1, %0" : "+x"(c) : "x"(a), "x"(b));
  return c;
}
CV_INLINE cv_vec cv_fnma(cv_vec a, cv_vec b, cv_vec c) { return _mm256_fnmadd_ps(a, b, c); }
CV_INLINE cv_vec cv_min(cv_vec a, cv_vec b) { return _mm256_min_ps(a, b); }
CV_INLINE cv_vec cv_max(cv_vec a, cv_vec b) { return _mm256_max_ps(a, b); }
CV_INLINE cv_vec cv_sqrt(cv_vec v) { return _mm256_sqrt_ps(v); }
CV_INLINE cv_vec cv_abs(cv_vec v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }
CV_INLINE cv_vec cv_neg(cv_vec v) { return _mm256_xor_ps(_mm256_set1_ps(-0.0f), v); }
CV_INLINE cv_vec cv_floor(cv_vec v) { return _mm256_floor_ps(v); }
CV_INLINE cv_vec cv_ceil(cv_vec v) { return _mm256_ceil_ps(v); }
CV_INLINE cv_vec cv_round(cv_vec v) {
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

CV_INLINE cv_mask cv_lt(cv_vec a, cv_vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
CV_INLINE cv_mask cv_le(cv_vec a, cv_vec b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
CV_INLINE cv_mask cv_eq(cv_vec a, cv_vec b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
CV_INLINE cv_mask cv_unordered(cv_vec a, cv_vec b) { return _mm256_cmp_ps(a, b, _CMP_UNORD_Q); }
CV_INLINE cv_vec cv_select(cv_mask m, cv_vec t, cv_vec f) { return _mm256_blendv_ps(f, t, m); }
CV_INLINE cv_vec cv_load_where(cv_mask m, const float *p, cv_int i) {
  return _mm256_mask_i32gather_ps(cv_zero(), p, i, m, sizeof *p);
}
CV_INLINE cv_mask cv_mask_and(cv_mask a, cv_mask b) { return _mm256_and_ps(a, b); }
CV_INLINE cv_mask cv_mask_or(cv_mask a, cv_mask b) { return _mm256_or_ps(a, b); }
CV_INLINE cv_mask cv_mask_not(cv_mask a) {
  return _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1)));
}
CV_INLINE int cv_any(cv_mask a) { return _mm256_movemask_ps(a) != 0; }

CV_INLINE float cv_reduce_add(cv_vec v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
CV_INLINE float cv_reduce_max(cv_vec v) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

CV_INLINE cv_int cv_as_int(cv_vec v) { return _mm256_castps_si256(v); }
CV_INLINE cv_vec cv_as_float(cv_int i) { return _mm256_castsi256_ps(i); }
CV_INLINE cv_int cv_to_int(cv_vec v) { return _mm256_cvtps_epi32(v); }
CV_INLINE cv_vec cv_from_int(cv_int i) { return _mm256_cvtepi32_ps(i); }
CV_INLINE cv_int cv_int_set1(int32_t n) { return _mm256_set1_epi32(n); }
CV_INLINE cv_int cv_int_add(cv_int a, cv_int b) { return _mm256_add_epi32(a, b); }
CV_INLINE cv_int cv_int_sub(cv_int a, cv_int b) { return _mm256_sub_epi32(a, b); }
CV_INLINE cv_int cv_int_mul(cv_int a, cv_int b) { return _mm256_mullo_epi32(a, b); }
CV_INLINE cv_int cv_int_and(cv_int a, cv_int b) { return _mm256_and_si256(a, b); }
CV_INLINE cv_int cv_int_or(cv_int a, cv_int b) { return _mm256_or_si256(a, b); }
/* As the compiler's own operators, which take a constant count as an immediate. */
CV_INLINE cv_int cv_int_shl(cv_int i, int n) { return (cv_int)((__v8su)i << (uint32_t)n); }
CV_INLINE cv_int cv_int_shr(cv_int i, int n) { return (cv_int)((__v8su)i >> (uint32_t)n); }

#if defined(__AVXVNNI__)
#define CV_DOT_PARTS 1
/* As cv_fma_sum. */
CV_INLINE cv_int cv_dot(cv_int i, cv_int x, cv_int w) {
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(i) : "x"(x), "x"(w));
  return i;
}
#else
#define CV_DOT_PARTS 2
#define CV_DOTS_IN_MEMORY /* cv_dot_at and cv_dot_cell are here, not in simd.h */
CV_INLINE cv_int cv_dot_part(cv_int x, const int part) {
  return part ? _mm256_srli_epi16(x, 8) : _mm256_and_si256(x, _mm256_set1_epi16(0xff));
}
CV_INLINE cv_int cv_dot(cv_int i, cv_int x, cv_int w) {
  return _mm256_add_epi32(i, _mm256_madd_epi16(x, w));
}
/* Each of these is together, or GCC keeps so many products and cells that it spills sums. */
CV_INLINE cv_int cv_dot_cell(const float *p, const int part) {
  cv_int found;
  if (part) {
    __asm__("vpbroadcastd %1, %0\n\tvpsrlw $8, %0, %0" : "=x"(found) : "m"(*p));
  } else {
    __asm__("vpbroadcastd %1, %0\n\tvpand %2, %0, %0"
            : "=&x"(found)
            : "m"(*p), "x"(_mm256_set1_epi16(0xff)));
  }
  return found;
}
CV_INLINE cv_int cv_dot_at(cv_int i, cv_int x, const float *p) {
  cv_int products;
  __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
          : "+x"(i), "=&x"(products)
          : "x"(x), "m"(*(const cv_int *)p));
  return i;
}
#endif
/* Together, as cv_dot_at. */
CV_INLINE cv_int cv_dot_shorts(cv_int i, cv_int x, cv_int w) {
  cv_int products;
  __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(i), "=&x"(products) : "x"(x), "xm"(w));
  return i;
}
CV_INLINE cv_shorts cv_load_shorts(const uint8_t *p, const uint8_t *q) {
  const __m128i low = _mm_loadl_epi64((const __m128i *)p), high = _mm_loadl_epi64((const __m128i *)q);
  return (cv_shorts)_mm256_cvtepu8_epi16(_mm_unpacklo_epi64(low, high));
}
CV_INLINE cv_shorts cv_load_signed_shorts(const int8_t *p) {
  return (cv_shorts)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
}
CV_INLINE cv_int cv_load_signed_bytes(const int8_t *p) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
CV_INLINE cv_vec cv_nibble(cv_int i, const int n) {
  return cv_from_int((cv_int)((__v8si)cv_int_shl(i, 28 - 4 * n) >> 28));
}
CV_INLINE cv_int cv_load_bytes(const uint8_t *p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
CV_INLINE cv_int cv_load_pairs(const uint8_t *p, const uint8_t *q) {
  const __m128i low = _mm_loadl_epi64((const __m128i *)p), high = _mm_loadl_epi64((const __m128i *)q);
  return _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(low, high));
}
/* The lowest bytes of each half come together, then those of both. */
CV_INLINE __m128i cv_lowest_bytes(cv_int i) {
  const __m256i bytes = _mm256_shuffle_epi8(i, _mm256_set1_epi32(0x0c080400));
  return _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
}
CV_INLINE void cv_store_bytes(uint8_t *p, cv_int i) { _mm_storel_epi64((__m128i *)p, cv_lowest_bytes(i)); }
CV_INLINE cv_int cv_load_bytes_n(const uint8_t *p, int n) {
  int64_t bytes = 0;
  memcpy(&bytes, p, (size_t)n);
  return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(bytes));
}
CV_INLINE void cv_store_bytes_n(uint8_t *p, cv_int i, int n) {
  const int64_t bytes = _mm_cvtsi128_si64(cv_lowest_bytes(i));
  memcpy(p, &bytes, (size_t)n);
}

CV_INLINE cv_int cv_load_quad(const uint8_t *p, const int n) {
  const __m128i *from = (const __m128i *)p;
  if (n == 4) return _mm256_loadu_si256((const cv_int *)p);
  if (n == 1) return _mm256_zextsi128_si256(_mm_loadl_epi64(from));
  const cv_int two = _mm256_zextsi128_si256(_mm_loadu_si128(from));
  return n == 2 ? two : _mm256_inserti128_si256(two, _mm_loadl_epi64(from + 1), 1);
}
/* By parts: a masked store takes longer. */
CV_INLINE void cv_store_quad(uint8_t *p, cv_int q, const int n) {
  __m128i *to = (__m128i *)p;
  if (n == 4) {
    _mm256_storeu_si256((cv_int *)p, q);
    return;
  }
  if (n >= 2) _mm_storeu_si128(to, _mm256_castsi256_si128(q));
  if (n == 1) _mm_storel_epi64(to, _mm256_castsi256_si128(q));
  if (n == 3) _mm_storel_epi64(to + 1, _mm256_extracti128_si256(q, 1));
}
CV_INLINE cv_int cv_quad_by_channel(cv_int q) {
  const __m128i square = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const cv_int halves = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  return _mm256_shuffle_epi8(halves, _mm256_broadcastsi128_si256(square));
}
CV_INLINE cv_int cv_quad_of(cv_int a, cv_int b, cv_int c, cv_int d, cv_int add) {
  const cv_int pairs = _mm256_packs_epi32(add, add), one = _mm256_packs_epi32(a, b);
  const cv_int two = _mm256_packs_epi32(c, d);
  const cv_int bytes = _mm256_packus_epi16(_mm256_adds_epi16(one, pairs), _mm256_adds_epi16(two, pairs));
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
CV_INLINE void cv_quads_of_cells(cv_int q[2]) {
  const cv_int a = _mm256_unpacklo_epi32(q[0], q[1]), b = _mm256_unpackhi_epi32(q[0], q[1]);
  q[0] = _mm256_permute2x128_si256(a, b, 0x20);
  q[1] = _mm256_permute2x128_si256(a, b, 0x31);
}
CV_INLINE void cv_cells_of_quads(cv_int q[2]) {
  const cv_vec a = cv_as_float(_mm256_permute2x128_si256(q[0], q[1], 0x20));
  const cv_vec b = cv_as_float(_mm256_permute2x128_si256(q[0], q[1], 0x31));
  q[0] = cv_as_int(_mm256_shuffle_ps(a, b, 0x88));
  q[1] = cv_as_int(_mm256_shuffle_ps(a, b, 0xdd));
}
CV_INLINE cv_int cv_max_bytes(cv_int a, cv_int b) { return _mm256_max_epu8(a, b); }
CV_INLINE cv_int cv_pick(cv_int q, cv_int i) { return _mm256_shuffle_epi8(q, i); }

typedef __m128i cv_pixel; /* its lower half */
CV_INLINE cv_pixel cv_load_pixel(const uint8_t *p) { return _mm_loadl_epi64((const __m128i *)p); }
CV_INLINE void cv_store_pixel(uint8_t *p, cv_pixel v) { _mm_storel_epi64((__m128i *)p, v); }
CV_INLINE cv_pixel cv_max_pixel(cv_pixel a, cv_pixel b) { return _mm_max_epu8(a, b); }

CV_INLINE cv_vec cv_permute(cv_vec v, cv_int i) { return _mm256_permutevar8x32_ps(v, i); }

/* Transposes 4x4 inside each 128-bit half, then exchanges halves. */
CV_INLINE void cv_transpose(cv_vec v[CV_LANES]) {
  cv_vec t[8];
#pragma GCC unroll 2
  for (int i = 0; i < 2; i++) {
    const cv_vec a = _mm256_unpacklo_ps(v[4 * i], v[4 * i + 1]);
    const cv_vec b = _mm256_unpackhi_ps(v[4 * i], v[4 * i + 1]);
    const cv_vec c = _mm256_unpacklo_ps(v[4 * i + 2], v[4 * i + 3]);
    const cv_vec d = _mm256_unpackhi_ps(v[4 * i + 2], v[4 * i + 3]);
    t[4 * i] = _mm256_shuffle_ps(a, c, 0x44);
    t[4 * i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[4 * i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    t[4 * i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    v[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
    v[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
  }
}

#endif
