/* Between dense tensors and maps of bytes, as layout.h does it for floats; and between maps of both.
 *
 *   cv_pack_bytes      map    <- bytes    y(c, h, w) = x[c * channel + h * row + w * column]
 *   cv_pack_floats     map    <- floats   the same, quantised
 *   cv_unpack_bytes    bytes  <- map
 *   cv_unpack_floats   floats <- map      the same, dequantised
 *   cv_quantize_map    map of bytes <- map of floats; its halo is the caller's
 *   cv_dequantize_map  map of floats <- map of bytes, with its halo and last lanes
 *
 * A map has blocks of `lanes` channels, a multiple of 4: CV_LANES, or 4 where an image has few of them.
 * Any strides; of NCHW (column = 1) four channels of CV_LANES pixels become cells of 32 bits in registers.
 * Packing fills the halo with the byte `zero`, and the spare lanes of the last block with 0.  Nothing
 * beside the tensor's elements is touched.  Threads share block x row x stretch, as in layout.h.
 */
#ifndef CONVOY_KERNELS_LAYOUT_BYTES_H_
#define CONVOY_KERNELS_LAYOUT_BYTES_H_

#include "kernels/layout.h"
#include "kernels/quantize.h"

/* A dense tensor: bytes where `scale` is NULL, else floats. */
typedef struct cv_dense {
  void *data;
  ptrdiff_t channel, row, column; /* elements */
  const cv_scale *scale;
} cv_dense;

CV_INLINE cv_int cv_dense_load(const cv_dense *x, ptrdiff_t at, int n) {
  if (!x->scale) return cv_load_bytes_n((const uint8_t *)x->data + at, n);
  const cv_int q = cv_quantize(cv_load_n((const float *)x->data + at, n), *x->scale);
  return cv_int_and(q, cv_int_set1(255));
}

CV_INLINE void cv_dense_store(const cv_dense *y, ptrdiff_t at, cv_int q, int n) {
  if (y->scale) {
    cv_store_n((float *)y->data + at, cv_dequantize(q, *y->scale), n);
  } else {
    cv_store_bytes_n((uint8_t *)y->data + at, q, n);
  }
}

/* How many of `channels` are in the cell from number c on; none: not above 0. */
CV_INLINE int cv_channels_of_cell(int channels, int c) { return channels - c < 4 ? channels - c : 4; }

/* `n` pixels of a row, side by side: the cells of up to four channels from offset `at` on. */
CV_INLINE cv_int cv_load_cells(const cv_dense *x, ptrdiff_t at, int channels, int n) {
  cv_int cells = cv_int_set1(0);
  for (int c = 0; c < channels; c++)
    cells = cv_int_or(cells, cv_int_shl(cv_dense_load(x, at + c * x->channel, n), 8 * c));
  return cells;
}

CV_INLINE void cv_store_cells(const cv_dense *y, ptrdiff_t at, int channels, cv_int cells, int n) {
  for (int c = 0; c < channels; c++)
    cv_dense_store(y, at + c * y->channel, cv_int_and(cv_int_shr(cells, 8 * c), cv_int_set1(255)), n);
}

/* One cell of `n` pixels, `step` bytes apart. */
CV_INLINE void cv_spread_cells(uint8_t *p, ptrdiff_t step, cv_int cells, int n) {
  if (step == 4) {
    cv_store_n((float *)p, cv_as_float(cells), n);
    return;
  }
  float each[CV_LANES];
  cv_storeu(each, cv_as_float(cells));
  for (int i = 0; i < n; i++) memcpy(p + i * step, &each[i], 4);
}

CV_INLINE cv_int cv_collect_cells(const uint8_t *p, ptrdiff_t step, int n) {
  float each[CV_LANES] = {0};
  for (int i = 0; i < n; i++) memcpy(&each[i], p + i * step, 4);
  return cv_as_int(cv_loadu(each));
}

/* CV_LANES pixels of a row, side by side in x: a block's channels from offset `at` on. */
CV_INLINE void cv_pack_square(uint8_t *p, ptrdiff_t step, const cv_dense *x, ptrdiff_t at, int channels) {
  cv_int pixels[CV_LANES / 4];
  CV_UNROLL
  for (int c = 0; c < CV_LANES; c += 4)
    pixels[c / 4] = cv_load_cells(x, at + c * x->channel, cv_channels_of_cell(channels, c), CV_LANES);
  cv_quads_of_cells(pixels);
  if (step == CV_LANES) {
    CV_UNROLL
    for (int i = 0; i < CV_LANES / 4; i++) cv_store_quad(p + 4 * i * CV_LANES, pixels[i], 4);
    return;
  }
  uint8_t bytes[CV_LANES * CV_LANES];
  CV_UNROLL
  for (int i = 0; i < CV_LANES / 4; i++) cv_store_quad(bytes + 4 * i * CV_LANES, pixels[i], 4);
  CV_UNROLL
  for (int i = 0; i < CV_LANES; i++) cv_store_pixel(p + i * step, cv_load_pixel(bytes + i * CV_LANES));
}

CV_INLINE void cv_unpack_square(const cv_dense *y, ptrdiff_t at, const uint8_t *p, ptrdiff_t step,
                                int channels) {
  cv_int cells[CV_LANES / 4];
  uint8_t bytes[CV_LANES * CV_LANES];
  if (step != CV_LANES) {
    CV_UNROLL
    for (int i = 0; i < CV_LANES; i++) cv_store_pixel(bytes + i * CV_LANES, cv_load_pixel(p + i * step));
    p = bytes;
  }
  CV_UNROLL
  for (int i = 0; i < CV_LANES / 4; i++) cells[i] = cv_load_quad(p + 4 * i * CV_LANES, 4);
  cv_cells_of_quads(cells);
  CV_UNROLL
  for (int c = 0; c < CV_LANES; c += 4)
    cv_store_cells(y, at + c * y->channel, cv_channels_of_cell(channels, c), cells[c / 4], CV_LANES);
}

/* The stretch number `i` of a map, the map's memory there, and the dense tensor's. */
typedef struct cv_place {
  cv_stretch stretch;
  uint8_t *map;
  ptrdiff_t dense;
} cv_place;

static inline cv_place cv_place_at(const cv_byte_map *m, const cv_dense *d, int i, int lanes) {
  const cv_map sizes = {.channels = m->channels, .height = m->height, .width = m->width};
  const cv_stretch s = cv_stretch_at(&sizes, i, lanes);
  const cv_place place = {s, m->data + s.channel / lanes * m->plane + s.row * m->row + s.column * m->step,
                          s.channel * d->channel + s.row * d->row + s.column * d->column};
  return place;
}

/* How many columns of a stretch are in squares of CV_LANES pixels and as many lanes. */
static inline int cv_square_columns(const cv_stretch *s, const cv_dense *d, int lanes) {
  return lanes == CV_LANES && d->column == 1 ? s->count - s->count % CV_LANES : 0;
}

static inline cv_range cv_share_places(cv_thread t, const cv_byte_map *m, int lanes) {
  return cv_share(t, (m->channels + lanes - 1) / lanes * m->height * cv_stretches_a_row(m->width));
}

CV_INLINE void cv_pack_dense(cv_thread t, cv_byte_map y, int lanes, int zero, const cv_dense *x) {
  cv_byte_map_fill_halo(t, y, lanes, zero);
  const cv_range share = cv_share_places(t, &y, lanes);
  for (int i = share.begin; i < share.end; i++) {
    const cv_place at = cv_place_at(&y, x, i, lanes);
    const int squares = cv_square_columns(&at.stretch, x, lanes);
    for (int w = 0; w < squares; w += CV_LANES)
      cv_pack_square(at.map + w * y.step, y.step, x, at.dense + w, at.stretch.lanes);
    for (int c = 0; c < lanes; c += 4) {
      const int channels = cv_channels_of_cell(at.stretch.lanes, c);
      const int pixels = x->column == 1 ? CV_LANES : 1;
      for (int w = squares; w < at.stretch.count; w += pixels) {
        const int n = at.stretch.count - w < pixels ? at.stretch.count - w : pixels;
        const cv_int cells = cv_load_cells(x, at.dense + c * x->channel + w * x->column, channels, n);
        cv_spread_cells(at.map + w * y.step + c, y.step, cells, n);
      }
    }
  }
}

CV_INLINE void cv_unpack_dense(cv_thread t, const cv_dense *y, cv_byte_map x, int lanes) {
  const cv_range share = cv_share_places(t, &x, lanes);
  for (int i = share.begin; i < share.end; i++) {
    const cv_place at = cv_place_at(&x, y, i, lanes);
    const int squares = cv_square_columns(&at.stretch, y, lanes);
    for (int w = 0; w < squares; w += CV_LANES)
      cv_unpack_square(y, at.dense + w, at.map + w * x.step, x.step, at.stretch.lanes);
    for (int c = 0; c < at.stretch.lanes; c += 4) {
      const int channels = cv_channels_of_cell(at.stretch.lanes, c);
      const int pixels = y->column == 1 ? CV_LANES : 1;
      for (int w = squares; w < at.stretch.count; w += pixels) {
        const int n = at.stretch.count - w < pixels ? at.stretch.count - w : pixels;
        const cv_int cells = cv_collect_cells(at.map + w * x.step + c, x.step, n);
        cv_store_cells(y, at.dense + c * y->channel + w * y->column, channels, cells, n);
      }
    }
  }
}

static inline void cv_pack_bytes(cv_thread t, cv_byte_map y, int lanes, int zero, const uint8_t *x,
                                 ptrdiff_t channel, ptrdiff_t row, ptrdiff_t column) {
  cv_pack_dense(t, y, lanes, zero, &(cv_dense){(void *)x, channel, row, column, NULL});
}

static inline void cv_pack_floats(cv_thread t, cv_byte_map y, int lanes, int zero, const float *x,
                                  ptrdiff_t channel, ptrdiff_t row, ptrdiff_t column, cv_scale scale) {
  cv_pack_dense(t, y, lanes, zero, &(cv_dense){(void *)x, channel, row, column, &scale});
}

static inline void cv_unpack_bytes(cv_thread t, uint8_t *y, ptrdiff_t channel, ptrdiff_t row,
                                   ptrdiff_t column, cv_byte_map x, int lanes) {
  cv_unpack_dense(t, &(cv_dense){y, channel, row, column, NULL}, x, lanes);
}

static inline void cv_unpack_floats(cv_thread t, float *y, ptrdiff_t channel, ptrdiff_t row,
                                    ptrdiff_t column, cv_byte_map x, int lanes, cv_scale scale) {
  cv_unpack_dense(t, &(cv_dense){y, channel, row, column, &scale}, x, lanes);
}

static inline void cv_quantize_map(cv_thread t, cv_byte_map y, cv_map x, cv_scale scale) {
  const cv_range share = cv_share(t, cv_blocks(y.channels) * y.height);
  for (int i = share.begin; i < share.end; i++) {
    const float *from = x.data + i / y.height * x.plane + i % y.height * x.row;
    uint8_t *to = y.data + i / y.height * y.plane + i % y.height * y.row;
    for (int w = 0; w < y.width; w++)
      cv_store_bytes(to + w * y.step, cv_quantize(cv_load(from + w * x.step), scale));
  }
}

static inline void cv_dequantize_map(cv_thread t, cv_map y, cv_byte_map x, cv_scale scale) {
  const cv_range share = cv_share(t, cv_blocks(y.channels) * y.height);
  cv_map_clear_halo(t, y);
  for (int i = share.begin; i < share.end; i++) {
    const int left = y.channels - i / y.height * CV_LANES, lanes = left < CV_LANES ? left : CV_LANES;
    const uint8_t *from = x.data + i / y.height * x.plane + i % y.height * x.row;
    float *to = y.data + i / y.height * y.plane + i % y.height * y.row;
    for (int w = 0; w < y.width; w++) {
      const cv_vec v = cv_dequantize(cv_load_bytes(from + w * x.step), scale);
      cv_store(to + w * y.step, lanes == CV_LANES ? v : cv_zero());
      if (lanes < CV_LANES) cv_store_n(to + w * y.step, v, lanes);
    }
  }
}

#endif
