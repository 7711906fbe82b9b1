/* Maps for kernel tests: made, filled, and checked for what every map promises. */
#ifndef CONVOY_TESTS_CHECK_MAP_H_
#define CONVOY_TESTS_CHECK_MAP_H_

#include "kernels/map.h"
#include "tests/check.h"

/* A map with a halo of `halo` pixels (one more below and to the right), all NaN, its planes an odd number
 * of vectors apart. */
static inline cv_map check_map(int channels, int height, int width, int halo) {
  cv_map m = {.channels = channels, .height = height, .width = width, .step = CV_LANES};
  m.top = m.left = halo;
  m.bottom = m.right = halo ? halo + 1 : 0;
  m.row = (m.left + width + m.right) * m.step;
  m.plane = (m.top + height + m.bottom) * m.row + CV_LANES;
  m.data = check_floats(cv_blocks(channels) * m.plane) + m.top * m.row + m.left * m.step;
  return m;
}

static inline void check_map_free(cv_map m) { free(m.data - m.top * m.row - m.left * m.step); }

static inline float *check_at(cv_map m, int channel, int row, int column) {
  return m.data + (channel / CV_LANES) * m.plane + row * m.row + column * m.step + channel % CV_LANES;
}

/* Random channels, zero lanes past them; the halo stays as it is. */
static inline void check_map_fill(cv_map m) {
  for (int c = 0; c < cv_blocks(m.channels) * CV_LANES; c++) {
    for (int i = 0; i < m.height * m.width; i++) {
      *check_at(m, c, i / m.width, i % m.width) = c < m.channels ? check_random() : 0;
    }
  }
}

/* The lanes past the channels and the halo are zero. */
static inline void check_map_zeros(cv_map m, const char *what) {
  int wrong = 0;
  for (int c = 0; c < cv_blocks(m.channels) * CV_LANES; c++) {
    for (int y = -m.top; y < m.height + m.bottom; y++) {
      for (int x = -m.left; x < m.width + m.right; x++) {
        const int inside = y >= 0 && y < m.height && x >= 0 && x < m.width;
        if (!(inside && c < m.channels)) wrong += *check_at(m, c, y, x) != 0;
      }
    }
  }
  CHECK(wrong == 0, "%s: %d nonzero elements in the halo or past the channels", what, wrong);
}

#endif
