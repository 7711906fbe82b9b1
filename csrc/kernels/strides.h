/* Matrices that lie in memory by any strides, brought into the forms that the tiles of gemm.h read.
 *
 *   cv_pack_panels    w[p][j] to panels[j / CV_GEMM_PANEL][p][j % CV_GEMM_PANEL], zeros past the columns;
 *                     or of bfloat16 to cells [j / CV_GEMM_PANEL][p / 2][j % CV_GEMM_PANEL][p % 2]
 *   cv_copy_tile      factor * x[i][p] to rows CV_GEMM_X_ROW apart, or to rows of cells
 *   cv_store_tile     rows of a tile to y[i][j]
 *   cv_run_tile       a tile's products
 *
 * bf16, a constant: whether the tiles multiply bfloat16, which what is packed or copied is rounded to.
 *
 * Rows or columns of neighbouring elements move as vectors, anything else one by one.  What is packed is
 * aligned to a vector; what it is packed of has any alignment, and strides of 0 or below 0 too.
 */
#ifndef CONVOY_KERNELS_STRIDES_H_
#define CONVOY_KERNELS_STRIDES_H_

#include "kernels/gemm.h"

/* Element (i, j) is data[i * row + j * column]. */
typedef struct cv_matrix {
  float *data;
  ptrdiff_t row, column;
} cv_matrix;

/* Axes before the last two, at most. */
#define CV_STACK 4

/* The strides of a stack of matrices. */
typedef struct cv_strides {
  ptrdiff_t stack[CV_STACK], row, column;
} cv_strides;

/* Where number i of a row-major stack begins. */
static inline ptrdiff_t cv_stack_offset(const cv_strides *s, const int stack[CV_STACK], int i) {
  ptrdiff_t offset = 0;
  for (int axis = CV_STACK - 1; axis >= 0; i /= stack[axis--]) offset += i % stack[axis] * s->stack[axis];
  return offset;
}

static inline cv_matrix cv_find_matrix(const float *data, const cv_strides *s, const int stack[CV_STACK],
                                       int i) {
  return (cv_matrix){(float *)data + cv_stack_offset(s, stack, i), s->row, s->column};
}

static inline int cv_stack_size(const int stack[CV_STACK]) {
  int size = 1;
  for (int axis = 0; axis < CV_STACK; axis++) size *= stack[axis];
  return size;
}

CV_INLINE const float *cv_element(cv_matrix m, ptrdiff_t i, ptrdiff_t j) {
  return m.data + i * m.row + j * m.column;
}

CV_INLINE cv_matrix cv_part_of_matrix(cv_matrix m, ptrdiff_t i, ptrdiff_t j) {
  m.data += i * m.row + j * m.column;
  return m;
}

/* The vector of elements (i, j), (i, j + 1) …: `count` of them, then zeros. */
CV_INLINE cv_vec cv_gather(cv_matrix m, ptrdiff_t i, ptrdiff_t j, int count) {
  float lanes[CV_LANES] = {0};
  for (int l = 0; l < count; l++) lanes[l] = *cv_element(m, i, j + l);
  return cv_loadu(lanes);
}

CV_INLINE cv_vec cv_load_row(cv_matrix m, ptrdiff_t i, ptrdiff_t j, int count) {
  return m.column == 1 ? cv_load_n(cv_element(m, i, j), count) : cv_gather(m, i, j, count);
}

/* A square of CV_LANES: `rows` x `columns` of m's transpose in the first lanes of the first vectors, the
 * rest zeros; m's columns are neighbours. */
CV_INLINE void cv_load_transposed(cv_vec square[CV_LANES], cv_matrix m, int rows, int columns) {
  if (rows == CV_LANES && columns == CV_LANES) {
    CV_UNROLL
    for (int i = 0; i < CV_LANES; i++) square[i] = cv_loadu(m.data + i * m.row);
  } else {
    for (int i = 0; i < CV_LANES; i++) {
      square[i] = i < rows ? cv_load_n(m.data + i * m.row, columns) : cv_zero();
    }
  }
  cv_transpose(square);
}

/* One vector's columns of a panel: w [depth][columns <= CV_LANES]. */
static inline void cv_pack_block(float *panel, cv_matrix w, int depth, int columns) {
  if (w.column == 1) {
    for (int p = 0; p < depth; p++, w.data += w.row, panel += CV_GEMM_PANEL) {
      cv_store(panel, columns == CV_LANES ? cv_loadu(w.data) : cv_load_n(w.data, columns));
    }
  } else if (w.row == 1) {
    const cv_matrix turned = {w.data, w.column, 1};
    for (int p = 0; p < depth; p += CV_LANES) {
      const int count = cv_least(depth - p, CV_LANES);
      cv_vec square[CV_LANES];
      cv_load_transposed(square, cv_part_of_matrix(turned, 0, p), columns, count);
      CV_UNROLL
      for (int i = 0; i < CV_LANES; i++) {
        if (i < count) cv_store(panel + (ptrdiff_t)(p + i) * CV_GEMM_PANEL, square[i]);
      }
    }
  } else {
    for (int p = 0; p < depth; p++) {
      cv_store(panel + (ptrdiff_t)p * CV_GEMM_PANEL, cv_gather(w, p, 0, columns));
    }
  }
}

/* The same in cells of two rows; past an odd depth lies a zero. */
static inline void cv_pack_cells(float *panel, cv_matrix w, int depth, int columns) {
  const int cells = cv_gemm_steps(1, depth);
  if (w.row == 1 && w.column != 1) {
    float rounded[CV_LANES * CV_LANES] __attribute__((aligned(64)));
    for (int p = 0; p < cells; p += CV_LANES) {
      const int count = cv_least(cells - p, CV_LANES);
      for (int j = 0; j < columns; j++)
        cv_gemm_round(rounded + j * CV_LANES, cv_element(w, 2 * p, j),
                      cv_least(depth - 2 * p, 2 * CV_LANES));
      cv_vec square[CV_LANES];
      cv_load_transposed(square, (cv_matrix){rounded, CV_LANES, 1}, columns, count);
      CV_UNROLL
      for (int i = 0; i < CV_LANES; i++) {
        if (i < count) cv_store(panel + (ptrdiff_t)(p + i) * CV_GEMM_PANEL, square[i]);
      }
    }
    return;
  }
  for (int p = 0; p < depth; p += 2, panel += CV_GEMM_PANEL) {
    const cv_vec first = cv_load_row(w, p, 0, columns);
    const cv_vec second = p + 1 < depth ? cv_load_row(w, p + 1, 0, columns) : cv_zero();
    cv_store(panel, cv_pair_bf16(first, second));
  }
}

/* w [depth][columns]. */
CV_INLINE void cv_pack_panels(const int bf16, float *panels, cv_matrix w, int depth, int columns) {
  const int steps = cv_gemm_steps(bf16, depth);
  for (int j = 0; j < columns; j += CV_GEMM_PANEL, panels += (ptrdiff_t)steps * CV_GEMM_PANEL) {
    for (int b = 0; b < CV_GEMM_BLOCKS; b++) {
      const int first = j + b * CV_LANES, rest = columns - first;
      const int count = rest > 0 ? cv_least(rest, CV_LANES) : 0;
      const cv_matrix part = cv_part_of_matrix(w, 0, rest > 0 ? first : 0);
      if (bf16) {
        cv_pack_cells(panels + b * CV_LANES, part, depth, count);
      } else {
        cv_pack_block(panels + b * CV_LANES, part, depth, count);
      }
    }
  }
}

CV_INLINE void cv_store_copied(const int bf16, float *row, int p, cv_vec v) {
  if (bf16) {
    cv_store_bf16(row + p / 2, v);
  } else {
    cv_store(row + p, v);
  }
}

/* x [rows][depth <= CV_GEMM_DEPTH]; copy: aligned to a vector. */
CV_INLINE void cv_copy_tile(const int bf16, float *copy, cv_matrix x, int rows, int depth, float factor) {
  const cv_vec f = cv_set1(factor);
  if (x.row == 1 && x.column != 1) {
    const cv_matrix turned = {x.data, x.column, 1};
    for (int p = 0; p < depth; p += CV_LANES) {
      cv_vec square[CV_LANES];
      cv_load_transposed(square, cv_part_of_matrix(turned, p, 0), cv_least(depth - p, CV_LANES), rows);
      CV_UNROLL
      for (int r = 0; r < CV_GEMM_ROWS; r++) {
        if (r < rows) cv_store_copied(bf16, copy + r * CV_GEMM_X_ROW, p, cv_mul(square[r], f));
      }
    }
    return;
  }
  for (int r = 0; r < rows; r++) {
    for (int p = 0; p < depth; p += CV_LANES) {
      const cv_vec v = cv_load_row(x, r, p, cv_least(depth - p, CV_LANES));
      cv_store_copied(bf16, copy + r * CV_GEMM_X_ROW, p, cv_mul(v, f));
    }
  }
}

/* y [rows][columns] of rows `tile_row` apart. */
static inline void cv_store_tile(cv_matrix y, const float *tile, ptrdiff_t tile_row, int rows,
                                 int columns) {
  const cv_matrix from = {(float *)tile, tile_row, 1};
  for (int j = 0; j < columns; j += CV_LANES) {
    const int count = cv_least(columns - j, CV_LANES);
    if (y.row == 1) {
      cv_vec square[CV_LANES];
      cv_load_transposed(square, cv_part_of_matrix(from, 0, j), rows, count);
      CV_UNROLL
      for (int c = 0; c < CV_LANES; c++) {
        if (c < count) cv_store_n(y.data + (j + c) * y.column, square[c], rows);
      }
    } else {
      for (int r = 0; r < rows; r++) {
        for (int c = 0; c < count; c++) {
          y.data[r * y.row + (j + c) * y.column] = tile[r * tile_row + j + c];
        }
      }
    }
  }
}

/* Of a panel with columns for one vector only that is all a tile computes. */
CV_SHARED void cv_run_tile_of_floats(const cv_gemm_tile *tile, int rows) CV_SYMBOL(cv_run_tile_of_floats);

#if CV_DEFINES(STRIDES)
CV_SHARED void cv_run_tile_of_floats(const cv_gemm_tile *tile, int rows) {
  if (tile->columns > CV_LANES) {
    cv_gemm_run(tile, rows);
  } else {
    cv_gemm_run_of(CV_FLOATS, tile, rows, 1);
  }
}
#endif

static __attribute__((noinline, unused)) void cv_run_tile_of_bf16(const cv_gemm_tile *tile, int rows) {
  if (tile->columns > CV_LANES) {
    cv_gemm_run_bf16(tile, rows);
  } else {
    cv_gemm_run_of(CV_BFLOATS, tile, rows, 1);
  }
}

CV_INLINE void cv_run_tile(const int bf16, const cv_gemm_tile *tile, int rows) {
  if (bf16) {
    cv_run_tile_of_bf16(tile, rows);
  } else {
    cv_run_tile_of_floats(tile, rows);
  }
}

#endif
