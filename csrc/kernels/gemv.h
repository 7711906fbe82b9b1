/* Products of one row with a matrix that lies as it was made, each element of which is read once.
 *
 *   cv_dot_rows    y[j] = sum_p x[p] * w[j][p]         each row of w times x
 *   cv_add_rows    y[e] = y[e] + sum_j x[j] * w[j][e]  the rows of w, weighted
 *
 * The columns of w are neighbours; rows are by any stride.  Any alignment; y overlaps neither of the
 * others.
 */
#ifndef CONVOY_KERNELS_GEMV_H_
#define CONVOY_KERNELS_GEMV_H_

#include "kernels/strides.h"

/* Rows of cv_add_rows for which y is read and written once. */
#define CV_GEMV_ROWS 8

/* The sums of `rows` <= CV_LANES rows, one a lane. */
CV_INLINE cv_vec cv_dot_some_rows(const float *x, cv_matrix w, const int rows, int depth) {
  cv_vec sum[CV_LANES];
  CV_UNROLL
  for (int i = 0; i < CV_LANES; i++) sum[i] = cv_zero();
  for (int p = 0; p < depth; p += CV_LANES) {
    const int count = cv_least(depth - p, CV_LANES);
    if (rows == CV_LANES && count == CV_LANES) {
      const cv_vec v = cv_loadu(x + p);
      CV_UNROLL
      for (int i = 0; i < CV_LANES; i++) sum[i] = cv_fma(v, cv_loadu(cv_element(w, i, p)), sum[i]);
    } else {
      const cv_vec v = cv_load_n(x + p, count);
      /* Of a number that is known, or the sums are in memory. */
      CV_UNROLL
      for (int i = 0; i < CV_LANES; i++) {
        if (i < rows) sum[i] = cv_fma(v, cv_load_n(cv_element(w, i, p), count), sum[i]);
      }
    }
  }
  cv_transpose(sum);
  CV_UNROLL
  for (int step = CV_LANES / 2; step > 0; step /= 2) {
    CV_UNROLL
    for (int i = 0; i < step; i++) sum[i] = cv_add(sum[i], sum[i + step]);
  }
  return sum[0];
}

/* x [depth], w [rows][depth], y [rows]. */
static inline void cv_dot_rows(float *y, const float *x, cv_matrix w, int rows, int depth) {
  int j = 0;
  for (; j + CV_LANES <= rows; j += CV_LANES) {
    cv_storeu(y + j, cv_dot_some_rows(x, cv_part_of_matrix(w, j, 0), CV_LANES, depth));
  }
  if (j < rows) {
    cv_store_n(y + j, cv_dot_some_rows(x, cv_part_of_matrix(w, j, 0), rows - j, depth), rows - j);
  }
}

/* `rows` <= CV_GEMV_ROWS of them. */
CV_INLINE void cv_add_some_rows(float *y, const cv_vec *x, cv_matrix w, const int rows, int columns) {
  for (int e = 0; e < columns; e += CV_LANES) {
    const int count = cv_least(columns - e, CV_LANES);
    if (count == CV_LANES) {
      cv_vec sum = cv_loadu(y + e);
      CV_UNROLL
      for (int j = 0; j < rows; j++) sum = cv_fma(x[j], cv_loadu(cv_element(w, j, e)), sum);
      cv_storeu(y + e, sum);
    } else {
      cv_vec sum = cv_load_n(y + e, count);
      for (int j = 0; j < rows; j++) sum = cv_fma(x[j], cv_load_n(cv_element(w, j, e), count), sum);
      cv_store_n(y + e, sum, count);
    }
  }
}

/* x [rows] `x_step` floats apart, times `factor`; w [rows][columns], y [columns]. */
static inline void cv_add_rows(float *y, const float *x, ptrdiff_t x_step, float factor, cv_matrix w,
                               int rows, int columns) {
  cv_vec weights[CV_GEMV_ROWS];
  for (int j = 0; j < rows; j += CV_GEMV_ROWS) {
    const int count = cv_least(rows - j, CV_GEMV_ROWS);
    for (int i = 0; i < count; i++) weights[i] = cv_set1(factor * x[(j + i) * x_step]);
    const cv_matrix part = cv_part_of_matrix(w, j, 0);
    if (count == CV_GEMV_ROWS) {
      cv_add_some_rows(y, weights, part, CV_GEMV_ROWS, columns);
    } else {
      cv_add_some_rows(y, weights, part, count, columns);
    }
  }
}

#endif
