/* The zero border of a map.
 *
 * Whoever writes a map also writes the zeros of its halo; work is shared by rows of blocks.
 */
#ifndef CONVOY_KERNELS_HALO_H_
#define CONVOY_KERNELS_HALO_H_

#include <string.h>

#include "kernels/map.h"

/* Zeroes `count` pixels of `lanes` floats from p on.  In line: a call takes longer than the one or two
 * pixels beside a row, of which there are as many as rows of all blocks. */
static inline void cv_clear_pixels(float *p, int count, int lanes) {
  const cv_vec zero = cv_hold(cv_zero()); /* or the compiler makes it a call again */
  const ptrdiff_t size = (ptrdiff_t)count * lanes;
  ptrdiff_t i = 0;
  for (; i + CV_LANES <= size; i += CV_LANES) cv_storeu(p + i, zero);
  if (i < size) memset(p + i, 0, (size_t)(size - i) * sizeof *p);
}

static inline void cv_clear_border(cv_thread t, cv_map y, int planes, int lanes) {
  if ((y.top | y.left | y.bottom | y.right) == 0) return;
  const int rows = y.top + y.height + y.bottom;
  const cv_range share = cv_share(t, planes * rows);
  int plane = share.begin / rows, row = share.begin % rows - y.top;
  for (int left = share.end - share.begin; left > 0; left--) {
    float *p = y.data + plane * y.plane + row * y.row;
    if (row < 0 || row >= y.height) {
      cv_clear_pixels(p - y.left * lanes, y.left + y.width + y.right, lanes);
    } else {
      cv_clear_pixels(p - y.left * lanes, y.left, lanes);
      cv_clear_pixels(p + y.width * lanes, y.right, lanes);
    }
    if (++row == y.height + y.bottom) {
      row = -y.top;
      plane++;
    }
  }
}

/* Fills the halo of a map of bytes with its zero point, `lanes` bytes a pixel; the caller's share of it. */
static inline void cv_byte_map_fill_halo(cv_thread t, cv_byte_map y, int lanes, int zero) {
  if ((y.top | y.left | y.bottom | y.right) == 0) return;
  const int rows = y.top + y.height + y.bottom;
  const cv_range share = cv_share(t, (y.channels + lanes - 1) / lanes * rows);
  for (int i = share.begin; i < share.end; i++) {
    const int row = i % rows - y.top, outside = row < 0 || row >= y.height;
    uint8_t *p = y.data + (i / rows) * y.plane + row * y.row;
    memset(p - y.left * lanes, zero, (size_t)(y.left + (outside ? y.width + y.right : 0)) * (size_t)lanes);
    if (!outside) memset(p + y.width * lanes, zero, (size_t)y.right * (size_t)lanes);
  }
}

/* Zeroes the halo of a blocked map, the caller's share of it.  A map with another step than CV_LANES
 * is a view of every s-th pixel of another one and has no halo of its own. */
static inline void cv_map_clear_halo(cv_thread t, cv_map y) {
  const int cells = cv_pixel_cells(cv_is_bf16(&y));
  if (y.step == cells) cv_clear_border(t, y, cv_blocks(y.channels), cells);
}

#endif
