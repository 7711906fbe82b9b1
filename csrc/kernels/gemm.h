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
 * Threads split the tiles, panel-major: neighbours share at most one panel.  Of many rows and few columns
 * they split the rows: each reads all weights, which are few, and its own rows of x once for all columns.
 */
#ifndef CONVOY_KERNELS_GEMM_H_
#define CONVOY_KERNELS_GEMM_H_

#include <string.h>

#include "kernels/activation.h"
#include "kernels/map.h"

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

/* Of a tile: two sums each, beside which a product that is no part of its addition needs registers. */
#define CV_GEMM_ROWS (CV_REGISTERS == 32 ? 14 : CV_FUSES ? 6 : 4)

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
} cv_gemm_tile;

CV_INLINE int cv_gemm_lanes(int columns, int block) {
  const int rest = columns - block * CV_LANES;
  return rest < 0 ? 0 : rest < CV_LANES ? rest : CV_LANES;
}

/* y = (bias or y) + x w for a tile of exactly `rows` rows and the first `blocks` vectors of its panel,
 * constants. */
CV_INLINE void cv_gemm_multiply(const cv_gemm_tile *t, const int rows, const int blocks) {
  cv_vec sum[CV_GEMM_ROWS][CV_GEMM_BLOCKS];
  ptrdiff_t x_row = t->x_row;
  /* Hidden where it is a constant, or the rows become 4-byte displacements, which make the loop slower. */
  __asm__("" : "+r"(x_row));
  const ptrdiff_t y_row = t->y_row;
  const ptrdiff_t next_step = t->next_step;
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
  for (const float *end = x + t->depth; x != end; x++, w += CV_GEMM_PANEL) {
    cv_vec column[CV_GEMM_BLOCKS];
    CV_UNROLL
    for (int b = 0; b < blocks; b++) {
      column[b] = cv_load(w + b * CV_LANES);
      cv_prefetch(w + CV_GEMM_NEXT + b * CV_LANES);
    }
    if (rows > CV_GEMM_ROWS / 2) { /* of fewer a step is too short for a third line */
      cv_prefetch_l2(next);
      next += next_step;
    }
    CV_UNROLL
    for (int r = 0; r < rows; r++) {
      const cv_vec v = cv_set1(x[r * x_row]);
      CV_UNROLL
      for (int b = 0; b < blocks; b++) sum[r][b] = cv_fma(v, column[b], sum[r][b]);
    }
  }
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

/* The same for one row, streaming the panel. */
static inline void cv_gemm_stream(const cv_gemm_tile *t) {
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
    for (int c = 0; c < CV_GEMM_CHAINS; c++, w += CV_GEMM_PANEL) {
      const cv_vec v = cv_set1(x[c]);
      CV_UNROLL
      for (int b = 0; b < CV_GEMM_BLOCKS; b++) {
        cv_prefetch_once(w + CV_GEMM_AHEAD + b * CV_LANES);
        sum[c][b] = cv_fma(v, cv_load(w + b * CV_LANES), sum[c][b]);
      }
    }
  }
  for (int p = whole; p < t->depth; p++, x++, w += CV_GEMM_PANEL) {
    CV_UNROLL
    for (int b = 0; b < CV_GEMM_BLOCKS; b++) {
      sum[0][b] = cv_fma(cv_set1(*x), cv_load(w + b * CV_LANES), sum[0][b]);
    }
  }
  CV_UNROLL
  for (int b = 0; b < CV_GEMM_BLOCKS; b++) {
    const cv_vec total = cv_add(cv_add(sum[0][b], sum[1][b]), cv_add(sum[2][b], sum[3][b]));
    cv_store_n(t->y + b * CV_LANES, cv_add(total, cv_load(t->start + b * CV_LANES)),
               cv_gemm_lanes(t->columns, b));
  }
}

#define CV_GEMM_ROWS_CASE(rows)           \
  case rows:                              \
    cv_gemm_multiply(tile, rows, blocks); \
    break;

CV_INLINE void cv_gemm_run_blocks(const cv_gemm_tile *tile, int rows, const int blocks) {
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
  cv_gemm_run_blocks(tile, rows, CV_GEMM_BLOCKS);
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

typedef struct cv_gemm_problem {
  int m, k, n;
  const float *x, *w;
  float *y;
  const float *bias, *residual;
  cv_activation inner, outer;
} cv_gemm_problem;

/* The columns of `panels` x the rows [rows.begin, rows.end), one tile of them, the `turn`-th of `turns`
 * that read these panels. */
static inline void cv_gemm_columns(const cv_gemm_problem *g, cv_range panels, cv_range rows, cv_range k,
                                   const float *x, ptrdiff_t x_row, int turn, int turns) {
  const int depth = k.end - k.begin, step = CV_GEMM_PANEL / turns;
  /* Steps of k to the same place of what follows: the next part of the panel, or of the next group. */
  const ptrdiff_t later = k.end < g->k ? depth : (ptrdiff_t)(panels.end - panels.begin) * g->k - k.begin;
  for (int panel = panels.begin; panel < panels.end; panel++) {
    const int column = panel * CV_GEMM_PANEL, rest = g->n - column;
    const ptrdiff_t at = (ptrdiff_t)rows.begin * g->n + column;
    const cv_gemm_tile tile = {
        .x = x,
        .x_row = x_row,
        .panel = g->w + ((ptrdiff_t)panel * g->k + k.begin) * CV_GEMM_PANEL,
        .depth = k.end - k.begin,
        .columns = rest < CV_GEMM_PANEL ? rest : CV_GEMM_PANEL,
        .y = g->y + at,
        .y_row = g->n,
        .start = k.begin == 0 ? g->bias + column : NULL,
        .next = g->w + ((ptrdiff_t)panel * g->k + k.begin + later) * CV_GEMM_PANEL +
                (ptrdiff_t)turn * depth * step,
        .next_step = step,
    };
    if (g->m == 1) {
      cv_gemm_stream(&tile);
    } else {
      cv_gemm_run(&tile, rows.end - rows.begin);
    }
    if (k.end == g->k) {
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
static inline void cv_gemm_rectangle(const cv_gemm_problem *g, cv_range panels, int first, int last,
                                     int tiles) {
  float copy[CV_GEMM_ROWS * CV_GEMM_X_ROW];
  const int copies = cv_gemm_rows_collide(g->k);
  const int parts = g->k > CV_GEMM_DEPTH ? (g->k + CV_GEMM_DEPTH - 1) / CV_GEMM_DEPTH : 1;
  for (int part = 0; part < parts; part++) {
    const cv_range k = cv_share((cv_thread){part, parts}, g->k);
    for (int tile = first; tile < last; tile++) {
      const cv_range rows = cv_share((cv_thread){tile, tiles}, g->m);
      const float *x = g->x + (ptrdiff_t)rows.begin * g->k + k.begin;
      for (int r = 0; copies && r < rows.end - rows.begin; r++) {
        memcpy(copy + r * CV_GEMM_X_ROW, x + (ptrdiff_t)r * g->k, (size_t)(k.end - k.begin) * sizeof *x);
      }
      cv_gemm_columns(g, panels, rows, k, copies ? copy : x, copies ? CV_GEMM_X_ROW : g->k, tile - first,
                      last - first);
    }
  }
}

/* Whether threads share the rows: what all of them read of x and w is less then. */
static inline int cv_gemm_shares_rows(int m, int n, int threads) {
  const int panels = (n + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL, own = (panels + threads - 1) / threads;
  const ptrdiff_t by_rows =
      (ptrdiff_t)m * ((panels + CV_GEMM_GROUP - 1) / CV_GEMM_GROUP) + (ptrdiff_t)threads * n;
  const ptrdiff_t by_panels = (ptrdiff_t)threads * m * ((own + CV_GEMM_GROUP - 1) / CV_GEMM_GROUP) + n;
  return m >= 4 * threads * CV_GEMM_ROWS && by_rows < by_panels;
}

/* x [m][k], w packed [ceil(n / panel)][k][panel], y [m][n], bias [padded n], residual NULL or [m][n]. */
static inline void cv_gemm(cv_thread thread, int m, int k, int n, const float *x, const float *w, float *y,
                           const float *bias, const float *residual, cv_activation inner,
                           cv_activation outer) {
  const cv_gemm_problem g = {m, k, n, x, w, y, bias, residual, inner, outer};
  const int panels = (n + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL;
  const int tiles = (m + CV_GEMM_ROWS - 1) / CV_GEMM_ROWS;
  const cv_range share = cv_share(thread, panels * tiles);
  if (m == 1) {
    cv_gemm_columns(&g, share, (cv_range){0, 1}, (cv_range){0, k}, x, k, 0, 1);
    return;
  }
  if (cv_gemm_shares_rows(m, n, thread.count)) {
    const cv_range own = cv_share(thread, tiles);
    for (int panel = 0; panel < panels; panel += CV_GEMM_GROUP) {
      const cv_range group = {panel, panel + CV_GEMM_GROUP < panels ? panel + CV_GEMM_GROUP : panels};
      cv_gemm_rectangle(&g, group, own.begin, own.end, tiles);
    }
    return;
  }
  /* The share is whole panels, between a first and a last one of which it has some tiles. */
  for (int begin = share.begin; begin < share.end;) {
    const int panel = begin / tiles, first = begin % tiles, rest = share.end - begin;
    int count = 1, last = first + rest < tiles ? first + rest : tiles;
    if (first == 0 && rest > tiles) count = rest / tiles < CV_GEMM_GROUP ? rest / tiles : CV_GEMM_GROUP;
    cv_gemm_rectangle(&g, (cv_range){panel, panel + count}, first, last, tiles);
    begin += count * (last - first);
  }
}

#endif
