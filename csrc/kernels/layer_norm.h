/* Layer and RMS normalisation of the rows of a plain tensor [rows][columns], any alignment.
 *
 *   cv_layer_norm   y = (x - mean) / sqrt(variance + epsilon) * gamma + beta
 *   cv_rms_norm     y = x / sqrt(mean of x^2 + epsilon) * gamma + beta
 *
 * mean and variance are those of each row; gamma and beta have a number a column, or are NULL: 1 and 0.
 *
 * The mean is first summed to float's digits, then the variance from the deviations from it, whose own mean
 * is what the first one lacked: rows far from zero lose nothing.  Sums are in many partial sums, as in
 * reduce.h.  A NaN, an infinity, or a sum that overflows makes its row NaN, and no other; in an RMS norm
 * the rest of a row with an infinity is 0, as by the formula.
 * x and y do not overlap.
 *
 * Threads share rows, or stretches of them where rows are few: of a row that threads have in common, each
 * finds the moments itself.
 */
#ifndef CONVOY_KERNELS_LAYER_NORM_H_
#define CONVOY_KERNELS_LAYER_NORM_H_

#include <math.h>

#include "kernels/reduce.h"

/* Rows a thread, at least, for rows to be shared whole. */
#define CV_NORM_ROWS 4

/* Rows that are normalised together, of at most CV_NORM_SHORT columns: they stay in L1. */
#define CV_NORM_BATCH 4
#define CV_NORM_SHORT 1024

/* Sums of x - centre and of (x - centre)^2, lane by lane. */
typedef struct cv_deviations {
  cv_vec first, second;
} cv_deviations;

CV_INLINE void cv_deviate(cv_deviations *sums, cv_vec x, cv_vec centre) {
  const cv_vec d = cv_sub(x, centre);
  sums->first = cv_add(sums->first, d);
  sums->second = cv_fma(d, d, sums->second);
}

CV_INLINE void cv_join_deviations(cv_deviations *sums, cv_deviations more) {
  sums->first = cv_add(sums->first, more.first);
  sums->second = cv_add(sums->second, more.second);
}

/* Adds those of `count` vectors `step` floats apart, in runs that are summed on their own. */
CV_INLINE void cv_sum_deviations(cv_deviations *sums, const float *x, ptrdiff_t count, ptrdiff_t step,
                                 cv_vec centre) {
  for (ptrdiff_t i = 0; i < count;) {
    const ptrdiff_t end = count - i < CV_REDUCE_RUN ? count : i + CV_REDUCE_RUN;
    cv_deviations part[CV_REDUCE_CHAINS];
    CV_UNROLL
    for (int c = 0; c < CV_REDUCE_CHAINS; c++) part[c].first = part[c].second = cv_zero();
    for (; i + CV_REDUCE_CHAINS <= end; i += CV_REDUCE_CHAINS) {
      CV_UNROLL
      for (int c = 0; c < CV_REDUCE_CHAINS; c++) {
        cv_deviate(&part[c], cv_loadu(x + (i + c) * step), centre);
      }
    }
    for (; i < end; i++) cv_deviate(&part[0], cv_loadu(x + i * step), centre);
    CV_UNROLL
    for (int c = 0; c < CV_REDUCE_CHAINS; c++) cv_join_deviations(sums, part[c]);
  }
}

/* x is normalised as (x - centre) * factor + offset; offset holds what the centre lacks of the mean. */
typedef struct cv_normal {
  float centre, factor, offset;
} cv_normal;

/* first, second: sums of `count` deviations from the centre. */
CV_INLINE cv_normal cv_make_normal(float centre, float first, float second, float count, float epsilon) {
  const float rest = first / count, variance = second / count - rest * rest;
  const float factor = 1.0f / sqrtf((variance < 0 ? 0 : variance) + epsilon); /* NaN stays NaN */
  const cv_normal n = {centre, factor, -rest * factor};
  return n;
}

/* Of `count` <= CV_NORM_BATCH contiguous rows: each waits for its sums while the others are summed.
 * Without `centred` deviations are from 0, and not from the mean. */
CV_INLINE void cv_row_normals(cv_normal *n, const float *x, int count, ptrdiff_t columns, float epsilon,
                              const int centred) {
  const ptrdiff_t vectors = columns / CV_LANES;
  const int rest = (int)(columns % CV_LANES);
  float centre[CV_NORM_BATCH], first[CV_NORM_BATCH], second[CV_NORM_BATCH];
  for (int r = 0; r < count; r++) {
    centre[r] = centred ? cv_reduce_row(CV_SUM, x + r * columns, columns) / (float)columns : 0;
  }
  for (int r = 0; r < count; r++) {
    const float *row = x + r * columns;
    const cv_vec c = cv_set1(centre[r]);
    cv_deviations sums = {cv_zero(), cv_zero()};
    cv_sum_deviations(&sums, row, vectors, CV_LANES, c);
    if (rest) cv_deviate(&sums, cv_load_n_or(row + vectors * CV_LANES, rest, centre[r]), c);
    first[r] = cv_reduce_add(sums.first);
    second[r] = cv_reduce_add(sums.second);
  }
  for (int r = 0; r < count; r++) {
    n[r] = cv_make_normal(centre[r], centred ? first[r] : 0, second[r], (float)columns, epsilon);
  }
}

CV_INLINE cv_vec cv_normalize(cv_vec x, cv_normal n) {
  return cv_fma(cv_sub(x, cv_set1(n.centre)), cv_set1(n.factor), cv_set1(n.offset));
}

/* Columns [begin, end) of a row. */
CV_INLINE void cv_normalize_columns(float *y, const float *x, const float *gamma, const float *beta,
                                    ptrdiff_t begin, ptrdiff_t end, cv_normal n) {
  const cv_vec one = cv_set1(1.0f), zero = cv_zero();
  ptrdiff_t i = begin;
  for (; i + CV_LANES <= end; i += CV_LANES) {
    const cv_vec scale = gamma ? cv_loadu(gamma + i) : one, shift = beta ? cv_loadu(beta + i) : zero;
    cv_storeu(y + i, cv_fma(cv_normalize(cv_loadu(x + i), n), scale, shift));
  }
  const int rest = (int)(end - i);
  if (rest > 0) {
    const cv_vec scale = gamma ? cv_load_n(gamma + i, rest) : one;
    const cv_vec shift = beta ? cv_load_n(beta + i, rest) : zero;
    cv_store_n(y + i, cv_fma(cv_normalize(cv_load_n(x + i, rest), n), scale, shift), rest);
  }
}

CV_INLINE void cv_norm_rows(cv_thread thread, float *y, const float *x, const float *gamma,
                            const float *beta, ptrdiff_t rows, ptrdiff_t columns, float epsilon,
                            const int centred) {
  const int vectors = (int)((columns + CV_LANES - 1) / CV_LANES), most = CV_NORM_ROWS * thread.count;
  const int stretches = rows >= most || thread.count == 1 ? 1 : vectors < most ? vectors : most;
  const int batch = stretches == 1 && columns <= CV_NORM_SHORT ? CV_NORM_BATCH : 1;
  const cv_range share = cv_share(thread, (int)rows * stretches);
  cv_normal n[CV_NORM_BATCH];
  for (int i = share.begin; i < share.end; i += batch) {
    const ptrdiff_t row = i / stretches * columns;
    const int count = share.end - i < batch ? share.end - i : batch;
    if (i == share.begin || i % stretches == 0)
      cv_row_normals(n, x + row, count, columns, epsilon, centred);
    const cv_range stretch = cv_share((cv_thread){i % stretches, stretches}, vectors);
    const ptrdiff_t end = (ptrdiff_t)stretch.end * CV_LANES;
    for (int r = 0; r < count; r++) {
      cv_normalize_columns(y + row + r * columns, x + row + r * columns, gamma, beta,
                           (ptrdiff_t)stretch.begin * CV_LANES, end < columns ? end : columns, n[r]);
    }
  }
}

CV_INLINE void cv_layer_norm(cv_thread thread, float *y, const float *x, const float *gamma,
                             const float *beta, ptrdiff_t rows, ptrdiff_t columns, float epsilon) {
  cv_norm_rows(thread, y, x, gamma, beta, rows, columns, epsilon, 1);
}

CV_INLINE void cv_rms_norm(cv_thread thread, float *y, const float *x, const float *gamma,
                           const float *beta, ptrdiff_t rows, ptrdiff_t columns, float epsilon) {
  cv_norm_rows(thread, y, x, gamma, beta, rows, columns, epsilon, 0);
}

#endif
