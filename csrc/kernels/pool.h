/* Max and average pooling of a blocked map.
 *
 *   y[c][oy][ox] = outer(max or mean of x[c][oy*stride_h - pad_top + i*dilation_h]
 *                                         [ox*stride_w - pad_left + j*dilation_w])
 *
 * over the taps i < kernel_h, j < kernel_w that fall inside x: windows are clipped to the image, x's
 * halo is not read.  y's size decides how many windows there are, so ceil mode is only a larger y, whose
 * last windows overhang.  A window with no tap inside x: the mean is 0.
 *
 * A NaN in a window is its mean.  The maximum starts from -inf, so that of nothing but -inf it is that.
 * (ONNX Runtime's is that or -FLT_MAX, by the window's size.)  As in its blocked kernels, taps are taken
 * row by row, and a NaN makes it forget those before it, so that it is NaN only where the last tap is.
 * It therefore has one order: a column that neighbouring windows share is reduced once only for the mean.
 *
 * The mean divides by the taps inside x, or with count_include_pad by those inside x and its padding
 * (not by what overhangs even that).
 *
 * Each row is its clipped windows at both ends and a span of whole ones between them, without
 * branches.  Threads share rows of blocks.  y's halo and the lanes past its channels are zeroed.
 */
#ifndef CONVOY_KERNELS_POOL_H_
#define CONVOY_KERNELS_POOL_H_

#include <math.h>

#include "kernels/activation.h"
#include "kernels/halo.h"
#include "kernels/map.h"

typedef struct cv_pool {
  int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
  int pad_top, pad_left, pad_bottom, pad_right;
  int count_include_pad;
  cv_activation outer;
} cv_pool;

typedef enum { CV_POOL_MAX, CV_POOL_MEAN } cv_pool_kind;

/* `count` windows side by side with the same taps_h x taps_w taps each. */
typedef struct cv_pool_span {
  const float *x; /* first tap of the first window */
  ptrdiff_t x_next, tap_row, tap_column;
  float *y;
  ptrdiff_t y_next;
  int count, taps_h, taps_w;
  float scale; /* of a mean */
  int x_bf16, y_bf16;
} cv_pool_span;

CV_INLINE cv_vec cv_pool_join(cv_pool_kind kind, cv_vec a, cv_vec v) {
  return kind == CV_POOL_MAX ? cv_max(a, v) : cv_add(a, v);
}

CV_INLINE void cv_pool_store(const cv_pool_span *s, cv_pool_kind kind, int window, cv_vec v) {
  cv_store_lanes(CV_BFLOAT16_MAPS && s->y_bf16, s->y + window * s->y_next,
                 kind == CV_POOL_MAX ? v : cv_mul(v, cv_set1(s->scale)));
}

/* Windows of taps_h x taps_w, none included, of an x of a type; constants are unrolled. */
CV_INLINE void cv_pool_windows_of(const cv_pool_span *s, cv_pool_kind kind, const int taps_h,
                                  const int taps_w, const int bf16) {
  const float *x = s->x;
  for (int n = 0; n < s->count; n++, x += s->x_next) {
    cv_vec v = kind == CV_POOL_MAX ? cv_set1(-INFINITY) : cv_zero();
    for (int i = 0; i < taps_h; i++) {
      for (int j = 0; j < taps_w; j++)
        v = cv_pool_join(kind, v, cv_load_lanes(bf16, x + i * s->tap_row + j * s->tap_column));
    }
    cv_pool_store(s, kind, n, v);
  }
}

CV_INLINE void cv_pool_windows(const cv_pool_span *s, cv_pool_kind kind, const int taps_h,
                               const int taps_w) {
  if (CV_BFLOAT16_MAPS && s->x_bf16) {
    cv_pool_windows_of(s, kind, taps_h, taps_w, 1);
  } else {
    cv_pool_windows_of(s, kind, taps_h, taps_w, 0);
  }
}

/* The sum of three taps of a column, from x down. */
CV_INLINE cv_vec cv_pool_column(const cv_pool_span *s, const float *x) {
  const int bf16 = CV_BFLOAT16_MAPS && s->x_bf16;
  const cv_vec upper = cv_add(cv_load_lanes(bf16, x), cv_load_lanes(bf16, x + s->tap_row));
  return cv_add(upper, cv_load_lanes(bf16, x + 2 * s->tap_row));
}

/* Means of 3 x 3, `stride` (1 or 2) columns apart: a column they share is summed once. */
CV_INLINE void cv_pool_sliding_mean(const cv_pool_span *s, const int stride) {
  const float *x = s->x;
  cv_vec first = cv_pool_column(s, x), second = cv_pool_column(s, x + s->tap_column);
  for (int n = 0; n < s->count; n++, x += s->x_next) {
    if (stride == 2) second = cv_pool_column(s, x + s->tap_column);
    const cv_vec third = cv_pool_column(s, x + 2 * s->tap_column);
    cv_pool_store(s, CV_POOL_MEAN, n, cv_add(cv_add(first, second), third));
    first = stride == 1 ? second : third;
    if (stride == 1) second = third;
  }
}

CV_INLINE void cv_pool_run(const cv_pool_span *s, cv_pool_kind kind) {
  const int side = s->taps_h == s->taps_w ? s->taps_h : 0;
  if (kind == CV_POOL_MEAN && side == 3 && s->x_next == s->tap_column) {
    cv_pool_sliding_mean(s, 1);
  } else if (kind == CV_POOL_MEAN && side == 3 && s->x_next == 2 * s->tap_column) {
    cv_pool_sliding_mean(s, 2);
  } else if (side == 3) {
    cv_pool_windows(s, kind, 3, 3);
  } else if (side == 2) {
    cv_pool_windows(s, kind, 2, 2);
  } else {
    cv_pool_windows(s, kind, s->taps_h, s->taps_w);
  }
}

static inline void cv_pool_run_max(const cv_pool_span *s) { cv_pool_run(s, CV_POOL_MAX); }
static inline void cv_pool_run_mean(const cv_pool_span *s) { cv_pool_run(s, CV_POOL_MEAN); }

/* Of the taps at start + i * dilation, i < kernel: those inside [0, size). */
static inline cv_range cv_pool_taps(int start, int dilation, int kernel, int size) {
  const int begin = start < 0 ? (-start + dilation - 1) / dilation : 0;
  const int end = size > start ? (size - start + dilation - 1) / dilation : 0;
  cv_range taps = {begin, end < kernel ? end : kernel};
  if (taps.begin > taps.end) taps.begin = taps.end;
  return taps;
}

/* The windows of a row that need no clipping: [begin, end) of `windows`. */
static inline cv_range cv_pool_whole_windows(int pad, int stride, int reach, int size, int windows) {
  const int begin = (pad + stride - 1) / stride, last = size - 1 - reach + pad;
  cv_range whole = {begin < windows ? begin : windows, last < 0 ? 0 : last / stride + 1};
  if (whole.end > windows) whole.end = windows;
  if (whole.end < whole.begin) whole.end = whole.begin;
  return whole;
}

CV_INLINE void cv_pool_row(const cv_pool *p, cv_map x, cv_map y, cv_pool_kind kind, int block, int oy) {
  const int top = oy * p->stride_h - p->pad_top;
  const cv_range taps_h = cv_pool_taps(top, p->dilation_h, p->kernel_h, x.height);
  const int rows = p->count_include_pad ? cv_pool_taps(top + p->pad_top, p->dilation_h, p->kernel_h,
                                                       x.height + p->pad_top + p->pad_bottom)
                                              .end
                                        : taps_h.end - taps_h.begin;
  const cv_range whole =
      cv_pool_whole_windows(p->pad_left, p->stride_w, (p->kernel_w - 1) * p->dilation_w, x.width, y.width);
  const float *plane = x.data + block * x.plane + (top + taps_h.begin * p->dilation_h) * x.row;
  float *out = y.data + block * y.plane + oy * y.row;
  for (int ox = 0; ox < y.width;) {
    const int left = ox * p->stride_w - p->pad_left;
    const cv_range taps_w = cv_pool_taps(left, p->dilation_w, p->kernel_w, x.width);
    const int columns = p->count_include_pad ? cv_pool_taps(left + p->pad_left, p->dilation_w, p->kernel_w,
                                                            x.width + p->pad_left + p->pad_right)
                                                   .end
                                             : taps_w.end - taps_w.begin;
    const int taps = rows * columns;
    const cv_pool_span span = {
        .x = plane + (left + taps_w.begin * p->dilation_w) * x.step,
        .x_next = p->stride_w * x.step,
        .tap_row = p->dilation_h * x.row,
        .tap_column = p->dilation_w * x.step,
        .y = out + ox * y.step,
        .y_next = y.step,
        .count = ox == whole.begin && whole.end > ox ? whole.end - ox : 1,
        .taps_h = taps_h.end - taps_h.begin,
        .taps_w = taps_w.end - taps_w.begin,
        .scale = taps > 0 ? 1.0f / (float)taps : 0.0f,
        .x_bf16 = cv_is_bf16(&x),
        .y_bf16 = cv_is_bf16(&y),
    };
    if (kind == CV_POOL_MAX) {
      cv_pool_run_max(&span);
    } else {
      cv_pool_run_mean(&span);
    }
    ox += span.count;
  }
}

/* The activation, and zeros in the lanes past y's channels. */
static inline void cv_pool_finish_row(cv_map y, int block, int oy, cv_activation outer) {
  const int rest = y.channels - block * CV_LANES, lanes = rest < CV_LANES ? rest : CV_LANES;
  float *p = y.data + block * y.plane + oy * y.row;
  if (cv_is_bf16(&y)) {
    for (int ox = 0; (lanes < CV_LANES || outer.kind != CV_IDENTITY) && ox < y.width; ox++, p += y.step) {
      float pixel[CV_LANES];
      cv_storeu(pixel, cv_activate(cv_load_bf16(p), outer));
      cv_store_bf16(p, cv_load_n(pixel, lanes));
    }
    return;
  }
  if (outer.kind != CV_IDENTITY) cv_activate_vectors(outer, p, y.width, y.step, CV_LANES);
  for (int ox = 0; lanes < CV_LANES && ox < y.width; ox++, p += y.step) cv_store(p, cv_load_n(p, lanes));
}

CV_INLINE void cv_pool_map(cv_thread thread, const cv_pool *p, cv_map x, cv_map y, cv_pool_kind kind) {
  const cv_range share = cv_share(thread, cv_blocks(y.channels) * y.height);
  int block = share.begin / y.height, row = share.begin % y.height;
  for (int i = share.begin; i < share.end; i++) {
    cv_pool_row(p, x, y, kind, block, row);
    cv_pool_finish_row(y, block, row, p->outer);
    if (++row == y.height) {
      row = 0;
      block++;
    }
  }
  cv_map_clear_halo(thread, y);
}

static inline void cv_max_pool(cv_thread thread, const cv_pool *p, cv_map x, cv_map y) {
  cv_pool_map(thread, p, x, y, CV_POOL_MAX);
}

static inline void cv_avg_pool(cv_thread thread, const cv_pool *p, cv_map x, cv_map y) {
  cv_pool_map(thread, p, x, y, CV_POOL_MEAN);
}

#endif
