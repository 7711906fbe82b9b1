/* The transforms of Winograd's F(4x4, 3x3) in integers, of maps of bytes: exact.
 *
 *   U = G w G^T    int16, 7 * 7 * 128 at most
 *   V = B^T x B    int16, 10 * 10 * 255 at most
 *   M = V * U      sums of int32, modulo 2^32
 *   y = A^T M A    modulo 2^32, then multiplied by what makes 64 y of it
 *
 * The points are 0, +-1, +-2 and infinity, in the order of conv2d_winograd_transforms.h; so have smaller
 * tiles the first of them.  What floats divide by is kept apart: B^T has no fractions, G is 6 times as
 * large at 0 and infinity, and a row of A^T is a row of that of floats times 3 * 2^k.  So an output comes
 * out as 9 * 2^k y.  Times the inverse of 9 modulo 2^32, and what is left to 2^6, it is 64 y, whatever
 * wrapped around on the way, where that fits an int32, as the planner sees to (kernels/conv2d/exact.py).
 *
 * A step from the zero point need not be made for each pixel: of a map that is the same everywhere V is 0
 * but for the point of +1, +1.
 *
 * A cell is two channels of 16 bits, a vector of V a pixel of two blocks.
 */
#ifndef CONVOY_KERNELS_CONV2D_WINOGRAD_INTEGERS_H_
#define CONVOY_KERNELS_CONV2D_WINOGRAD_INTEGERS_H_

#include "kernels/conv2d_winograd_transforms.h"
#include "kernels/requantize.h"

/* What an output is made times, by the planner's promise an int32. */
enum { CV_WINOGRAD_TIMES = 64 };

CV_INLINE void cv_winograd_store_shorts(float *p, cv_shorts v) { cv_store(p, cv_as_float((cv_int)v)); }

/* o = G g, 6 times at 0 and infinity. */
CV_INLINE void cv_winograd_g_shorts(const cv_shorts *g, cv_shorts *o) {
  const cv_shorts even = g[0] + g[2], far = g[0] + (g[2] << 2), twice = g[1] << 1;
  o[0] = even + g[1];
  o[1] = even - g[1];
  o[CV_WINOGRAD_ZERO] = (g[0] << 2) + (g[0] << 1);
  o[CV_WINOGRAD_INFINITY] = (g[2] << 2) + (g[2] << 1);
  o[4] = far + twice;
  o[5] = far - twice;
}

/* o = B^T d of a tile of `size` outputs: the coefficients of the product of x - q, q all finite points but
 * the row's own. */
CV_INLINE void cv_winograd_bt_shorts(const int size, const cv_shorts *d, cv_shorts *o) {
  const cv_shorts odd = d[3] - d[1];
  if (size == 4) {
    const cv_shorts even = d[4] - d[2], far = d[4] - (d[2] << 2), other = d[3] - (d[1] << 2);
    o[0] = far + other;
    o[1] = far - other;
    o[CV_WINOGRAD_ZERO] = even + ((d[0] - d[2]) << 2);
    o[CV_WINOGRAD_INFINITY] = d[5] - d[3] - (odd << 2);
    o[4] = even + (odd << 1);
    o[5] = even - (odd << 1);
  } else if (size == 3) {
    o[0] = d[3] - d[2] - (d[1] << 1);
    o[1] = d[3] - d[2] - (d[2] << 1) + (d[1] << 1);
    o[CV_WINOGRAD_ZERO] = odd + ((d[0] - d[2]) << 1);
    o[CV_WINOGRAD_INFINITY] = d[4] - d[2] - (odd << 1);
    o[4] = odd;
  } else {
    o[0] = d[2] + d[1];
    o[1] = d[2] - d[1];
    o[CV_WINOGRAD_ZERO] = d[2] - d[0];
    o[CV_WINOGRAD_INFINITY] = odd;
  }
}

/* B^T of ones, at the point of +1. */
CV_INLINE int cv_winograd_bt_ones(const int size) { return size == 4 ? -6 : size == 3 ? -2 : 2; }

/* o = A^T m: row r of `size` times 3 * 2^cv_winograd_at_shift(size, r). */
CV_INLINE void cv_winograd_at_ints(const int size, const cv_int *m, cv_int *o) {
  const cv_int even = cv_int_add(m[0], m[1]), odd = cv_int_sub(m[0], m[1]);
  if (size == 4) {
    const cv_int even_2 = cv_int_add(m[4], m[5]), odd_2 = cv_int_sub(m[4], m[5]);
    o[0] = cv_int_add(cv_int_sub(m[CV_WINOGRAD_ZERO], cv_int_shl(even, 2)), even_2);
    o[1] = cv_int_sub(odd_2, cv_int_shl(odd, 1));
    o[2] = cv_int_sub(even_2, even);
    o[3] = cv_int_add(cv_int_sub(cv_int_shl(odd_2, 1), odd), m[CV_WINOGRAD_INFINITY]);
  } else if (size == 3) {
    const cv_int twice = cv_int_shl(m[4], 1), thrice = cv_int_add(even, cv_int_shl(m[0], 1)); /* 3 a + b */
    o[0] = cv_int_add(m[CV_WINOGRAD_ZERO], cv_int_sub(twice, cv_int_shl(thrice, 1)));
    o[1] = cv_int_sub(twice, cv_int_add(odd, cv_int_shl(m[0], 1)));
    o[2] = cv_int_add(cv_int_sub(cv_int_shl(twice, 1), thrice), m[CV_WINOGRAD_INFINITY]);
  } else {
    o[0] = cv_int_sub(cv_int_add(even, cv_int_shl(even, 1)), m[CV_WINOGRAD_ZERO]);
    o[1] = cv_int_add(cv_int_add(odd, cv_int_shl(odd, 1)), m[CV_WINOGRAD_INFINITY]);
  }
}

CV_INLINE int cv_winograd_at_shift(const int size, const int r) {
  return r == 0 ? size - 1 : r == 1 && size == 4 ? 2 : 1;
}

/* U of one vector of output channels and two input channels; `tap` bytes between the taps. */
CV_INLINE void cv_winograd_weight_shorts(const int8_t *w, ptrdiff_t tap, float *u, ptrdiff_t point) {
  enum { POINTS = 6 };
  cv_shorts rows[POINTS][3];
  CV_UNROLL
  for (int s = 0; s < 3; s++, w += tap) {
    const cv_shorts g[3] = {cv_load_signed_shorts(w), cv_load_signed_shorts(w + 3 * tap),
                            cv_load_signed_shorts(w + 6 * tap)};
    cv_shorts o[POINTS];
    cv_winograd_g_shorts(g, o);
    CV_UNROLL
    for (int r = 0; r < POINTS; r++) rows[r][s] = o[r];
  }
  CV_UNROLL
  for (int r = 0; r < POINTS; r++, u += POINTS * point) {
    cv_shorts o[POINTS];
    cv_winograd_g_shorts(rows[r], o);
    CV_WINOGRAD_FORGET(u);
    CV_UNROLL
    for (int s = 0; s < POINTS; s++) cv_winograd_store_shorts(u + s * point, o[s]);
  }
}

/* V of one tile of two blocks of bytes, `second` apart, as steps from `zero`. */
CV_INLINE void cv_winograd_input_shorts(const cv_winograd_form f, const float *x, ptrdiff_t second,
                                        ptrdiff_t row, int zero, float *v, const cv_winograd_layout *l) {
  const int rows = f.height + 2, columns = f.width + 2;
  cv_shorts w[CV_WINOGRAD_MAX_IN][CV_WINOGRAD_MAX_IN];
  const uint8_t *pixel = (const uint8_t *)x;
  const ptrdiff_t next = CV_BYTES * f.dilation_h * row;
  for (int s = 0; s < columns; s++, pixel += f.dilation_w * CV_LANES) {
    cv_shorts d[CV_WINOGRAD_MAX_IN], o[CV_WINOGRAD_MAX_IN];
    CV_UNROLL
    for (int i = 0; i < rows; i++) {
      const uint8_t *p = pixel + i * next;
      d[i] = cv_load_shorts(p, p + CV_BYTES * second);
    }
    cv_winograd_bt_shorts(f.height, d, o);
    CV_UNROLL
    for (int i = 0; i < rows; i++) w[i][s] = o[i];
  }
  const int ones = cv_winograd_bt_ones(f.height) * cv_winograd_bt_ones(f.width);
  for (int i = 0; i < rows; i++) {
    cv_shorts o[CV_WINOGRAD_MAX_IN];
    float *to = v + i / 2 * l->pair + i % 2 * l->row;
    cv_winograd_bt_shorts(f.width, w[i], o);
    if (i == 0) o[0] -= (uint16_t)(ones * zero);
    CV_UNROLL
    for (int s = 0; s < columns; s++) cv_winograd_store_shorts(to + s * l->point, o[s]);
  }
}

/* A^T of the columns of a tile of M. */
CV_INLINE void cv_winograd_output_columns(const cv_winograd_form f, const float *m,
                                          const cv_winograd_layout *l, cv_int w[][CV_WINOGRAD_MAX_IN]) {
  for (int s = 0; s < f.width + 2; s++, m += l->point) {
    cv_int column[CV_WINOGRAD_MAX_IN], o[CV_WINOGRAD_MAX_OUT];
    CV_UNROLL
    for (int i = 0; i < f.height + 2; i++)
      column[i] = cv_as_int(cv_load(m + i / 2 * l->pair + i % 2 * l->row));
    cv_winograd_at_ints(f.height, column, o);
    CV_UNROLL
    for (int r = 0; r < f.height; r++) w[r][s] = o[r];
  }
}

/* Row r of the outputs, CV_WINOGRAD_TIMES as large, of such columns; r is a constant. */
CV_INLINE void cv_winograd_output_row(const cv_winograd_form f, const int r, const cv_int *w, cv_vec *y) {
  const uint32_t ninth = 954437177; /* times 9 it is 1, modulo 2^32 */
  cv_int o[CV_WINOGRAD_MAX_OUT];
  cv_winograd_at_ints(f.width, w, o);
  CV_UNROLL
  for (int s = 0; s < f.width; s++) {
    const int left = 6 - cv_winograd_at_shift(f.height, r) - cv_winograd_at_shift(f.width, s);
    y[s] = cv_from_int(cv_int_mul(o[s], cv_int_set1((int32_t)(ninth << left))));
  }
}

#endif
