/* What a tile of a matrix product is: its sizes, its cells, and how they are added (gemm.h). */
#ifndef CONVOY_KERNELS_GEMM_FORM_H_
#define CONVOY_KERNELS_GEMM_FORM_H_

#include "kernels/requantize.h"

#define CV_GEMM_BLOCKS 2
#define CV_GEMM_PANEL (CV_GEMM_BLOCKS * CV_LANES)
#define CV_GEMM_DEPTH 512
#define CV_GEMM_GROUP 8
/* Between the copied rows: no multiple of a page. */
#define CV_GEMM_X_ROW (CV_GEMM_DEPTH + CV_LANES)
#define CV_GEMM_CHAINS 4
/* Floats ahead of the weights in use: as far as it takes to reach the rate of a plain read loop.  They come
 * through L2: where a hint that they are read once passes it by, their prefetcher is passed by, too. */
#define CV_GEMM_AHEAD 2048
/* The same where a panel comes out of L2, for many rows. */
#define CV_GEMM_NEXT (8 * CV_GEMM_PANEL)
/* Steps of k of floats at a time.  Two vectors of 8 a step leave a loop little to do beside its own
 * bookkeeping, which costs where two threads share a core's decoder. */
#define CV_GEMM_STEPS (CV_FUSES && CV_REGISTERS == 16 ? 4 : 1)

/* Of a tile: two sums each, beside which a product that is no part of its addition needs registers. */
#define CV_GEMM_ROWS (CV_REGISTERS == 32 ? 14 : CV_FUSES ? 6 : 4)

/* Parts that a cell is multiplied in, and weights of a step of k for all of them. */
CV_INLINE int cv_gemm_parts(const cv_cell cell) { return cell == CV_BYTES ? CV_DOT_PARTS : 1; }
CV_INLINE int cv_gemm_weights(const cv_cell cell) { return cv_gemm_parts(cell) * CV_GEMM_PANEL; }

/* sum + x * w, of one cell, or a part of it; of bytes the sums are int32. */
CV_INLINE cv_vec cv_gemm_product(const cv_cell cell, cv_vec x, cv_vec w, cv_vec sum) {
  if (cell == CV_BYTES) return cv_as_float(cv_dot(cv_as_int(sum), cv_as_int(x), cv_as_int(w)));
  return cell == CV_BFLOATS ? cv_dot_bf16(x, w, sum) : cv_fma_sum(x, w, sum);
}

CV_INLINE cv_vec cv_gemm_add(const cv_cell cell, cv_vec a, cv_vec b) {
  return cell == CV_BYTES ? cv_as_float(cv_int_add(cv_as_int(a), cv_as_int(b))) : cv_add(a, b);
}

/* One tile: the first `columns` columns of a panel, `depth` steps of k. */
typedef struct cv_gemm_tile {
  const float *x;
  ptrdiff_t x_row;
  const float *panel;
  int depth, columns;
  float *y;
  ptrdiff_t y_row;
  const float *start; /* the bias of these columns; NULL: y holds the sums so far */
  const float *next;  /* weights that are read later, asked for `next_step` floats a step of k; or NULL */
  ptrdiff_t next_step;
  int amx; /* this thread's AMX tiles have its rows */
} cv_gemm_tile;

CV_INLINE int cv_gemm_lanes(int columns, int block) {
  const int rest = columns - block * CV_LANES;
  return rest < 0 ? 0 : rest < CV_LANES ? rest : CV_LANES;
}

/* Steps of k: cells of bfloat16 hold two. */
CV_INLINE int cv_gemm_steps(const int bf16, int k) { return bf16 ? (k + 1) / 2 : k; }

#endif
