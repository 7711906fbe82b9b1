/* The transforms of Winograd's F(2x2, 3x3), F(4x4, 3x3) and F(6x6, 3x3), of vectors of channels.
 *
 *   U = G w G^T    3x3 weights          -> points x points, points = out + 2
 *   V = B^T x B    points x points input -> points x points
 *   y = A^T M A    points x points      -> out x out outputs
 *
 * The points are out / 2 pairs +-p, 0 and infinity; a pair shares what is even and what is odd in p.
 *
 *   F(2,3)   1
 *   F(4,3)   2/3, 3/2      half the error of 1, 2
 *   F(6,3)   1/2, 1, 2     a search between 0.35 and 2.2 found no three with clearly less
 *
 * Their order is +p_0, -p_0, 0, infinity, +p_1, -p_1, +p_2, -p_2: two that follow each other share work.
 * Each point's 1 / (product of differences to the others) is part of B^T, of which there is less to do than
 * of G where maps are small.  So U does not depend on which other points there are: a tile of fewer
 * outputs, where a map ends, takes the first of the points and their U, and only its V and y have other
 * coefficients.
 *
 * Two-dimensional transforms make a few rows at a time, two of V, or the even or the odd ones of y, so that
 * the intermediate vectors stay in registers; what they are made of is loaded again for the next rows.
 * `out` is a constant wherever it is passed, so that all coefficients are.
 * Source: Lavin and Gray, "Fast algorithms for convolutional neural networks", 2015; the choice of
 * points: Barabasz et al., "Error analysis and improving the accuracy of Winograd convolution", 2020.
 */
#ifndef CONVOY_KERNELS_CONV2D_WINOGRAD_TRANSFORMS_H_
#define CONVOY_KERNELS_CONV2D_WINOGRAD_TRANSFORMS_H_

#include "kernels/map.h"

enum { CV_WINOGRAD_MAX_OUT = 6, CV_WINOGRAD_MAX_IN = 8 };

/* A tile of height x width outputs, 2 to out, whose points are the first of those of F(out x out, 3x3).
 * Its outputs, and the inputs they read, are every dilation_h-th row and every dilation_w-th column. */
typedef struct cv_winograd_form {
  int out, height, width;
  int dilation_h, dilation_w;
  int x_bf16; /* the inputs are of bfloat16 */
  int rounds; /* U and V are, and the weights, two channels a cell */
  int bytes;  /* the inputs and outputs are bytes */
  int exact;  /* and all between are integers: conv2d_winograd_integers.h */
} cv_winograd_form;

/* Cells of a pixel of a block of x. */
CV_INLINE int cv_winograd_x_cells(const cv_winograd_form f) {
  return f.bytes ? CV_LANES / 4 : cv_pixel_cells(f.x_bf16);
}

/* Cells of a vector of channels of V; of U so many vectors are a block's.  Of integers a block is two of x.
 */
CV_INLINE int cv_winograd_cells(const cv_winograd_form f) { return cv_pixel_cells(f.rounds); }

/* Cells of a vector of weights: of integers they are bytes. */
CV_INLINE int cv_winograd_weights(const cv_winograd_form f) { return f.exact ? CV_LANES / 2 : CV_LANES; }

/* The i-th p of F(out, 3), 0 <= i < out / 2. */
CV_INLINE double cv_winograd_p(const int out, const int i) {
  static const double p[][3] = {{1}, {2.0 / 3, 3.0 / 2}, {1.0 / 2, 1, 2}};
  return p[out / 2 - 1][i];
}

/* Coefficients, from z^0, of the product of the first `pairs` z - p_j^2 but that of `but` (-1: of all); z
 * is x^2.  Returns its degree, whose coefficient is 1. */
CV_INLINE int cv_winograd_product(const int out, const int pairs, const int but, double *c) {
  int degree = 0;
  c[0] = 1;
  CV_UNROLL
  for (int j = 0; j < pairs; j++) {
    if (j == but) continue;
    const double p = cv_winograd_p(out, j);
    c[++degree] = 1;
    CV_UNROLL
    for (int k = degree - 1; k > 0; k--) c[k] = c[k - 1] - p * p * c[k];
    c[0] *= -p * p;
  }
  return degree;
}

/* c a + b. */
CV_INLINE cv_vec cv_winograd_fma(const double c, cv_vec a, cv_vec b) {
  return c == 1 ? cv_add(a, b) : c == -1 ? cv_sub(b, a) : cv_fma(cv_set1((float)c), a, b);
}

/* c[0] d[0] + c[1] d[2] + ... + d[2 degree]. */
CV_INLINE cv_vec cv_winograd_sum(const int degree, const double *c, const cv_vec *d) {
  cv_vec sum = d[2 * degree];
  CV_UNROLL
  for (int k = degree - 1; k >= 0; k--) sum = cv_winograd_fma(c[k], d[2 * k], sum);
  return sum;
}

/* Where the points stand. */
CV_INLINE int cv_winograd_pair(const int i) { return i == 0 ? 0 : 2 * i + 2; }
enum { CV_WINOGRAD_ZERO = 2, CV_WINOGRAD_INFINITY = 3 };

/* o = G g: the values at the points of the polynomial g of degree 2. */
CV_INLINE void cv_winograd_g(const int out, const cv_vec *g, cv_vec *o) {
  o[CV_WINOGRAD_ZERO] = g[0];
  o[CV_WINOGRAD_INFINITY] = g[2];
  CV_UNROLL
  for (int i = 0; i < out / 2; i++) {
    const double p = cv_winograd_p(out, i);
    const cv_vec even = cv_winograd_fma(p * p, g[2], g[0]);
    o[cv_winograd_pair(i)] = cv_winograd_fma(p, g[1], even);
    o[cv_winograd_pair(i) + 1] = cv_winograd_fma(-p, g[1], even);
  }
}

/* o = B^T d: the coefficients of the product of x - q, q all finite points but the row's own, over the
 * row's product of differences; of the points of F(out, 3) the first, for an even `size` of outputs. */
CV_INLINE void cv_winograd_bt_pairs(const int out, const int size, const cv_vec *d, cv_vec *o) {
  double c[CV_WINOGRAD_MAX_OUT / 2 + 1];
  const int degree = cv_winograd_product(out, size / 2, -1, c);
  o[CV_WINOGRAD_ZERO] = cv_mul(cv_set1((float)(1 / c[0])), cv_winograd_sum(degree, c, d));
  o[CV_WINOGRAD_INFINITY] = cv_winograd_sum(degree, c, d + 1);
  CV_UNROLL
  for (int i = 0; i < size / 2; i++) {
    const double p = cv_winograd_p(out, i);
    double n = 1 / (2 * p * p);
    CV_UNROLL
    for (int j = 0; j < size / 2; j++) {
      const double q = cv_winograd_p(out, j);
      if (j != i) n /= p * p - q * q;
    }
    cv_winograd_product(out, size / 2, i, c);
    const cv_vec even = cv_mul(cv_set1((float)n), cv_winograd_sum(degree - 1, c, d + 2));
    const cv_vec odd = cv_winograd_sum(degree - 1, c, d + 1);
    o[cv_winograd_pair(i)] = cv_fma(cv_set1((float)(n * p)), odd, even);
    o[cv_winograd_pair(i) + 1] = cv_fnma(cv_set1((float)(n * p)), odd, even);
  }
}

/* Point i of F(out, 3), if it is finite. */
CV_INLINE double cv_winograd_q(const int out, const int i) {
  if (i == CV_WINOGRAD_ZERO) return 0;
  const double p = cv_winograd_p(out, i < CV_WINOGRAD_ZERO ? 0 : i / 2 - 1);
  return i % 2 ? -p : p;
}

/* The same for any `size`, point by point: of an odd one the last point is half a pair. */
CV_INLINE void cv_winograd_bt_points(const int out, const int size, const cv_vec *d, cv_vec *o) {
  CV_UNROLL
  for (int i = 0; i < size + 2; i++) {
    double c[CV_WINOGRAD_MAX_IN] = {1}, n = 1;
    int degree = 0;
    CV_UNROLL
    for (int j = 0; j < size + 2; j++) {
      if (j == i || j == CV_WINOGRAD_INFINITY) continue;
      const double q = cv_winograd_q(out, j);
      if (i != CV_WINOGRAD_INFINITY) n /= cv_winograd_q(out, i) - q;
      c[degree + 1] = c[degree];
      CV_UNROLL
      for (int k = degree; k > 0; k--) c[k] = c[k - 1] - q * c[k];
      c[0] *= -q;
      degree++;
    }
    cv_vec sum = cv_mul(cv_set1((float)(n * c[degree])), d[degree]);
    CV_UNROLL
    for (int k = degree - 1; k >= 0; k--)
      if (c[k] != 0) sum = cv_fma(cv_set1((float)(n * c[k])), d[k], sum);
    o[i] = sum;
  }
}

CV_INLINE void cv_winograd_bt(const int out, const int size, const cv_vec *d, cv_vec *o) {
  if (size % 2) {
    cv_winograd_bt_points(out, size, d, o);
  } else {
    cv_winograd_bt_pairs(out, size, d, o);
  }
}

/* o = A^T m, `size` sums of the points' powers. */
CV_INLINE void cv_winograd_at(const int out, const int size, const cv_vec *m, cv_vec *o) {
  o[0] = m[CV_WINOGRAD_ZERO];
  CV_UNROLL
  for (int r = 1; r < size; r++) o[r] = r == size - 1 ? m[CV_WINOGRAD_INFINITY] : cv_zero();
  CV_UNROLL
  for (int i = 0; i < size / 2; i++) {
    const cv_vec *pair = m + cv_winograd_pair(i);
    const cv_vec even = cv_add(pair[0], pair[1]), odd = cv_sub(pair[0], pair[1]);
    double power = 1;
    CV_UNROLL
    for (int r = 0; r < size; r++) {
      o[r] = cv_winograd_fma(power, r % 2 ? odd : even, o[r]);
      power *= cv_winograd_p(out, i);
    }
  }
  if (size % 2) {
    double power = 1;
    CV_UNROLL
    for (int r = 0; r < size; r++) {
      o[r] = cv_winograd_fma(power, m[cv_winograd_pair(size / 2)], o[r]);
      power *= cv_winograd_p(out, size / 2);
    }
  }
}

/* Where the vectors of V or M of a tile lie, in floats: between pairs of rows of points, between the rows
 * of a pair, between the points of a row; between blocks of channels, fours of tiles, and tiles. */
typedef struct cv_winograd_layout {
  ptrdiff_t pair, row, point, block, four, tile;
} cv_winograd_layout;

CV_INLINE ptrdiff_t cv_winograd_at_tile(const cv_winograd_layout *l, int block, int tile) {
  return block * l->block + tile / 4 * l->four + tile % 4 * l->tile;
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

/* Two rows of G g, as they stand: number `pair`, a constant. */
CV_INLINE void cv_winograd_g_rows(const int out, const int pair, const cv_vec *g, cv_vec *o) {
  cv_vec all[CV_WINOGRAD_MAX_IN];
  cv_winograd_g(out, g, all);
  o[0] = all[2 * pair];
  o[1] = all[2 * pair + 1];
}

CV_INLINE void cv_winograd_weight_two_rows(const int out, const int pair, const float *w, ptrdiff_t tap,
                                           float *u, ptrdiff_t point) {
  const int in = out + 2;
  cv_vec rows[2][3];
  CV_UNROLL
  for (int s = 0; s < 3; s++, w += tap) {
    const cv_vec g[3] = {cv_load(w), cv_load(w + 3 * tap), cv_load(w + 6 * tap)};
    cv_vec o[2];
    cv_winograd_g_rows(out, pair, g, o);
    rows[0][s] = o[0];
    rows[1][s] = o[1];
  }
  CV_UNROLL
  for (int r = 0; r < 2; r++, u += in * point) {
    cv_vec o[CV_WINOGRAD_MAX_IN];
    cv_winograd_g(out, rows[r], o);
    CV_WINOGRAD_FORGET(u);
    CV_UNROLL
    for (int s = 0; s < in; s++) cv_store(u + s * point, o[s]);
  }
}

/* Rows 2 pair and 2 pair + 1 of the same U. */
CV_INLINE void cv_winograd_weight_rows(const int out, const float *w, ptrdiff_t tap, float *u,
                                       ptrdiff_t point, int pair) {
  if (pair == 0) {
    cv_winograd_weight_two_rows(out, 0, w, tap, u, point);
  } else if (pair == 1) {
    cv_winograd_weight_two_rows(out, 1, w, tap, u, point);
  } else if (pair == 2 && out >= 4) {
    cv_winograd_weight_two_rows(out, 2, w, tap, u, point);
  } else if (out >= 6) {
    cv_winograd_weight_two_rows(out, 3, w, tap, u, point);
  }
}

/* The same of two input channels, a cell of bfloat16 each; w is of such cells. */
CV_INLINE void cv_winograd_weight_pair(const int out, const float *w, ptrdiff_t tap, float *u,
                                       ptrdiff_t point) {
  const int in = out + 2;
  cv_vec rows[2][CV_WINOGRAD_MAX_IN][3];
  CV_UNROLL
  for (int s = 0; s < 3; s++, w += tap) {
    const cv_vec cell[3] = {cv_load(w), cv_load(w + 3 * tap), cv_load(w + 6 * tap)};
    CV_UNROLL
    for (int second = 0; second < 2; second++) {
      cv_vec g[3], o[CV_WINOGRAD_MAX_IN];
      CV_UNROLL
      for (int i = 0; i < 3; i++) g[i] = second ? cv_high_bf16(cell[i]) : cv_low_bf16(cell[i]);
      cv_winograd_g(out, g, o);
      CV_UNROLL
      for (int r = 0; r < in; r++) rows[second][r][s] = o[r];
    }
  }
  CV_UNROLL
  for (int r = 0; r < in; r++, u += in * point) {
    cv_vec first[CV_WINOGRAD_MAX_IN], second[CV_WINOGRAD_MAX_IN];
    cv_winograd_g(out, rows[0][r], first);
    cv_winograd_g(out, rows[1][r], second);
    CV_WINOGRAD_FORGET(u);
    CV_UNROLL
    for (int s = 0; s < in; s++) cv_store(u + s * point, cv_pair_bf16(first[s], second[s]));
  }
}

/* V of one tile of one block of channels; row: floats between the rows of the map. */
CV_INLINE void cv_winograd_input(const cv_winograd_form f, const float *x, ptrdiff_t row, float *v,
                                 const cv_winograd_layout *l) {
  const int rows = f.height + 2, columns = f.width + 2;
  const ptrdiff_t point = l->point, next = f.dilation_h * row;
  const int cells = cv_pixel_cells(f.x_bf16);
  CV_UNROLL
  for (int pair = 0; pair < (rows + 1) / 2; pair++, v += l->pair) {
    cv_vec w[2][CV_WINOGRAD_MAX_IN];
    CV_WINOGRAD_FORGET(x);
    CV_UNROLL
    for (int s = 0; s < columns; s++) {
      cv_vec d[CV_WINOGRAD_MAX_IN], o[CV_WINOGRAD_MAX_IN];
      CV_UNROLL
      for (int i = 0; i < rows; i++)
        d[i] = cv_load_lanes(f.x_bf16, x + i * next + s * f.dilation_w * cells);
      cv_winograd_bt(f.out, f.height, d, o);
      w[0][s] = o[2 * pair];
      if (2 * pair + 1 < rows) w[1][s] = o[2 * pair + 1];
    }
    CV_UNROLL
    for (int i = 0; i < 2; i++) {
      if (2 * pair + i == rows) break;
      cv_vec o[CV_WINOGRAD_MAX_IN];
      float *to = v + i * l->row;
      cv_winograd_bt(f.out, f.width, w[i], o);
      CV_WINOGRAD_FORGET(to);
      CV_UNROLL
      for (int s = 0; s < columns; s++) cv_store_lanes(f.rounds, to + s * point, o[s]);
    }
  }
}

/* The same of bytes, as how many steps they are from `zero`. */
CV_INLINE void cv_winograd_input_bytes(cv_winograd_form f, const float *x, ptrdiff_t row, int zero,
                                       float *v, const cv_winograd_layout *l) {
  float tile[CV_WINOGRAD_MAX_IN * CV_WINOGRAD_MAX_IN * CV_LANES] __attribute__((aligned(64)));
  const int columns = f.width + 2;
  for (int r = 0; r < f.height + 2; r++) {
    const uint8_t *pixel = (const uint8_t *)(x + r * f.dilation_h * row);
    CV_UNROLL
    for (int s = 0; s < columns; s++) {
      const cv_int steps =
          cv_int_sub(cv_load_bytes(pixel + s * f.dilation_w * CV_LANES), cv_int_set1(zero));
      cv_store(tile + (r * columns + s) * CV_LANES, cv_from_int(steps));
    }
  }
  f.bytes = 0;
  f.dilation_h = f.dilation_w = 1;
  cv_winograd_input(f, tile, columns * CV_LANES, v, l);
}

/* The even or the odd rows of the outputs of one tile. */
CV_INLINE void cv_winograd_output_rows(const cv_winograd_form f, const int odd, const float *m,
                                       const cv_winograd_layout *l, cv_vec y[][CV_WINOGRAD_MAX_OUT]) {
  const int rows = f.height + 2, columns = f.width + 2;
  const ptrdiff_t pair = l->pair, row = l->row, point = l->point;
  cv_vec w[CV_WINOGRAD_MAX_OUT / 2][CV_WINOGRAD_MAX_IN];
  CV_UNROLL
  for (int s = 0; s < columns; s++, m += point) {
    cv_vec column[CV_WINOGRAD_MAX_IN], o[CV_WINOGRAD_MAX_OUT];
    CV_WINOGRAD_FORGET(m);
    CV_UNROLL
    for (int i = 0; i < rows; i++) column[i] = cv_load(m + i / 2 * pair + i % 2 * row);
    cv_winograd_at(f.out, f.height, column, o);
    CV_UNROLL
    for (int r = odd; r < f.height; r += 2) w[r / 2][s] = o[r];
  }
  CV_UNROLL
  for (int r = odd; r < f.height; r += 2) cv_winograd_at(f.out, f.width, w[r / 2], y[r / 2]);
}

#endif
