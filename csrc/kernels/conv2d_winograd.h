/* Winograd convolution of one image, F(2x2, 3x3), F(4x4, 3x3) or F(6x6, 3x3): 3x3, stride 1, one group, any
 * dilation.
 *
 *   y = A^T [ (G w G^T) . (B^T x B) ] A   for each out x out tile of the output: 16 products for 36
 *                                         (out = 2), 36 for 144 (out = 4), or 64 for 324 (out = 6).
 *
 * Error, largest over largest output, up to 512 channels: below 2e-6 for out = 2, below 1e-5 for out = 4
 * and below 5e-5 for out = 6 (random data: 1e-7 to 1e-6, 4e-7 to 4e-6, and 2e-6 to 2.5e-5).
 *
 * For each portion of tiles, with points = (out + 2)^2:
 *   1. V[point][in block][tile][lanes] = B^T x B
 *   2. for each chunk of output blocks, for each slab of input blocks:
 *      U[point][in channel of the slab][blocks][lanes] = G w G^T, from the direct convolution's panels
 *      M[point][block][tile][lanes] += V * U, by the direct convolution's register tiles: a Winograd tile
 *      is a pixel, a point is a 1x1 convolution.  The tiles of a portion that have a point are cut evenly:
 *      49 are register tiles of 13, 12, 12 and 12.
 *   3. y = epilogue(A^T M A), and its pool where one follows: conv2d_winograd_outputs.h, which says too
 * what x and y have to be. Weights are transformed each time, not kept: U is 1.8 (out = 2), 4 or 7.1 times
 * as large, and memory beyond L2 feeds a core with 4 bytes a cycle, while a slab of U never leaves L2.  A U
 * that fits L2 whole is made once, by all threads, for all portions: `resident`. Else there are two slabs
 * of U: while one is multiplied, the next one is made, a few vectors after each register tile.  Storing U
 * takes longer than computing it; but nobody waits for stores, and multiplying leaves L2 idle.  A slab may
 * have two rows of points alone, and so three times as many channels for the same bytes (out = 4): M, which
 * each slab loads and stores, is gone through a third as often, and weights are read three times.
 *
 * Threads share portions (each has V, U and M of its own), or chunks (V is made by all, for one portion,
 * and there is a barrier on either side of it): where weights are larger than the maps they are then read
 * and transformed once in all.
 *
 * Where f.rounds, weights, U and V are of bfloat16, and a cell of two input channels takes the place of
 * one: half of the products, and of what is stored.  The error is then that of rounding
 * (docs/architecture.md).
 *
 * Where f.exact, x and y are bytes and all between are integers (conv2d_winograd_integers.h): a cell is two
 * channels of int16, and a block of V two of x.  Weights are bytes.
 *
 * Few tiles do not pay for storing U: conv2d_winograd_streamed.h.
 */
#ifndef CONVOY_KERNELS_CONV2D_WINOGRAD_H_
#define CONVOY_KERNELS_CONV2D_WINOGRAD_H_

#include "kernels/conv2d_direct.h"
#include "kernels/conv2d_winograd_outputs.h"

typedef struct cv_winograd_slabs {
  cv_winograd base;
  int slab;                        /* input blocks of a slab of U; resident: all */
  int rows;                        /* of points, of a slab of U: 2; or 0: all */
  int resident;                    /* 1: U is made once, whole; only where threads share portions */
  int pixels;                      /* of a register tile, the most */
  const cv_conv2d_tile (*tile)[2]; /* [pixels][0: blocks, 1: tail_blocks], where needed */
} cv_winograd_slabs;

/* ---- Sizes, in floats ---- */

/* Between the points of V, U or M: an odd number of vectors, so that they fall apart in L1. */
CV_INLINE ptrdiff_t cv_winograd_point(ptrdiff_t vectors) { return (vectors | 1) * CV_LANES; }

CV_INLINE ptrdiff_t cv_winograd_v_point(const int cells, const cv_winograd_slabs *c, int in_blocks) {
  return cv_winograd_point(((ptrdiff_t)in_blocks * c->base.room * cells + CV_LANES - 1) / CV_LANES);
}

CV_INLINE ptrdiff_t cv_winograd_u_point(const int cells, const cv_winograd_slabs *c) {
  return cv_winograd_point((ptrdiff_t)c->slab * cells * c->base.blocks);
}

CV_INLINE ptrdiff_t cv_winograd_m_point(const cv_winograd_slabs *c) {
  return cv_winograd_point((ptrdiff_t)c->base.blocks * c->base.room);
}

CV_INLINE ptrdiff_t cv_winograd_v_size(const int out, const int cells, const cv_winograd_slabs *c,
                                       int in_blocks) {
  return (out + 2) * (out + 2) * cv_winograd_v_point(cells, c, in_blocks);
}

/* Rows of points of a slab of U, and how many such there are. */
CV_INLINE int cv_winograd_slab_rows(const int out, const cv_winograd_slabs *c) {
  return c->rows ? c->rows : out + 2;
}
CV_INLINE int cv_winograd_row_groups(const int out, const cv_winograd_slabs *c) {
  return (out + 2) / cv_winograd_slab_rows(out, c);
}

CV_INLINE ptrdiff_t cv_winograd_u_slab(const int out, const int cells, const cv_winograd_slabs *c) {
  return cv_winograd_slab_rows(out, c) * (out + 2) * cv_winograd_u_point(cells, c);
}

/* Of two slabs; resident: of all chunks. */
CV_INLINE ptrdiff_t cv_winograd_u_size(const int out, const int cells, const cv_winograd_slabs *c) {
  return cv_winograd_u_slab(out, cells, c) * (c->resident ? c->base.chunk_count : 2);
}

CV_INLINE ptrdiff_t cv_winograd_m_size(const int out, const cv_winograd_slabs *c) {
  return (out + 2) * (out + 2) * cv_winograd_m_point(c);
}

/* Of V or M, whose vectors are so many cells. */
CV_INLINE cv_winograd_layout cv_winograd_slabs_layout(const int out, const int cells,
                                                      const cv_winograd_slabs *c, ptrdiff_t point) {
  return (cv_winograd_layout){.pair = 2 * (out + 2) * point,
                              .row = (out + 2) * point,
                              .point = point,
                              .block = (ptrdiff_t)c->base.room * cells,
                              .four = 4 * cells,
                              .tile = cells};
}

/* ---- Stages ---- */

/* A slab of the input blocks of a chunk, at some rows of points. */
typedef struct cv_winograd_part {
  int chunk, blocks;
  cv_range slab, rows;
  const float *panel; /* of the slab */
  float *u;
} cv_winograd_part;

/* Number i of the parts a thread goes through, for each portion `chunks`, for each chunk the rows of
 * points, for these its slabs. */
CV_INLINE cv_winograd_part cv_winograd_get_part(const cv_winograd_form f, const cv_winograd_slabs *c,
                                                int in_blocks, cv_range chunks, const float *w, float *u,
                                                int i) {
  const int cells = cv_winograd_cells(f);
  const int slabs = (in_blocks + c->slab - 1) / c->slab, begin = i % slabs * c->slab;
  const int groups = cv_winograd_row_groups(f.out, c), rows = cv_winograd_slab_rows(f.out, c);
  const int row = i / slabs % groups * rows;
  const int chunk = chunks.begin + i / (slabs * groups) % (chunks.end - chunks.begin);
  const int blocks = cv_winograd_blocks(&c->base, chunk);
  return (cv_winograd_part){
      .chunk = chunk,
      .blocks = blocks,
      .slab = {begin, begin + c->slab < in_blocks ? begin + c->slab : in_blocks},
      .rows = {row, row + rows},
      .panel = cv_winograd_panel(f, &c->base, in_blocks, w, chunk) +
               begin * 9 * cells * blocks * cv_winograd_weights(f),
      .u = u + (c->resident ? chunk : i % 2) * cv_winograd_u_slab(f.out, cells, c),
  };
}

/* Vectors of a part: input channels, or pairs of them, times blocks. */
CV_INLINE int cv_winograd_vectors(const int cells, const cv_winograd_part *p) {
  return (p->slab.end - p->slab.begin) * cells * p->blocks;
}

/* U of some vectors of a part. */
CV_INLINE void cv_winograd_fill_u(const cv_winograd_form f, const cv_winograd_slabs *c,
                                  const cv_winograd_part *p, cv_range vectors) {
  const int cells = cv_winograd_cells(f), block = cells * p->blocks; /* vectors of an input block and tap */
  const int vector = cv_winograd_weights(f);
  const ptrdiff_t point = cv_winograd_u_point(cells, c);
  for (int i = vectors.begin; i < vectors.end; i++) {
    const float *from = p->panel + (i / block * 9 * block + i % block) * vector;
    float *to = p->u + i * CV_LANES;
    if (f.exact) {
      cv_winograd_weight_shorts((const int8_t *)from, CV_BYTES * block * vector, to, point);
    } else if (f.rounds) {
      cv_winograd_weight_pair(f.out, from, block * CV_LANES, to, point);
    } else if (c->rows) {
      cv_winograd_weight_rows(f.out, from, block * CV_LANES, to, point, p->rows.begin / 2);
    } else {
      cv_winograd_weight(f.out, from, block * CV_LANES, to, point);
    }
  }
}

/* Register tiles of a portion at some rows of points: of those that all tiles have, or only whole rows or
 * columns of them. */
CV_INLINE int cv_winograd_count_calls(const cv_winograd_form f, const cv_winograd_slabs *c,
                                      cv_range portion, cv_range at) {
  int calls = 0;
  for (int i = 0; i < 4; i++) {
    const int row = i / 2 ? f.height + 2 : 0, column = i % 2 ? f.width + 2 : 0;
    const int begin = at.begin > row ? at.begin : row, last = i / 2 ? f.out + 2 : f.height + 2;
    const int rows = (at.end < last ? at.end : last) - begin;
    const int columns = i % 2 ? f.out - f.width : f.width + 2;
    const cv_range having = cv_winograd_having(f, &c->base, portion, row, column);
    if (rows > 0) calls += rows * columns * ((having.end - having.begin + c->pixels - 1) / c->pixels);
  }
  return calls;
}

/* M of a chunk and a portion, or its sum with `part`.  Meanwhile, unless they are NULL, the U of `next` is
 * made, and the weights of `later` are asked for. */
CV_INLINE void cv_winograd_multiply(const cv_winograd_form f, const cv_winograd_slabs *c, int in_blocks,
                                    cv_range portion, const cv_winograd_part *part, const float *v,
                                    float *m, const cv_winograd_part *next, const cv_winograd_part *later) {
  static const float zeros[CV_CONV2D_MAX_BLOCKS * CV_LANES] __attribute__((aligned(64)));
  const int tail = part->chunk == c->base.chunk_count - 1, adds = part->slab.begin > 0;
  const int points = f.out + 2, in_count = part->slab.end - part->slab.begin;
  const int cells = cv_winograd_cells(f);
  const ptrdiff_t plane = (ptrdiff_t)c->base.room * CV_LANES, v_plane = (ptrdiff_t)c->base.room * cells;
  const ptrdiff_t v_point = cv_winograd_v_point(cells, c, in_blocks);
  const ptrdiff_t u_point = cv_winograd_u_point(cells, c), m_point = cv_winograd_m_point(c);
  const int vectors = next ? cv_winograd_vectors(cells, next) : 0;
  const int calls = cv_winograd_count_calls(f, c, portion, part->rows);
  const int share = calls ? (vectors + calls - 1) / calls : 0; /* as many each time: branches are guessed */
  cv_range making = {0, share};
  const ptrdiff_t asks = cv_conv2d_asks(in_count, 1, cells);
  const ptrdiff_t vector = cv_winograd_weights(f);
  const ptrdiff_t weights = later ? 9 * vector * cv_winograd_vectors(cells, later) : 0;
  ptrdiff_t asked = 0;
  cv_conv2d_window window = {
      .in_count = in_count,
      .kernel_h = 1,
      .kernel_w = 1,
      .x_plane = v_plane,
      .start_plane = adds ? plane : CV_LANES,
      .start_step = adds ? CV_LANES : 0,
      .y_plane = plane,
      .y_step = CV_LANES,
      .at = &cv_conv2d_no_places,
      .low = -INFINITY,
      .high = INFINITY,
  };
  const float *from = v + part->slab.begin * v_plane, *u = part->u;
  cv_range having = cv_winograd_having(f, &c->base, portion, part->rows.begin, 0);
  for (int point = part->rows.begin * points; point < part->rows.end * points; point++, u += u_point) {
    const int row = (point + 1) / points, column = (point + 1) % points;
    const cv_range then = cv_winograd_having(f, &c->base, portion, row, column);
    const int register_tiles = (having.end - having.begin + c->pixels - 1) / c->pixels;
    for (int i = having.begin, left = register_tiles; left > 0; left--) {
      const int pixels = (having.end - i + left - 1) / left;
      const ptrdiff_t to_next = left > 1 ? pixels : then.begin - i;
      const float *x = from + point * v_point + i * cells;
      float *sum = m + point * m_point + i * CV_LANES;
      window.next_x = to_next * cells + (left > 1 ? 0 : v_point);
      window.next_y = sum + to_next * CV_LANES + (left > 1 ? 0 : m_point);
      window.next_panel = asked < weights ? later->panel + asked : NULL;
      c->tile[pixels][tail](&window, x, u, adds ? sum : zeros, sum, NULL);
      i += pixels;
      asked += asks;
      if (making.begin < vectors) {
        if (making.end > vectors) making.end = vectors;
        cv_winograd_fill_u(f, c, next, making);
        making.begin += share;
        making.end += share;
      }
    }
    having = then;
  }
  if (making.begin < vectors) { /* no tile has these points */
    making.end = vectors;
    cv_winograd_fill_u(f, c, next, making);
  }
}

/* ---- The convolution ---- */

/* f: of the last tile of all; of the others the height or width is f.out.
 * pool: one that follows; pooled is a constant, 0: there is none.  v: cv_winograd_v_size floats of this
 * thread (split_chunks: of all of them); u: cv_winograd_u_size of this thread (resident: of all); m:
 * cv_winograd_m_size of this thread. */
CV_INLINE void cv_conv2d_winograd(const cv_winograd_form f, const int pooled, const cv_winograd_ends *ends,
                                  cv_thread t, const cv_winograd_slabs *c, cv_map x, const float *w,
                                  cv_map y, const cv_epilogue *e, const cv_winograd_pool *pool, float *v,
                                  float *u, float *m) {
  const cv_thread alone = {0, 1};
  const int out = f.out, cells = cv_winograd_cells(f);
  const int in_blocks = cv_winograd_in_blocks(f, x.channels);
  const cv_winograd_layout v_layout =
      cv_winograd_slabs_layout(out, cells, c, cv_winograd_v_point(cells, c, in_blocks));
  const cv_winograd_layout m_layout = cv_winograd_slabs_layout(out, CV_LANES, c, cv_winograd_m_point(c));
  const cv_winograd_store store = {
      &c->base, &x, &y, w, e, pool, cv_split_epilogue(e), f.dilation_h, f.dilation_w, f.rounds, f.bytes};
  const cv_range portions = cv_share(c->base.split_chunks ? alone : t, c->base.portions);
  const cv_range chunks = cv_share(c->base.split_chunks ? t : alone, c->base.chunk_count);
  const int of_chunk = (in_blocks + c->slab - 1) / c->slab * cv_winograd_row_groups(out, c);
  const int parts = (chunks.end - chunks.begin) * of_chunk; /* of a portion */
  const int count = (portions.end - portions.begin) * parts;
  if (!f.bytes && (!pooled || y.data)) cv_map_clear_halo(t, y);
  if (pooled) cv_map_clear_halo(t, pool->y);
  for (int i = 0; i < (c->resident ? parts : count > 0); i++) {
    const cv_winograd_part part = cv_winograd_get_part(f, c, in_blocks, chunks, w, u, i);
    cv_winograd_fill_u(f, c, &part, cv_share(c->resident ? t : alone, cv_winograd_vectors(cells, &part)));
  }
  if (c->resident) convoy_barrier(t);
  for (int i = 0; i < portions.end - portions.begin; i++) {
    const cv_range portion =
        cv_share((cv_thread){portions.begin + i, c->base.portions}, cv_winograd_tile_count(f, &c->base));
    if (c->base.split_chunks && i > 0) convoy_barrier(t);
    cv_winograd_fill_v(f, ends->input, c->base.split_chunks ? t : alone, &c->base, &x, portion, v,
                       &v_layout);
    if (c->base.split_chunks) convoy_barrier(t);
    for (int k = i * parts; k < (i + 1) * parts; k++) {
      const int fills = c->resident ? 0 : count - 1 - k; /* parts after this one */
      const cv_winograd_part part = cv_winograd_get_part(f, c, in_blocks, chunks, w, u, k);
      const cv_winograd_part next = cv_winograd_get_part(f, c, in_blocks, chunks, w, u, k + 1);
      const cv_winograd_part later = cv_winograd_get_part(f, c, in_blocks, chunks, w, u, k + 2);
      cv_winograd_multiply(f, c, in_blocks, portion, &part, v, m, fills > 0 ? &next : NULL,
                           fills > 1 ? &later : NULL);
      if (part.slab.end == in_blocks && part.rows.end == out + 2)
        cv_winograd_invert(f, ends->output, &c->base, part.chunk, portion, m, &m_layout, &store);
    }
  }
}

/* Where y's size is known at the call: its tiles, in portions of at most `most`, as many for each of so
 * many threads if they share portions. */
static inline void cv_winograd_cut(cv_winograd *c, int out, int height, int width, int most, int threads) {
  c->tile_rows = (height + out - 1) / out;
  c->tile_columns = (width + out - 1) / out;
  const int tiles = c->tile_rows * c->tile_columns, each = c->split_chunks ? 1 : threads;
  const int portions = ((tiles + most - 1) / most + each - 1) / each * each;
  c->portions = portions < tiles ? portions : tiles;
  c->room = (tiles + c->portions - 1) / c->portions;
}

typedef void (*cv_winograd_function)(cv_thread t, const cv_winograd_slabs *c, cv_map x, const float *w,
                                     cv_map y, const cv_epilogue *e, const cv_winograd_pool *pool, float *v,
                                     float *u, float *m);

/* Defines the function `name`: cv_conv2d_winograd for tiles of OUT x OUT, the last of them HEIGHT x WIDTH,
 * with or without a pool. */
#define CV_WINOGRAD(name, ...) CV_WINOGRAD_OF(name, 0, 0, 0, __VA_ARGS__)
/* The same with weights, U and V of bfloat16, of an x of float32 or bfloat16. */
#define CV_WINOGRAD_ROUNDED(name, X_BF16, ...) CV_WINOGRAD_OF(name, X_BF16, 1, 0, __VA_ARGS__)
/* The same of float32, of an x of bfloat16. */
#define CV_WINOGRAD_BF16(name, ...) CV_WINOGRAD_OF(name, 1, 0, 0, __VA_ARGS__)
/* The same of float32, of an x and y of bytes. */
#define CV_WINOGRAD_BYTES(name, ...) CV_WINOGRAD_OF(name, 0, 0, 1, __VA_ARGS__)
/* The same of integers, of an x and y of bytes; OUT is 4. */
#define CV_WINOGRAD_EXACT(name, ...) CV_WINOGRAD_OF(name, 0, 0, 2, __VA_ARGS__)

/* BYTES: 1, x and y are; 2, and all between are integers. */
#define CV_WINOGRAD_OF(name, X_BF16, ROUNDS, BYTES, OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W, POOLED)    \
  _Static_assert((OUT) == 2 || (OUT) == 4 || (OUT) == 6, "F(2,3), F(4,3) and F(6,3) are known");           \
  _Static_assert((BYTES) < 2 || (OUT) == 4, "F(4,3) is known in integers");                                \
  _Static_assert((HEIGHT) >= 2 && (HEIGHT) <= (OUT) && (WIDTH) >= 2 && (WIDTH) <= (OUT),                   \
                 "the last tile has 2 to OUT rows and columns");                                           \
  _Static_assert(!(POOLED) || (DILATION_H) * (DILATION_W) == 1, "a window of a pool is in one phase");     \
  CV_FORM_PARTS(CV_WINOGRAD_ENDS(name, POOLED, OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W, X_BF16, ROUNDS, \
                                 (BYTES) > 0, (BYTES) > 1))                                                \
  CV_FORM(name,                                                                                            \
          (cv_thread t, const cv_winograd_slabs *c, cv_map x, const float *w, cv_map y,                    \
           const cv_epilogue *e, const cv_winograd_pool *pool, float *v, float *u, float *m),              \
          const cv_winograd_form form = {OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W, X_BF16, ROUNDS,       \
                                         (BYTES) > 0, (BYTES) > 1};                                        \
          cv_conv2d_winograd(form, POOLED, &name##_ends, t, c, x, w, y, e, pool, v, u, m);)

#endif
