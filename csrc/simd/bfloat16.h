/* bfloat16, the upper half of a float32: two of them are a cell of 32 bits, and CV_LANES / 2 cells a
 * vector.
 *
 *   CV_MULTIPLIES_BF16        cv_dot_bf16 is one instruction
 *   cv_load_bf16(p)           CV_LANES bfloat16 as float32
 *   cv_store_bf16(p, v)       v rounded to nearest even; a NaN stays one, what is above the largest is
 *                             infinite.  With the instruction denormals become 0
 *   cv_pair_bf16(a, b)        cells: a rounded is the first element of each, b the second
 *   cv_low_bf16 cv_high_bf16  the first and the second element of each cell, as float32
 *   cv_dot_bf16(a, b, sum)    sum + a[0] b[0] + a[1] b[1] of each cell of a and b.  The instruction takes
 *                             denormals for 0 and rounds each of two additions; without it products are
 *                             float32's
 *
 * p: aligned to its CV_LANES * 2 bytes.  A cell is a float in C whose bits alone mean anything.
 */
#ifndef CONVOY_SIMD_BFLOAT16_H_
#define CONVOY_SIMD_BFLOAT16_H_

/* The rounded bits, in the upper halves of the lanes; the lower ones are anything. */
CV_INLINE cv_int cv_round_bf16(cv_vec v) {
  const cv_int bits = cv_as_int(v), odd = cv_int_and(cv_int_shr(bits, 16), cv_int_set1(1));
  const cv_vec rounded = cv_as_float(cv_int_add(cv_int_add(bits, cv_int_set1(0x7fff)), odd));
  const cv_vec quiet = cv_as_float(cv_int_or(bits, cv_int_set1(0x400000)));
  return cv_as_int(cv_select(cv_unordered(v, v), quiet, rounded));
}

CV_INLINE cv_vec cv_low_bf16(cv_vec cells) { return cv_as_float(cv_int_shl(cv_as_int(cells), 16)); }
CV_INLINE cv_vec cv_high_bf16(cv_vec cells) {
  return cv_as_float(cv_int_and(cv_as_int(cells), cv_int_set1((int32_t)0xffff0000u)));
}

#if CV_LANES == 16
CV_INLINE cv_vec cv_load_bf16(const float *p) {
  return cv_as_float(cv_int_shl(_mm512_cvtepu16_epi32(_mm256_load_si256((const __m256i *)p)), 16));
}
#elif CV_LANES == 8
CV_INLINE cv_vec cv_load_bf16(const float *p) {
  return cv_as_float(cv_int_shl(_mm256_cvtepu16_epi32(_mm_load_si128((const __m128i *)p)), 16));
}
#else
CV_INLINE cv_vec cv_load_bf16(const float *p) {
  uint16_t from[CV_LANES];
  memcpy(from, p, sizeof from);
  cv_int bits = cv_int_set1(0);
  for (int i = 0; i < CV_LANES; i++) bits[i] = from[i];
  return cv_as_float(cv_int_shl(bits, 16));
}
#endif

#if CV_LANES == 16 && defined(__AVX512BF16__)
#define CV_MULTIPLIES_BF16 1
CV_INLINE void cv_store_bf16(float *p, cv_vec v) {
  _mm256_store_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(v));
}
CV_INLINE cv_vec cv_pair_bf16(cv_vec a, cv_vec b) {
  const __v32hi places = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                          8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return cv_as_float(_mm512_permutexvar_epi16((__m512i)places, (__m512i)_mm512_cvtne2ps_pbh(b, a)));
}
CV_INLINE cv_vec cv_dot_bf16(cv_vec a, cv_vec b, cv_vec sum) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
#else
#define CV_MULTIPLIES_BF16 0
#if CV_LANES == 16
CV_INLINE void cv_store_bf16(float *p, cv_vec v) {
  _mm256_store_si256((__m256i *)p, _mm512_cvtepi32_epi16(cv_int_shr(cv_round_bf16(v), 16)));
}
#elif CV_LANES == 8
CV_INLINE void cv_store_bf16(float *p, cv_vec v) {
  const cv_int bits = cv_int_shr(cv_round_bf16(v), 16), packed = _mm256_packus_epi32(bits, bits);
  _mm_store_si128((__m128i *)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}
#else
CV_INLINE void cv_store_bf16(float *p, cv_vec v) {
  const cv_int bits = cv_int_shr(cv_round_bf16(v), 16);
  uint16_t to[CV_LANES];
  for (int i = 0; i < CV_LANES; i++) to[i] = (uint16_t)bits[i];
  memcpy(p, to, sizeof to);
}
#endif
CV_INLINE cv_vec cv_pair_bf16(cv_vec a, cv_vec b) {
  const cv_int high = cv_int_and(cv_round_bf16(b), cv_int_set1((int32_t)0xffff0000u));
  return cv_as_float(cv_int_or(cv_int_shr(cv_round_bf16(a), 16), high));
}
CV_INLINE cv_vec cv_dot_bf16(cv_vec a, cv_vec b, cv_vec sum) {
  return cv_fma(cv_high_bf16(a), cv_high_bf16(b), cv_fma(cv_low_bf16(a), cv_low_bf16(b), sum));
}
#endif

#endif
