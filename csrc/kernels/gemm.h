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
 * CV_GEMM_CHAINS interleaved parts of k.  Where weights are `far`, in no core's L2, they are asked for
 * ahead; out of L2 they come slower for that.
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
 * cv_gemm_scaled multiplies whole numbers of 4 or 8 bits that have a scale for each block of steps of k, as
 * weights of large language models have.  Few rows multiply them as they are, and each block's sum by its
 * scale.  For more rows a group of panels becomes floats first, a part of k deep, in L2.
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

#include "kernels/gemm_end.h"
#include "kernels/gemm_scaled_panel.h"
#include "kernels/gemm_tile.h"
#include "kernels/map.h"

typedef struct cv_gemm_problem {
  int m, k, n;
  int steps; /* of k: of bfloat16 cells of it */
  const float *x, *w;
  int far;
  float *y;
  const float *bias, *residual;
  cv_activation inner, outer;
  const cv_gemm_requantized *ending; /* of sums of bytes: what comes in place of y and the rest */
  const cv_gemm_scales *scales;      /* of weights that are whole numbers; or NULL */
} cv_gemm_problem;

/* Rounds `count` floats of a row of x into cells. */
static inline void cv_gemm_round(float *cells, const float *x, int count) {
  for (int i = 0; i < count; i += CV_LANES) {
    const int rest = count - i < CV_LANES ? count - i : CV_LANES;
    cv_store_bf16(cells + i / 2, cv_load_n(x + i, rest));
  }
}

/* Weights of some panels from some step of k on: floats, with so many from one panel to the next. */
typedef struct cv_gemm_weights_of {
  const float *first;
  ptrdiff_t panel;
} cv_gemm_weights_of;

/* The steps `k` of some panels as floats: they lie so, or are whole numbers with scales. */
CV_INLINE cv_gemm_weights_of cv_gemm_read(const cv_cell cell, const cv_gemm_problem *g, cv_range panels,
                                          cv_range k) {
  const int width = cv_gemm_weights(cell);
  if (g->scales == NULL) {
    const float *first = g->w + ((ptrdiff_t)panels.begin * g->steps + k.begin) * width;
    return (cv_gemm_weights_of){first, (ptrdiff_t)g->steps * width};
  }
  const ptrdiff_t size = (ptrdiff_t)(k.end - k.begin) * width;
  for (int panel = panels.begin; panel < panels.end; panel++)
    cv_gemm_unpack(g->scales, g->k, g->w, panel, k, g->scales->unpacked + (panel - panels.begin) * size);
  return (cv_gemm_weights_of){g->scales->unpacked, size};
}

/* The columns of `panels` x the rows [rows.begin, rows.end), one tile of them, the `turn`-th of `turns`
 * that read these panels. */
CV_INLINE void cv_gemm_columns(const cv_cell cell, const cv_gemm_problem *g, cv_gemm_weights_of w,
                               cv_range panels, cv_range rows, cv_range k, const float *x, ptrdiff_t x_row,
                               int amx, int turn, int turns) {
  const int width = cv_gemm_weights(cell);
  const int depth = k.end - k.begin, step = width / turns, apart = cell == CV_BYTES;
  const int height = rows.end - rows.begin;
  float sums[CV_GEMM_ROWS * CV_GEMM_PANEL] __attribute__((aligned(64)));
  /* Steps of k to the same place of what follows: the next part of the panel, or of the next group. */
  const ptrdiff_t later =
      k.end < g->steps ? depth : (ptrdiff_t)(panels.end - panels.begin) * g->steps - k.begin;
  int finished = panels.begin;
  for (int panel = panels.begin; panel < panels.end; panel++) {
    const int column = panel * CV_GEMM_PANEL, rest = g->n - column;
    const int columns = rest < CV_GEMM_PANEL ? rest : CV_GEMM_PANEL;
    const ptrdiff_t at = (ptrdiff_t)rows.begin * g->n + column;
    const float *weights = w.first + (panel - panels.begin) * w.panel;
    const cv_gemm_tile tile = {
        .x = x,
        .x_row = x_row,
        .panel = weights,
        .depth = depth,
        .columns = apart ? CV_GEMM_PANEL : columns,
        .y = apart ? sums : g->y + at,
        .y_row = apart ? CV_GEMM_PANEL : g->n,
        .start = k.begin == 0 ? g->bias + column : NULL,
        .next = g->scales ? NULL : weights + later * width + (ptrdiff_t)turn * depth * step,
        .next_step = step,
        .amx = amx,
    };
    if (g->m == 1) {
      cv_gemm_stream(&tile, cell, g->far);
    } else if (cell == CV_BYTES) {
      cv_gemm_run_bytes(&tile, height);
    } else if (cell == CV_BFLOATS) {
      cv_gemm_run_bf16(&tile, height);
    } else {
      cv_gemm_run(&tile, height);
    }
    const int many = (panel + 1 - finished) * CV_GEMM_BLOCKS * height >= CV_FINISHED_TOGETHER;
    if (apart) {
      cv_gemm_end_bytes(g->ending, sums, height, columns, column, at, g->n);
    } else if (k.end == g->steps && (many || panel + 1 == panels.end)) {
      const int from = finished * CV_GEMM_PANEL;
      const ptrdiff_t first = (ptrdiff_t)rows.begin * g->n + from;
      cv_gemm_finish(g->y + first, g->n, height, column + columns - from,
                     g->residual ? g->residual + first : NULL, g->inner, g->outer);
      finished = panel + 1;
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
    const cv_gemm_weights_of w = cv_gemm_read(cell, g, panels, k);
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
      cv_gemm_columns(cell, g, w, panels, rows, k, copies ? copy : x, copies ? CV_GEMM_X_ROW : g->k, amx,
                      tile - first, last - first);
    }
  }
  cv_gemm_release(shaped);
}

/* Panels of few rows, of weights that are whole numbers. */
static inline void cv_gemm_scaled_columns(const cv_gemm_problem *g, cv_range panels) {
  for (int panel = panels.begin; panel < panels.end; panel++) {
    const int column = panel * CV_GEMM_PANEL, columns = cv_least(g->n - column, CV_GEMM_PANEL);
    for (int row = 0; row < g->m; row += CV_GEMM_SCALED_ROWS) {
      const int rows = cv_least(g->m - row, CV_GEMM_SCALED_ROWS);
      const ptrdiff_t at = (ptrdiff_t)row * g->n + column;
      cv_gemm_scaled_rows(g->scales, g->k, g->x + (ptrdiff_t)row * g->k, g->w, panel, rows, columns,
                          g->y + at, g->n, g->bias + column);
      cv_gemm_finish(g->y + at, g->n, rows, columns, g->residual ? g->residual + at : NULL, g->inner,
                     g->outer);
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

CV_INLINE void cv_gemm_of(const cv_cell cell, cv_thread thread, const cv_gemm_problem g) {
  const int m = g.m, k = g.k, n = g.n;
  const int panels = (n + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL;
  const int tiles = (m + CV_GEMM_ROWS - 1) / CV_GEMM_ROWS;
  const cv_range share = cv_share(thread, panels * tiles);
  if (m == 1 && cell == CV_BFLOATS) {
    cv_gemm_rectangle(cell, &g, share, 0, 1, 1);
    return;
  }
  if (g.scales && m <= CV_GEMM_SCALED_MOST) {
    cv_gemm_scaled_columns(&g, cv_share(thread, panels));
    return;
  }
  if (m == 1) {
    const cv_range whole = {0, k};
    const cv_gemm_weights_of w = cv_gemm_read(cell, &g, share, whole);
    cv_gemm_columns(cell, &g, w, share, (cv_range){0, 1}, whole, g.x, k, 0, 0, 1);
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
CV_SHARED void cv_gemm(cv_thread thread, int m, int k, int n, const float *x, const float *w, int far,
                       float *y, const float *bias, const float *residual, cv_activation inner,
                       cv_activation outer) CV_SYMBOL(cv_gemm);

#if CV_DEFINES(GEMM)
CV_SHARED void cv_gemm(cv_thread thread, int m, int k, int n, const float *x, const float *w, int far,
                       float *y, const float *bias, const float *residual, cv_activation inner,
                       cv_activation outer) {
  cv_gemm_of(CV_FLOATS, thread,
             (cv_gemm_problem){m, k, n, k, x, w, far, y, bias, residual, inner, outer, NULL, NULL});
}
#endif

#endif
