/* Products of two matrices of bytes that are computed where they are multiplied, in a stack of them:
 *
 *   y[i][j] = round(scale * sum_p (x[i][p] - x_zero) * (w[p][j] - w_zero)) + zero, at least low + zero and
 *   at most high + zero
 *
 * All are unsigned and lie by any strides, as in product.h; y overlaps neither of the others.  Sums are
 * exact: int32 up to CV_BYTE_PRODUCT_DEPTH terms, and of more of them int64, of parts so deep.
 *
 * A thread packs the panels of w that it multiplies with in cells of four, as gemm.h has them, and copies
 * the rows of a tile of x where they do not lie in cells.  Where an instruction multiplies bytes, w is
 * packed less 128, as signed ones; what that is from its zero point is added for each row.  In parts it is
 * packed less its zero point.
 *
 * Threads share the tiles of the whole stack, panel-major in each product.
 */
#ifndef CONVOY_KERNELS_PRODUCT_BYTES_H_
#define CONVOY_KERNELS_PRODUCT_BYTES_H_

#include "kernels/product.h"

typedef struct cv_byte_product {
  int stack[CV_STACK];
  int m, k, n;
  const uint8_t *x, *w;
  uint8_t *y;
  cv_strides x_strides, w_strides, y_strides;
  int x_zero, w_zero;
  float scale, low, high;
  int zero;
} cv_byte_product;

/* Terms whose sum int32 holds. */
#define CV_BYTE_PRODUCT_DEPTH 32768

/* Cells of a thread's scratch. */
#define CV_BYTE_PRODUCT_SCRATCH(k)                                         \
  ((((k) < CV_BYTE_PRODUCT_DEPTH ? (k) : CV_BYTE_PRODUCT_DEPTH) + 3) / 4 * \
   (CV_PRODUCT_PANELS * CV_DOT_PARTS * CV_GEMM_PANEL + CV_GEMM_ROWS))

/* What is taken from w as it is packed. */
static inline int cv_byte_product_base(const cv_byte_product *p) {
  return CV_DOT_PARTS > 1 ? p->w_zero : 128;
}

/* Rows row, row + 1, … of `columns` columns, up to CV_LANES, as int32; `base` past the last row. */
CV_INLINE void cv_load_four_rows(cv_int v[CV_BYTES], const uint8_t *w, const cv_strides *s, int row, int k,
                                 int columns, int base) {
  if (s->column == 1 && columns == CV_LANES && row + CV_BYTES <= k) {
    CV_UNROLL
    for (int i = 0; i < CV_BYTES; i++) v[i] = cv_load_bytes(w + (row + i) * s->row);
    return;
  }
  uint8_t cells[4 * CV_LANES] __attribute__((aligned(64)));
  memset(cells, base, sizeof cells);
  for (int j = 0; j < columns; j++) {
    const uint8_t *from = w + row * s->row + j * s->column;
    if (s->row == 1 && row + CV_BYTES <= k) {
      memcpy(cells + 4 * j, from, CV_BYTES);
    } else {
      for (int i = 0; i < CV_BYTES && row + i < k; i++) cells[4 * j + i] = from[i * s->row];
    }
  }
  const cv_int all = cv_as_int(cv_load((const float *)(const void *)cells)), byte = cv_int_set1(255);
  v[0] = cv_int_and(all, byte);
  v[1] = cv_int_and(cv_int_shr(all, 8), byte);
  v[2] = cv_int_and(cv_int_shr(all, 16), byte);
  v[3] = cv_int_shr(all, 24);
}

/* One vector's columns of a panel, and where their sums begin: -x_zero times what they add up to. */
static inline void cv_pack_byte_columns(const cv_byte_product *p, float *panel, int32_t *start,
                                        const uint8_t *w, int columns) {
  const int base = cv_byte_product_base(p);
  const cv_int less = cv_int_set1(base), low = cv_int_set1(CV_DOT_PARTS > 1 ? 0xffff : 255);
  cv_int sum = cv_int_set1(0);
  for (int row = 0; row < p->k; row += CV_BYTES, panel += CV_DOT_PARTS * CV_GEMM_PANEL) {
    cv_int v[CV_BYTES], held[CV_BYTES];
    cv_load_four_rows(v, w, &p->w_strides, row, p->k, columns, base);
    CV_UNROLL
    for (int i = 0; i < CV_BYTES; i++) {
      v[i] = cv_int_sub(v[i], less);
      sum = cv_int_add(sum, v[i]);
      held[i] = cv_int_and(v[i], low);
    }
    if (CV_DOT_PARTS > 1) {
      cv_store(panel, cv_as_float(cv_int_or(held[0], cv_int_shl(v[2], 16))));
      cv_store(panel + CV_GEMM_PANEL, cv_as_float(cv_int_or(held[1], cv_int_shl(v[3], 16))));
    } else {
      const cv_int first = cv_int_or(held[0], cv_int_shl(held[1], 8));
      const cv_int second = cv_int_or(held[2], cv_int_shl(v[3], 8));
      cv_store(panel, cv_as_float(cv_int_or(first, cv_int_shl(second, 16))));
    }
  }
  memcpy(start, &sum, sizeof sum);
  for (int j = 0; j < CV_LANES; j++) start[j] *= -p->x_zero;
}

/* Whether cells are read where x lies. */
static inline int cv_byte_rows_are_cells(const cv_byte_product *p, const uint8_t *x) {
  const cv_strides *s = &p->x_strides;
  return s->column == 1 && p->k % CV_BYTES == 0 && s->row % CV_BYTES == 0 && (uintptr_t)x % CV_BYTES == 0;
}

/* Rows of x, zeros behind them up to a whole cell. */
static inline void cv_copy_byte_tile(const cv_byte_product *p, uint8_t *copy, const uint8_t *x, int rows) {
  const int steps = (p->k + 3) / 4;
  for (int r = 0; r < rows; r++, copy += CV_BYTES * steps, x += p->x_strides.row) {
    memset(copy + CV_BYTES * (steps - 1), 0, CV_BYTES);
    for (int i = 0; i < p->k; i++) copy[i] = x[i * p->x_strides.column];
  }
}

/* What each row of cells adds for the zero point of w: what that is from what w is packed less of. */
static inline void cv_add_byte_rows(const cv_byte_product *p, int32_t *added, const uint8_t *x,
                                    ptrdiff_t row, int rows) {
  const int left = cv_byte_product_base(p) - p->w_zero;
  for (int r = 0; left && r < rows; r++, x += row) {
    cv_int sums = cv_int_set1(0);
    int i = 0, sum = -p->k * p->x_zero;
    for (; i + CV_LANES <= p->k; i += CV_LANES) sums = cv_int_add(sums, cv_load_bytes(x + i));
    int32_t lanes[CV_LANES];
    memcpy(lanes, &sums, sizeof lanes);
    for (int l = 0; l < CV_LANES; l++) sum += lanes[l];
    for (; i < p->k; i++) sum += x[i];
    added[r] = left * sum;
  }
}

/* A tile's sums as bytes.  floats: the sums are that and whole, without what is added. */
CV_INLINE void cv_end_byte_tile(const int floats, const cv_byte_product *p, const cv_requantizer *r,
                                const float *sums, const int32_t *added, uint8_t *y, int rows,
                                int columns) {
  uint8_t bytes[(CV_GEMM_ROWS + 1) * CV_GEMM_PANEL] __attribute__((aligned(64)));
  const cv_vec scale = cv_set1(p->scale);
  for (int row = 0; row < rows; row += 4 / CV_GEMM_BLOCKS) {
    cv_vec v[4];
    CV_UNROLL
    for (int i = 0; i < 4; i++) {
      const cv_int of_row = cv_int_set1(added[row + i / CV_GEMM_BLOCKS]);
      const cv_vec sum = cv_load(sums + row * CV_GEMM_PANEL + i * CV_LANES);
      v[i] = cv_mul(floats ? sum : cv_from_int(cv_int_add(cv_as_int(sum), of_row)), scale);
    }
    cv_store_quad(bytes + row * CV_GEMM_PANEL, cv_requantize_quad(r, v), 4);
  }
  const cv_strides *s = &p->y_strides;
  for (int row = 0; row < rows; row++) {
    const uint8_t *from = bytes + row * CV_GEMM_PANEL;
    uint8_t *to = y + row * s->row;
    if (s->column == 1 && columns == CV_GEMM_PANEL) {
      memcpy(to, from, CV_GEMM_PANEL);
    } else {
      for (int j = 0; j < columns; j++) to[j * s->column] = from[j];
    }
  }
}

/* `all` columns of w in panels, and where their sums begin. */
static inline void cv_pack_byte_panels(const cv_byte_product *p, float *panels, int32_t *start,
                                       const uint8_t *w, int all) {
  const ptrdiff_t panel = (ptrdiff_t)((p->k + 3) / 4) * CV_DOT_PARTS * CV_GEMM_PANEL;
  for (int j = 0; j < (all + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL * CV_GEMM_PANEL; j += CV_LANES) {
    const int columns = j < all ? cv_least(all - j, CV_LANES) : 0;
    cv_pack_byte_columns(p, panels + j / CV_GEMM_PANEL * panel + j % CV_GEMM_PANEL, start + j,
                         w + (columns ? j : 0) * p->w_strides.column, columns);
  }
}

/* Rows of cells: those of x, or a copy of it; `row` is how far they are apart. */
static inline const uint8_t *cv_byte_rows(const cv_byte_product *p, uint8_t *copy, const uint8_t *x,
                                          int rows, ptrdiff_t *row) {
  *row = p->x_strides.row;
  if (cv_byte_rows_are_cells(p, x)) return x;
  cv_copy_byte_tile(p, copy, x, rows);
  *row = CV_BYTES * (ptrdiff_t)((p->k + 3) / 4);
  return copy;
}

/* A tile of one panel. */
static inline cv_gemm_tile cv_byte_tile(const cv_byte_product *p, const uint8_t *x, ptrdiff_t row,
                                        const float *panel, float *sums, const int32_t *start, int amx) {
  return (cv_gemm_tile){
      .x = (const float *)(const void *)x,
      .x_row = row / CV_BYTES,
      .panel = panel,
      .depth = (p->k + 3) / 4,
      .columns = CV_GEMM_PANEL,
      .y = sums,
      .y_row = CV_GEMM_PANEL,
      .start = (const float *)(const void *)start,
      .amx = amx,
  };
}

/* The sums of a tile and a panel, of parts that int32 holds: panels are packed again for each tile. */
static inline void cv_add_up_deep(const cv_byte_product *p, const uint8_t *x, const uint8_t *w, float *sums,
                                  int rows, int columns, float *scratch, uint8_t *copy, int *shaped) {
  int64_t whole[CV_GEMM_ROWS * CV_GEMM_PANEL] = {0};
  int32_t start[CV_GEMM_PANEL] __attribute__((aligned(64)));
  int32_t added[CV_GEMM_ROWS + 1] = {0}, found[CV_GEMM_ROWS * CV_GEMM_PANEL];
  const int parts = (p->k + CV_BYTE_PRODUCT_DEPTH - 1) / CV_BYTE_PRODUCT_DEPTH;
  for (int part = 0; part < parts; part++) {
    const cv_range k = cv_share((cv_thread){part, parts}, p->k);
    cv_byte_product q = *p;
    q.k = k.end - k.begin;
    cv_pack_byte_panels(&q, scratch, start, w + k.begin * p->w_strides.row, columns);
    ptrdiff_t row;
    const uint8_t *from = cv_byte_rows(&q, copy, x + k.begin * p->x_strides.column, rows, &row);
    cv_add_byte_rows(&q, added, from, row, rows);
    const int amx = cv_gemm_shape(CV_BYTES, rows, shaped);
    const cv_gemm_tile tile = cv_byte_tile(&q, from, row, scratch, sums, start, amx);
    cv_gemm_run_bytes(&tile, rows);
    memcpy(found, sums, (size_t)rows * CV_GEMM_PANEL * sizeof *found);
    for (int i = 0; i < rows * CV_GEMM_PANEL; i++) whole[i] += (int64_t)found[i] + added[i / CV_GEMM_PANEL];
  }
  for (int i = 0; i < rows * CV_GEMM_PANEL; i++) sums[i] = (float)whole[i];
}

/* The tiles of a part of the stack. */
static inline void cv_multiply_byte_part(const cv_byte_product *p, const cv_product_part *part,
                                         float *scratch) {
  const int deep = p->k > CV_BYTE_PRODUCT_DEPTH, first_column = part->columns.begin;
  const ptrdiff_t steps = (deep ? CV_BYTE_PRODUCT_DEPTH : p->k + 3) / 4;
  const uint8_t *x = p->x + cv_stack_offset(&p->x_strides, p->stack, part->number);
  const uint8_t *w =
      p->w + cv_stack_offset(&p->w_strides, p->stack, part->number) + first_column * p->w_strides.column;
  uint8_t *y = p->y + cv_stack_offset(&p->y_strides, p->stack, part->number);
  const ptrdiff_t panel = steps * CV_DOT_PARTS * CV_GEMM_PANEL;
  uint8_t *copy = (uint8_t *)(scratch + CV_PRODUCT_PANELS * panel);
  int32_t start[CV_PRODUCT_PANELS * CV_GEMM_PANEL] __attribute__((aligned(64)));
  float sums[(CV_GEMM_ROWS + 1) * CV_GEMM_PANEL] __attribute__((aligned(64))) = {0};
  int32_t added[CV_GEMM_ROWS + 1] = {0};
  const int all = part->columns.end - first_column;
  if (!deep) cv_pack_byte_panels(p, scratch, start, w, all);
  const cv_requantize bounds = {.low = p->low, .high = p->high, .zero = p->zero};
  const cv_requantizer r = cv_requantizer_of(&bounds);
  int shaped = 0;
  for (int t = part->first; t < part->last; t++) {
    const cv_range rows = cv_share((cv_thread){t, part->tiles}, p->m);
    const int count = rows.end - rows.begin;
    const uint8_t *here = x + rows.begin * p->x_strides.row, *from = here;
    ptrdiff_t row = 0;
    if (!deep) {
      from = cv_byte_rows(p, copy, here, count, &row);
      cv_add_byte_rows(p, added, from, row, count);
    }
    const int amx = cv_gemm_shape(CV_BYTES, count, &shaped);
    for (int j = 0; j < all; j += CV_GEMM_PANEL) {
      const int columns = cv_least(all - j, CV_GEMM_PANEL);
      uint8_t *to = y + rows.begin * p->y_strides.row + (first_column + j) * p->y_strides.column;
      if (deep) {
        cv_add_up_deep(p, here, w + j * p->w_strides.column, sums, count, columns, scratch, copy, &shaped);
        cv_end_byte_tile(1, p, &r, sums, added, to, count, columns);
      } else {
        const cv_gemm_tile tile =
            cv_byte_tile(p, from, row, scratch + j / CV_GEMM_PANEL * panel, sums, start + j, amx);
        cv_gemm_run_bytes(&tile, count);
        cv_end_byte_tile(0, p, &r, sums, added, to, count, columns);
      }
    }
  }
  cv_gemm_release(shaped);
}

/* scratch: CV_BYTE_PRODUCT_SCRATCH cells of this thread, aligned to a vector. */
CV_SHARED void cv_multiply_byte_stack(cv_thread thread, const cv_byte_product *p, float *scratch)
    CV_SYMBOL(cv_multiply_byte_stack);

#if CV_DEFINES(PRODUCT_BYTES)
CV_SHARED void cv_multiply_byte_stack(cv_thread thread, const cv_byte_product *p, float *scratch) {
  const cv_range share = cv_share_products(thread, p->stack, p->m, p->n);
  cv_product_part part;
  for (int begin = share.begin; begin < share.end;) {
    begin = cv_product_part_at(&part, begin, share.end, p->m, p->n, CV_PRODUCT_PANELS);
    cv_multiply_byte_part(p, &part, scratch);
  }
}
#endif

#endif
