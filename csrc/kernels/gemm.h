/* Matrix product with bias, residual and activations:
 *
 *   y[i][j] = outer(inner(sum_p x[i][p] * w[p][j] + bias[j]) + residual[i][j])
 *
 * w is packed in panels of CV_GEMM_PANEL = CV_GEMM_BLOCKS * CV_LANES columns, zero-padded:
 * w[p][j] = panels[j / CV_GEMM_PANEL][p][j % CV_GEMM_PANEL], aligned to a vector.  bias is padded
 * with zeros to whole panels.  x, y and residual are row-major with rows of k, n and n floats, of any
 * alignment; y overlaps neither x nor residual.
 *
 * Tile: CV_GEMM_ROWS rows x one panel, sums in registers.  Blocks: k in parts of at most CV_GEMM_DEPTH
 * (sums wait in y between them) and CV_GEMM_GROUP panels, so that a tile's rows of x stay in L1 and
 * the group in L2.  Rows that fall into the same L1 sets are copied together first.  The tiles of a group
 * ask, in turns, for the weights of the next one.
 * m = 1 reads each weight once and does nothing else: it runs at the speed of DRAM, with sums of
 * CV_GEMM_CHAINS interleaved parts of k.
 *
 * cv_gemm_bf16 multiplies bfloat16: w is rounded and packed in cells, [panel][ceil(k / 2)][column][2] with
 * a zero where k is odd, and what is said of steps of k holds for cells.  The rows of x are float32, and
 * rounded as they are copied.
 *
 * cv_gemm_bytes multiplies bytes, u8 in x and s8 in w, in cells of four: sums are int32, which begin at
 * `start` and are requantised (kernels/requantize.h) from a tile's own memory: so k is not cut.  It is a
 * multiple of 4, and so is the address of x.  Without an instruction for them a cell is multiplied in
 * CV_DOT_PARTS parts (simd/simd.h), and w is [panel][k / 4][part][column][2] of 16 bits.
 *
 * With AMX (simd/amx.h) whole tiles of 16 cells of k are multiplied there, for both, and vectors add what
 * is left of k.
 *
 * Threads split the tiles, panel-major: neighbours share at most one panel.  Of many rows and few columns
 * they split the rows: each reads all weights, which are few, and its own rows of x once for all columns.
 */
#ifndef CONVOY_KERNELS_GEMM_H_
#define CONVOY_KERNELS_GEMM_H_

#include <string.h>

#include "kernels/activation.h"
#include "kernels/map.h"
#include "kernels/requantize.h"
#include "simd/amx.h"

#define CV_GEMM_BLOCKS 2
#define CV_GEMM_PANEL (CV_GEMM_BLOCKS * CV_LANES)
#define CV_GEMM_DEPTH 512
#define CV_GEMM_GROUP 8
/* Between the copied rows: no multiple of a page. */
#define CV_GEMM_X_ROW (CV_GEMM_DEPTH + CV_LANES)
#define CV_GEMM_CHAINS 4
/* Floats ahead of the weights in use: as far as it takes to reach the rate of a plain read loop.  Weights
 * that pass L2 by do not drive others from it into L3. */
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
      if (steps == 1) cv_prefetch(w + CV_GEMM_NEXT + b * CV_LANES);
    }
    CV_UNROLL
    for (int r = 0; r < rows; r++) {
      /* As an array, whose places are displacements: sums of numbers would be a register for each step. */
      const float (*row)[CV_GEMM_STEPS] = (const float (*)[CV_GEMM_STEPS])(x + r * x_row);
      const cv_vec v = cv_set1((*row)[s]);
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
CV_INLINE void cv_gemm_stream_step(cv_vec *sum, float x, const float *w, const cv_cell cell,
                                   const int asks) {
  const cv_vec v = cv_set1(x);
  CV_UNROLL
  for (int k = 0; k < cv_gemm_parts(cell) * CV_GEMM_BLOCKS; k++) {
    const int b = k % CV_GEMM_BLOCKS, part = k / CV_GEMM_BLOCKS;
    const cv_vec of = cell == CV_BYTES ? cv_as_float(cv_dot_part(cv_as_int(v), part)) : v;
    if (asks) cv_prefetch_once(w + CV_GEMM_AHEAD + k * CV_LANES);
    sum[b] = cv_gemm_product(cell, of, cv_load(w + k * CV_LANES), sum[b]);
  }
}

/* The same for one row, streaming the panel. */
CV_INLINE void cv_gemm_stream(const cv_gemm_tile *t, const cv_cell cell) {
  cv_vec sum[CV_GEMM_CHAINS][CV_GEMM_BLOCKS];
  const float *x = t->x, *w = t->panel;
  CV_UNROLL
  for (int c = 0; c < CV_GEMM_CHAINS; c++) {
    CV_UNROLL
    for (int b = 0; b < CV_GEMM_BLOCKS; b++) sum[c][b] = cv_zero();
  }
  const int whole = t->depth / CV_GEMM_CHAINS * CV_GEMM_CHAINS;
  for (const float *end = x + whole; x != end; x += CV_GEMM_CHAINS) {
    CV_UNROLL
    for (int c = 0; c < CV_GEMM_CHAINS; c++, w += cv_gemm_weights(cell))
      cv_gemm_stream_step(sum[c], x[c], w, cell, 1);
  }
  for (int p = whole; p < t->depth; p++, x++, w += cv_gemm_weights(cell))
    cv_gemm_stream_step(sum[0], *x, w, cell, 0);
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

/* ---- AMX ---- */

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

/* Steps of k: cells of bfloat16 hold two. */
CV_INLINE int cv_gemm_steps(const int bf16, int k) { return bf16 ? (k + 1) / 2 : k; }

/* Rounds `count` floats of a row of x into cells. */
static inline void cv_gemm_round(float *cells, const float *x, int count) {
  for (int i = 0; i < count; i += CV_LANES) {
    const int rest = count - i < CV_LANES ? count - i : CV_LANES;
    cv_store_bf16(cells + i / 2, cv_load_n(x + i, rest));
  }
}

/* y = outer(inner(y) + residual), while the tile is still in L1. */
static inline void cv_gemm_finish(const cv_gemm_tile *t, int rows, const float *residual,
                                  cv_activation inner, cv_activation outer) {
  for (int b = 0; b < CV_GEMM_BLOCKS; b++) {
    const int lanes = cv_gemm_lanes(t->columns, b);
    float *y = t->y + b * CV_LANES;
    if (inner.kind != CV_IDENTITY) cv_activate_vectors(inner, y, rows, t->y_row, lanes);
    for (int r = 0; residual && r < rows; r++) {
      const ptrdiff_t at = r * t->y_row;
      const cv_vec added = cv_load_n(residual + b * CV_LANES + at, lanes);
      cv_store_n(y + at, cv_add(cv_load_n(y + at, lanes), added), lanes);
    }
    if (outer.kind != CV_IDENTITY) cv_activate_vectors(outer, y, rows, t->y_row, lanes);
  }
}

/* y and residual are [m][n], bytes or floats as cv_requantize says. */
typedef struct cv_gemm_requantized {
  void *y;
  const void *residual; /* or NULL */
  const cv_requantize *requantize;
} cv_gemm_requantized;

CV_INLINE cv_vec cv_gemm_added(const cv_gemm_requantized *e, ptrdiff_t at, int lanes) {
  const cv_requantize *r = e->requantize;
  if (r->residual_scale == 0.0f) return cv_load_n((const float *)e->residual + at, lanes);
  const cv_vec bytes = cv_from_int(cv_load_bytes_n((const uint8_t *)e->residual + at, lanes));
  return cv_fma(bytes, cv_set1(r->residual_scale), cv_set1(r->residual_shift));
}

typedef struct cv_gemm_problem {
  int m, k, n;
  int steps; /* of k: of bfloat16 cells of it */
  const float *x, *w;
  float *y;
  const float *bias, *residual;
  cv_activation inner, outer;
  const cv_gemm_requantized *ending; /* of sums of bytes: what comes in place of y and the rest */
} cv_gemm_problem;

/* What becomes of a tile's sums of bytes, a row after the other: floats in their place, then y. */
static __attribute__((noinline, unused)) void cv_gemm_end_bytes(const cv_gemm_requantized *e, float *sums,
                                                                int rows, int columns, int column,
                                                                ptrdiff_t at, int n) {
  const cv_requantize *r = e->requantize;
  const cv_vec low = cv_set1(r->low), high = cv_set1(r->high), unit = cv_set1(r->unit);
  for (int b = 0; b < CV_GEMM_BLOCKS; b++, sums += CV_LANES, column += CV_LANES, at += CV_LANES) {
    const int lanes = cv_gemm_lanes(columns, b);
    const cv_vec scale = cv_load(r->scale + column), shift = cv_load(r->shift + column);
    for (int i = 0; i < rows; i++) {
      float *sum = sums + i * CV_GEMM_PANEL;
      cv_store(sum, cv_fma(cv_from_int(cv_as_int(cv_load(sum))), scale, shift));
    }
    if (r->inner.kind != CV_IDENTITY) cv_activate_vectors(r->inner, sums, rows, CV_GEMM_PANEL, lanes);
    for (int i = 0; e->residual && i < rows; i++) {
      float *sum = sums + i * CV_GEMM_PANEL;
      cv_store(sum, cv_add(cv_load(sum), cv_gemm_added(e, at + (ptrdiff_t)i * n, lanes)));
    }
    if (r->outer.kind != CV_IDENTITY) cv_activate_vectors(r->outer, sums, rows, CV_GEMM_PANEL, lanes);
    for (int i = 0; i < rows; i++) {
      const ptrdiff_t to = at + (ptrdiff_t)i * n;
      const cv_vec v = cv_mul(cv_load(sums + i * CV_GEMM_PANEL), unit);
      if (r->floats) {
        cv_store_n((float *)e->y + to, cv_min(high, cv_max(low, v)), lanes);
      } else {
        cv_store_bytes_n((uint8_t *)e->y + to, cv_requantize_round(v, low, high, cv_int_set1(r->zero)),
                         lanes);
      }
    }
  }
}

/* The columns of `panels` x the rows [rows.begin, rows.end), one tile of them, the `turn`-th of `turns`
 * that read these panels. */
CV_INLINE void cv_gemm_columns(const cv_cell cell, const cv_gemm_problem *g, cv_range panels, cv_range rows,
                               cv_range k, const float *x, ptrdiff_t x_row, int amx, int turn, int turns) {
  const int width = cv_gemm_weights(cell);
  const int depth = k.end - k.begin, step = width / turns, apart = cell == CV_BYTES;
  float sums[CV_GEMM_ROWS * CV_GEMM_PANEL] __attribute__((aligned(64)));
  /* Steps of k to the same place of what follows: the next part of the panel, or of the next group. */
  const ptrdiff_t later =
      k.end < g->steps ? depth : (ptrdiff_t)(panels.end - panels.begin) * g->steps - k.begin;
  for (int panel = panels.begin; panel < panels.end; panel++) {
    const int column = panel * CV_GEMM_PANEL, rest = g->n - column;
    const int columns = rest < CV_GEMM_PANEL ? rest : CV_GEMM_PANEL;
    const ptrdiff_t at = (ptrdiff_t)rows.begin * g->n + column;
    const cv_gemm_tile tile = {
        .x = x,
        .x_row = x_row,
        .panel = g->w + ((ptrdiff_t)panel * g->steps + k.begin) * width,
        .depth = k.end - k.begin,
        .columns = apart ? CV_GEMM_PANEL : columns,
        .y = apart ? sums : g->y + at,
        .y_row = apart ? CV_GEMM_PANEL : g->n,
        .start = k.begin == 0 ? g->bias + column : NULL,
        .next =
            g->w + ((ptrdiff_t)panel * g->steps + k.begin + later) * width + (ptrdiff_t)turn * depth * step,
        .next_step = step,
        .amx = amx,
    };
    if (g->m == 1) {
      cv_gemm_stream(&tile, cell);
    } else if (cell == CV_BYTES) {
      cv_gemm_run_bytes(&tile, rows.end - rows.begin);
    } else if (cell == CV_BFLOATS) {
      cv_gemm_run_bf16(&tile, rows.end - rows.begin);
    } else {
      cv_gemm_run(&tile, rows.end - rows.begin);
    }
    if (apart) {
      cv_gemm_end_bytes(g->ending, sums, rows.end - rows.begin, columns, column, at, g->n);
    } else if (k.end == g->steps) {
      cv_gemm_finish(&tile, rows.end - rows.begin, g->residual ? g->residual + at : NULL, g->inner,
                     g->outer);
    }
  }
}

/* Whether a tile's rows fall into the same sets of an L1 of 8 ways: parts of rows that are a multiple of a
 * page apart, or nearly. */
static inline int cv_gemm_rows_collide(int k) {
  const int page = 4096 / (int)sizeof(float), near = page / 8, past = k % page;
  return k > CV_GEMM_DEPTH && (past < near || past > page - near);
}

/* The columns of `panels` x the rows of tiles [first, last) out of `tiles`. */
CV_INLINE void cv_gemm_rectangle(const cv_cell cell, const cv_gemm_problem *g, cv_range panels, int first,
                                 int last, int tiles) {
  float copy[CV_GEMM_ROWS * CV_GEMM_X_ROW] __attribute__((aligned(64)));
  const int bf16 = cell == CV_BFLOATS, elements = bf16 ? 2 : 1;
  const int copies = bf16 || (cell == CV_FLOATS && cv_gemm_rows_collide(g->k));
  const int deep = bf16 && g->m == 1 ? CV_GEMM_ROWS * CV_GEMM_DEPTH : CV_GEMM_DEPTH;
  const int most = cell == CV_BYTES ? g->steps : deep;
  const int parts = g->steps > most ? (g->steps + most - 1) / most : 1;
  int shaped = 0;
  for (int part = 0; part < parts; part++) {
    const cv_range k = cv_share((cv_thread){part, parts}, g->steps);
    const int rest = g->k - k.begin * elements, count = (k.end - k.begin) * elements;
    for (int tile = first; tile < last; tile++) {
      const cv_range rows = cv_share((cv_thread){tile, tiles}, g->m);
      const float *x = g->x + (ptrdiff_t)rows.begin * g->k + k.begin * elements;
      for (int r = 0; copies && r < rows.end - rows.begin; r++) {
        const float *row = x + (ptrdiff_t)r * g->k;
        if (bf16) {
          cv_gemm_round(copy + r * CV_GEMM_X_ROW, row, rest < count ? rest : count);
        } else {
          memcpy(copy + r * CV_GEMM_X_ROW, row, (size_t)count * sizeof *x);
        }
      }
      const int amx = cv_gemm_shape(cell, rows.end - rows.begin, &shaped);
      cv_gemm_columns(cell, g, panels, rows, k, copies ? copy : x, copies ? CV_GEMM_X_ROW : g->k, amx,
                      tile - first, last - first);
    }
  }
  cv_gemm_release(shaped);
}

/* Whether threads share the rows: what all of them read of x and w is less then. */
static inline int cv_gemm_shares_rows(int m, int n, int threads) {
  const int panels = (n + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL, own = (panels + threads - 1) / threads;
  const ptrdiff_t by_rows =
      (ptrdiff_t)m * ((panels + CV_GEMM_GROUP - 1) / CV_GEMM_GROUP) + (ptrdiff_t)threads * n;
  const ptrdiff_t by_panels = (ptrdiff_t)threads * m * ((own + CV_GEMM_GROUP - 1) / CV_GEMM_GROUP) + n;
  return m >= 4 * threads * CV_GEMM_ROWS && by_rows < by_panels;
}

CV_INLINE void cv_gemm_of(const cv_cell cell, cv_thread thread, const cv_gemm_problem g) {
  const int m = g.m, k = g.k, n = g.n;
  const int panels = (n + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL;
  const int tiles = (m + CV_GEMM_ROWS - 1) / CV_GEMM_ROWS;
  const cv_range share = cv_share(thread, panels * tiles);
  if (m == 1 && cell == CV_BFLOATS) {
    cv_gemm_rectangle(cell, &g, share, 0, 1, 1);
    return;
  }
  if (m == 1) {
    cv_gemm_columns(cell, &g, share, (cv_range){0, 1}, (cv_range){0, k}, g.x, k, 0, 0, 1);
    return;
  }
  if (cv_gemm_shares_rows(m, n, thread.count)) {
    const cv_range own = cv_share(thread, tiles);
    for (int panel = 0; panel < panels; panel += CV_GEMM_GROUP) {
      const cv_range group = {panel, panel + CV_GEMM_GROUP < panels ? panel + CV_GEMM_GROUP : panels};
      cv_gemm_rectangle(cell, &g, group, own.begin, own.end, tiles);
    }
    return;
  }
  /* The share is whole panels, between a first and a last one of which it has some tiles. */
  for (int begin = share.begin; begin < share.end;) {
    const int panel = begin / tiles, first = begin % tiles, rest = share.end - begin;
    int count = 1, last = first + rest < tiles ? first + rest : tiles;
    if (first == 0 && rest > tiles) count = rest / tiles < CV_GEMM_GROUP ? rest / tiles : CV_GEMM_GROUP;
    cv_gemm_rectangle(cell, &g, (cv_range){panel, panel + count}, first, last, tiles);
    begin += count * (last - first);
  }
}

/* x [m][k], w packed [ceil(n / panel)][k][panel], y [m][n], bias [padded n], residual NULL or [m][n]. */
static inline void cv_gemm(cv_thread thread, int m, int k, int n, const float *x, const float *w, float *y,
                           const float *bias, const float *residual, cv_activation inner,
                           cv_activation outer) {
  cv_gemm_of(CV_FLOATS, thread, (cv_gemm_problem){m, k, n, k, x, w, y, bias, residual, inner, outer, NULL});
}

/* The same of bfloat16: w packed [ceil(n / panel)][ceil(k / 2)][panel] cells. */
static inline void cv_gemm_bf16(cv_thread thread, int m, int k, int n, const float *x, const float *w,
                                float *y, const float *bias, const float *residual, cv_activation inner,
                                cv_activation outer) {
  cv_gemm_of(CV_BFLOATS, thread,
             (cv_gemm_problem){m, k, n, cv_gemm_steps(1, k), x, w, y, bias, residual, inner, outer, NULL});
}

/* The same of bytes: x [m][k], w packed [ceil(n / panel)][k / 4][panel] cells, start [padded n]. */
static inline void cv_gemm_bytes(cv_thread thread, int m, int k, int n, const void *x, const float *w,
                                 const float *start, cv_gemm_requantized ending) {
  cv_gemm_problem g = {.m = m, .k = k / CV_BYTES, .n = n, .steps = k / CV_BYTES, .x = x, .w = w};
  g.bias = start;
  g.ending = &ending;
  cv_gemm_of(CV_BYTES, thread, g);
}

#endif
