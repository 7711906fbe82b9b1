/* Reductions: mean, sum, max, min.
 *
 *   cv_reduce_map     y[c] = over h, w of x[c][h][w], from a blocked map to one of 1 x 1
 *   cv_reduce_plain   y[o][i] = over a of x[o][a][i], row-major [outer][axis][inner], any alignment
 *
 * Sums are float32 in many partial sums (of lanes, and of rows or of runs of CV_REDUCE_RUN elements),
 * so their error grows far more slowly than their length.  NaN propagates through
 * all of them; max and min of nothing are -inf and inf, the mean NaN.
 *
 * Threads share blocks (map) or results (plain).
 */
#ifndef CONVOY_KERNELS_REDUCE_H_
#define CONVOY_KERNELS_REDUCE_H_

#include <math.h>

#include "kernels/halo.h"
#include "kernels/map.h"

typedef enum { CV_MEAN, CV_SUM, CV_MAX, CV_MIN } cv_reduction;

#define CV_REDUCE_CHAINS 4
#define CV_REDUCE_RUN 64
/* Elements of a row, at most, of which CV_LANES rows are reduced together: to reduce the lanes of a vector
 * takes many steps, of a sum fewer. */
CV_INLINE int cv_reduce_short(cv_reduction kind) {
  return (kind == CV_MAX || kind == CV_MIN ? 4 : 2) * CV_LANES;
}

CV_INLINE float cv_reduce_start(cv_reduction kind) {
  return kind == CV_MAX ? -INFINITY : kind == CV_MIN ? INFINITY : 0.0f;
}

/* a and v as one; once NaN, stays NaN. */
CV_INLINE cv_vec cv_reduce_step(cv_reduction kind, cv_vec a, cv_vec v) {
  if (kind == CV_MAX) return cv_select(cv_unordered(a, a), a, cv_max(a, v));
  if (kind == CV_MIN) return cv_select(cv_unordered(a, a), a, cv_min(a, v));
  return cv_add(a, v);
}

/* The same over all lanes of v. */
CV_INLINE float cv_reduce_lanes(cv_reduction kind, cv_vec v) {
  float lanes[CV_LANES];
  if (kind == CV_MEAN || kind == CV_SUM) return cv_reduce_add(v);
  cv_storeu(lanes, v);
  float a = lanes[0];
  for (int i = 1; i < CV_LANES; i++) {
    const int better = kind == CV_MAX ? !(lanes[i] <= a) : !(lanes[i] >= a);
    if (better && !isnan(a)) a = lanes[i];
  }
  return a;
}

/* Of any alignment; of bfloat16 that of a pixel. */
CV_INLINE cv_vec cv_reduce_load(const int bf16, const float *x) {
  return bf16 ? cv_load_bf16(x) : cv_loadu(x);
}

/* `count` vectors `step` floats apart, reduced lane by lane. */
CV_INLINE cv_vec cv_reduce_vectors(cv_reduction kind, const int bf16, const float *x, ptrdiff_t count,
                                   ptrdiff_t step) {
  cv_vec part[CV_REDUCE_CHAINS];
  ptrdiff_t i = 0;
  CV_UNROLL
  for (int c = 0; c < CV_REDUCE_CHAINS; c++) part[c] = cv_set1(cv_reduce_start(kind));
  for (; i + CV_REDUCE_CHAINS <= count; i += CV_REDUCE_CHAINS) {
    CV_UNROLL
    for (int c = 0; c < CV_REDUCE_CHAINS; c++) {
      part[c] = cv_reduce_step(kind, part[c], cv_reduce_load(bf16, x + (i + c) * step));
    }
  }
  for (; i < count; i++) part[0] = cv_reduce_step(kind, part[0], cv_reduce_load(bf16, x + i * step));
  return cv_reduce_step(kind, cv_reduce_step(kind, part[0], part[1]),
                        cv_reduce_step(kind, part[2], part[3]));
}

/* In runs, each summed on its own. */
CV_INLINE cv_vec cv_reduce_runs(cv_reduction kind, const int bf16, const float *x, ptrdiff_t count,
                                ptrdiff_t step) {
  cv_vec total = cv_set1(cv_reduce_start(kind));
  for (ptrdiff_t i = 0; i < count; i += CV_REDUCE_RUN) {
    const ptrdiff_t run = count - i < CV_REDUCE_RUN ? count - i : CV_REDUCE_RUN;
    total = cv_reduce_step(kind, total, cv_reduce_vectors(kind, bf16, x + i * step, run, step));
  }
  return total;
}

CV_INLINE void cv_reduce_map_of(cv_thread thread, cv_reduction kind, const int bf16, cv_map x, cv_map y) {
  const cv_range share = cv_share(thread, cv_blocks(x.channels));
  const cv_vec divisor = cv_set1((float)(x.height * x.width));
  /* Without a halo the rows are one. */
  const int flat = x.row == x.width * x.step;
  const int rows = flat ? 1 : x.height, columns = flat ? x.height * x.width : x.width;
  for (int block = share.begin; block < share.end; block++) {
    const float *plane = x.data + block * x.plane;
    cv_vec total = cv_set1(cv_reduce_start(kind));
    for (int row = 0; row < rows; row++) {
      const cv_vec of_row = cv_reduce_runs(kind, bf16, plane + row * x.row, columns, x.step);
      total = cv_reduce_step(kind, total, of_row);
    }
    if (kind == CV_MEAN) total = cv_div(total, divisor);
    cv_store(y.data + block * y.plane, total);
  }
  cv_map_clear_halo(thread, y);
}

CV_INLINE void cv_reduce_map_kind(cv_thread thread, cv_reduction kind, cv_map x, cv_map y) {
  if (cv_is_bf16(&x)) {
    cv_reduce_map_of(thread, kind, 1, x, y);
  } else {
    cv_reduce_map_of(thread, kind, 0, x, y);
  }
}

/* x [channels][height][width], of any type, y [channels][1][1]; the zero lanes of x give zero lanes of y.
 */
CV_INLINE void cv_reduce_map(cv_thread thread, cv_reduction kind, cv_map x, cv_map y) {
  switch (kind) {
    case CV_MEAN:
      cv_reduce_map_kind(thread, CV_MEAN, x, y);
      break;
    case CV_SUM:
      cv_reduce_map_kind(thread, CV_SUM, x, y);
      break;
    case CV_MAX:
      cv_reduce_map_kind(thread, CV_MAX, x, y);
      break;
    case CV_MIN:
      cv_reduce_map_kind(thread, CV_MIN, x, y);
      break;
  }
}

/* A contiguous row of `count` floats. */
CV_INLINE float cv_reduce_row(cv_reduction kind, const float *x, ptrdiff_t count) {
  const ptrdiff_t vectors = count / CV_LANES;
  const int rest = (int)(count % CV_LANES);
  const cv_vec total = cv_reduce_runs(kind, 0, x, vectors, CV_LANES);
  if (rest == 0) return cv_reduce_lanes(kind, total);
  const cv_vec tail = cv_load_n_or(x + vectors * CV_LANES, rest, cv_reduce_start(kind));
  return cv_reduce_lanes(kind, cv_reduce_step(kind, total, tail));
}

/* CV_LANES neighbouring rows of `count` floats, each in its lane. */
CV_INLINE cv_vec cv_reduce_short_rows(cv_reduction kind, const float *x, ptrdiff_t count) {
  const float start = cv_reduce_start(kind);
  cv_vec total = cv_set1(start);
  for (ptrdiff_t i = 0; i < count; i += CV_LANES) {
    const int some = count - i < CV_LANES ? (int)(count - i) : CV_LANES;
    cv_vec v[CV_LANES];
    CV_UNROLL
    for (int row = 0; row < CV_LANES; row++) v[row] = cv_load_n_or(x + row * count + i, some, start);
    cv_transpose(v);
    CV_UNROLL
    for (int half = CV_LANES / 2; half > 0; half /= 2) {
      CV_UNROLL
      for (int k = 0; k < half; k++) v[k] = cv_reduce_step(kind, v[k], v[k + half]);
    }
    total = cv_reduce_step(kind, total, v[0]);
  }
  return total;
}

/* `lanes` columns of [axis][inner]. */
CV_INLINE cv_vec cv_reduce_columns(cv_reduction kind, const float *x, ptrdiff_t axis, ptrdiff_t inner,
                                   int lanes) {
  if (lanes == CV_LANES) return cv_reduce_runs(kind, 0, x, axis, inner);
  cv_vec total = cv_set1(cv_reduce_start(kind));
  for (ptrdiff_t i = 0; i < axis; i += CV_REDUCE_RUN) {
    cv_vec part = cv_set1(cv_reduce_start(kind));
    for (ptrdiff_t a = i; a < axis && a < i + CV_REDUCE_RUN; a++) {
      part = cv_reduce_step(kind, part, cv_load_n(x + a * inner, lanes));
    }
    total = cv_reduce_step(kind, total, part);
  }
  return total;
}

CV_INLINE void cv_reduce_plain_kind(cv_thread thread, cv_reduction kind, float *y, const float *x,
                                    ptrdiff_t outer, ptrdiff_t axis, ptrdiff_t inner) {
  const float divisor = kind == CV_MEAN ? (float)axis : 1.0f;
  if (inner == 1) {
    const cv_range share = cv_share(thread, (int)outer);
    int o = share.begin;
    for (; axis <= cv_reduce_short(kind) && o + CV_LANES <= share.end; o += CV_LANES) {
      const cv_vec rows = cv_reduce_short_rows(kind, x + o * axis, axis);
      cv_storeu(y + o, cv_div(rows, cv_set1(divisor)));
    }
    for (; o < share.end; o++) y[o] = cv_reduce_row(kind, x + o * axis, axis) / divisor;
    return;
  }
  const int pieces = (int)((inner + CV_LANES - 1) / CV_LANES);
  const cv_range share = cv_share(thread, (int)outer * pieces);
  for (int i = share.begin; i < share.end; i++) {
    const ptrdiff_t o = i / pieces, column = (ptrdiff_t)(i % pieces) * CV_LANES;
    const int lanes = inner - column < CV_LANES ? (int)(inner - column) : CV_LANES;
    const cv_vec v = cv_reduce_columns(kind, x + o * axis * inner + column, axis, inner, lanes);
    cv_store_n(y + o * inner + column, cv_div(v, cv_set1(divisor)), lanes);
  }
}

/* x [outer][axis][inner], y [outer][inner]. */
CV_INLINE void cv_reduce_plain(cv_thread thread, cv_reduction kind, float *y, const float *x,
                               ptrdiff_t outer, ptrdiff_t axis, ptrdiff_t inner) {
  switch (kind) {
    case CV_MEAN:
      cv_reduce_plain_kind(thread, CV_MEAN, y, x, outer, axis, inner);
      break;
    case CV_SUM:
      cv_reduce_plain_kind(thread, CV_SUM, y, x, outer, axis, inner);
      break;
    case CV_MAX:
      cv_reduce_plain_kind(thread, CV_MAX, y, x, outer, axis, inner);
      break;
    case CV_MIN:
      cv_reduce_plain_kind(thread, CV_MIN, y, x, outer, axis, inner);
      break;
  }
}

#endif
