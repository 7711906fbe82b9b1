/* Bytes through a table: y[i] = table[x[i]].
 *
 *   cv_table_bytes   a dense run of bytes; threads share it
 *   cv_table_map     the pixels of a blocked map, lanes past its channels too; y's halo is the caller's.
 *                    Threads share rows of blocks
 *
 * table: 256 bytes, 64-byte aligned.
 */
#ifndef CONVOY_KERNELS_TABLE_H_
#define CONVOY_KERNELS_TABLE_H_

#include "kernels/map.h"

static inline void cv_table_line_any(uint8_t *y, const uint8_t *x, const uint8_t *table, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) y[i] = table[x[i]];
}

#if CV_LANES == 16
/* Two registers hold 128 entries, which seven bits of an index tell apart; the eighth is its sign. */
__attribute__((target("avx512vbmi"))) static inline void cv_table_line_vbmi(uint8_t *y, const uint8_t *x,
                                                                            const uint8_t *table,
                                                                            ptrdiff_t count) {
  const __m512i a = _mm512_load_si512(table), b = _mm512_load_si512(table + 64);
  const __m512i c = _mm512_load_si512(table + 128), d = _mm512_load_si512(table + 192);
  for (ptrdiff_t i = 0; i < count; i += 64) {
    const __mmask64 inside = count - i < 64 ? ((__mmask64)1 << (count - i)) - 1 : ~(__mmask64)0;
    const __m512i at = _mm512_maskz_loadu_epi8(inside, x + i);
    const __m512i low = _mm512_permutex2var_epi8(a, at, b), high = _mm512_permutex2var_epi8(c, at, d);
    _mm512_mask_storeu_epi8(y + i, inside, _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high));
  }
}

/* By registers where the CPU that runs permutes bytes. */
static inline void cv_table_line(uint8_t *y, const uint8_t *x, const uint8_t *table, ptrdiff_t count) {
  if (__builtin_cpu_supports("avx512vbmi")) {
    cv_table_line_vbmi(y, x, table, count);
  } else {
    cv_table_line_any(y, x, table, count);
  }
}
#else
static inline void cv_table_line(uint8_t *y, const uint8_t *x, const uint8_t *table, ptrdiff_t count) {
  cv_table_line_any(y, x, table, count);
}
#endif

/* x and y may be the same. */
static inline void cv_table_bytes(cv_thread t, void *y, const void *x, const uint8_t *table,
                                  ptrdiff_t count) {
  const ptrdiff_t lines = (count + 63) / 64;
  const ptrdiff_t begin = lines * t.id / t.count * 64, end = lines * (t.id + 1) / t.count * 64;
  if (begin < count)
    cv_table_line((uint8_t *)y + begin, (const uint8_t *)x + begin, table,
                  (end < count ? end : count) - begin);
}

static inline void cv_table_map(cv_thread t, cv_byte_map y, cv_byte_map x, const uint8_t *table) {
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
