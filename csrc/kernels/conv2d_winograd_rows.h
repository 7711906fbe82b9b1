/* Winograd's algorithm along the rows of a planar map, F(4, 3) or F(4, 4): the first layer of a network.
 *
 *   y[4 pixels] = A^T sum over channels, kernel rows, phases of (G w) . (B^T x)
 *
 * A kernel of 7 columns and stride 2 is two of 4 and 3 columns and stride 1, its phases: one over the even
 * columns of x, one over the odd ones.  4 outputs of F(4, 4) have 7 points, so that 14 products do for 28.
 * Unlike in two dimensions no points are stored but those of x: their sums stay in registers until A^T
 * makes outputs of them.
 *
 *   V[channel][row][tile][phase][8]                        = B^T x, a planar map of STEP = 2 * stride
 * floats a pixel, made once for all output channels U[in_count][kernel_h][phase][point][blocks][CV_LANES]
 * = G w, made when the network is compiled
 *
 * V is the x of cv_conv2d_direct, with tiles of CV_WINOGRAD_ROWS_TILE.
 *
 * Points: +p0, -p0, +p1, -p1, +p2, -p2, infinity; or 0 instead of +-p2, where p2 is 0.  Error, largest over
 * largest output: as a direct convolution's (4e-7 against 3e-7 of the root mean square, 42 terms).
 *
 * A tile mixes the inputs of 4 outputs: an infinity or NaN would reach all of them, a sum might overflow
 * where a direct one does not.  So each row of V says whether it is small enough, and where one is not, the
 * convolution is computed directly.
 */
#ifndef CONVOY_KERNELS_CONV2D_WINOGRAD_ROWS_H_
#define CONVOY_KERNELS_CONV2D_WINOGRAD_ROWS_H_

#include <string.h>

#include "kernels/conv2d_direct_tile.h"
#include "kernels/map.h"

enum {
  CV_WINOGRAD_ROWS_OUT = 4,
  CV_WINOGRAD_ROWS_ROOM = 8, /* for the points of a tile and phase, in V */
  CV_WINOGRAD_ROWS_MAX_SPAN = 32,
  /* A cell is the points of as many phases as fill vectors. */
  CV_WINOGRAD_ROWS_CELL = CV_LANES > CV_WINOGRAD_ROWS_ROOM ? CV_LANES : CV_WINOGRAD_ROWS_ROOM
};

/* Values of V above it count as too large: sums of their products with any sane weights are finite. */
#define CV_WINOGRAD_ROWS_LARGE 1e15f

/* ---- V ---- */

typedef struct cv_winograd_rows {
  int tiles, pad_left;
  /* [input of a tile][point], zero where the input is of another phase than the point of a cell. */
  const float (*transform)[CV_WINOGRAD_ROWS_CELL];
} cv_winograd_rows;

/* The points of a tile's inputs; returns something not finite where they are too large. */
CV_INLINE cv_vec cv_winograd_rows_tile(const int stride, const int span, const float *x,
                                       const float (*transform)[CV_WINOGRAD_ROWS_CELL], float *v) {
  enum { VECTORS = CV_WINOGRAD_ROWS_CELL / CV_LANES };
  const int cells = stride * CV_WINOGRAD_ROWS_ROOM / CV_WINOGRAD_ROWS_CELL, phases = stride / cells;
  cv_vec check = cv_zero();
  CV_UNROLL
  for (int i = 0; i < cells * VECTORS; i++) {
    const int cell = i / VECTORS, part = i % VECTORS * CV_LANES;
    cv_vec sum[2] = {cv_zero(), cv_zero()};
    CV_UNROLL
    for (int k = 0; k < span; k++) {
      if (k % stride / phases == cell)
        sum[k % 2] = cv_fma(cv_load1(x + k), cv_load(transform[k] + part), sum[k % 2]);
    }
    const cv_vec points = cv_add(sum[0], sum[1]);
    cv_store(v + i * CV_LANES, points);
    check = cv_fma(points, cv_set1((float)(3e38 / CV_WINOGRAD_ROWS_LARGE)), check);
  }
  return check;
}

/* V of x and its halo, the share of `t`.  checks: a float for each channel and row. */
CV_INLINE void cv_winograd_rows_input(const int stride, const int points, cv_thread t,
                                      const cv_winograd_rows *c, cv_map x, cv_map v, float *checks) {
  const int rows = x.top + x.height + x.bottom, span = stride * points;
  const ptrdiff_t a_tile = stride * CV_WINOGRAD_ROWS_ROOM;
  const int width = x.width + x.right + c->pad_left; /* readable from a row's first tile on */
  const int whole = width < span ? 0 : (width - span) / (stride * CV_WINOGRAD_ROWS_OUT) + 1;
  const cv_range share = cv_share(t, x.channels * rows);
  for (int i = share.begin; i < share.end; i++) {
    const int channel = i / rows, row = i % rows - x.top;
    const float *from = x.data + channel * x.plane + row * x.row - c->pad_left;
    float *to = v.data + channel * v.plane + row * v.row;
    cv_vec check = cv_zero();
    int tile = 0;
    for (; tile < c->tiles && tile < whole; tile++, to += a_tile, from += stride * CV_WINOGRAD_ROWS_OUT)
      check = cv_add(check, cv_winograd_rows_tile(stride, span, from, c->transform, to));
    for (; tile < c->tiles; tile++, to += a_tile, from += stride * CV_WINOGRAD_ROWS_OUT) {
      float padded[CV_WINOGRAD_ROWS_MAX_SPAN] = {0};
      const int rest = width - tile * stride * CV_WINOGRAD_ROWS_OUT;
      memcpy(padded, from, (size_t)(rest < span ? rest : span) * sizeof *padded);
      check = cv_add(check, cv_winograd_rows_tile(stride, span, padded, c->transform, to));
    }
    checks[i] = cv_reduce_add(check);
  }
}

/* Whether all rows of V are small enough: `count` checks. */
static inline int cv_winograd_rows_fit(const float *checks, int count) {
  cv_vec sum = cv_zero();
  for (int i = 0; i < count; i += CV_LANES) {
    const cv_vec v = cv_load_n(checks + i, count - i < CV_LANES ? count - i : CV_LANES);
    sum = cv_add(sum, cv_sub(v, v));
  }
  return !cv_any(cv_unordered(sum, sum));
}

/* ---- Products ---- */

/* o = A^T m: 4 outputs. */
CV_INLINE void cv_winograd_rows_invert(const double *p, const cv_vec *m, cv_vec *o) {
  const int pairs = p[2] == 0 ? 2 : 3, infinity = p[2] == 0 ? 5 : 6;
  CV_UNROLL
  for (int i = 0; i < pairs; i++) {
    const cv_vec even = cv_add(m[2 * i], m[2 * i + 1]), odd = cv_sub(m[2 * i], m[2 * i + 1]);
    double power = 1;
    CV_UNROLL
    for (int r = 0; r < CV_WINOGRAD_ROWS_OUT; r++, power *= p[i]) {
      const cv_vec part = r % 2 ? odd : even, by = cv_set1((float)power);
      if (i == 0) {
        o[r] = r == 0 ? part : cv_mul(by, part);
      } else {
        o[r] = r == 0 ? cv_add(part, o[r]) : cv_fma(by, part, o[r]);
      }
    }
  }
  if (pairs == 2) o[0] = cv_add(m[4], o[0]);
  o[CV_WINOGRAD_ROWS_OUT - 1] = cv_add(m[infinity], o[CV_WINOGRAD_ROWS_OUT - 1]);
}

/* See cv_conv2d_tile; x: V under the first pixel. */
CV_INLINE void cv_winograd_rows_products(const cv_conv2d_form f, const int stride, const double *p,
                                         const cv_conv2d_window *g, const float *x, const float *w,
                                         const float *start, float *y, const float *residual) {
  enum { MOST_POINTS = 7, MOST_TILES = 2, MOST_BLOCKS = 2 };
  const int points = p[2] == 0 ? 6 : 7, out = CV_WINOGRAD_ROWS_OUT;
  const int tiles = (f.width + out - 1) / out, blocks = f.blocks;
  const int hold = points * tiles * blocks + blocks < CV_REGISTERS;
  cv_vec m[MOST_TILES][MOST_BLOCKS][MOST_POINTS];
  CV_UNROLL
  for (int i = 0; i < tiles * blocks * points; i++)
    m[i / points / blocks][i / points % blocks][i % points] = cv_zero();
  for (int i = 0; i < g->in_count; i++, x += g->x_plane) {
    const float *v = x;
    for (int r = 0; r < g->kernel_h; r++, v += g->x_row) {
      const int part = i * g->kernel_h + r;
      if (part < cv_conv2d_ask_parts(f) * blocks) cv_conv2d_ask_output(f, g, part);
      for (int phase = 0; phase < stride; phase++, w += points * blocks * CV_LANES) {
        const float *from = v + phase * CV_WINOGRAD_ROWS_ROOM;
        CV_UNROLL
        for (int k = 0; k < points; k++) {
          cv_vec weight[MOST_BLOCKS];
          CV_UNROLL
          for (int b = 0; b < blocks; b++) {
            weight[b] = cv_load(w + (k * blocks + b) * CV_LANES);
            /* As operands of each multiply-add weights would be loaded once a tile: loads are what there
             * are too many of. */
            if (hold) weight[b] = cv_hold(weight[b]);
          }
          CV_UNROLL
          for (int tile = 0; tile < tiles; tile++) {
            const cv_vec point = cv_load1(from + tile * stride * CV_WINOGRAD_ROWS_ROOM + k);
            CV_UNROLL
            for (int b = 0; b < blocks; b++) m[tile][b][k] = cv_fma(point, weight[b], m[tile][b][k]);
          }
        }
      }
    }
  }
  cv_vec sum[CV_CONV2D_MAX_ACCUMULATORS];
  CV_UNROLL
  for (int tile = 0; tile < tiles; tile++) {
    CV_UNROLL
    for (int b = 0; b < blocks; b++) {
      cv_vec o[CV_WINOGRAD_ROWS_OUT];
      cv_winograd_rows_invert(p, m[tile][b], o);
      CV_UNROLL
      for (int k = 0; k < out && tile * out + k < f.width; k++)
        sum[(tile * out + k) * blocks + b] = cv_add(o[k], cv_load(start + b * g->start_plane));
    }
  }
  cv_conv2d_end(f, g, sum, y, residual);
}

/* Defines the function `name`: V for STRIDE phases and POINTS points. */
#define CV_WINOGRAD_ROWS(name, STRIDE, POINTS)                                                           \
  _Static_assert((STRIDE) * (POINTS) <= CV_WINOGRAD_ROWS_MAX_SPAN, "the inputs of a tile are too many"); \
  _Static_assert((STRIDE) * CV_WINOGRAD_ROWS_ROOM % CV_LANES == 0, "the points of a tile fill vectors"); \
  static __attribute__((noinline)) void name(cv_thread t, const cv_winograd_rows *c, cv_map x, cv_map v, \
                                             float *checks) {                                            \
    cv_winograd_rows_input(STRIDE, POINTS, t, c, x, v, checks);                                          \
  }

/* Defines the tile `name`: PIXELS x BLOCKS, at most 8 x 2, of V for STRIDE phases. */
#define CV_WINOGRAD_ROWS_TILE(name, PIXELS, BLOCKS, STRIDE, P0, P1, P2)                                 \
  _Static_assert((PIXELS) <= 2 * CV_WINOGRAD_ROWS_OUT && (BLOCKS) <= 2, "the tile has too many sums");  \
  static __attribute__((noinline)) void name(const cv_conv2d_window *g, const float *x, const float *w, \
                                             const float *start, float *y, const float *residual) {     \
    const cv_conv2d_form form = {CV_FLOATS, 0, 1, PIXELS, BLOCKS, CV_LANES, CV_LANES, 0, 0, 0, 0};      \
    const double points[] = {P0, P1, P2};                                                               \
    cv_winograd_rows_products(form, STRIDE, points, g, x, w, start, y, residual);                       \
  }

#endif
