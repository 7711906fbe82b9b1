/* Tiles of a matrix product: rows x a panel, sums in registers, and one row that streams it (gemm.h). */
#ifndef CONVOY_KERNELS_GEMM_TILE_H_
#define CONVOY_KERNELS_GEMM_TILE_H_

#include "kernels/gemm_amx.h"
#include "kernels/gemm_form.h"

/* Adds a cell of one row in parts, as cv_conv2d_channel_in_parts. */
CV_INLINE void cv_gemm_row_in_parts(cv_vec *sum, const float *x, const float *w, const int blocks) {
  CV_UNROLL
  for (int part = 0; part < CV_DOT_PARTS; part++, w += CV_GEMM_PANEL) {
    const cv_int bytes = cv_dot_cell(x, part);
    CV_UNROLL
    for (int b = 0; b < blocks; b++)
      sum[b] = cv_as_float(cv_dot_at(cv_as_int(sum[b]), bytes, w + b * CV_LANES));
  }
}

/* sum += x w over `steps` steps of k; rows, blocks and steps are constants. */
CV_INLINE void cv_gemm_advance(cv_vec sum[][CV_GEMM_BLOCKS], const float *x, ptrdiff_t x_row,
                               const float *w, const int rows, const int blocks, const int steps,
                               const cv_cell cell) {
  CV_UNROLL
  for (int s = 0; s < steps; s++, w += cv_gemm_weights(cell)) {
    if (cv_gemm_parts(cell) > 1) {
      CV_UNROLL
      for (int b = 0; b < CV_DOT_PARTS * blocks; b++) cv_prefetch(w + CV_GEMM_NEXT + b * CV_LANES);
      CV_UNROLL
      for (int r = 0; r < rows; r++) cv_gemm_row_in_parts(sum[r], x + r * x_row, w, blocks);
      continue;
    }
    cv_vec column[CV_GEMM_BLOCKS];
    CV_UNROLL
    for (int b = 0; b < blocks; b++) {
      column[b] = cv_load(w + b * CV_LANES);
      if (rows == 2 || rows == 3) column[b] = cv_hold(column[b]); /* or it is loaded for each row */
      if (steps == 1) cv_prefetch(w + CV_GEMM_NEXT + b * CV_LANES);
    }
    CV_UNROLL
    for (int r = 0; r < rows; r++) {
      /* As an array, whose places are displacements: sums of numbers would be a register for each step. */
      const float (*row)[CV_GEMM_STEPS] = (const float (*)[CV_GEMM_STEPS])(x + r * x_row);
      const cv_vec v = cv_load1(*row + s);
      CV_UNROLL
      for (int b = 0; b < blocks; b++) sum[r][b] = cv_gemm_product(cell, v, column[b], sum[r][b]);
    }
    /* One step after the other, or there are not enough registers. */
    if (steps > 1) __asm__ volatile("" : : : "memory");
  }
}

/* y = (bias or y) + x w for a tile of exactly `rows` rows and the first `blocks` vectors of its panel,
 * constants. */
CV_INLINE void cv_gemm_multiply(const cv_gemm_tile *t, const int rows, const int blocks,
                                const cv_cell cell) {
  cv_vec sum[CV_GEMM_ROWS][CV_GEMM_BLOCKS];
  ptrdiff_t x_row = t->x_row;
  /* Hidden where it is a constant, or the rows become 4-byte displacements, which make the loop slower. */
  __asm__("" : "+r"(x_row));
  const ptrdiff_t y_row = t->y_row;
  const float *x = t->x, *w = t->panel, *next = t->next ? t->next : t->panel;
  float *y = t->y;
  CV_UNROLL
  for (int r = 0; r < rows; r++) {
    CV_UNROLL
    for (int b = 0; b < blocks; b++) {
      sum[r][b] = t->start ? cv_load(t->start + b * CV_LANES)
                           : cv_load_n(y + r * y_row + b * CV_LANES, cv_gemm_lanes(t->columns, b));
    }
  }
  const int steps = cell == CV_FLOATS ? CV_GEMM_STEPS : 1, rest = t->depth % steps;
  const ptrdiff_t next_step = t->next_step * steps;
  for (const float *end = x + t->depth - rest; x != end; x += steps, w += steps * cv_gemm_weights(cell)) {
    if (rows > CV_GEMM_ROWS / 2) { /* of fewer a step is too short for a third line */
      cv_prefetch_l2(next);
      next += next_step;
    }
    cv_gemm_advance(sum, x, x_row, w, rows, blocks, steps, cell);
  }
  for (const float *end = x + rest; x != end; x++, w += cv_gemm_weights(cell))
    cv_gemm_advance(sum, x, x_row, w, rows, blocks, 1, cell);
  if (t->columns == blocks * CV_LANES) {
    CV_UNROLL
    for (int r = 0; r < rows; r++) {
      CV_UNROLL
      for (int b = 0; b < blocks; b++) cv_storeu(y + r * y_row + b * CV_LANES, sum[r][b]);
    }
    return;
  }
  CV_UNROLL
  for (int r = 0; r < rows; r++) {
    CV_UNROLL
    for (int b = 0; b < blocks; b++) {
      cv_store_n(y + r * y_row + b * CV_LANES, sum[r][b], cv_gemm_lanes(t->columns, b));
    }
  }
}

/* One step of k of one row; asks: for the weights that come later. */
CV_INLINE void cv_gemm_stream_step(cv_vec *sum, const float *x, const float *w, const cv_cell cell,
                                   const int asks) {
  const cv_vec v = cv_load1(x);
  CV_UNROLL
  for (int k = 0; k < cv_gemm_parts(cell) * CV_GEMM_BLOCKS; k++) {
    const int b = k % CV_GEMM_BLOCKS, part = k / CV_GEMM_BLOCKS;
    const cv_vec of = cell == CV_BYTES ? cv_as_float(cv_dot_part(cv_as_int(v), part)) : v;
    if (asks) cv_prefetch_l2(w + CV_GEMM_AHEAD + k * CV_LANES);
    sum[b] = cv_gemm_product(cell, of, cv_load(w + k * CV_LANES), sum[b]);
  }
}

/* As many steps of one row as chains. */
CV_INLINE const float *cv_gemm_stream_steps(cv_vec sum[][CV_GEMM_BLOCKS], const float *x, const float *w,
                                            const cv_cell cell, const int asks) {
  CV_UNROLL
  for (int c = 0; c < CV_GEMM_CHAINS; c++, w += cv_gemm_weights(cell))
    cv_gemm_stream_step(sum[c], x + c, w, cell, asks);
  return w;
}

/* The same for one row, streaming the panel. */
CV_INLINE void cv_gemm_stream(const cv_gemm_tile *t, const cv_cell cell, int far) {
  cv_vec sum[CV_GEMM_CHAINS][CV_GEMM_BLOCKS];
  const float *x = t->x, *w = t->panel;
  CV_UNROLL
  for (int c = 0; c < CV_GEMM_CHAINS; c++) {
    CV_UNROLL
    for (int b = 0; b < CV_GEMM_BLOCKS; b++) sum[c][b] = cv_zero();
  }
  const int whole = t->depth / CV_GEMM_CHAINS * CV_GEMM_CHAINS;
  const float *end = x + whole;
  for (; far && x != end; x += CV_GEMM_CHAINS) w = cv_gemm_stream_steps(sum, x, w, cell, 1);
  for (; x != end; x += CV_GEMM_CHAINS) w = cv_gemm_stream_steps(sum, x, w, cell, 0);
  for (int p = whole; p < t->depth; p++, x++, w += cv_gemm_weights(cell))
    cv_gemm_stream_step(sum[0], x, w, cell, 0);
  CV_UNROLL
  for (int b = 0; b < CV_GEMM_BLOCKS; b++) {
    const cv_vec low = cv_gemm_add(cell, sum[0][b], sum[1][b]);
    const cv_vec total = cv_gemm_add(cell, low, cv_gemm_add(cell, sum[2][b], sum[3][b]));
    const int lanes = cv_gemm_lanes(t->columns, b);
    const cv_vec start =
        t->start ? cv_load(t->start + b * CV_LANES) : cv_load_n(t->y + b * CV_LANES, lanes);
    cv_store_n(t->y + b * CV_LANES, cv_gemm_add(cell, total, start), lanes);
  }
}

#define CV_GEMM_ROWS_CASE(rows)                 \
  case rows:                                    \
    cv_gemm_multiply(tile, rows, blocks, cell); \
    break;

CV_INLINE void cv_gemm_run_of(const cv_cell cell, const cv_gemm_tile *tile, int rows, const int blocks) {
  cv_gemm_tile rest;
  if (CV_AMX && cell != CV_FLOATS && tile->amx) {
    rest = cv_gemm_rest(tile, cv_gemm_multiply_amx(cell, tile, rows));
    if (rest.depth == 0) return;
    tile = &rest;
  }
  switch (rows) {
    CV_GEMM_ROWS_CASE(1)
    CV_GEMM_ROWS_CASE(2)
    CV_GEMM_ROWS_CASE(3)
    CV_GEMM_ROWS_CASE(4)
#if CV_GEMM_ROWS > 4
    CV_GEMM_ROWS_CASE(5)
    CV_GEMM_ROWS_CASE(6)
#endif
#if CV_GEMM_ROWS > 6
    CV_GEMM_ROWS_CASE(7)
    CV_GEMM_ROWS_CASE(8)
    CV_GEMM_ROWS_CASE(9)
    CV_GEMM_ROWS_CASE(10)
    CV_GEMM_ROWS_CASE(11)
    CV_GEMM_ROWS_CASE(12)
    CV_GEMM_ROWS_CASE(13)
    CV_GEMM_ROWS_CASE(14)
#endif
  }
}

static inline void cv_gemm_run(const cv_gemm_tile *tile, int rows) {
  cv_gemm_run_of(CV_FLOATS, tile, rows, CV_GEMM_BLOCKS);
}

static inline void cv_gemm_run_bf16(const cv_gemm_tile *tile, int rows) {
  cv_gemm_run_of(CV_BFLOATS, tile, rows, CV_GEMM_BLOCKS);
}

static inline void cv_gemm_run_bytes(const cv_gemm_tile *tile, int rows) {
  cv_gemm_run_of(CV_BYTES, tile, rows, CV_GEMM_BLOCKS);
}

#endif
