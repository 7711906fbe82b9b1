/* Resampling of a blocked map along H and W; which pixels, and how much of each, is given by tables that
 * the code generator computed from the model's coordinate rules.
 *
 *   nearest    y[c][i][j] = x[c][rows[i]][columns[j]]
 *   bilinear   y[c][i][j] = lerp over rows r, r+1 of lerp over columns q, q+1 of x,
 *              r = row0[i], q = col0[j]; the second index is clamped to the last one;
 *              lerp(a, b; t) = (1 - t) a + t b
 *
 * Indices lie inside x, weights in [0, 1].  So an infinity stays one between two of its kind, as in ONNX
 * Runtime; where both indices are the same, the weight has to lie between 0 and 1 for that.  Threads share
 * rows of blocks; y's halo is zeroed.  x and y are of one type.
 *
 * cv_resize_nearest_rows and cv_resize_bilinear_rows make a row-major tensor of float32, [channels of x]
 * [height][width], which is not written as a map before.
 *
 * cv_resize_nearest_bytes and cv_resize_bilinear_bytes do the same with maps of bytes, whose halo is the
 * caller's; what the latter weighs is what the bytes stand for, and each operation rounds by itself.
 */
#ifndef CONVOY_KERNELS_RESIZE_H_
#define CONVOY_KERNELS_RESIZE_H_

#include "kernels/halo.h"
#include "kernels/layout.h"
#include "kernels/lerp.h"
#include "kernels/map.h"
#include "kernels/quantize.h"

/* rows [y.height], columns [y.width] */
CV_INLINE void cv_resize_nearest_of(const int bf16, cv_thread thread, cv_map y, cv_map x, const int *rows,
                                    const int *columns) {
  const cv_range share = cv_share(thread, cv_blocks(y.channels) * y.height);
  for (int i = share.begin; i < share.end; i++) {
    const int block = i / y.height, row = i % y.height;
    const float *from = x.data + block * x.plane + rows[row] * x.row;
    float *to = y.data + block * y.plane + row * y.row;
    for (int j = 0; j < y.width; j++)
      cv_store_lanes(bf16, to + j * y.step, cv_load_lanes(bf16, from + columns[j] * x.step));
  }
  cv_map_clear_halo(thread, y);
}

/* Some pixels of a row of y, `step` floats apart, from two rows of x. */
CV_INLINE void cv_resize_bilinear_pixels(const int bf16, const int to_bf16, float *to, ptrdiff_t step,
                                         int count, const cv_map *x, const float *upper, const float *lower,
                                         cv_vec down, const int *col0, const float *col_weight) {
  for (int j = 0; j < count; j++) {
    const ptrdiff_t left = col0[j] * x->step, right = col0[j] + 1 < x->width ? left + x->step : left;
    const cv_vec t = cv_set1(col_weight[j]);
    const cv_vec top = cv_lerp(cv_load_lanes(bf16, upper + left), cv_load_lanes(bf16, upper + right), t);
    const cv_vec bottom = cv_lerp(cv_load_lanes(bf16, lower + left), cv_load_lanes(bf16, lower + right), t);
    cv_store_lanes(to_bf16, to + j * step, cv_lerp(top, bottom, down));
  }
}

/* row0, row_weight [y.height], col0, col_weight [y.width] */
CV_INLINE void cv_resize_bilinear_of(const int bf16, cv_thread thread, cv_map y, cv_map x, const int *row0,
                                     const float *row_weight, const int *col0, const float *col_weight) {
  const cv_range share = cv_share(thread, cv_blocks(y.channels) * y.height);
  for (int i = share.begin; i < share.end; i++) {
    const int block = i / y.height, row = i % y.height;
    const float *upper = x.data + block * x.plane + row0[row] * x.row;
    const float *lower = row0[row] + 1 < x.height ? upper + x.row : upper;
    cv_resize_bilinear_pixels(bf16, bf16, y.data + block * y.plane + row * y.row, y.step, y.width, &x,
                              upper, lower, cv_set1(row_weight[row]), col0, col_weight);
  }
  cv_map_clear_halo(thread, y);
}

/* Some pixels of a block in a row of a row-major y. */
typedef struct cv_resized_part {
  int block, row, column, count, lanes;
} cv_resized_part;

/* Number i; blocks of one place follow each other, as the last may have few channels. */
static inline cv_resized_part cv_resized_part_at(const cv_map *x, int width, int i) {
  const int a_row = cv_stretches_a_row(width), blocks = cv_blocks(x->channels);
  const int block = i % blocks, column = i / blocks % a_row * CV_LAYOUT_STRETCH;
  const int pixels = width - column, channels = x->channels - block * CV_LANES;
  return (cv_resized_part){block, i / blocks / a_row, column,
                           pixels < CV_LAYOUT_STRETCH ? pixels : CV_LAYOUT_STRETCH,
                           channels < CV_LANES ? channels : CV_LANES};
}

static inline cv_range cv_share_resized(cv_thread thread, const cv_map *x, int height, int width) {
  return cv_share(thread, cv_blocks(x->channels) * height * cv_stretches_a_row(width));
}

static inline void cv_store_resized(float *y, int height, int width, cv_resized_part at,
                                    const float *made) {
  const ptrdiff_t plane = (ptrdiff_t)height * width;
  float *to = y + at.block * CV_LANES * plane + (ptrdiff_t)at.row * width + at.column;
  cv_unpack_rows(0, to, plane, made, CV_LANES, at.lanes, at.count);
}

CV_INLINE void cv_resize_nearest_rows_of(const int bf16, cv_thread thread, float *y, int height, int width,
                                         cv_map x, const int *rows, const int *columns) {
  float made[CV_LAYOUT_STRETCH * CV_LANES] __attribute__((aligned(64)));
  const cv_range share = cv_share_resized(thread, &x, height, width);
  for (int i = share.begin; i < share.end; i++) {
    const cv_resized_part at = cv_resized_part_at(&x, width, i);
    const float *from = x.data + at.block * x.plane + rows[at.row] * x.row;
    for (int j = 0; j < at.count; j++)
      cv_store(made + j * CV_LANES, cv_load_lanes(bf16, from + columns[at.column + j] * x.step));
    cv_store_resized(y, height, width, at, made);
  }
}

CV_INLINE void cv_resize_bilinear_rows_of(const int bf16, cv_thread thread, float *y, int height, int width,
                                          cv_map x, const int *row0, const float *row_weight,
                                          const int *col0, const float *col_weight) {
  float made[CV_LAYOUT_STRETCH * CV_LANES] __attribute__((aligned(64)));
  const cv_range share = cv_share_resized(thread, &x, height, width);
  for (int i = share.begin; i < share.end; i++) {
    const cv_resized_part at = cv_resized_part_at(&x, width, i);
    const float *upper = x.data + at.block * x.plane + row0[at.row] * x.row;
    const float *lower = row0[at.row] + 1 < x.height ? upper + x.row : upper;
    cv_resize_bilinear_pixels(bf16, 0, made, CV_LANES, at.count, &x, upper, lower,
                              cv_set1(row_weight[at.row]), col0 + at.column, col_weight + at.column);
    cv_store_resized(y, height, width, at, made);
  }
}

static inline void cv_resize_nearest_bytes(cv_thread thread, cv_byte_map y, cv_byte_map x, const int *rows,
                                           const int *columns) {
  const cv_range share = cv_share(thread, cv_blocks(y.channels) * y.height);
  for (int i = share.begin; i < share.end; i++) {
    const int block = i / y.height, row = i % y.height;
    const uint8_t *from = x.data + block * x.plane + rows[row] * x.row;
    uint8_t *to = y.data + block * y.plane + row * y.row;
    for (int j = 0; j < y.width; j++)
      cv_store_pixel(to + j * y.step, cv_load_pixel(from + columns[j] * x.step));
  }
}

/* lerp of what two pixels stand for. */
CV_INLINE cv_vec cv_lerp_bytes(const uint8_t *a, const uint8_t *b, cv_vec t, cv_scale s) {
  const cv_vec first = cv_dequantize(cv_load_bytes(a), s), second = cv_dequantize(cv_load_bytes(b), s);
  const cv_vec rest = cv_sub(cv_set1(1.0f), t);
  return cv_add(cv_hold(cv_mul(rest, first)), cv_hold(cv_mul(t, second)));
}

static inline void cv_resize_bilinear_bytes(cv_thread thread, cv_byte_map y, cv_byte_map x, const int *row0,
                                            const float *row_weight, const int *col0,
                                            const float *col_weight, cv_scale x_scale, cv_scale y_scale) {
  const cv_range share = cv_share(thread, cv_blocks(y.channels) * y.height);
  for (int i = share.begin; i < share.end; i++) {
    const int block = i / y.height, row = i % y.height;
    const uint8_t *upper = x.data + block * x.plane + row0[row] * x.row;
    const uint8_t *lower = row0[row] + 1 < x.height ? upper + x.row : upper;
    const cv_vec down = cv_set1(row_weight[row]), up = cv_sub(cv_set1(1.0f), down);
    uint8_t *to = y.data + block * y.plane + row * y.row;
    for (int j = 0; j < y.width; j++) {
      const ptrdiff_t left = col0[j] * x.step, right = col0[j] + 1 < x.width ? left + x.step : left;
      const cv_vec t = cv_set1(col_weight[j]);
      const cv_vec top = cv_lerp_bytes(upper + left, upper + right, t, x_scale);
      const cv_vec bottom = cv_lerp_bytes(lower + left, lower + right, t, x_scale);
      const cv_vec v = cv_add(cv_hold(cv_mul(up, top)), cv_hold(cv_mul(down, bottom)));
      cv_store_bytes(to + j * y.step, cv_quantize(v, y_scale));
    }
  }
}

static inline void cv_resize_nearest(cv_thread thread, cv_map y, cv_map x, const int *rows,
                                     const int *columns) {
  if (cv_is_bf16(&x)) {
    cv_resize_nearest_of(1, thread, y, x, rows, columns);
  } else {
    cv_resize_nearest_of(0, thread, y, x, rows, columns);
  }
}

static inline void cv_resize_bilinear(cv_thread thread, cv_map y, cv_map x, const int *row0,
                                      const float *row_weight, const int *col0, const float *col_weight) {
  if (cv_is_bf16(&x)) {
    cv_resize_bilinear_of(1, thread, y, x, row0, row_weight, col0, col_weight);
  } else {
    cv_resize_bilinear_of(0, thread, y, x, row0, row_weight, col0, col_weight);
  }
}

static inline void cv_resize_nearest_rows(cv_thread thread, float *y, int height, int width, cv_map x,
                                          const int *rows, const int *columns) {
  if (cv_is_bf16(&x)) {
    cv_resize_nearest_rows_of(1, thread, y, height, width, x, rows, columns);
  } else {
    cv_resize_nearest_rows_of(0, thread, y, height, width, x, rows, columns);
  }
}

static inline void cv_resize_bilinear_rows(cv_thread thread, float *y, int height, int width, cv_map x,
                                           const int *row0, const float *row_weight, const int *col0,
                                           const float *col_weight) {
  if (cv_is_bf16(&x)) {
    cv_resize_bilinear_rows_of(1, thread, y, height, width, x, row0, row_weight, col0, col_weight);
  } else {
    cv_resize_bilinear_rows_of(0, thread, y, height, width, x, row0, row_weight, col0, col_weight);
  }
}

#endif
