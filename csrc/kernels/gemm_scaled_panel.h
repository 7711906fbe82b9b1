/* Panels of weights of 4 or 8 bits, with a scale for each block of steps of k: few rows that stream them,
 * and the floats they stand for (gemm.h). */
#ifndef CONVOY_KERNELS_GEMM_SCALED_PANEL_H_
#define CONVOY_KERNELS_GEMM_SCALED_PANEL_H_

#include "kernels/gemm_form.h"

/* Steps of k of 4 bits that a word of 32 holds. */
#define CV_GEMM_NIBBLES 8
/* Of a tile; more than one tile's rows read the weights of a panel again, out of L1. */
#define CV_GEMM_SCALED_ROWS (CV_REGISTERS == 32 ? 8 : 4)
/* Rows that multiply whole numbers: more are worth making floats of them. */
#define CV_GEMM_SCALED_MOST (2 * CV_GEMM_SCALED_ROWS)
/* Bytes ahead of the weights in use, as CV_GEMM_AHEAD. */
#define CV_GEMM_SCALED_AHEAD 4096

typedef struct cv_gemm_scales {
  const float *scales; /* [panel][ceil(k / block)][column], aligned to a vector */
  const float *zeros;  /* what stands for 0, whole numbers in the same places; NULL: 0 does */
  int block;           /* steps of k that share a scale: a multiple of 16, or at least k */
  int bits;        /* 4: [panel][ceil(k / 8)][column] words, the lowest bits first; 8: [panel][k][column] */
  float *unpacked; /* CV_GEMM_UNPACKED(k) floats for this thread, where there are rows */
} cv_gemm_scales;

/* Floats that a group of panels needs, a part of k deep. */
#define CV_GEMM_UNPACKED(k) (CV_GEMM_GROUP * CV_GEMM_PANEL * ((k) < CV_GEMM_DEPTH ? (k) : CV_GEMM_DEPTH))

CV_INLINE int cv_gemm_blocks_of(const cv_gemm_scales *s, int k) { return (k + s->block - 1) / s->block; }

/* The whole numbers of a panel at step i of its `word`-th CV_GEMM_NIBBLES; its vector b. */
CV_INLINE cv_vec cv_gemm_whole(const int bits, const void *panel, int word, const int i, const int b) {
  const char *words = (const char *)panel + (ptrdiff_t)word * CV_GEMM_NIBBLES * CV_GEMM_PANEL * bits / 8;
  if (bits == 4) return cv_nibble(cv_as_int(cv_load((const float *)words + b * CV_LANES)), i);
  return cv_from_int(cv_load_signed_bytes((const int8_t *)words + i * CV_GEMM_PANEL + b * CV_LANES));
}

CV_INLINE const void *cv_gemm_panel_of(const int bits, const void *w, int k, int panel) {
  const int steps = bits == 8 ? k : (k + CV_GEMM_NIBBLES - 1) / CV_GEMM_NIBBLES * (CV_GEMM_NIBBLES / 2);
  return (const char *)w + (ptrdiff_t)panel * steps * CV_GEMM_PANEL;
}

/* Steps of k, one or as many as a word has, of some rows times the whole numbers of a panel. */
CV_INLINE void cv_gemm_scaled_steps(const int bits, cv_vec sum[][CV_GEMM_CHAINS][CV_GEMM_BLOCKS],
                                    const float *const x[], int p, const void *panel, const int rows,
                                    int first, const int count) {
  const int chains = rows < CV_GEMM_CHAINS ? CV_GEMM_CHAINS / rows : 1;
  CV_UNROLL
  for (int i = 0; i < count; i++) {
    cv_vec whole[CV_GEMM_BLOCKS];
    CV_UNROLL
    for (int b = 0; b < CV_GEMM_BLOCKS; b++)
      whole[b] = cv_gemm_whole(bits, panel, p / CV_GEMM_NIBBLES, first + i, b);
    CV_UNROLL
    for (int r = 0; r < rows; r++) {
      const cv_vec v = cv_load1(x[r] + p + i);
      CV_UNROLL
      for (int b = 0; b < CV_GEMM_BLOCKS; b++)
        sum[r][i % chains][b] = cv_fma_sum(v, whole[b], sum[r][i % chains][b]);
    }
  }
}

/* The sum of `count` floats. */
static inline float cv_gemm_sum_of(const float *x, int count) {
  cv_vec sum = cv_zero();
  for (int i = 0; i < count; i += CV_LANES)
    sum = cv_add(sum, cv_load_n(x + i, cv_least(count - i, CV_LANES)));
  return cv_reduce_add(sum);
}

/* total += the steps [begin, end), a block, of some rows times a panel; `zero` may be NULL. */
CV_INLINE void cv_gemm_scaled_block(const int bits, cv_vec total[][CV_GEMM_BLOCKS], const float *const x[],
                                    const void *panel, int begin, int end, const float *scale,
                                    const float *zero, const int rows) {
  const int ahead = CV_GEMM_NIBBLES * CV_GEMM_PANEL * bits / 8; /* bytes of a word's steps */
  cv_vec sum[CV_GEMM_SCALED_ROWS][CV_GEMM_CHAINS][CV_GEMM_BLOCKS];
  CV_UNROLL
  for (int i = 0; i < rows * CV_GEMM_CHAINS * CV_GEMM_BLOCKS; i++)
    sum[i / CV_GEMM_BLOCKS / CV_GEMM_CHAINS][i / CV_GEMM_BLOCKS % CV_GEMM_CHAINS][i % CV_GEMM_BLOCKS] =
        cv_zero();
  int p = begin;
  for (; p + CV_GEMM_NIBBLES <= end; p += CV_GEMM_NIBBLES) {
    CV_UNROLL
    for (int line = 0; line < ahead; line += 64)
      cv_prefetch_l2((const char *)panel + (ptrdiff_t)p / CV_GEMM_NIBBLES * ahead + line +
                     CV_GEMM_SCALED_AHEAD);
    cv_gemm_scaled_steps(bits, sum, x, p, panel, rows, 0, CV_GEMM_NIBBLES);
  }
  for (; p < end; p++) cv_gemm_scaled_steps(bits, sum, x, p, panel, rows, p % CV_GEMM_NIBBLES, 1);
  CV_UNROLL
  for (int r = 0; r < rows; r++) {
    const cv_vec of = zero ? cv_set1(cv_gemm_sum_of(x[r] + begin, end - begin)) : cv_zero();
    CV_UNROLL
    for (int b = 0; b < CV_GEMM_BLOCKS; b++) {
      cv_vec each = sum[r][0][b];
      if (rows < CV_GEMM_CHAINS) each = cv_add(each, sum[r][1][b]);
      if (rows == 1) each = cv_add(each, cv_add(sum[r][2][b], sum[r][3][b]));
      if (zero) each = cv_fnma(of, cv_load(zero + b * CV_LANES), each);
      total[r][b] = cv_fma(each, cv_load(scale + b * CV_LANES), total[r][b]);
    }
  }
}

/* The same of one row, each product as that of floats: of large x the sums of whole numbers overflow, and
 * of infinite ones their difference is none. */
static __attribute__((noinline)) void cv_gemm_scaled_row_of_floats(const int bits, const cv_gemm_scales *s,
                                                                   int k, const float *x, const void *w,
                                                                   int panel, int columns, float *y,
                                                                   const float *start) {
  const void *whole = cv_gemm_panel_of(bits, w, k, panel);
  const ptrdiff_t first = (ptrdiff_t)panel * cv_gemm_blocks_of(s, k) * CV_GEMM_PANEL;
  for (int b = 0; b < CV_GEMM_BLOCKS; b++) {
    cv_vec total = cv_load(start + b * CV_LANES);
    for (int p = 0; p < k; p++) {
      const ptrdiff_t at = first + (ptrdiff_t)(p / s->block) * CV_GEMM_PANEL + b * CV_LANES;
      const cv_vec none = s->zeros ? cv_load(s->zeros + at) : cv_zero();
      const cv_vec of = cv_gemm_whole(bits, whole, p / CV_GEMM_NIBBLES, p % CV_GEMM_NIBBLES, b);
      total = cv_fma(cv_load1(x + p), cv_mul(cv_sub(of, none), cv_load(s->scales + at)), total);
    }
    cv_store_n(y + b * CV_LANES, total, cv_gemm_lanes(columns, b));
  }
}

/* y = start + x w for `count` <= rows, a constant, and the first `columns` columns of a panel. */
CV_INLINE void cv_gemm_scaled_tile(const int bits, const cv_gemm_scales *s, int k, const float *x,
                                   const void *w, int panel, const int rows, int count, int columns,
                                   float *y, ptrdiff_t y_row, const float *start) {
  const void *whole = cv_gemm_panel_of(bits, w, k, panel);
  ptrdiff_t at = (ptrdiff_t)panel * cv_gemm_blocks_of(s, k) * CV_GEMM_PANEL;
  const float *row[CV_GEMM_SCALED_ROWS];
  cv_vec total[CV_GEMM_SCALED_ROWS][CV_GEMM_BLOCKS];
  CV_UNROLL
  for (int r = 0; r < rows; r++) {
    row[r] = x + (ptrdiff_t)cv_least(r, count - 1) * k;
    CV_UNROLL
    for (int b = 0; b < CV_GEMM_BLOCKS; b++) total[r][b] = cv_load(start + b * CV_LANES);
  }
  for (int begin = 0; begin < k; begin += s->block, at += CV_GEMM_PANEL) {
    const int end = k - begin < s->block ? k : begin + s->block;
    cv_gemm_scaled_block(bits, total, row, whole, begin, end, s->scales + at,
                         s->zeros ? s->zeros + at : NULL, rows);
  }
  cv_vec odd = cv_zero();
  CV_UNROLL
  for (int i = 0; i < rows * CV_GEMM_BLOCKS; i++) {
    const cv_vec of = total[i / CV_GEMM_BLOCKS][i % CV_GEMM_BLOCKS];
    odd = cv_add(odd, cv_sub(of, of)); /* NaN of what is not finite */
  }
  if (cv_any(cv_unordered(odd, odd))) {
    for (int r = 0; r < count; r++)
      cv_gemm_scaled_row_of_floats(bits, s, k, x + (ptrdiff_t)r * k, w, panel, columns, y + r * y_row,
                                   start);
    return;
  }
  CV_UNROLL
  for (int r = 0; r < rows; r++) {
    CV_UNROLL
    for (int b = 0; b < CV_GEMM_BLOCKS; b++) {
      if (r < count) cv_store_n(y + r * y_row + b * CV_LANES, total[r][b], cv_gemm_lanes(columns, b));
    }
  }
}

CV_INLINE void cv_gemm_scaled_rows_of(const int bits, const cv_gemm_scales *s, int k, const float *x,
                                      const void *w, int panel, int count, int columns, float *y,
                                      ptrdiff_t y_row, const float *start) {
  if (count == 1) {
    cv_gemm_scaled_tile(bits, s, k, x, w, panel, 1, count, columns, y, y_row, start);
  } else if (count == 2) {
    cv_gemm_scaled_tile(bits, s, k, x, w, panel, 2, count, columns, y, y_row, start);
  } else if (count <= 4) {
    cv_gemm_scaled_tile(bits, s, k, x, w, panel, 4, count, columns, y, y_row, start);
  } else {
    cv_gemm_scaled_tile(bits, s, k, x, w, panel, CV_GEMM_SCALED_ROWS, count, columns, y, y_row, start);
  }
}

/* y = start + x w for `count` <= CV_GEMM_SCALED_ROWS and the first `columns` columns of a panel. */
static inline void cv_gemm_scaled_rows(const cv_gemm_scales *s, int k, const float *x, const void *w,
                                       int panel, int count, int columns, float *y, ptrdiff_t y_row,
                                       const float *start) {
  if (s->bits == 4) {
    cv_gemm_scaled_rows_of(4, s, k, x, w, panel, count, columns, y, y_row, start);
  } else {
    cv_gemm_scaled_rows_of(8, s, k, x, w, panel, count, columns, y, y_row, start);
  }
}

/* The floats of some steps of a panel that share a scale and what stands for 0; `zero` may be NULL. */
CV_INLINE void cv_gemm_unpack_steps(const int bits, const void *panel, cv_range steps, const float *scale,
                                    const float *zero, float *to) {
  CV_UNROLL
  for (int b = 0; b < CV_GEMM_BLOCKS; b++, to += CV_LANES) {
    const cv_vec factor = cv_load(scale + b * CV_LANES);
    const cv_vec none = zero ? cv_load(zero + b * CV_LANES) : cv_zero();
    float *at = to;
    for (int p = steps.begin; p < steps.end;) {
      const int first = p % CV_GEMM_NIBBLES, count = cv_least(steps.end - p, CV_GEMM_NIBBLES - first);
      if (count == CV_GEMM_NIBBLES) {
        CV_UNROLL
        for (int i = 0; i < CV_GEMM_NIBBLES; i++) {
          const cv_vec whole = cv_gemm_whole(bits, panel, p / CV_GEMM_NIBBLES, i, b);
          cv_store(at + i * CV_GEMM_PANEL, cv_mul(cv_sub(whole, none), factor));
        }
      } else {
        for (int i = 0; i < count; i++) {
          const cv_vec whole = cv_gemm_whole(bits, panel, p / CV_GEMM_NIBBLES, first + i, b);
          cv_store(at + i * CV_GEMM_PANEL, cv_mul(cv_sub(whole, none), factor));
        }
      }
      p += count;
      at += count * CV_GEMM_PANEL;
    }
  }
}

CV_INLINE void cv_gemm_unpack_of(const int bits, const cv_gemm_scales *s, int k, const void *w, int panel,
                                 cv_range part, float *to) {
  const void *whole = cv_gemm_panel_of(bits, w, k, panel);
  const ptrdiff_t at = (ptrdiff_t)panel * cv_gemm_blocks_of(s, k) * CV_GEMM_PANEL;
  for (int begin = part.begin, end; begin < part.end; begin = end) {
    const int block = begin / s->block;
    end = cv_least(part.end, (block + 1) * s->block);
    const ptrdiff_t scale = at + (ptrdiff_t)block * CV_GEMM_PANEL;
    cv_gemm_unpack_steps(bits, whole, (cv_range){begin, end}, s->scales + scale,
                         s->zeros ? s->zeros + scale : NULL, to);
    to += (ptrdiff_t)(end - begin) * CV_GEMM_PANEL;
  }
}

/* The floats of a panel in the steps `part` of k. */
static inline void cv_gemm_unpack(const cv_gemm_scales *s, int k, const void *w, int panel, cv_range part,
                                  float *to) {
  if (s->bits == 4) {
    cv_gemm_unpack_of(4, s, k, w, panel, part, to);
  } else {
    cv_gemm_unpack_of(8, s, k, w, panel, part, to);
  }
}

#endif
