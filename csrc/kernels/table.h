/* Bytes through a table: y[i] = table[x[i]].
 *
 *   cv_table_bytes   a dense run of bytes; threads share it
 *   cv_table_map     the pixels of a blocked map, lanes past its channels too; y's halo is the caller's.
 *                    Threads share rows of blocks
 *
 * entries: 256 bytes, 64-byte aligned.
 */
#ifndef CONVOY_KERNELS_TABLE_H_
#define CONVOY_KERNELS_TABLE_H_

#include "kernels/requantize.h"

/* Where they lie `on_line`, entry x is round(x * scale + shift) + zero, held between low and high before
 * zero is added, and computing it takes less time than looking it up. */
typedef struct cv_table {
  const uint8_t *entries;
  int on_line;
  float scale, shift, low, high;
  int zero;
} cv_table;

static inline void cv_table_line_any(uint8_t *y, const uint8_t *x, const uint8_t *entries,
                                     ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) y[i] = entries[x[i]];
}

CV_INLINE cv_vec cv_on_line(const cv_table *t, cv_int x) {
  return cv_add(cv_hold(cv_mul(cv_from_int(x), cv_set1(t->scale))), cv_set1(t->shift));
}

static inline void cv_table_line_computed(uint8_t *y, const uint8_t *x, const cv_table *t,
                                          ptrdiff_t count) {
  const cv_requantize bounds = {.low = t->low, .high = t->high, .zero = t->zero};
  const cv_requantizer r = cv_requantizer_of(&bounds);
  ptrdiff_t i = 0;
  for (; i + 4 * CV_LANES <= count; i += 4 * CV_LANES) {
    cv_vec v[4];
    CV_UNROLL
    for (int k = 0; k < 4; k++) v[k] = cv_on_line(t, cv_load_bytes(x + i + k * CV_LANES));
    cv_store_quad(y + i, cv_requantize_quad(&r, v), 4);
  }
  for (; i + CV_LANES <= count; i += CV_LANES) {
    const cv_vec v = cv_on_line(t, cv_load_bytes(x + i));
    cv_store_bytes(y + i, cv_requantize_round(v, cv_set1(t->low), cv_set1(t->high), r.zero));
  }
  cv_table_line_any(y + i, x + i, t->entries, count - i);
}

#if CV_LANES == 16
/* Two registers hold 128 entries, which seven bits of an index tell apart; the eighth is its sign. */
__attribute__((target("avx512vbmi"))) static inline void cv_table_line_vbmi(uint8_t *y, const uint8_t *x,
                                                                            const uint8_t *entries,
                                                                            ptrdiff_t count) {
  const __m512i a = _mm512_load_si512(entries), b = _mm512_load_si512(entries + 64);
  const __m512i c = _mm512_load_si512(entries + 128), d = _mm512_load_si512(entries + 192);
  for (ptrdiff_t i = 0; i < count; i += 64) {
    const __mmask64 inside = count - i < 64 ? ((__mmask64)1 << (count - i)) - 1 : ~(__mmask64)0;
    const __m512i at = _mm512_maskz_loadu_epi8(inside, x + i);
    const __m512i low = _mm512_permutex2var_epi8(a, at, b), high = _mm512_permutex2var_epi8(c, at, d);
    _mm512_mask_storeu_epi8(y + i, inside, _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high));
  }
}

#endif

#if CV_LANES >= 8
/* Of each sixteen entries the one that the lower half of a byte names; its upper half picks among them. */
CV_INLINE __m256i cv_table_of_bytes(const uint8_t *entries, __m256i x) {
  const __m256i lower = _mm256_and_si256(x, _mm256_set1_epi8(15));
  const __m256i first = _mm256_slli_epi16(x, 3), second = _mm256_slli_epi16(x, 2); /* as highest bits */
  __m256i quarter[4];
  CV_UNROLL
  for (int q = 0; q < 4; q++) {
    __m256i found[4];
    CV_UNROLL
    for (int k = 0; k < 4; k++) {
      const __m128i sixteen = _mm_load_si128((const __m128i *)(entries + 64 * q + 16 * k));
      found[k] = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(sixteen), lower);
    }
    quarter[q] = _mm256_blendv_epi8(_mm256_blendv_epi8(found[0], found[1], first),
                                    _mm256_blendv_epi8(found[2], found[3], first), second);
  }
  const __m256i third = _mm256_slli_epi16(x, 1);
  return _mm256_blendv_epi8(_mm256_blendv_epi8(quarter[0], quarter[1], third),
                            _mm256_blendv_epi8(quarter[2], quarter[3], third), x);
}

/* Sixteen shuffles for 32 bytes take a third of the time of 32 loads.  The last 32 may have been among
 * those before: they are loaded first, as x and y may be the same. */
static inline void cv_table_line_shuffled(uint8_t *y, const uint8_t *x, const uint8_t *entries,
                                          ptrdiff_t count) {
  if (count < 32) {
    cv_table_line_any(y, x, entries, count);
    return;
  }
  const __m256i last = _mm256_loadu_si256((const __m256i *)(x + count - 32));
  for (ptrdiff_t i = 0; i + 32 < count; i += 32) {
    const __m256i bytes = _mm256_loadu_si256((const __m256i *)(x + i));
    _mm256_storeu_si256((__m256i *)(y + i), cv_table_of_bytes(entries, bytes));
  }
  _mm256_storeu_si256((__m256i *)(y + count - 32), cv_table_of_bytes(entries, last));
}
#endif

/* By registers where the CPU that runs permutes bytes. */
static inline void cv_table_line(uint8_t *y, const uint8_t *x, const cv_table *t, ptrdiff_t count) {
#if CV_LANES == 16
  if (__builtin_cpu_supports("avx512vbmi")) {
    cv_table_line_vbmi(y, x, t->entries, count);
    return;
  }
#endif
  if (t->on_line) {
    cv_table_line_computed(y, x, t, count);
  } else {
#if CV_LANES >= 8
    cv_table_line_shuffled(y, x, t->entries, count);
#else
    cv_table_line_any(y, x, t->entries, count);
#endif
  }
}

/* x and y may be the same. */
static inline void cv_table_bytes(cv_thread t, void *y, const void *x, const cv_table *table,
                                  ptrdiff_t count) {
  const ptrdiff_t lines = (count + 63) / 64;
  const ptrdiff_t begin = lines * t.id / t.count * 64, end = lines * (t.id + 1) / t.count * 64;
  if (begin < count)
    cv_table_line((uint8_t *)y + begin, (const uint8_t *)x + begin, table,
                  (end < count ? end : count) - begin);
}

static inline void cv_table_map(cv_thread t, cv_byte_map y, cv_byte_map x, const cv_table *table) {
  const cv_range share = cv_share(t, cv_blocks(y.channels) * y.height);
  for (int i = share.begin; i < share.end; i++) {
    const uint8_t *from = x.data + i / y.height * x.plane + i % y.height * x.row;
    uint8_t *to = y.data + i / y.height * y.plane + i % y.height * y.row;
    if (x.step == CV_LANES && y.step == CV_LANES) {
      cv_table_line(to, from, table, (ptrdiff_t)y.width * CV_LANES);
    } else {
      for (int j = 0; j < y.width; j++) cv_table_line(to + j * y.step, from + j * x.step, table, CV_LANES);
    }
  }
}

#endif
