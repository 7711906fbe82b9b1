/* Products of two matrices that are computed where they are multiplied, in a stack of them:
 *
 *   y[i][j] = scale * sum_p x[i][p] * w[p][j]
 *
 * x [m][k], w [k][n] and y [m][n] lie by any strides, so that either may be transposed, and stride 0 is a
 * matrix that the stack has in common.  y overlaps neither of the others.
 *
 * As in gemm.h, but a thread packs the panels of w that it multiplies with: CV_PRODUCT_PANELS of them, of
 * at most CV_GEMM_DEPTH rows, or more of fewer rows.  Rows of a large y are written as far as they go then:
 * by a few panels at a time that took twice as long.
 *
 * cv_multiply_stack_bf16 multiplies bfloat16: what is packed and copied is rounded to it.
 *
 * One row (m = 1) reads w where it lies, once, if its rows or its columns are of neighbours; in float32.
 *
 * Threads share the tiles of the whole stack, panel-major in each product.
 */
#ifndef CONVOY_KERNELS_PRODUCT_H_
#define CONVOY_KERNELS_PRODUCT_H_

#include "kernels/gemv.h"

#define CV_PRODUCT_PANELS 4

/* Panels that are packed at once. */
#define CV_PRODUCT_PACKED(k) \
  (CV_PRODUCT_PANELS * (0 < (k) && (k) < CV_GEMM_DEPTH ? CV_GEMM_DEPTH / (k) : 1))

/* Floats of a thread's scratch: for all panels, or for CV_PRODUCT_PANELS of the most rows. */
#define CV_PRODUCT_DEPTH(k) ((k) < CV_GEMM_DEPTH ? (k) : CV_GEMM_DEPTH)
#define CV_PRODUCT_MOST ((ptrdiff_t)CV_GEMM_DEPTH * CV_PRODUCT_PANELS * CV_GEMM_PANEL)
#define CV_PRODUCT_ALL(k, n) \
  ((ptrdiff_t)CV_PRODUCT_DEPTH(k) * (((n) + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL * CV_GEMM_PANEL))
#define CV_PRODUCT_SCRATCH(k, n) \
  (CV_PRODUCT_ALL(k, n) < CV_PRODUCT_MOST ? CV_PRODUCT_ALL(k, n) : CV_PRODUCT_MOST)

typedef struct cv_product {
  int stack[CV_STACK];
  int m, k, n;
  const float *x, *w;
  float *y;
  cv_strides x_strides, w_strides, y_strides;
  float scale;
} cv_product;

/* A tile's y where columns are no neighbours: by way of a tile where they are. */
CV_INLINE void cv_multiply_apart(const int bf16, cv_gemm_tile tile, cv_matrix y, int rows) {
  float sums[CV_LANES * CV_GEMM_PANEL]; /* a square of it is transposed */
  const cv_vec none[CV_GEMM_BLOCKS] = {0};
  tile.y = sums;
  tile.y_row = CV_GEMM_PANEL;
  for (int r = 0; !tile.start && r < rows; r++) {
    for (int j = 0; j < tile.columns; j++) sums[r * CV_GEMM_PANEL + j] = *cv_element(y, r, j);
  }
  if (tile.start) tile.start = (const float *)none;
  cv_run_tile(bf16, &tile, rows);
  cv_store_tile(y, sums, CV_GEMM_PANEL, rows, tile.columns);
}

/* The columns [begin, end) x the rows of tiles [first, last) out of `tiles`, of one product. */
CV_INLINE void cv_multiply_rectangle(const int bf16, const cv_product *p, cv_matrix x, cv_matrix w,
                                     cv_matrix y, cv_range columns, int first, int last, int tiles,
                                     float *panels) {
  float copy[CV_GEMM_ROWS * CV_GEMM_X_ROW] __attribute__((aligned(64)));
  const cv_vec none[CV_GEMM_BLOCKS] = {0};
  const int parts = p->k > CV_GEMM_DEPTH ? (p->k + CV_GEMM_DEPTH - 1) / CV_GEMM_DEPTH : 1;
  int shaped = 0;
  for (int part = 0; part < parts; part++) {
    const cv_range k = cv_share((cv_thread){part, parts}, p->k);
    const int depth = k.end - k.begin, steps = cv_gemm_steps(bf16, depth);
    cv_pack_panels(bf16, panels, cv_part_of_matrix(w, k.begin, columns.begin), depth,
                   columns.end - columns.begin);
    for (int t = first; t < last; t++) {
      const cv_range rows = cv_share((cv_thread){t, tiles}, p->m);
      const int count = rows.end - rows.begin;
      cv_copy_tile(bf16, copy, cv_part_of_matrix(x, rows.begin, k.begin), count, depth, p->scale);
      const int amx = cv_gemm_shape(bf16 ? CV_BFLOATS : CV_FLOATS, count, &shaped);
      for (int j = columns.begin; j < columns.end; j += CV_GEMM_PANEL) {
        const cv_matrix here = cv_part_of_matrix(y, rows.begin, j);
        const cv_gemm_tile tile = {
            .x = copy,
            .x_row = CV_GEMM_X_ROW,
            .panel = panels + (ptrdiff_t)(j - columns.begin) * steps,
            .depth = steps,
            .columns = cv_least(columns.end - j, CV_GEMM_PANEL),
            .y = here.data,
            .y_row = here.row,
            .start = part == 0 ? (const float *)none : NULL,
            .amx = amx,
        };
        if (y.column == 1) {
          cv_run_tile(bf16, &tile, count);
        } else {
          cv_multiply_apart(bf16, tile, here, count);
        }
      }
    }
  }
  cv_gemm_release(shaped);
}

/* Whether one row can do without packed panels. */
static inline int cv_product_reads_once(const cv_product *p) {
  if (p->m > 1 || p->y_strides.column != 1) return 0;
  return p->w_strides.column == 1 || (p->w_strides.row == 1 && p->x_strides.column == 1);
}

/* The columns [begin, end) of the only row. */
static inline void cv_multiply_row(const cv_product *p, cv_matrix x, cv_matrix w, float *y,
                                   cv_range columns) {
  const int count = columns.end - columns.begin;
  if (w.column == 1) {
    for (int j = columns.begin; j < columns.end; j++) y[j] = 0;
    cv_add_rows(y + columns.begin, x.data, x.column, p->scale, cv_part_of_matrix(w, 0, columns.begin), p->k,
                count);
    return;
  }
  const cv_matrix turned = {w.data + columns.begin * w.column, w.column, 1};
  cv_dot_rows(y + columns.begin, x.data, turned, count, p->k);
  for (int j = columns.begin; j < columns.end; j++) y[j] *= p->scale;
}

/* Tiles of the stack that share packed panels: the rows of tiles [first, last) of product `number`. */
typedef struct cv_product_part {
  int number, first, last, tiles;
  cv_range columns;
} cv_product_part;

/* The part that begins with tile `begin` of a share of the stack's tiles, with up to `most` panels; returns
 * where the next one does.  A share is whole panels, between a first and a last one of which it has some
 * tiles. */
static inline int cv_product_part_at(cv_product_part *part, int begin, int end, int m, int n, int most) {
  const int panels = (n + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL, tiles = (m + CV_GEMM_ROWS - 1) / CV_GEMM_ROWS;
  const int panel = begin / tiles % panels, first = begin % tiles, rest = end - begin;
  const int last = cv_least(tiles, first + rest), whole = first == 0 && rest > tiles;
  const int count = whole ? cv_least(cv_least(rest / tiles, most), panels - panel) : 1;
  const cv_range columns = {panel * CV_GEMM_PANEL, cv_least((panel + count) * CV_GEMM_PANEL, n)};
  *part = (cv_product_part){begin / tiles / panels, first, last, tiles, columns};
  return begin + count * (last - first);
}

/* A thread's share of all tiles. */
static inline cv_range cv_share_products(cv_thread thread, const int stack[CV_STACK], int m, int n) {
  const int panels = (n + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL, tiles = (m + CV_GEMM_ROWS - 1) / CV_GEMM_ROWS;
  return cv_share(thread, cv_stack_size(stack) * panels * tiles);
}

CV_INLINE void cv_multiply_stack_of(const int bf16, cv_thread thread, const cv_product *p, float *scratch) {
  const cv_range share = cv_share_products(thread, p->stack, p->m, p->n);
  const int once = cv_product_reads_once(p), most = once ? share.end : CV_PRODUCT_PACKED(p->k);
  cv_product_part part;
  for (int begin = share.begin; begin < share.end;) {
    begin = cv_product_part_at(&part, begin, share.end, p->m, p->n, most);
    const cv_matrix x = cv_find_matrix(p->x, &p->x_strides, p->stack, part.number);
    const cv_matrix w = cv_find_matrix(p->w, &p->w_strides, p->stack, part.number);
    const cv_matrix y = cv_find_matrix(p->y, &p->y_strides, p->stack, part.number);
    if (once) {
      cv_multiply_row(p, x, w, y.data, part.columns);
    } else {
      cv_multiply_rectangle(bf16, p, x, w, y, part.columns, part.first, part.last, part.tiles, scratch);
    }
  }
}

/* scratch: CV_PRODUCT_SCRATCH floats of this thread, aligned to a vector. */
CV_SHARED void cv_multiply_stack(cv_thread thread, const cv_product *p, float *scratch)
    CV_SYMBOL(cv_multiply_stack);

#if CV_DEFINES(PRODUCT)
CV_SHARED void cv_multiply_stack(cv_thread thread, const cv_product *p, float *scratch) {
  cv_multiply_stack_of(0, thread, p, scratch);
}
#endif

#endif
