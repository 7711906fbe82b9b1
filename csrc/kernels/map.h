/* A feature map in the blocked layout NCHW[lanes]c, the one layout inside a region.
 *
 *   element (c, y, x) = data[(c / CV_LANES) * plane + y * row + x * step + c % CV_LANES]
 *
 * - lanes past `channels` in the last block hold zeros, always: whoever writes a map keeps this;
 * - around the map lies a halo of `top, left, bottom, right` zero pixels, readable at negative and
 *   at too large coordinates: whoever writes the map also writes the zeros of the halo
 *   (cv_map_clear_halo).  It is as wide as the consumers' padding asks for, often 0;
 * - step is CV_LANES, except for the maps through which a transposed convolution writes every
 *   s-th pixel;
 * - data is aligned to a vector; plane, row, step are multiples of CV_LANES floats.
 *
 * A map's elements may be bfloat16: then all the strides above count cells of 32 bits, two elements each,
 * and a pixel of a block is cv_pixel_cells of them.  What is computed of it is float32.
 *
 * A planar map is the same with one channel a plane (element (c, y, x) = data[c * plane + y * row
 * + x]): the input of a first layer.
 */
#ifndef CONVOY_KERNELS_MAP_H_
#define CONVOY_KERNELS_MAP_H_

#include <stddef.h>
#include <stdint.h>

#include "convoy/dtype.h"
#include "convoy/runtime.h"
#include "simd/simd.h"

typedef struct cv_map {
  float *data; /* of element (0, 0, 0) */
  int channels, height, width;
  ptrdiff_t plane, row, step; /* floats, or cells */
  int top, left, bottom, right;
  cv_dtype dtype; /* CV_FLOAT32 or CV_BFLOAT16 */
} cv_map;

/* The same of bytes, which stand for numbers by a scale and a zero point:
 *
 * - the halo holds the zero point, for that is what stands for 0; lanes past `channels` hold anything;
 * - plane, row and step are bytes, multiples of CV_LANES.
 */
typedef struct cv_byte_map {
  uint8_t *data;
  int channels, height, width;
  ptrdiff_t plane, row, step;
  int top, left, bottom, right;
} cv_byte_map;

/* Whether the unit has maps of bfloat16: else nothing is left of the question for the type of one. */
#ifndef CV_BFLOAT16_MAPS
#define CV_BFLOAT16_MAPS 0
#endif

CV_INLINE int cv_is_bf16(const cv_map *m) { return CV_BFLOAT16_MAPS && m && m->dtype == CV_BFLOAT16; }

/* Cells of a pixel of a block. */
CV_INLINE int cv_pixel_cells(const int bf16) { return bf16 ? CV_LANES / 2 : CV_LANES; }

CV_INLINE cv_vec cv_load_lanes(const int bf16, const float *p) {
  return bf16 ? cv_load_bf16(p) : cv_load(p);
}

CV_INLINE void cv_store_lanes(const int bf16, float *p, cv_vec v) {
  if (bf16) {
    cv_store_bf16(p, v);
  } else {
    cv_store(p, v);
  }
}

CV_INLINE int cv_least(int a, int b) { return a < b ? a : b; }

typedef struct cv_range {
  int begin, end;
} cv_range;

static inline int cv_blocks(int channels) { return (channels + CV_LANES - 1) / CV_LANES; }

/* The `index`-th range of as many channels as m has, m being the first of them; each of whole blocks. */
static inline cv_map cv_map_group(cv_map m, int index) {
  m.data += (ptrdiff_t)index * cv_blocks(m.channels) * m.plane;
  return m;
}

/* The share of `thread` in `total` equal pieces of work: contiguous, sizes differing by one at most. */
static inline cv_range cv_share(cv_thread thread, int total) {
  const cv_range share = {(int)((int64_t)total * thread.id / thread.count),
                          (int)((int64_t)total * (thread.id + 1) / thread.count)};
  return share;
}

#endif
