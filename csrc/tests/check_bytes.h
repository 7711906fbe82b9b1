/* Maps of bytes for kernel tests, and the specification of quantising in double precision. */
#ifndef CONVOY_TESTS_CHECK_BYTES_H_
#define CONVOY_TESTS_CHECK_BYTES_H_

#include "kernels/halo.h"
#include "kernels/quantize.h"
#include "tests/check.h"

/* What a halo holds. */
enum { CHECK_ZERO = 7 };

/* 64-byte aligned bytes, all of them `value`. */
static inline uint8_t *check_bytes(ptrdiff_t count, int value) {
  float *p = check_floats(count / 4 + 1);
  memset(p, value, (size_t)count);
  return (uint8_t *)p;
}

/* Packs weights for cv_dot: `cells` of four, `vectors` of them together, as [part][vectors] of as many
 * bytes, or of 16 bits.  Both packed and w are 64-byte aligned. */
static inline int8_t *check_dot_weights(const int8_t *w, ptrdiff_t cells, int vectors) {
  int8_t *packed = (int8_t *)check_bytes(4 * CV_DOT_PARTS * cells, 0);
  if (CV_DOT_PARTS == 1) return memcpy(packed, w, (size_t)(4 * cells));
  int16_t *wide = (int16_t *)(void *)packed;
  for (ptrdiff_t i = 0; i < cells; i++)
    for (int k = 0; k < 4; k++)
      wide[i / vectors * vectors * 4 + k % 2 * vectors * 2 + i % vectors * 2 + k / 2] = w[4 * i + k];
  return packed;
}

static inline uint8_t check_byte(void) { return (uint8_t)((check_random() + 1) * 128); }

static inline void check_fill_bytes(uint8_t *p, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) p[i] = check_byte();
}

/* A map in blocks of `lanes` with a halo (one more below and to the right) all 99, its
 * planes a line apart. */
static inline cv_byte_map check_bytes_map(int channels, int height, int width, int halo, int lanes) {
  cv_byte_map m = {.channels = channels, .height = height, .width = width, .step = lanes};
  m.top = m.left = halo;
  m.bottom = m.right = halo ? halo + 1 : 0;
  m.row = (m.left + width + m.right) * m.step;
  m.plane = (m.top + height + m.bottom) * m.row + 64;
  const int blocks = (channels + lanes - 1) / lanes;
  m.data = check_bytes(blocks * m.plane, 99) + m.top * m.row + m.left * m.step;
  return m;
}

static inline void check_bytes_free(cv_byte_map m) { free(m.data - m.top * m.row - m.left * m.step); }

static inline uint8_t *check_byte_at(cv_byte_map m, int lanes, int channel, int row, int column) {
  return m.data + (channel / lanes) * m.plane + row * m.row + column * m.step + channel % lanes;
}

static inline void check_bytes_map_fill(cv_byte_map m, int lanes) {
  for (int c = 0; c < m.channels; c++)
    for (int i = 0; i < m.height * m.width; i++)
      *check_byte_at(m, lanes, c, i / m.width, i % m.width) = check_byte();
}

/* The halo holds the zero point, and what lies between planes is as it was. */
static inline void check_bytes_halo(cv_byte_map m, int lanes, const char *what) {
  int wrong = 0;
  const int blocks = (m.channels + lanes - 1) / lanes;
  for (int b = 0; b < blocks; b++) {
    for (int y = -m.top; y < m.height + m.bottom; y++)
      for (int x = -m.left; x < m.width + m.right; x++)
        for (int c = 0; c < lanes; c++)
          if (y < 0 || y >= m.height || x < 0 || x >= m.width)
            wrong += *check_byte_at(m, lanes, b * lanes + c, y, x) != CHECK_ZERO;
    const uint8_t *end = m.data - m.top * m.row - m.left * m.step + (b + 1) * m.plane;
    for (int i = 1; i <= 64; i++) wrong += end[-i] != 99;
  }
  CHECK(wrong == 0, "%s: %d wrong bytes in the halo or past it", what, wrong);
}

/* Is `got` what quantising `v` gives, or its neighbour where v is as good as half-way? */
static inline int check_quantised(int got, double v, cv_scale s) {
  const double steps = v / s.scale + s.zero;
  const double held = steps < s.low ? s.low : steps > s.high ? s.high : steps;
  return fabs(got - held) <= 0.5 + 1e-4;
}

#endif
