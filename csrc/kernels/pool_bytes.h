/* Max and average pooling of a map of bytes: the windows of pool.h.
 *
 *   cv_max_pool_bytes   y = max of x; scale and zero point stay
 *   cv_avg_pool_bytes   y = quantize(outer(sum of (x - x_scale.zero) *
 * x_scale.scale / divisor), y_scale)
 *
 * Sums are int32, so the mean is rounded twice: as a float, and to a byte.  Of more than CV_BYTE_SUM_MOST
 * bytes sums of parts are added as floats.  Both are of any type: signed bytes are told by their scales,
 * but not to cv_max_pool_bytes, which takes unsigned ones.  y's halo is the caller's.
 */
#ifndef CONVOY_KERNELS_POOL_BYTES_H_
#define CONVOY_KERNELS_POOL_BYTES_H_

#include "kernels/pool.h"
#include "kernels/quantize.h"

/* The taps of one window inside x, and what divides their sum. */
typedef struct cv_byte_window {
  const uint8_t *x;
  ptrdiff_t tap_row, tap_column;
  int taps_h, taps_w, divisor;
} cv_byte_window;

CV_INLINE cv_pixel cv_max_of_window(const cv_byte_window *w, const int taps_h, const int taps_w) {
  cv_pixel max = cv_load_pixel(w->x);
  for (int i = 0; i < taps_h; i++)
    for (int j = 0; j < taps_w; j++)
      max = cv_max_pixel(max, cv_load_pixel(w->x + i * w->tap_row + j * w->tap_column));
  return max;
}

/* Bytes whose sum int32 holds. */
enum { CV_BYTE_SUM_MOST = 8388608 };

/* A sum of `taps` bytes, each less the zero point. */
CV_INLINE cv_vec cv_sum_of_steps(cv_int sum, int taps, int zero) {
  return cv_from_int(cv_int_sub(sum, cv_int_set1(taps * zero)));
}

CV_INLINE cv_vec cv_sum_of_window(const cv_byte_window *w, const int taps_h, const int taps_w, cv_scale s) {
  cv_int sum = cv_int_set1(0);
  for (int i = 0; i < taps_h; i++)
    for (int j = 0; j < taps_w; j++)
      sum = cv_int_add(sum, cv_byte_value(cv_load_bytes(w->x + i * w->tap_row + j * w->tap_column), s.low));
  return cv_sum_of_steps(sum, taps_h * taps_w, s.zero);
}

static inline cv_vec cv_sum_of_large_window(const cv_byte_window *w, cv_scale s) {
  cv_vec sum = cv_zero();
  for (int i = 0; i < w->taps_h; i++)
    for (int j = 0; j < w->taps_w; j += CV_BYTE_SUM_MOST) {
      cv_byte_window part = *w;
      part.x += i * w->tap_row + j * w->tap_column;
      const int taps_w = w->taps_w - j < CV_BYTE_SUM_MOST ? w->taps_w - j : CV_BYTE_SUM_MOST;
      sum = cv_add(sum, cv_sum_of_window(&part, 1, taps_w, s));
    }
  return sum;
}

typedef struct cv_pool_scales {
  cv_scale x, y;
} cv_pool_scales;

/* The mean of bytes as a byte, of the sum of their steps. */
CV_INLINE cv_int cv_mean_byte(cv_vec sum, int divisor, cv_activation outer, const cv_pool_scales *s) {
  const float share = divisor > 0 ? s->x.scale / (float)divisor : 0.0f;
  return cv_quantize(cv_activate(cv_hold(cv_mul(sum, cv_set1(share))), outer), s->y);
}

/* Number ox of a row of windows that begins at taps_h of x's rows. */
CV_INLINE cv_byte_window cv_byte_window_at(const cv_pool *p, const cv_byte_map *x, const uint8_t *first_row,
                                           cv_range taps_h, int rows, int ox) {
  const int left = ox * p->stride_w - p->pad_left;
  const cv_range taps_w = cv_pool_taps(left, p->dilation_w, p->kernel_w, x->width);
  const int columns = p->count_include_pad ? cv_pool_taps(left + p->pad_left, p->dilation_w, p->kernel_w,
                                                          x->width + p->pad_left + p->pad_right)
                                                 .end
                                           : taps_w.end - taps_w.begin;
  const cv_byte_window w = {first_row + (left + taps_w.begin * p->dilation_w) * x->step,
                            p->dilation_h * x->row,
                            p->dilation_w * x->step,
                            taps_h.end - taps_h.begin,
                            taps_w.end - taps_w.begin,
                            rows * columns};
  return w;
}

CV_INLINE void cv_pool_window(const cv_byte_window *w, const cv_pool *p, const cv_pool_scales *s,
                              uint8_t *y) {
  const int side = w->taps_h == w->taps_w ? w->taps_h : 0;
  if (!s) {
    const cv_pixel least = {0};
    cv_store_pixel(y, w->taps_h == 0 || w->taps_w == 0 ? least
                      : side == 3                      ? cv_max_of_window(w, 3, 3)
                      : side == 2                      ? cv_max_of_window(w, 2, 2)
                                                       : cv_max_of_window(w, w->taps_h, w->taps_w));
    return;
  }
  const int large = (int64_t)w->taps_h * w->taps_w > CV_BYTE_SUM_MOST;
  const cv_vec sum = side == 3   ? cv_sum_of_window(w, 3, 3, s->x)
                     : side == 2 ? cv_sum_of_window(w, 2, 2, s->x)
                     : large     ? cv_sum_of_large_window(w, s->x)
                                 : cv_sum_of_window(w, w->taps_h, w->taps_w, s->x);
  cv_store_bytes(y, cv_mean_byte(sum, w->divisor, p->outer, s));
}

/* Columns of x that are reduced together before their windows are. */
enum { CV_POOL_COLUMNS = 128 };

/* The windows of a row all of whose columns lie inside x, where neighbours
 * share what is reduced by rows. */
CV_INLINE cv_range cv_pool_inside(const cv_pool *p, const cv_byte_map *x, const cv_byte_map *y,
                                  cv_range taps_h) {
  const int last = x->width + p->pad_left - p->kernel_w; /* where the last of them begins */
  const int begin = (p->pad_left + p->stride_w - 1) / p->stride_w;
  const int end = last < 0 ? 0 : last / p->stride_w + 1;
  const int taps = taps_h.end - taps_h.begin;
  if (p->dilation_w != 1 || p->kernel_w > CV_POOL_COLUMNS || x->step != CV_LANES || taps <= 0 ||
      taps > CV_BYTE_SUM_MOST / CV_POOL_COLUMNS)
    return (cv_range){0, 0};
  return (cv_range){begin, end < y->width ? end : y->width};
}

/* Maxima of `taps_h` rows of columns, `count` of them. */
CV_INLINE void cv_max_columns(const uint8_t *x, ptrdiff_t row, const int taps_h, int count, uint8_t *max) {
  int i = 0;
  for (; i + 4 <= count; i += 4) {
    cv_int quad = cv_load_quad(x + i * CV_LANES, 4);
    for (int r = 1; r < taps_h; r++) quad = cv_max_bytes(quad, cv_load_quad(x + r * row + i * CV_LANES, 4));
    cv_store_quad(max + i * CV_LANES, quad, 4);
  }
  for (; i < count; i++) {
    cv_pixel pixel = cv_load_pixel(x + i * CV_LANES);
    for (int r = 1; r < taps_h; r++) pixel = cv_max_pixel(pixel, cv_load_pixel(x + r * row + i * CV_LANES));
    cv_store_pixel(max + i * CV_LANES, pixel);
  }
}

/* `count` windows of columns that are maxima already. */
CV_INLINE void cv_max_windows(const uint8_t *max, const int taps_w, ptrdiff_t next, uint8_t *y,
                              ptrdiff_t y_step, int count) {
  for (int i = 0; i < count; i++, max += next, y += y_step) {
    cv_pixel pixel = cv_load_pixel(max);
    for (int j = 1; j < taps_w; j++) pixel = cv_max_pixel(pixel, cv_load_pixel(max + j * CV_LANES));
    cv_store_pixel(y, pixel);
  }
}

/* Sums of `taps_h` rows of columns, `count` of them. */
CV_INLINE void cv_sum_columns(const uint8_t *x, ptrdiff_t row, const int taps_h, int count, int low,
                              cv_int *sum) {
  for (int i = 0; i < count; i++) {
    cv_int column = cv_byte_value(cv_load_bytes(x + i * CV_LANES), low);
    for (int r = 1; r < taps_h; r++)
      column = cv_int_add(column, cv_byte_value(cv_load_bytes(x + r * row + i * CV_LANES), low));
    sum[i] = column;
  }
}

/* `count` means of `taps` bytes each, of columns that are sums already. */
CV_INLINE void cv_mean_windows(const cv_int *sum, const int taps_w, int next, const cv_pool *p, int taps,
                               int divisor, const cv_pool_scales *s, uint8_t *y, ptrdiff_t y_step,
                               int count) {
  for (int i = 0; i < count; i++, sum += next, y += y_step) {
    cv_int window = sum[0];
    for (int j = 1; j < taps_w; j++) window = cv_int_add(window, sum[j]);
    cv_store_bytes(y, cv_mean_byte(cv_sum_of_steps(window, taps, s->x.zero), divisor, p->outer, s));
  }
}

/* Neighbouring windows of a row that lie inside it: `count` of them, of `taps_h` rows, which a mean divides
 * as `rows`. */
typedef struct cv_byte_windows {
  const uint8_t *x;
  uint8_t *y;
  int taps_h, rows, count;
} cv_byte_windows;

CV_INLINE void cv_reduce_windows(const cv_pool *p, ptrdiff_t row, ptrdiff_t y_step,
                                 const cv_byte_windows *w, const int taps_h, const int taps_w,
                                 const cv_pool_scales *s) {
  cv_int sum[CV_POOL_COLUMNS];
  uint8_t *const max = (uint8_t *)sum;
  const int columns = (w->count - 1) * p->stride_w + taps_w;
  if (s) {
    cv_sum_columns(w->x, row, taps_h, columns, s->x.low, sum);
    cv_mean_windows(sum, taps_w, p->stride_w, p, taps_h * taps_w, w->rows * taps_w, s, w->y, y_step,
                    w->count);
  } else {
    cv_max_columns(w->x, row, taps_h, columns, max);
    cv_max_windows(max, taps_w, p->stride_w * CV_LANES, w->y, y_step, w->count);
  }
}

CV_INLINE void cv_pool_row_inside(const cv_pool *p, const cv_byte_map *x, const uint8_t *first, int taps_h,
                                  int rows, const cv_byte_map *y, uint8_t *to, cv_range windows,
                                  const cv_pool_scales *s) {
  const int most = (CV_POOL_COLUMNS - p->kernel_w) / p->stride_w + 1;
  const ptrdiff_t row = p->dilation_h * x->row;
  const int side = taps_h == p->kernel_w ? taps_h : 0;
  for (int i = windows.begin, count; i < windows.end; i += count) {
    count = windows.end - i < most ? windows.end - i : most;
    const cv_byte_windows w = {first + (i * p->stride_w - p->pad_left) * CV_LANES, to + i * y->step, taps_h,
                               rows, count};
    if (side == 3) {
      cv_reduce_windows(p, row, y->step, &w, 3, 3, s);
    } else if (side == 2) {
      cv_reduce_windows(p, row, y->step, &w, 2, 2, s);
    } else {
      cv_reduce_windows(p, row, y->step, &w, taps_h, p->kernel_w, s);
    }
  }
}

/* s: of a mean, or NULL of a maximum. */
CV_INLINE void cv_pool_bytes(cv_thread thread, const cv_pool *p, cv_byte_map x, cv_byte_map y,
                             const cv_pool_scales *s) {
  const cv_range share = cv_share(thread, cv_blocks(y.channels) * y.height);
  for (int i = share.begin; i < share.end; i++) {
    const int block = i / y.height, oy = i % y.height, top = oy * p->stride_h - p->pad_top;
    const cv_range taps_h = cv_pool_taps(top, p->dilation_h, p->kernel_h, x.height);
    const int rows = p->count_include_pad ? cv_pool_taps(top + p->pad_top, p->dilation_h, p->kernel_h,
                                                         x.height + p->pad_top + p->pad_bottom)
                                                .end
                                          : taps_h.end - taps_h.begin;
    const uint8_t *first = x.data + block * x.plane + (top + taps_h.begin * p->dilation_h) * x.row;
    uint8_t *to = y.data + block * y.plane + oy * y.row;
    const cv_range inside = cv_pool_inside(p, &x, &y, taps_h);
    for (int ox = 0; ox < y.width; ox++) {
      if (ox == inside.begin && ox < inside.end) {
        cv_pool_row_inside(p, &x, first, taps_h.end - taps_h.begin, rows, &y, to, inside, s);
        ox = inside.end - 1;
        continue;
      }
      const cv_byte_window w = cv_byte_window_at(p, &x, first, taps_h, rows, ox);
      cv_pool_window(&w, p, s, to + ox * y.step);
    }
  }
}

static inline void cv_max_pool_bytes(cv_thread thread, const cv_pool *p, cv_byte_map x, cv_byte_map y) {
  cv_pool_bytes(thread, p, x, y, NULL);
}

static inline void cv_avg_pool_bytes(cv_thread thread, const cv_pool *p, cv_byte_map x, cv_byte_map y,
                                     cv_scale x_scale, cv_scale y_scale) {
  const cv_pool_scales scales = {x_scale, y_scale};
  cv_pool_bytes(thread, p, x, y, &scales);
}

#endif
