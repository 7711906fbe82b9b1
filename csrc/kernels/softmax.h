/* Softmax and its logarithm over one axis of a plain tensor [outer][axis][inner], any alignment.
 *
 *   y = exp(x - m) / s     or     y = (x - m) - log(s),     m = max x,  s = sum exp(x - m)
 *
 * m is subtracted first, so that nothing overflows and s >= 1.  Sums are partial sums of at most
 * CV_SOFTMAX_RUN vectors.  A row with a NaN or inf, or of -inf only, is NaN throughout.
 * y may be x.
 *
 * inner = 1 goes along rows, else CV_LANES columns are done at once.  Threads share rows, or groups of
 * columns.
 */
#ifndef CONVOY_KERNELS_SOFTMAX_H_
#define CONVOY_KERNELS_SOFTMAX_H_

#include <math.h>

#include "kernels/map.h"
#include "simd/math.h"

#define CV_SOFTMAX_RUN 64

/* The first n lanes from p, the others -inf: they are never the maximum, and exp makes them 0. */
CV_INLINE cv_vec cv_softmax_tail(const float *p, int n) { return cv_load_n_or(p, n, -INFINITY); }

static inline float cv_softmax_row_max(const float *x, ptrdiff_t whole, int rest) {
  cv_vec max = cv_set1(-INFINITY);
  for (ptrdiff_t i = 0; i < whole; i += CV_LANES) max = cv_max(max, cv_loadu(x + i));
  if (rest) max = cv_max(max, cv_softmax_tail(x + whole, rest));
  return cv_reduce_max(max);
}

/* The sum of e = exp(x - max); e is stored in y unless that is NULL. */
static inline float cv_softmax_row_sum(float *y, const float *x, ptrdiff_t whole, int rest, float max) {
  const cv_vec m = cv_set1(max);
  cv_vec total = cv_zero();
  for (ptrdiff_t i = 0; i < whole;) {
    cv_vec part = cv_zero();
    const ptrdiff_t end = whole - i < CV_SOFTMAX_RUN * CV_LANES ? whole : i + CV_SOFTMAX_RUN * CV_LANES;
    for (; i < end; i += CV_LANES) {
      const cv_vec e = cv_exp(cv_sub(cv_loadu(x + i), m));
      if (y) cv_storeu(y + i, e);
      part = cv_add(part, e);
    }
    total = cv_add(total, part);
  }
  if (rest) {
    const cv_vec e = cv_exp(cv_sub(cv_softmax_tail(x + whole, rest), m));
    if (y) cv_store_n(y + whole, e, rest);
    total = cv_add(total, e);
  }
  return cv_reduce_add(total);
}

static inline void cv_softmax_row(float *y, const float *x, ptrdiff_t axis, int log) {
  const int rest = (int)(axis % CV_LANES);
  const ptrdiff_t whole = axis - rest;
  const float max = cv_softmax_row_max(x, whole, rest);
  const float sum = cv_softmax_row_sum(log ? NULL : y, x, whole, rest, max);
  const cv_vec m = cv_set1(max), l = cv_log(cv_set1(sum)), scale = cv_set1(1.0f / sum);
  for (ptrdiff_t i = 0; i < axis; i += CV_LANES) {
    const int lanes = axis - i < CV_LANES ? rest : CV_LANES;
    if (log) {
      cv_store_n(y + i, cv_sub(cv_sub(cv_load_n(x + i, lanes), m), l), lanes);
    } else {
      cv_store_n(y + i, cv_mul(cv_load_n(y + i, lanes), scale), lanes);
    }
  }
}

/* `lanes` columns of [axis][inner]. */
static inline void cv_softmax_columns(float *y, const float *x, ptrdiff_t axis, ptrdiff_t inner, int lanes,
                                      int log) {
  cv_vec max = cv_set1(-INFINITY), total = cv_zero();
  for (ptrdiff_t a = 0; a < axis; a++) max = cv_max(max, cv_load_n(x + a * inner, lanes));
  for (ptrdiff_t a = 0; a < axis;) {
    cv_vec part = cv_zero();
    const ptrdiff_t end = axis - a < CV_SOFTMAX_RUN ? axis : a + CV_SOFTMAX_RUN;
    for (; a < end; a++) {
      const cv_vec e = cv_exp(cv_sub(cv_load_n(x + a * inner, lanes), max));
      if (!log) cv_store_n(y + a * inner, e, lanes);
      part = cv_add(part, e);
    }
    total = cv_add(total, part);
  }
  const cv_vec l = cv_log(total), scale = cv_div(cv_set1(1.0f), total);
  for (ptrdiff_t a = 0; a < axis; a++) {
    const ptrdiff_t at = a * inner;
    if (log) {
      cv_store_n(y + at, cv_sub(cv_sub(cv_load_n(x + at, lanes), max), l), lanes);
    } else {
      cv_store_n(y + at, cv_mul(cv_load_n(y + at, lanes), scale), lanes);
    }
  }
}

/* x, y [outer][axis][inner]; log: log-softmax. */
static inline void cv_softmax(cv_thread thread, float *y, const float *x, ptrdiff_t outer, ptrdiff_t axis,
                              ptrdiff_t inner, int log) {
  const int pieces = inner == 1 ? 1 : (int)((inner + CV_LANES - 1) / CV_LANES);
  const cv_range share = cv_share(thread, (int)outer * pieces);
  for (int i = share.begin; i < share.end; i++) {
    const ptrdiff_t column = (ptrdiff_t)(i % pieces) * CV_LANES;
    const ptrdiff_t at = i / pieces * axis * inner + column;
    if (inner == 1) {
      cv_softmax_row(y + at, x + at, axis, log);
    } else {
      const int lanes = inner - column < CV_LANES ? (int)(inner - column) : CV_LANES;
      cv_softmax_columns(y + at, x + at, axis, inner, lanes, log);
    }
  }
}

#endif
