/* Between dense tensors and maps, at the edges of a region.
 *
 *   cv_pack         map    <- tensor   y(c, h, w) = x[c * channel + h * row + w * column]
 *   cv_unpack       tensor <- map      y[c * channel + h * row + w * column] = x(c, h, w)
 *   cv_pack_planar  planar map <- tensor
 *   cv_convert      map <- map of the other type, with its halo
 *
 * Any strides: NCHW (column = 1: squares of CV_LANES pixels x CV_LANES channels are transposed in
 * registers), NHWC (channel = 1: a pixel's lanes lie side by side), or others, element by element.
 * Packing zeroes the spare lanes of the last block and the halo.  The tensor may be aligned to a float
 * only, and nothing beside its elements is touched.
 * Threads share block x row x stretch of up to CV_LAYOUT_STRETCH pixels, so that a map of one long row is
 * shared too.
 */
#ifndef CONVOY_KERNELS_LAYOUT_H_
#define CONVOY_KERNELS_LAYOUT_H_

#include <string.h>

#include "kernels/halo.h"
#include "kernels/map.h"

#define CV_LAYOUT_STRETCH 256

/* `count` pixels of one block, in one row. */
typedef struct cv_stretch {
  int channel, lanes; /* first channel; channels in the block */
  int row, column, count;
} cv_stretch;

static inline int cv_stretches_a_row(int width) {
  return (width + CV_LAYOUT_STRETCH - 1) / CV_LAYOUT_STRETCH;
}

static inline cv_range cv_share_stretches(cv_thread t, const cv_map *m, int blocks) {
  return cv_share(t, blocks * m->height * cv_stretches_a_row(m->width));
}

/* Number `i` of map m in blocks of `lanes` channels. */
static inline cv_stretch cv_stretch_at(const cv_map *m, int i, int lanes) {
  const int a_row = cv_stretches_a_row(m->width);
  const int column = i % a_row * CV_LAYOUT_STRETCH, channel = i / a_row / m->height * lanes;
  const int pixels = m->width - column, channels = m->channels - channel;
  const cv_stretch s = {channel, channels < lanes ? channels : lanes, i / a_row % m->height, column,
                        pixels < CV_LAYOUT_STRETCH ? pixels : CV_LAYOUT_STRETCH};
  return s;
}

/* Rows of one pixel, and rows that follow each other without a gap in both, are one row. */
static inline void cv_join_rows(cv_map *m, ptrdiff_t row, ptrdiff_t *column) {
  if (m->width == 1) {
    m->step = m->row;
    *column = row;
  } else if (m->row != m->width * m->step || row != m->width * *column) {
    return;
  }
  m->width *= m->height;
  m->height = 1;
}

/* x: channels `channel` floats apart, pixels side by side. */
CV_INLINE void cv_pack_rows(const int bf16, float *y, ptrdiff_t step, const float *x, ptrdiff_t channel,
                            int lanes, int count) {
  for (int i = 0; i < count; i += CV_LANES) {
    const int pixels = count - i < CV_LANES ? count - i : CV_LANES;
    cv_vec square[CV_LANES];
    if (lanes == CV_LANES && pixels == CV_LANES) {
      CV_UNROLL
      for (int c = 0; c < CV_LANES; c++) square[c] = cv_loadu(x + c * channel + i);
    } else {
      for (int c = 0; c < CV_LANES; c++)
        square[c] = c < lanes ? cv_load_n(x + c * channel + i, pixels) : cv_zero();
    }
    cv_transpose(square);
    float *q = y + i * step;
    if (pixels == CV_LANES) {
      CV_UNROLL
      for (int p = 0; p < CV_LANES; p++) cv_store_lanes(bf16, q + p * step, square[p]);
    } else {
      for (int p = 0; p < pixels; p++) cv_store_lanes(bf16, q + p * step, square[p]);
    }
  }
}

CV_INLINE void cv_unpack_rows(const int bf16, float *y, ptrdiff_t channel, const float *x, ptrdiff_t step,
                              int lanes, int count) {
  for (int i = 0; i < count; i += CV_LANES) {
    const int pixels = count - i < CV_LANES ? count - i : CV_LANES;
    const float *q = x + i * step;
    cv_vec square[CV_LANES];
    if (pixels == CV_LANES) {
      CV_UNROLL
      for (int p = 0; p < CV_LANES; p++) square[p] = cv_load_lanes(bf16, q + p * step);
    } else {
      for (int p = 0; p < CV_LANES; p++)
        square[p] = p < pixels ? cv_load_lanes(bf16, q + p * step) : cv_zero();
    }
    cv_transpose(square);
    if (lanes == CV_LANES && pixels == CV_LANES) {
      CV_UNROLL
      for (int c = 0; c < CV_LANES; c++) cv_storeu(y + c * channel + i, square[c]);
    } else {
      for (int c = 0; c < lanes; c++) cv_store_n(y + c * channel + i, square[c], pixels);
    }
  }
}

CV_INLINE void cv_pack_as(const int bf16, cv_thread t, cv_map y, const float *x, ptrdiff_t channel,
                          ptrdiff_t row, ptrdiff_t column) {
  cv_map_clear_halo(t, y);
  cv_join_rows(&y, row, &column);
  const cv_range share = cv_share_stretches(t, &y, cv_blocks(y.channels));
  for (int i = share.begin; i < share.end; i++) {
    const cv_stretch s = cv_stretch_at(&y, i, CV_LANES);
    const float *p = x + s.channel * channel + s.row * row + s.column * column;
    float *q = y.data + s.channel / CV_LANES * y.plane + s.row * y.row + s.column * y.step;
    if (column == 1) {
      cv_pack_rows(bf16, q, y.step, p, channel, s.lanes, s.count);
    } else if (channel == 1) {
      for (int w = 0; w < s.count; w++)
        cv_store_lanes(bf16, q + w * y.step, cv_load_n(p + w * column, s.lanes));
    } else {
      for (int w = 0; w < s.count; w++) {
        float pixel[CV_LANES];
        for (int c = 0; c < CV_LANES; c++) pixel[c] = c < s.lanes ? p[c * channel + w * column] : 0.0f;
        cv_store_lanes(bf16, q + w * y.step, cv_loadu(pixel));
      }
    }
  }
}

CV_SHARED void cv_pack(cv_thread t, cv_map y, const float *x, ptrdiff_t channel, ptrdiff_t row,
                       ptrdiff_t column) CV_SYMBOL(cv_pack);

#if CV_DEFINES(LAYOUT)
CV_SHARED void cv_pack(cv_thread t, cv_map y, const float *x, ptrdiff_t channel, ptrdiff_t row,
                       ptrdiff_t column) {
  if (cv_is_bf16(&y)) {
    cv_pack_as(1, t, y, x, channel, row, column);
  } else {
    cv_pack_as(0, t, y, x, channel, row, column);
  }
}
#endif

CV_INLINE void cv_unpack_as(const int bf16, cv_thread t, float *y, ptrdiff_t channel, ptrdiff_t row,
                            ptrdiff_t column, cv_map x) {
  cv_join_rows(&x, row, &column);
  const cv_range share = cv_share_stretches(t, &x, cv_blocks(x.channels));
  for (int i = share.begin; i < share.end; i++) {
    const cv_stretch s = cv_stretch_at(&x, i, CV_LANES);
    float *p = y + s.channel * channel + s.row * row + s.column * column;
    const float *q = x.data + s.channel / CV_LANES * x.plane + s.row * x.row + s.column * x.step;
    if (column == 1) {
      cv_unpack_rows(bf16, p, channel, q, x.step, s.lanes, s.count);
    } else if (channel == 1) {
      for (int w = 0; w < s.count; w++)
        cv_store_n(p + w * column, cv_load_lanes(bf16, q + w * x.step), s.lanes);
    } else {
      for (int w = 0; w < s.count; w++) {
        float pixel[CV_LANES];
        cv_storeu(pixel, cv_load_lanes(bf16, q + w * x.step));
        for (int c = 0; c < s.lanes; c++) p[c * channel + w * column] = pixel[c];
      }
    }
  }
}

CV_SHARED void cv_unpack(cv_thread t, float *y, ptrdiff_t channel, ptrdiff_t row, ptrdiff_t column,
                         cv_map x) CV_SYMBOL(cv_unpack);

#if CV_DEFINES(LAYOUT)
CV_SHARED void cv_unpack(cv_thread t, float *y, ptrdiff_t channel, ptrdiff_t row, ptrdiff_t column,
                         cv_map x) {
  if (cv_is_bf16(&x)) {
    cv_unpack_as(1, t, y, channel, row, column, x);
  } else {
    cv_unpack_as(0, t, y, channel, row, column, x);
  }
}
#endif

static inline void cv_convert(cv_thread t, cv_map y, cv_map x) {
  cv_map_clear_halo(t, y);
  const cv_range share = cv_share(t, cv_blocks(y.channels) * y.height);
  for (int i = share.begin; i < share.end; i++) {
    const float *from = x.data + i / y.height * x.plane + i % y.height * x.row;
    float *to = y.data + i / y.height * y.plane + i % y.height * y.row;
    if (cv_is_bf16(&y)) {
      for (int p = 0; p < y.width; p++) cv_store_bf16(to + p * y.step, cv_load(from + p * x.step));
    } else {
      for (int p = 0; p < y.width; p++) cv_store(to + p * y.step, cv_load_bf16(from + p * x.step));
    }
  }
}

static inline void cv_pack_planar(cv_thread t, cv_map y, const float *x, ptrdiff_t channel, ptrdiff_t row,
                                  ptrdiff_t column) {
  cv_clear_border(t, y, y.channels, 1);
  const cv_range share = cv_share(t, y.channels * y.height);
  for (int i = share.begin; i < share.end; i++) {
    const int c = i / y.height, h = i % y.height;
    const float *p = x + c * channel + h * row;
    float *q = y.data + c * y.plane + h * y.row;
    if (column == 1) {
      memcpy(q, p, (size_t)y.width * sizeof *q);
    } else {
      for (int w = 0; w < y.width; w++) q[w] = p[w * column];
    }
  }
}

#endif
