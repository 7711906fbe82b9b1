/* The transforms of Winograd's F(2x2, 3x3) and F(4x4, 3x3), of vectors of channels.
 *
 *   U = G w G^T    3x3 weights          -> points x points, points = out + 2
 *   V = B^T x B    points x points input -> points x points
 *   y = A^T M A    points x points      -> out x out outputs
 *
 * F(2,3) has the points {0, +-1, inf}.  F(4,3) has {0, +-2/3, +-3/2, inf}: their squares are reciprocal,
 * so the transforms need few constants, and the error is half that of {0, +-1, +-2, inf}.  A pair of
 * points +-p shares what is even and what is odd in p.
 *
 * Two-dimensional transforms make two rows at a time: 12 intermediate vectors, not 36, so that they stay
 * in registers; the input is loaded again for each pair.
 * `out` is a constant wherever it is passed.
 * Source: Lavin and Gray, "Fast algorithms for convolutional neural networks", 2015; the choice of
 * points: Barabasz et al., "Error analysis and improving the accuracy of Winograd convolution", 2020.
 */
#ifndef CONVOY_KERNELS_CONV2D_WINOGRAD_TRANSFORMS_H_
#define CONVOY_KERNELS_CONV2D_WINOGRAD_TRANSFORMS_H_

#include "simd/simd.h"

enum { CV_WINOGRAD_MAX_OUT = 4, CV_WINOGRAD_MAX_IN = 6 };

/* The points of F(4,3), and their squares. */
#define CV_WINOGRAD_A (2.0f / 3.0f)
#define CV_WINOGRAD_B 1.5f
#define CV_WINOGRAD_A2 (4.0f / 9.0f)
#define CV_WINOGRAD_B2 2.25f

/* o = G g: the values at the points of the polynomial g of degree 2, each over its point's product of
 * differences. */
CV_INLINE void cv_winograd_g(const int out, const cv_vec *g, cv_vec *o) {
  o[0] = g[0];
  o[out + 1] = g[2];
  if (out == 2) {
    const cv_vec half = cv_set1(0.5f);
    const cv_vec even = cv_mul(half, cv_add(g[0], g[2]));
    o[1] = cv_fma(half, g[1], even);
    o[2] = cv_fnma(half, g[1], even);
  } else {
    const float a2 = CV_WINOGRAD_A2, b2 = CV_WINOGRAD_B2;
    const float na = 1.0f / (2.0f * a2 * (a2 - b2)), nb = 1.0f / (2.0f * b2 * (b2 - a2));
    const cv_vec ea = cv_fma(cv_set1(na * a2), g[2], cv_mul(cv_set1(na), g[0]));
    const cv_vec eb = cv_fma(cv_set1(nb * b2), g[2], cv_mul(cv_set1(nb), g[0]));
    o[1] = cv_fma(cv_set1(na * CV_WINOGRAD_A), g[1], ea);
    o[2] = cv_fnma(cv_set1(na * CV_WINOGRAD_A), g[1], ea);
    o[3] = cv_fma(cv_set1(nb * CV_WINOGRAD_B), g[1], eb);
    o[4] = cv_fnma(cv_set1(nb * CV_WINOGRAD_B), g[1], eb);
  }
}

/* o = B^T d.  F(4,3): x^4 - (a2 + b2) x^2 + 1 for 0; x (x +- a)(x^2 - b2) and x (x +- b)(x^2 - a2) for the
 * others; x times the first for infinity. */
CV_INLINE void cv_winograd_bt(const int out, const cv_vec *d, cv_vec *o) {
  if (out == 2) {
    o[0] = cv_sub(d[0], d[2]);
    o[1] = cv_add(d[2], d[1]);
    o[2] = cv_sub(d[2], d[1]);
    o[3] = cv_sub(d[3], d[1]);
  } else {
    const cv_vec sum = cv_set1(CV_WINOGRAD_A2 + CV_WINOGRAD_B2);
    const cv_vec a = cv_set1(CV_WINOGRAD_A), b = cv_set1(CV_WINOGRAD_B);
    const cv_vec a2 = cv_set1(CV_WINOGRAD_A2), b2 = cv_set1(CV_WINOGRAD_B2);
    const cv_vec ea = cv_fnma(b2, d[2], d[4]), oa = cv_fnma(b2, d[1], d[3]);
    const cv_vec eb = cv_fnma(a2, d[2], d[4]), ob = cv_fnma(a2, d[1], d[3]);
    o[0] = cv_add(cv_fnma(sum, d[2], d[4]), d[0]);
    o[1] = cv_fma(a, oa, ea);
    o[2] = cv_fnma(a, oa, ea);
    o[3] = cv_fma(b, ob, eb);
    o[4] = cv_fnma(b, ob, eb);
    o[5] = cv_add(cv_fnma(sum, d[3], d[5]), d[1]);
  }
}

/* o = A^T m: sums of the points' powers. */
CV_INLINE void cv_winograd_at(const int out, const cv_vec *m, cv_vec *o) {
  const cv_vec ea = cv_add(m[1], m[2]), oa = cv_sub(m[1], m[2]);
  if (out == 2) {
    o[0] = cv_add(m[0], ea);
    o[1] = cv_add(m[3], oa);
  } else {
    const float a = CV_WINOGRAD_A, b = CV_WINOGRAD_B, a2 = CV_WINOGRAD_A2, b2 = CV_WINOGRAD_B2;
    const cv_vec eb = cv_add(m[3], m[4]), ob = cv_sub(m[3], m[4]);
    o[0] = cv_add(m[0], cv_add(ea, eb));
    o[1] = cv_fma(cv_set1(b), ob, cv_mul(cv_set1(a), oa));
    o[2] = cv_fma(cv_set1(b2), eb, cv_mul(cv_set1(a2), ea));
    o[3] = cv_fma(cv_set1(b * b2), ob, cv_fma(cv_set1(a * a2), oa, m[5]));
  }
}

/* Keeps the compiler from computing the addresses of a whole tile before its loops, and from holding more
 * vectors than there are registers: what was loaded through p may be loaded again. */
#define CV_WINOGRAD_FORGET(p) __asm__("" : "+r"(p))

/* U of one vector of output channels and one input channel: `tap` floats between the taps, `point` between
 * the points. */
CV_INLINE void cv_winograd_weight(const int out, const float *w, ptrdiff_t tap, float *u, ptrdiff_t point) {
  const int in = out + 2;
  cv_vec rows[CV_WINOGRAD_MAX_IN][3];
  CV_UNROLL
  for (int s = 0; s < 3; s++, w += tap) {
    const cv_vec g[3] = {cv_load(w), cv_load(w + 3 * tap), cv_load(w + 6 * tap)};
    cv_vec o[CV_WINOGRAD_MAX_IN];
    cv_winograd_g(out, g, o);
    CV_UNROLL
    for (int r = 0; r < in; r++) rows[r][s] = o[r];
  }
  CV_UNROLL
  for (int r = 0; r < in; r++, u += in * point) {
    cv_vec o[CV_WINOGRAD_MAX_IN];
    cv_winograd_g(out, rows[r], o);
    CV_WINOGRAD_FORGET(u);
    CV_UNROLL
    for (int s = 0; s < in; s++) cv_store(u + s * point, o[s]);
  }
}

/* V of one tile of one block of channels. */
CV_INLINE void cv_winograd_input(const int out, const float *x, ptrdiff_t row, float *v, ptrdiff_t point) {
  const int in = out + 2;
  CV_UNROLL
  for (int pair = 0; pair < in / 2; pair++) {
    const int r[2] = {pair ? 2 * pair - 1 : 0, pair ? 2 * pair : in - 1};
    cv_vec w[2][CV_WINOGRAD_MAX_IN];
    CV_WINOGRAD_FORGET(x);
    CV_UNROLL
    for (int s = 0; s < in; s++) {
      cv_vec d[CV_WINOGRAD_MAX_IN], o[CV_WINOGRAD_MAX_IN];
      CV_UNROLL
      for (int i = 0; i < in; i++) d[i] = cv_load(x + i * row + s * CV_LANES);
      cv_winograd_bt(out, d, o);
      w[0][s] = o[r[0]];
      w[1][s] = o[r[1]];
    }
    CV_UNROLL
    for (int i = 0; i < 2; i++) {
      cv_vec o[CV_WINOGRAD_MAX_IN];
      float *to = v + r[i] * in * point;
      cv_winograd_bt(out, w[i], o);
      CV_WINOGRAD_FORGET(to);
      CV_UNROLL
      for (int s = 0; s < in; s++) cv_store(to + s * point, o[s]);
    }
  }
}

/* Rows r and r + out / 2 of the outputs of one tile. */
CV_INLINE void cv_winograd_output_rows(const int out, const int r, const float *m, ptrdiff_t point,
                                       cv_vec y[2][CV_WINOGRAD_MAX_OUT]) {
  const int in = out + 2;
  const ptrdiff_t row = in * point;
  cv_vec w[2][CV_WINOGRAD_MAX_IN];
  CV_UNROLL
  for (int s = 0; s < in; s++, m += point) {
    cv_vec column[CV_WINOGRAD_MAX_IN], o[CV_WINOGRAD_MAX_OUT];
    CV_WINOGRAD_FORGET(m);
    CV_UNROLL
    for (int i = 0; i < in; i++) column[i] = cv_load(m + i * row);
    cv_winograd_at(out, column, o);
    w[0][s] = o[r];
    w[1][s] = o[r + out / 2];
  }
  cv_winograd_at(out, w[0], y[0]);
  cv_winograd_at(out, w[1], y[1]);
}

#endif
