/* Tiles of a matrix product with AMX: whole tiles of cells of k, the rest of k is left to vectors (gemm.h).
 */
#ifndef CONVOY_KERNELS_GEMM_AMX_H_
#define CONVOY_KERNELS_GEMM_AMX_H_

#include "kernels/gemm_form.h"
#include "simd/amx.h"

/* Shapes this thread's AMX tiles for so many rows; *shaped: those they have, or 0.  Returns whether tiles
 * of gemm.h are to be multiplied with them. */
CV_INLINE int cv_gemm_shape(const cv_cell cell, int rows, int *shaped) {
  const int multiplies = cell == CV_BYTES ? CV_AMX : cell == CV_BFLOATS ? CV_AMX_BF16 : 0;
  if (!multiplies || rows == 1 || !cv_amx_allowed()) return 0;
  if (rows != *shaped) cv_amx_shape(*shaped = rows, CV_AMX_CELLS);
  return 1;
}

CV_INLINE void cv_gemm_release(int shaped) {
  if (CV_AMX && shaped) cv_amx_release();
}

/* Adds the whole tiles of k to `start`, or to y; returns how many steps that were. */
CV_INLINE int cv_gemm_multiply_amx(const cv_cell cell, const cv_gemm_tile *t, int rows) {
  float sums[CV_GEMM_ROWS * CV_GEMM_PANEL] __attribute__((aligned(64)));
  const int whole = t->depth / CV_AMX_CELLS * CV_AMX_CELLS;
  if (whole == 0) return 0;
  CV_UNROLL
  for (int b = 0; b < CV_GEMM_BLOCKS; b++) cv_amx_zero(b);
  for (int p = 0; p < whole; p += CV_AMX_CELLS) {
    cv_amx_load(4, t->x + p, t->x_row);
    CV_UNROLL
    for (int b = 0; b < CV_GEMM_BLOCKS; b++) {
      cv_amx_load(6 + b, t->panel + (ptrdiff_t)p * CV_GEMM_PANEL + b * CV_LANES, CV_GEMM_PANEL);
      if (cell == CV_BYTES) {
        cv_amx_dot_bytes(b);
      } else {
        cv_amx_dot_bf16(b);
      }
    }
  }
  CV_UNROLL
  for (int b = 0; b < CV_GEMM_BLOCKS; b++) {
    const int lanes = cv_gemm_lanes(t->columns, b);
    cv_amx_store(b, sums + b * CV_LANES, CV_GEMM_PANEL);
    for (int r = 0; r < rows; r++) {
      float *y = t->y + r * t->y_row + b * CV_LANES;
      const cv_vec start = t->start ? cv_load(t->start + b * CV_LANES) : cv_load_n(y, lanes);
      cv_store_n(y, cv_gemm_add(cell, start, cv_load(sums + r * CV_GEMM_PANEL + b * CV_LANES)), lanes);
    }
  }
  return whole;
}

/* The steps of k behind the first `done`, whose sums are in y. */
CV_INLINE cv_gemm_tile cv_gemm_rest(const cv_gemm_tile *t, int done) {
  cv_gemm_tile rest = *t;
  rest.x += done;
  rest.panel += (ptrdiff_t)done * CV_GEMM_PANEL;
  rest.depth -= done;
  rest.start = done ? NULL : t->start;
  return rest;
}

#endif
