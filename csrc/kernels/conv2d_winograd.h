/* Winograd convolution F(4x4, 3x3) of one image: 3x3, stride 1, one group.
 *
 *   y = A^T [ (G w G^T) . (B^T x B) ] A   for each 4x4 tile of the output; 36 products for 144.
 *
 * Points {0, +-2/3, +-3/2, inf}: their squares are reciprocal, so the transforms need few constants,
 * and the error is half that of the textbook points {0, +-1, +-2, inf}.  A tile mixes 6x6 inputs: an
 * infinity or NaN among them reaches all 16 outputs of the tile, not only the nine that see it.
 * Error, largest over largest output: below 1e-5 up to 512 channels (1e-6 to 4e-6 on random data).
 *
 * Three stages, for `tiles_per_group` tiles at a time:
 *   1. V[36][in block][tile][lanes]        = B^T x B
 *   2. M[36][block of a chunk][tile][lanes] = V * U, by the direct convolution's register tiles: a Winograd
 *      tile is a pixel, a point is a 1x1 convolution
 *   3. y = epilogue(A^T M A)
 * U[chunk][36][in channel][blocks of the chunk][lanes] is made once, by cv_winograd_weights.
 *
 * Threads share groups (each has V and M of its own), or chunks (V is made by all, for one group, and
 * there is a barrier on either side of it): where U is larger than the maps it is then read once in all.
 *
 * x: blocked; its halo covers the padding and whole tiles: it is readable up to row
 *    4 * ceil(height / 4) + 1 - pad_top, and so in columns.
 * y: blocked, written whole with its halo.
 * Source: Lavin and Gray, "Fast algorithms for convolutional neural networks", 2015; the choice of
 * points: Barabasz et al., "Error analysis and improving the accuracy of Winograd convolution", 2020.
 */
#ifndef CONVOY_KERNELS_CONV2D_WINOGRAD_H_
#define CONVOY_KERNELS_CONV2D_WINOGRAD_H_

#include "kernels/conv2d_direct.h"

enum { CV_WINOGRAD_AHEAD = 2, CV_WINOGRAD_OUT = 4, CV_WINOGRAD_IN = 6, CV_WINOGRAD_POINTS = 36 };

#define CV_WINOGRAD_A (2.0f / 3.0f)
#define CV_WINOGRAD_B 1.5f
#define CV_WINOGRAD_A2 (4.0f / 9.0f)
#define CV_WINOGRAD_B2 2.25f

typedef struct cv_winograd {
  int pad_top, pad_left;
  int chunk_count, blocks, tail_blocks; /* output blocks of a chunk, and of the last one */
  int tile_rows, tile_columns;          /* of the output, in tiles of 4x4 */
  int groups;                           /* of tiles, of nearly equal size */
  int tiles_per_group;                  /* of the largest */
  int pixels;                           /* of a register tile; at most tiles_per_group */
  int split_chunks;                     /* 1: threads share chunks, 0: threads share groups */
  cv_conv2d_tile tile[2];               /* [0: blocks, 1: tail_blocks] */
} cv_winograd;

/* ---- Weights ---- */

/* o = G g: the values at the points of the polynomial g of degree 2, each over its point's product of
 * differences. */
CV_INLINE void cv_winograd_g(cv_vec g0, cv_vec g1, cv_vec g2, cv_vec *o) {
  const float a = CV_WINOGRAD_A, b = CV_WINOGRAD_B, a2 = CV_WINOGRAD_A2, b2 = CV_WINOGRAD_B2;
  const cv_vec na = cv_set1(1.0f / (2.0f * a2 * (a2 - b2))), nb = cv_set1(1.0f / (2.0f * b2 * (b2 - a2)));
  const cv_vec ea = cv_mul(na, cv_fma(cv_set1(a2), g2, g0)), oa = cv_mul(na, cv_mul(cv_set1(a), g1));
  const cv_vec eb = cv_mul(nb, cv_fma(cv_set1(b2), g2, g0)), ob = cv_mul(nb, cv_mul(cv_set1(b), g1));
  o[0] = g0; /* a2 * b2 = 1 */
  o[1] = cv_add(ea, oa);
  o[2] = cv_sub(ea, oa);
  o[3] = cv_add(eb, ob);
  o[4] = cv_sub(eb, ob);
  o[5] = g2;
}

/* U from direct panels ([in block][3][3][lane][blocks][lanes] of each chunk): the caller's share of it. */
static inline void cv_winograd_weights(cv_thread t, const cv_winograd *c, int in_blocks, const float *w,
                                       float *u) {
  const int channels = in_blocks * CV_LANES;
  const cv_range share = cv_share(t, c->chunk_count * channels);
  for (int i = share.begin; i < share.end; i++) {
    const int chunk = i / channels, channel = i % channels;
    const int blocks = chunk == c->chunk_count - 1 ? c->tail_blocks : c->blocks;
    const ptrdiff_t vector = (ptrdiff_t)blocks * CV_LANES; /* of one channel and tap */
    const ptrdiff_t before = (ptrdiff_t)chunk * c->blocks * CV_LANES * channels;
    const float *from = w + before * 9 + (channel / CV_LANES * 9 * CV_LANES + channel % CV_LANES) * vector;
    float *to = u + before * CV_WINOGRAD_POINTS + channel * vector;
    for (int b = 0; b < blocks; b++, from += CV_LANES, to += CV_LANES) {
      cv_vec rows[CV_WINOGRAD_IN][3], column[CV_WINOGRAD_IN];
      for (int s = 0; s < 3; s++) {
        const ptrdiff_t tap = CV_LANES * vector;
        cv_winograd_g(cv_load(from + s * tap), cv_load(from + (3 + s) * tap), cv_load(from + (6 + s) * tap),
                      column);
        for (int r = 0; r < CV_WINOGRAD_IN; r++) rows[r][s] = column[r];
      }
      for (int r = 0; r < CV_WINOGRAD_IN; r++) {
        cv_winograd_g(rows[r][0], rows[r][1], rows[r][2], column);
        for (int s = 0; s < CV_WINOGRAD_IN; s++)
          cv_store(to + (r * CV_WINOGRAD_IN + s) * channels * vector, column[s]);
      }
    }
  }
}

/* ---- Transforms ---- */

/* o = B^T d.  x^4 - (a2 + b2) x^2 + 1 for 0; x (x +- a)(x^2 - b2) and x (x +- b)(x^2 - a2) for the
 * others; x times the first for infinity. */
CV_INLINE void cv_winograd_bt(cv_vec d0, cv_vec d1, cv_vec d2, cv_vec d3, cv_vec d4, cv_vec d5, cv_vec *o) {
  const cv_vec sum = cv_set1(CV_WINOGRAD_A2 + CV_WINOGRAD_B2);
  const cv_vec a2 = cv_set1(CV_WINOGRAD_A2), b2 = cv_set1(CV_WINOGRAD_B2);
  const cv_vec ea = cv_fnma(b2, d2, d4), oa = cv_mul(cv_set1(CV_WINOGRAD_A), cv_fnma(b2, d1, d3));
  const cv_vec eb = cv_fnma(a2, d2, d4), ob = cv_mul(cv_set1(CV_WINOGRAD_B), cv_fnma(a2, d1, d3));
  o[0] = cv_add(cv_fnma(sum, d2, d4), d0);
  o[1] = cv_add(ea, oa);
  o[2] = cv_sub(ea, oa);
  o[3] = cv_add(eb, ob);
  o[4] = cv_sub(eb, ob);
  o[5] = cv_add(cv_fnma(sum, d3, d5), d1);
}

/* o = A^T m: sums of the points' powers. */
CV_INLINE void cv_winograd_at(cv_vec m0, cv_vec m1, cv_vec m2, cv_vec m3, cv_vec m4, cv_vec m5, cv_vec *o) {
  const float a = CV_WINOGRAD_A, b = CV_WINOGRAD_B, a2 = CV_WINOGRAD_A2, b2 = CV_WINOGRAD_B2;
  const cv_vec ea = cv_add(m1, m2), oa = cv_sub(m1, m2), eb = cv_add(m3, m4), ob = cv_sub(m3, m4);
  o[0] = cv_add(m0, cv_add(ea, eb));
  o[1] = cv_fma(cv_set1(b), ob, cv_mul(cv_set1(a), oa));
  o[2] = cv_fma(cv_set1(b2), eb, cv_mul(cv_set1(a2), ea));
  o[3] = cv_add(m5, cv_fma(cv_set1(b * b2), ob, cv_mul(cv_set1(a * a2), oa)));
}

/* One tile of one block: 6x6 pixels from x into V, `point` floats between its points. */
static inline void cv_winograd_input(const float *x, ptrdiff_t row, ptrdiff_t step, float *v,
                                     ptrdiff_t point) {
  cv_vec w[CV_WINOGRAD_IN][CV_WINOGRAD_IN];
  CV_UNROLL
  for (int s = 0; s < CV_WINOGRAD_IN; s++) {
    const float *p = x + s * step;
    cv_vec o[CV_WINOGRAD_IN];
    cv_winograd_bt(cv_load(p), cv_load(p + row), cv_load(p + 2 * row), cv_load(p + 3 * row),
                   cv_load(p + 4 * row), cv_load(p + 5 * row), o);
    CV_UNROLL
    for (int r = 0; r < CV_WINOGRAD_IN; r++) w[r][s] = o[r];
  }
  CV_UNROLL
  for (int r = 0; r < CV_WINOGRAD_IN; r++) {
    cv_vec o[CV_WINOGRAD_IN];
    cv_winograd_bt(w[r][0], w[r][1], w[r][2], w[r][3], w[r][4], w[r][5], o);
    CV_UNROLL
    for (int s = 0; s < CV_WINOGRAD_IN; s++) cv_store(v + (r * CV_WINOGRAD_IN + s) * point, o[s]);
  }
}

/* What an output tile needs beside its place. */
typedef struct cv_winograd_store {
  const cv_map *y;
  const cv_epilogue *e;
  cv_epilogue_split split;
} cv_winograd_store;

/* One tile of one block from M to y: rows x columns pixels of it exist. */
static inline void cv_winograd_output(const cv_winograd_store *g, const float *m, ptrdiff_t point,
                                      int block, int y_row, int y_column) {
  const cv_map *y = g->y, *residual = g->split.residual;
  const int rows = y->height - y_row < CV_WINOGRAD_OUT ? y->height - y_row : CV_WINOGRAD_OUT;
  const int columns = y->width - y_column < CV_WINOGRAD_OUT ? y->width - y_column : CV_WINOGRAD_OUT;
  const cv_vec bias = cv_load(g->e->bias + block * CV_LANES);
  const cv_vec low = cv_set1(g->split.low), high = cv_set1(g->split.high);
  cv_vec w[CV_WINOGRAD_OUT][CV_WINOGRAD_IN];
  CV_UNROLL
  for (int s = 0; s < CV_WINOGRAD_IN; s++) {
    const float *p = m + s * point;
    const ptrdiff_t row = CV_WINOGRAD_IN * point;
    cv_vec o[CV_WINOGRAD_OUT];
    cv_winograd_at(cv_load(p), cv_load(p + row), cv_load(p + 2 * row), cv_load(p + 3 * row),
                   cv_load(p + 4 * row), cv_load(p + 5 * row), o);
    CV_UNROLL
    for (int r = 0; r < CV_WINOGRAD_OUT; r++) w[r][s] = o[r];
  }
  float *to = y->data + block * y->plane + y_row * y->row + y_column * y->step;
  for (int r = 0; r < CV_WINOGRAD_OUT; r++)
    for (int s = 0; s < CV_WINOGRAD_OUT; s++)
      cv_prefetch_store(to + r * y->row + (CV_WINOGRAD_OUT + s) * y->step);
  const float *from = NULL;
  if (residual)
    from = residual->data + block * residual->plane + y_row * residual->row + y_column * residual->step;
  CV_UNROLL
  for (int r = 0; r < CV_WINOGRAD_OUT; r++) {
    if (r < rows) {
      cv_vec o[CV_WINOGRAD_OUT];
      cv_winograd_at(w[r][0], w[r][1], w[r][2], w[r][3], w[r][4], w[r][5], o);
      CV_UNROLL
      for (int s = 0; s < CV_WINOGRAD_OUT; s++) {
        if (s < columns) {
          cv_vec v = cv_add(o[s], bias);
          if (from) v = cv_add(v, cv_load(from + r * residual->row + s * residual->step));
          cv_store(to + r * y->row + s * y->step, cv_min(high, cv_max(low, v)));
        }
      }
    }
  }
  if (g->split.finish || (block + 1) * CV_LANES > y->channels) {
    const cv_map *rest = g->e->residual;
    for (int r = 0; r < rows; r++) {
      const float *q = NULL;
      if (rest) q = rest->data + block * rest->plane + (y_row + r) * rest->row + y_column * rest->step;
      cv_epilogue_finish(g->e, &g->split, y, to + r * y->row, q, block, 1, columns);
    }
  }
}

/* ---- The convolution ---- */

/* Floats between the points of V and of M: an odd number of vectors, so that they fall apart in L1. */
CV_INLINE ptrdiff_t cv_winograd_point(int blocks, int tiles) {
  return (ptrdiff_t)(blocks * tiles | 1) * CV_LANES;
}

/* The tiles of group i. */
CV_INLINE cv_range cv_winograd_group(const cv_winograd *c, int i) {
  return cv_share((cv_thread){i, c->groups}, c->tile_rows * c->tile_columns);
}

/* V of a group: the share of `t` in its blocks x tiles. */
static inline void cv_winograd_fill(cv_thread t, const cv_winograd *c, const cv_map *x, cv_range group,
                                    float *v) {
  const int blocks = cv_blocks(x->channels), tiles = group.end - group.begin;
  const ptrdiff_t point = cv_winograd_point(blocks, c->tiles_per_group);
  const cv_range share = cv_share(t, blocks * tiles);
  for (int i = share.begin; i < share.end; i++) {
    const int block = i / tiles, tile = i % tiles;
    const int row = (group.begin + tile) / c->tile_columns, column = (group.begin + tile) % c->tile_columns;
    const float *from = x->data + block * x->plane + (row * CV_WINOGRAD_OUT - c->pad_top) * x->row +
                        (column * CV_WINOGRAD_OUT - c->pad_left) * x->step;
    /* Six short rows a tile are too many streams for the hardware to guess. */
    for (int r = 0; r < CV_WINOGRAD_IN; r++)
      for (int s = 0; s < CV_WINOGRAD_OUT; s++)
        cv_prefetch(from + r * x->row + (CV_WINOGRAD_AHEAD * CV_WINOGRAD_OUT + 2 + s) * x->step);
    cv_winograd_input(from, x->row, x->step, v + ((ptrdiff_t)block * c->tiles_per_group + tile) * CV_LANES,
                      point);
  }
}

/* One chunk of output blocks on one group: the 36 products, then the outputs. */
static inline void cv_winograd_chunk(const cv_winograd *c, int in_blocks, cv_range group, const float *v,
                                     const float *u, float *m, int chunk, const cv_winograd_store *g) {
  const int tail = chunk == c->chunk_count - 1, tiles = group.end - group.begin;
  const int blocks = tail ? c->tail_blocks : c->blocks;
  const int channels = in_blocks * CV_LANES;
  const ptrdiff_t v_point = cv_winograd_point(in_blocks, c->tiles_per_group);
  const ptrdiff_t m_plane = (ptrdiff_t)c->tiles_per_group * CV_LANES;
  const ptrdiff_t m_point = cv_winograd_point(c->blocks, c->tiles_per_group);
  const cv_conv2d_window window = {
      .in_count = in_blocks,
      .kernel_h = 1,
      .kernel_w = 1,
      .x_plane = m_plane,
      .start_plane = CV_LANES,
      .y_plane = m_plane,
      .y_step = CV_LANES,
      .low = -INFINITY,
      .high = INFINITY,
  };
  static const float zeros[CV_CONV2D_MAX_BLOCKS * CV_LANES] __attribute__((aligned(64)));
  const float *panel = u + (ptrdiff_t)chunk * c->blocks * CV_LANES * channels * CV_WINOGRAD_POINTS;
  for (int point = 0; point < CV_WINOGRAD_POINTS; point++) {
    /* The last register tile may compute some tiles again, or, in a group smaller than the largest,
     * tiles nobody reads: V and M have the room. */
    for (int tile = 0; tile < tiles; tile += c->pixels) {
      const int at = tile + c->pixels <= c->tiles_per_group ? tile : c->tiles_per_group - c->pixels;
      c->tile[tail](&window, v + point * v_point + at * CV_LANES, panel, zeros,
                    m + point * m_point + at * CV_LANES, NULL);
    }
    panel += (ptrdiff_t)channels * blocks * CV_LANES;
  }
  for (int b = 0; b < blocks; b++) {
    for (int i = 0; i < tiles; i++) {
      const int row = (group.begin + i) / c->tile_columns, column = (group.begin + i) % c->tile_columns;
      cv_winograd_output(g, m + b * m_plane + i * CV_LANES, m_point, chunk * c->blocks + b,
                         row * CV_WINOGRAD_OUT, column * CV_WINOGRAD_OUT);
    }
  }
}

/* v: cv_winograd_v_size floats, of this thread (split_chunks: of all of them); m: cv_winograd_m_size
 * floats of this thread. */
CV_INLINE ptrdiff_t cv_winograd_v_size(const cv_winograd *c, int in_channels) {
  return CV_WINOGRAD_POINTS * cv_winograd_point(cv_blocks(in_channels), c->tiles_per_group);
}

CV_INLINE ptrdiff_t cv_winograd_m_size(const cv_winograd *c) {
  return CV_WINOGRAD_POINTS * cv_winograd_point(c->blocks, c->tiles_per_group);
}

static inline void cv_conv2d_winograd(cv_thread t, const cv_winograd *c, cv_map x, const float *u, cv_map y,
                                      const cv_epilogue *e, float *v, float *m) {
  const cv_thread alone = {0, 1};
  const int in_blocks = cv_blocks(x.channels);
  const cv_winograd_store store = {&y, e, cv_split_epilogue(e)};
  const cv_range groups = cv_share(c->split_chunks ? alone : t, c->groups);
  const cv_range chunks = cv_share(c->split_chunks ? t : alone, c->chunk_count);
  cv_map_clear_halo(t, y);
  for (int i = groups.begin; i < groups.end; i++) {
    const cv_range group = cv_winograd_group(c, i);
    if (c->split_chunks && i > groups.begin) convoy_barrier(t);
    cv_winograd_fill(c->split_chunks ? t : alone, c, &x, group, v);
    if (c->split_chunks) convoy_barrier(t);
    for (int chunk = chunks.begin; chunk < chunks.end; chunk++)
      cv_winograd_chunk(c, in_blocks, group, v, u, m, chunk, &store);
  }
}

#endif
