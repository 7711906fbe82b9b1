/* simd/amx.h in plain C: what Intel's manual says of the instructions, for machines without them. */
#ifndef CONVOY_SIMD_AMX_EMULATED_H_
#define CONVOY_SIMD_AMX_EMULATED_H_

#include <math.h>
#include <string.h>

typedef struct cv_amx_tile {
  int rows, cells;
  uint32_t cell[CV_AMX_CELLS][CV_AMX_CELLS];
} cv_amx_tile;

/* As registers are, those of all units: kernels that several tiles share shape them. */
__attribute__((weak)) _Thread_local cv_amx_tile cv_amx_tiles[8];
/* Products of tiles so far: tests ask whether there were any. */
__attribute__((weak)) int cv_amx_products;

static inline int cv_amx_allowed(void) { return 1; }

static inline void cv_amx_release(void) { memset(cv_amx_tiles, 0, sizeof cv_amx_tiles); }

/* As with the instructions, no row or cell past a tile's shape is ever read or written; a tile without a
 * shape is an error there, and stops here. */
static inline void cv_amx_shape(int rows, int cells) {
  if (rows < 1 || rows > CV_AMX_CELLS || cells < 1 || cells > CV_AMX_CELLS) __builtin_trap();
  cv_amx_release();
  for (int t = 0; t < 8; t++) {
    cv_amx_tiles[t].rows = t < 5 ? rows : cells;
    cv_amx_tiles[t].cells = t == 4 ? cells : CV_AMX_CELLS;
  }
}

static inline cv_amx_tile *cv_amx_shaped(int t) {
  if (!cv_amx_tiles[t].rows) __builtin_trap();
  return &cv_amx_tiles[t];
}

static inline void cv_amx_zero(int t) { memset(cv_amx_shaped(t)->cell, 0, sizeof cv_amx_tiles[t].cell); }

static inline void cv_amx_load(int t, const float *p, ptrdiff_t stride) {
  cv_amx_tile *tile = cv_amx_shaped(t);
  memset(tile->cell, 0, sizeof tile->cell);
  for (int i = 0; i < tile->rows; i++)
    memcpy(tile->cell[i], (const char *)p + i * stride * 4, (size_t)tile->cells * 4);
}

static inline void cv_amx_store(int t, float *p, ptrdiff_t stride) {
  const cv_amx_tile *tile = cv_amx_shaped(t);
  for (int i = 0; i < tile->rows; i++)
    memcpy((char *)p + i * stride * 4, tile->cell[i], (size_t)tile->cells * 4);
}

static inline void cv_amx_dot_bytes(int sum) {
  cv_amx_tile *to = cv_amx_shaped(sum);
  const cv_amx_tile *a = cv_amx_shaped(4), *b = cv_amx_shaped(6 + sum % 2);
  __atomic_fetch_add(&cv_amx_products, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < to->rows; i++)
    for (int c = 0; c < a->cells; c++)
      for (int j = 0; j < to->cells; j++)
        for (int byte = 0; byte < 32; byte += 8)
          to->cell[i][j] +=
              (uint32_t)((int)(a->cell[i][c] >> byte & 0xff) * (int8_t)(b->cell[c][j] >> byte));
}

/* A float of its bits; a denormal is 0. */
static inline float cv_amx_float(uint32_t bits) {
  float f;
  if ((bits & 0x7f800000) == 0) bits &= 0x80000000;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static inline uint32_t cv_amx_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static inline float cv_amx_flush(float f) { return cv_amx_float(cv_amx_bits(f)); }

static inline void cv_amx_dot_bf16(int sum) {
  cv_amx_tile *to = cv_amx_shaped(sum);
  const cv_amx_tile *a = cv_amx_shaped(4), *b = cv_amx_shaped(6 + sum % 2);
  __atomic_fetch_add(&cv_amx_products, 1, __ATOMIC_RELAXED);
  for (int i = 0; i < to->rows; i++)
    for (int j = 0; j < to->cells; j++) {
      float first = 0, second = 0;
      for (int c = 0; c < a->cells; c++) {
        const uint32_t p = a->cell[i][c], q = b->cell[c][j];
        first = cv_amx_flush(fmaf(cv_amx_float(p << 16), cv_amx_float(q << 16), first));
        second = cv_amx_flush(fmaf(cv_amx_float(p & 0xffff0000), cv_amx_float(q & 0xffff0000), second));
      }
      const float both = cv_amx_flush(first + second);
      to->cell[i][j] = cv_amx_bits(cv_amx_flush(cv_amx_float(to->cell[i][j]) + both));
    }
}

#endif
