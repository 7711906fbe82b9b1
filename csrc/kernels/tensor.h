/* Movement of plain row-major tensors of any rank up to CV_TENSOR_RANK; strides in elements.
 *
 *   cv_transpose_plain   y[i0][i1]... = x[i0 * x_strides[0] + i1 * x_strides[1] + ...]
 *   cv_pad_plain         y = x where y's index - before lies in x; beside it a value, or x again
 *   cv_copy_rows         y[r * y_stride + c] = x[r * x_stride + c]        (concat, slice)
 *
 * Elements are floats; those of cv_transpose_bytes, cv_pad_bytes and cv_copy_byte_rows are bytes.
 *
 * cv_transpose_plain also is the strided slice (x moved to its begin) and the broadcast (stride 0).
 * Axes are merged where both sides allow, then a row is copied where x is contiguous along y's last axis,
 * lanes x lanes tiles are transposed where it is along another one, few rows are taken apart or put between
 * each other (kernels/interleave.h), and elements are fetched one by one elsewhere.  x and y do not
 * overlap; any alignment; no shape has a zero.
 *
 * Threads share rows of y (pieces of CV_TENSOR_PIECE elements), or rows of tiles.
 */
#ifndef CONVOY_KERNELS_TENSOR_H_
#define CONVOY_KERNELS_TENSOR_H_

#include <string.h>

#include "kernels/interleave.h"
#include "kernels/map.h"

#define CV_TENSOR_RANK 8
#define CV_TENSOR_PIECE 8192

/* A row-major walk over some axes; y and x are the offsets of where it is. */
typedef struct cv_walk {
  int rank;
  ptrdiff_t shape[CV_TENSOR_RANK], y_stride[CV_TENSOR_RANK], x_stride[CV_TENSOR_RANK];
  ptrdiff_t index[CV_TENSOR_RANK], y, x;
} cv_walk;

static inline ptrdiff_t cv_walk_steps(const cv_walk *w) {
  ptrdiff_t steps = 1;
  for (int a = 0; a < w->rank; a++) steps *= w->shape[a];
  return steps;
}

static inline void cv_walk_start(cv_walk *w, ptrdiff_t step) {
  w->y = w->x = 0;
  for (int a = w->rank - 1; a >= 0; a--) {
    w->index[a] = step % w->shape[a];
    w->y += w->index[a] * w->y_stride[a];
    w->x += w->index[a] * w->x_stride[a];
    step /= w->shape[a];
  }
}

static inline void cv_walk_next(cv_walk *w) {
  for (int a = w->rank - 1; a >= 0; a--) {
    w->y += w->y_stride[a];
    w->x += w->x_stride[a];
    if (++w->index[a] < w->shape[a]) return;
    w->y -= w->y_stride[a] * w->shape[a];
    w->x -= w->x_stride[a] * w->shape[a];
    w->index[a] = 0;
  }
}

static inline void cv_walk_push(cv_walk *w, ptrdiff_t shape, ptrdiff_t y_stride, ptrdiff_t x_stride) {
  w->shape[w->rank] = shape;
  w->y_stride[w->rank] = y_stride;
  w->x_stride[w->rank++] = x_stride;
}

static inline void cv_walk_remove(cv_walk *w, int axis) {
  for (int a = axis; a + 1 < w->rank; a++) {
    w->shape[a] = w->shape[a + 1];
    w->y_stride[a] = w->y_stride[a + 1];
    w->x_stride[a] = w->x_stride[a + 1];
  }
  w->rank--;
}

/* Elements of `size` bytes, 4 or 1: p + i of them. */
CV_INLINE void *cv_nth(int size, const void *p, ptrdiff_t i) { return (char *)p + i * size; }

/* y[i] = x[i * x_column] */
CV_INLINE void cv_fetch_row(const int size, void *y, const void *x, ptrdiff_t x_column, ptrdiff_t columns) {
  if (x_column == 1) {
    memcpy(y, x, (size_t)(columns * size));
  } else if (size == sizeof(float) && x_column > 1 && x_column <= CV_MOST_APART) {
    cv_deinterleave(y, 0, x, (int)x_column, 1, columns);
  } else {
    for (ptrdiff_t i = 0; i < columns; i++)
      memcpy(cv_nth(size, y, i), cv_nth(size, x, i * x_column), (size_t)size);
  }
}

/* y[r * y_row + c] = x[r + c * x_column] for `rows` <= CV_LANES rows. */
CV_INLINE void cv_transpose_rows(const int size, void *y, ptrdiff_t y_row, const void *x,
                                 ptrdiff_t x_column, int rows, ptrdiff_t columns) {
  for (ptrdiff_t c = 0; c < columns; c += CV_LANES) {
    const int count = columns - c < CV_LANES ? (int)(columns - c) : CV_LANES;
    const void *from = cv_nth(size, x, c * x_column);
    if (size == sizeof(float) && rows == CV_LANES && count == CV_LANES) {
      cv_vec tile[CV_LANES];
      CV_UNROLL
      for (int i = 0; i < CV_LANES; i++) tile[i] = cv_loadu((const float *)from + i * x_column);
      cv_transpose(tile);
      CV_UNROLL
      for (int i = 0; i < CV_LANES; i++) cv_storeu((float *)y + i * y_row + c, tile[i]);
    } else {
      for (int r = 0; r < rows; r++)
        cv_fetch_row(size, cv_nth(size, y, r * y_row + c), cv_nth(size, from, r), x_column, count);
    }
  }
}

/* Along y's last axis x has stride x_column. */
CV_INLINE void cv_transpose_by_rows(cv_thread thread, const int size, void *y, const void *x,
                                    cv_walk *outer, ptrdiff_t columns, ptrdiff_t x_column) {
  const ptrdiff_t pieces = (columns + CV_TENSOR_PIECE - 1) / CV_TENSOR_PIECE;
  const ptrdiff_t piece = (columns + pieces - 1) / pieces;
  cv_walk_push(outer, pieces, piece, piece * x_column);
  const cv_range share = cv_share(thread, (int)cv_walk_steps(outer));
  cv_walk_start(outer, share.begin);
  for (int i = share.begin; i < share.end; i++, cv_walk_next(outer)) {
    const ptrdiff_t rest = columns - outer->index[outer->rank - 1] * piece;
    cv_fetch_row(size, cv_nth(size, y, outer->y), cv_nth(size, x, outer->x), x_column,
                 rest < piece ? rest : piece);
  }
}

/* x is contiguous along `rows`, an axis of y with stride y_row. */
CV_INLINE void cv_transpose_by_tiles(cv_thread thread, const int size, void *y, const void *x,
                                     cv_walk *outer, ptrdiff_t rows, ptrdiff_t y_row, ptrdiff_t columns,
                                     ptrdiff_t x_column) {
  cv_walk_push(outer, (rows + CV_LANES - 1) / CV_LANES, y_row * CV_LANES, CV_LANES);
  const cv_range share = cv_share(thread, (int)cv_walk_steps(outer));
  cv_walk_start(outer, share.begin);
  for (int i = share.begin; i < share.end; i++, cv_walk_next(outer)) {
    const ptrdiff_t rest = rows - outer->index[outer->rank - 1] * CV_LANES;
    cv_transpose_rows(size, cv_nth(size, y, outer->y), y_row, cv_nth(size, x, outer->x), x_column,
                      rest < CV_LANES ? (int)rest : CV_LANES, columns);
  }
}

/* Does all of a piece lie in neighbours of a row of x, as few as they are apart, or in one of y? */
CV_INLINE int cv_is_interleaved(ptrdiff_t few, ptrdiff_t apart) {
  return few > 1 && few <= CV_MOST_APART && few == apart;
}

/* `few` rows of `many` elements, which in x lie beside each other's; or in y, with `into`. */
CV_INLINE void cv_transpose_interleaved(cv_thread thread, const int into, float *y, ptrdiff_t y_row,
                                        const float *x, ptrdiff_t x_row, cv_walk *outer, int few,
                                        ptrdiff_t many) {
  const ptrdiff_t pieces = (many + CV_TENSOR_PIECE - 1) / CV_TENSOR_PIECE,
                  piece = (many + pieces - 1) / pieces;
  cv_walk_push(outer, pieces, piece * (into ? few : 1), piece * (into ? 1 : few));
  const cv_range share = cv_share(thread, (int)cv_walk_steps(outer));
  cv_walk_start(outer, share.begin);
  for (int i = share.begin; i < share.end; i++, cv_walk_next(outer)) {
    const ptrdiff_t rest = many - outer->index[outer->rank - 1] * piece,
                    count = rest < piece ? rest : piece;
    if (into) {
      cv_interleave(y + outer->y, x + outer->x, x_row, few, count);
    } else {
      cv_deinterleave(y + outer->y, y_row, x + outer->x, few, few, count);
    }
  }
}

/* y [y_shape...], contiguous; x_strides: those of y's axes in x.  0 <= rank <= CV_TENSOR_RANK. */
CV_INLINE void cv_transpose_elements(cv_thread thread, const int size, void *y, const void *x, int rank,
                                     const ptrdiff_t *y_shape, const ptrdiff_t *x_strides) {
  cv_walk w = {0};
  /* Axes from the last one on, each merged into the one after it where x allows: stored reversed. */
  ptrdiff_t shape[CV_TENSOR_RANK], stride[CV_TENSOR_RANK];
  int axes = 0;
  for (int a = rank - 1; a >= 0; a--) {
    if (y_shape[a] == 1) continue;
    if (axes > 0 && x_strides[a] == shape[axes - 1] * stride[axes - 1]) {
      shape[axes - 1] *= y_shape[a];
    } else {
      shape[axes] = y_shape[a];
      stride[axes++] = x_strides[a];
    }
  }
  const ptrdiff_t columns = axes > 0 ? shape[0] : 1, x_column = axes > 0 ? stride[0] : 1;
  ptrdiff_t y_strides[CV_TENSOR_RANK] = {1};
  for (int a = 1; a < axes; a++) y_strides[a] = y_strides[a - 1] * shape[a - 1];
  int contiguous = -1; /* of w's axes: the one along which x is contiguous */
  for (int a = axes - 1; a >= 1; a--) {
    if (stride[a] == 1 && x_column > 1) contiguous = w.rank;
    cv_walk_push(&w, shape[a], y_strides[a], stride[a]);
  }
  if (contiguous < 0) {
    cv_transpose_by_rows(thread, size, y, x, &w, columns, x_column);
    return;
  }
  const ptrdiff_t rows = w.shape[contiguous], y_row = w.y_stride[contiguous];
  cv_walk_remove(&w, contiguous);
  if (size == sizeof(float) && cv_is_interleaved(rows, x_column)) {
    cv_transpose_interleaved(thread, 0, y, y_row, x, 0, &w, (int)rows, columns);
    return;
  }
  if (size == sizeof(float) && cv_is_interleaved(columns, y_row)) {
    cv_transpose_interleaved(thread, 1, y, 0, x, x_column, &w, (int)columns, rows);
    return;
  }
  cv_transpose_by_tiles(thread, size, y, x, &w, rows, y_row, columns, x_column);
}

static inline void cv_transpose_plain(cv_thread thread, float *y, const float *x, int rank,
                                      const ptrdiff_t *y_shape, const ptrdiff_t *x_strides) {
  cv_transpose_elements(thread, sizeof *y, y, x, rank, y_shape, x_strides);
}

static inline void cv_transpose_bytes(cv_thread thread, void *y, const void *x, int rank,
                                      const ptrdiff_t *y_shape, const ptrdiff_t *x_strides) {
  cv_transpose_elements(thread, 1, y, x, rank, y_shape, x_strides);
}

CV_INLINE void cv_fill_row(const int size, void *y, const void *value, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) memcpy(cv_nth(size, y, i), value, (size_t)size);
}

/* What lies beside x in a padded tensor, by NumPy's names. */
typedef enum cv_pad_mode {
  CV_PAD_CONSTANT,
  CV_PAD_EDGE,
  CV_PAD_REFLECT,   /* without the edge itself: fewer than the axis is long */
  CV_PAD_SYMMETRIC, /* with it: at most as many */
  CV_PAD_WRAP       /* at most as many */
} cv_pad_mode;

/* The index in an axis of n that index i, in it or beside it, shows; negative: the constant. */
static inline ptrdiff_t cv_pad_source(ptrdiff_t i, ptrdiff_t n, cv_pad_mode mode) {
  if (i >= 0 && i < n) return i;
  switch (mode) {
    case CV_PAD_EDGE:
      return i < 0 ? 0 : n - 1;
    case CV_PAD_REFLECT:
      return i < 0 ? -i : 2 * (n - 1) - i;
    case CV_PAD_SYMMETRIC:
      return i < 0 ? -1 - i : 2 * n - 1 - i;
    case CV_PAD_WRAP:
      return i < 0 ? i + n : i - n;
    default:
      return -1;
  }
}

/* `count` times `inner` elements of a row, from index i of its n on. */
CV_INLINE void cv_pad_cells(const int size, void *y, const void *x, ptrdiff_t i, ptrdiff_t count,
                            ptrdiff_t n, ptrdiff_t inner, cv_pad_mode mode, const void *value) {
  for (ptrdiff_t k = 0; k < count; k++) {
    const ptrdiff_t source = cv_pad_source(i + k, n, mode);
    void *to = cv_nth(size, y, k * inner);
    if (source < 0) {
      cv_fill_row(size, to, value, inner);
    } else {
      memcpy(to, cv_nth(size, x, source * inner), (size_t)(inner * size));
    }
  }
}

/* x [x_shape...] at `before` in y [y_shape...].  1 <= rank <= CV_TENSOR_RANK. */
CV_INLINE void cv_pad_elements(cv_thread thread, const int size, void *y, const void *x, int rank,
                               const ptrdiff_t *x_shape, const ptrdiff_t *before, const ptrdiff_t *y_shape,
                               cv_pad_mode mode, const void *value) {
  /* The axes after the last padded one are contiguous in both: they belong to its rows. */
  ptrdiff_t inner = 1;
  int last = rank - 1;
  while (last > 0 && x_shape[last] == y_shape[last]) inner *= x_shape[last--];
  const ptrdiff_t width = x_shape[last], start = before[last], row = y_shape[last];
  cv_walk w = {.rank = last};
  ptrdiff_t y_stride = row * inner, x_stride = width * inner, x_strides[CV_TENSOR_RANK];
  for (int a = last - 1; a >= 0; a--) {
    w.shape[a] = y_shape[a];
    w.y_stride[a] = y_stride;
    x_strides[a] = x_stride;
    y_stride *= y_shape[a];
    x_stride *= x_shape[a];
  }
  const cv_range share = cv_share(thread, (int)cv_walk_steps(&w));
  cv_walk_start(&w, share.begin);
  for (int i = share.begin; i < share.end; i++, cv_walk_next(&w)) {
    const void *in = x;
    for (int a = 0; a < last && in != NULL; a++) {
      const ptrdiff_t source = cv_pad_source(w.index[a] - before[a], x_shape[a], mode);
      in = source < 0 ? NULL : cv_nth(size, in, source * x_strides[a]);
    }
    void *out = cv_nth(size, y, w.y);
    if (in == NULL) {
      cv_fill_row(size, out, value, row * inner);
      continue;
    }
    cv_pad_cells(size, out, in, -start, start, width, inner, mode, value);
    memcpy(cv_nth(size, out, start * inner), in, (size_t)(width * inner * size));
    cv_pad_cells(size, cv_nth(size, out, (start + width) * inner), in, width, row - start - width, width,
                 inner, mode, value);
  }
}

static inline void cv_pad_plain(cv_thread thread, float *y, const float *x, int rank,
                                const ptrdiff_t *x_shape, const ptrdiff_t *before, const ptrdiff_t *y_shape,
                                cv_pad_mode mode, float value) {
  cv_pad_elements(thread, sizeof *y, y, x, rank, x_shape, before, y_shape, mode, &value);
}

static inline void cv_pad_bytes(cv_thread thread, void *y, const void *x, int rank,
                                const ptrdiff_t *x_shape, const ptrdiff_t *before, const ptrdiff_t *y_shape,
                                cv_pad_mode mode, uint8_t value) {
  cv_pad_elements(thread, 1, y, x, rank, x_shape, before, y_shape, mode, &value);
}

CV_INLINE void cv_copy_element_rows(cv_thread thread, const int size, void *y, ptrdiff_t y_stride,
                                    const void *x, ptrdiff_t x_stride, ptrdiff_t rows, ptrdiff_t columns) {
  cv_walk w = {0};
  if (columns <= 0) return;
  cv_walk_push(&w, rows, y_stride, x_stride);
  cv_transpose_by_rows(thread, size, y, x, &w, columns, 1);
}

static inline void cv_copy_rows(cv_thread thread, float *y, ptrdiff_t y_stride, const float *x,
                                ptrdiff_t x_stride, ptrdiff_t rows, ptrdiff_t columns) {
  cv_copy_element_rows(thread, sizeof *y, y, y_stride, x, x_stride, rows, columns);
}

static inline void cv_copy_byte_rows(cv_thread thread, void *y, ptrdiff_t y_stride, const void *x,
                                     ptrdiff_t x_stride, ptrdiff_t rows, ptrdiff_t columns) {
  cv_copy_element_rows(thread, 1, y, y_stride, x, x_stride, rows, columns);
}

#endif
