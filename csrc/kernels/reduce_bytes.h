/* The mean of bytes over an axis, of exact sums.
 *
 *   y[o][i] = quantize(sum over a of (x[o][a][i] - x_scale.zero) * x_scale.scale / axis, y_scale)
 *
 * x [outer][axis][inner], y [outer][inner]: unsigned, row-major, any alignment.  Sums are int32, of more
 * than CV_BYTE_SUM_MOST bytes those of parts, added as floats.  Threads share results. The mean of a map is
 * a pool as large as it is (pool_bytes.h).
 */
#ifndef CONVOY_KERNELS_REDUCE_BYTES_H_
#define CONVOY_KERNELS_REDUCE_BYTES_H_

#include "kernels/pool_bytes.h"

/* `n` columns of `count` rows. */
CV_INLINE cv_int cv_sum_byte_columns(const uint8_t *x, ptrdiff_t count, ptrdiff_t row, int n) {
  cv_int sum = cv_int_set1(0);
  if (n == CV_LANES) {
    for (ptrdiff_t i = 0; i < count; i++) sum = cv_int_add(sum, cv_load_bytes(x + i * row));
  } else {
    for (ptrdiff_t i = 0; i < count; i++) sum = cv_int_add(sum, cv_load_bytes_n(x + i * row, n));
  }
  return sum;
}

/* A row, its sum in all lanes. */
CV_INLINE cv_int cv_sum_byte_row(const uint8_t *x, ptrdiff_t count) {
  const ptrdiff_t vectors = count / CV_LANES;
  const cv_int whole = cv_sum_byte_columns(x, vectors, CV_LANES, CV_LANES);
  const cv_int rest = cv_load_bytes_n(x + vectors * CV_LANES, (int)(count % CV_LANES));
  const cv_int sums = cv_int_add(whole, rest);
  int32_t lanes[CV_LANES], sum = 0;
  memcpy(lanes, &sums, sizeof lanes);
  for (int i = 0; i < CV_LANES; i++) sum += lanes[i];
  return cv_int_set1(sum);
}

static inline void cv_mean_bytes(cv_thread t, uint8_t *y, const uint8_t *x, ptrdiff_t outer, ptrdiff_t axis,
                                 ptrdiff_t inner, cv_scale x_scale, cv_scale y_scale) {
  static const cv_activation none = {CV_IDENTITY, 0, 0};
  const cv_pool_scales scales = {x_scale, y_scale};
  const int pieces = (int)((inner + CV_LANES - 1) / CV_LANES);
  const cv_range share = cv_share(t, (int)outer * pieces);
  for (int i = share.begin; i < share.end; i++) {
    const ptrdiff_t o = i / pieces, column = (ptrdiff_t)(i % pieces) * CV_LANES;
    const int n = inner - column < CV_LANES ? (int)(inner - column) : CV_LANES;
    const uint8_t *from = x + o * axis * inner + column;
    cv_vec sum = cv_zero();
    for (ptrdiff_t a = 0; a < axis; a += CV_BYTE_SUM_MOST) {
      const int count = axis - a < CV_BYTE_SUM_MOST ? (int)(axis - a) : CV_BYTE_SUM_MOST;
      const cv_int part = inner == 1 ? cv_sum_byte_row(from + a, count)
                                     : cv_sum_byte_columns(from + a * inner, count, inner, n);
      sum = cv_add(sum, cv_sum_of_steps(part, count, x_scale.zero));
    }
    cv_store_bytes_n(y + o * inner + column, cv_mean_byte(sum, (int)axis, none, &scales), n);
  }
}

#endif
