/* Winograd convolution of one image, F(2x2, 3x3), F(4x4, 3x3) or F(6x6, 3x3): 3x3, stride 1, one group.
 *
 *   y = A^T [ (G w G^T) . (B^T x B) ] A   for each out x out tile of the output: 16 products for 36
 *                                         (out = 2), 36 for 144 (out = 4), or 64 for 324 (out = 6).
 *
 * Error, largest over largest output, up to 512 channels: below 2e-6 for out = 2, below 1e-5 for out = 4
 * and below 5e-5 for out = 6 (random data: 1e-7 to 1e-6, 4e-7 to 4e-6, and 2e-6 to 2.5e-5).
 * A tile mixes (out + 2)^2 inputs, so that an infinity or NaN among them reaches all its outputs, not only
 * the nine that see it; and its sums may overflow where a direct convolution's do not.  What comes out of
 * step 3 not finite is therefore computed again, from x and w.
 *
 * For each group of tiles, with points = (out + 2)^2:
 *   1. V[point][in block][tile][lanes] = B^T x B
 *   2. for each chunk of output blocks, for each slab of input blocks:
 *      U[point][in channel of the slab][blocks][lanes] = G w G^T, from the direct convolution's panels
 *      M[point][block][tile][lanes] += V * U, by the direct convolution's register tiles: a Winograd tile
 *      is a pixel, a point is a 1x1 convolution.  The last register tile of a group may compute tiles
 *      that nobody reads.
 *   3. y = epilogue(A^T M A), and where a pool follows whose 2x2 windows do not overlap, its windows from
 *      the tile just stored, still in L1: whole in a tile, or clipped where y ends.
 * Weights are transformed each time, not kept: U is 1.8 (out = 2), 4 or 7.1 times as large, and memory
 * beyond L2 feeds a core with 4 bytes a cycle, while a slab of U never leaves L2 (ResNet-50's 256 channels
 * of 14x14 take 1.39 ms with U kept in memory, 1.25 ms so; 2026-11-21).  A U that fits L2 whole is made
 * once, by all threads, for all groups: `resident`.
 * Else there are two slabs of U: while one is multiplied, the next one is made, a few vectors after each
 * register tile.  A line stored to L2 takes 3.3 cycles, so that storing U takes three times as long as
 * computing it; but nobody waits for stores, and multiplying leaves L2 idle (2026-11-21).
 *
 * Threads share groups (each has V, U and M of its own), or chunks (V is made by all, for one group, and
 * there is a barrier on either side of it): where weights are larger than the maps they are then read
 * and transformed once in all.
 *
 * x: blocked; its halo covers the padding and whole tiles: it is readable up to row
 *    out * ceil(height / out) + 1 - pad_top, and so in columns.
 * y: blocked, written whole with its halo; with a pool its data may be NULL: then only the pool's map is
 *    written.
 */
#ifndef CONVOY_KERNELS_CONV2D_WINOGRAD_H_
#define CONVOY_KERNELS_CONV2D_WINOGRAD_H_

#include "kernels/conv2d_direct.h"
#include "kernels/conv2d_winograd_transforms.h"
#include "kernels/pool.h"

/* Tiles that are asked for before they are transformed. */
enum { CV_WINOGRAD_AHEAD = 2 };

typedef struct cv_winograd {
  int pad_top, pad_left;
  int chunk_count, blocks, tail_blocks; /* output blocks of a chunk, and of the last one */
  int slab;                             /* input blocks of a slab of U; resident: all */
  int tile_rows, tile_columns;          /* of the output, in tiles of out x out */
  int groups;                           /* of tiles, of nearly equal size */
  int pixels;                           /* of a register tile */
  int room;                             /* for tiles, of V and M: the largest group's, in register tiles */
  int split_chunks;                     /* 1: threads share chunks, 0: threads share groups */
  int resident;                         /* 1: U is made once, whole; only where threads share groups */
  cv_conv2d_tile tile[2];               /* [0: blocks, 1: tail_blocks] */
} cv_winograd;

/* ---- Sizes, in floats ---- */

/* Between the points of V, U or M: an odd number of vectors, so that they fall apart in L1. */
CV_INLINE ptrdiff_t cv_winograd_point(ptrdiff_t vectors) { return (vectors | 1) * CV_LANES; }

CV_INLINE ptrdiff_t cv_winograd_v_point(const cv_winograd *c, int in_blocks) {
  return cv_winograd_point((ptrdiff_t)in_blocks * c->room);
}

CV_INLINE ptrdiff_t cv_winograd_u_point(const cv_winograd *c) {
  return cv_winograd_point((ptrdiff_t)c->slab * CV_LANES * c->blocks);
}

CV_INLINE ptrdiff_t cv_winograd_m_point(const cv_winograd *c) {
  return cv_winograd_point((ptrdiff_t)c->blocks * c->room);
}

CV_INLINE ptrdiff_t cv_winograd_v_size(const int out, const cv_winograd *c, int in_blocks) {
  return (out + 2) * (out + 2) * cv_winograd_v_point(c, in_blocks);
}

CV_INLINE ptrdiff_t cv_winograd_u_slab(const int out, const cv_winograd *c) {
  return (out + 2) * (out + 2) * cv_winograd_u_point(c);
}

/* Of two slabs; resident: of all chunks. */
CV_INLINE ptrdiff_t cv_winograd_u_size(const int out, const cv_winograd *c) {
  return cv_winograd_u_slab(out, c) * (c->resident ? c->chunk_count : 2);
}

CV_INLINE ptrdiff_t cv_winograd_m_size(const int out, const cv_winograd *c) {
  return (out + 2) * (out + 2) * cv_winograd_m_point(c);
}

/* ---- Stages ---- */

CV_INLINE int cv_winograd_blocks(const cv_winograd *c, int chunk) {
  return chunk == c->chunk_count - 1 ? c->tail_blocks : c->blocks;
}

/* Panels of a chunk: [in block][3][3][lane][blocks][lanes]. */
CV_INLINE const float *cv_winograd_panel(const cv_winograd *c, int in_blocks, const float *w, int chunk) {
  return w + (ptrdiff_t)chunk * c->blocks * CV_LANES * in_blocks * CV_LANES * 9;
}

/* A slab of the input blocks of a chunk. */
typedef struct cv_winograd_part {
  int chunk, blocks;
  cv_range slab;
  const float *panel; /* of the slab */
  float *u;
} cv_winograd_part;

/* Number i of the parts a thread goes through, for each group `chunks`, for each chunk its slabs. */
CV_INLINE cv_winograd_part cv_winograd_get_part(const int out, const cv_winograd *c, int in_blocks,
                                                cv_range chunks, const float *w, float *u, int i) {
  const int slabs = (in_blocks + c->slab - 1) / c->slab, begin = i % slabs * c->slab;
  const int chunk = chunks.begin + i / slabs % (chunks.end - chunks.begin);
  const int blocks = cv_winograd_blocks(c, chunk);
  return (cv_winograd_part){
      .chunk = chunk,
      .blocks = blocks,
      .slab = {begin, begin + c->slab < in_blocks ? begin + c->slab : in_blocks},
      .panel = cv_winograd_panel(c, in_blocks, w, chunk) + begin * 9 * CV_LANES * blocks * CV_LANES,
      .u = u + (c->resident ? chunk : i % 2) * cv_winograd_u_slab(out, c),
  };
}

/* Vectors of a part: input channels times blocks. */
CV_INLINE int cv_winograd_vectors(const cv_winograd_part *p) {
  return (p->slab.end - p->slab.begin) * CV_LANES * p->blocks;
}

/* U of some vectors of a part. */
CV_INLINE void cv_winograd_fill_u(const int out, const cv_winograd *c, const cv_winograd_part *p,
                                  cv_range vectors) {
  const int block = CV_LANES * p->blocks; /* vectors of an input block and tap */
  for (int i = vectors.begin; i < vectors.end; i++) {
    const float *from = p->panel + (i / block * 9 * block + i % block) * CV_LANES;
    cv_winograd_weight(out, from, block * CV_LANES, p->u + i * CV_LANES, cv_winograd_u_point(c));
  }
}

/* V of a group: the share of `t` in its blocks x tiles. */
CV_INLINE void cv_winograd_fill_v(const int out, cv_thread t, const cv_winograd *c, const cv_map *x,
                                  cv_range group, float *v) {
  const int blocks = cv_blocks(x->channels), tiles = group.end - group.begin;
  const ptrdiff_t point = cv_winograd_v_point(c, blocks);
  const cv_range share = cv_share(t, blocks * tiles);
  for (int i = share.begin; i < share.end; i++) {
    const int block = i / tiles, tile = i % tiles;
    const int row = (group.begin + tile) / c->tile_columns, column = (group.begin + tile) % c->tile_columns;
    const float *from = x->data + block * x->plane + (row * out - c->pad_top) * x->row +
                        (column * out - c->pad_left) * CV_LANES;
    /* The short rows of a tile are too many streams for the hardware to guess. */
    for (int r = 0; r < out + 2; r++)
      for (int s = 0; s < out; s++)
        cv_prefetch(from + r * x->row + (CV_WINOGRAD_AHEAD * out + 2 + s) * CV_LANES);
    cv_winograd_input(out, from, x->row, v + ((ptrdiff_t)block * c->room + tile) * CV_LANES, point);
  }
}

/* M of a chunk and a group, or its sum with `part`.  Meanwhile, unless they are NULL, the U of `next` is
 * made, and the weights of `later` are asked for. */
CV_INLINE void cv_winograd_multiply(const int out, const cv_winograd *c, int in_blocks, int tiles,
                                    const cv_winograd_part *part, const float *v, float *m,
                                    const cv_winograd_part *next, const cv_winograd_part *later) {
  static const float zeros[CV_CONV2D_MAX_BLOCKS * CV_LANES] __attribute__((aligned(64)));
  const cv_conv2d_tile tile = c->tile[part->chunk == c->chunk_count - 1];
  const int points = (out + 2) * (out + 2), adds = part->slab.begin > 0;
  const int in_count = part->slab.end - part->slab.begin;
  const ptrdiff_t plane = (ptrdiff_t)c->room * CV_LANES;
  const ptrdiff_t v_point = cv_winograd_v_point(c, in_blocks), u_point = cv_winograd_u_point(c);
  const ptrdiff_t m_point = cv_winograd_m_point(c);
  const int calls = points * ((tiles + c->pixels - 1) / c->pixels);
  const int vectors = next ? cv_winograd_vectors(next) : 0;
  const int share = (vectors + calls - 1) / calls; /* as many each time: branches are guessed */
  cv_range making = {0, share};
  const ptrdiff_t asks = cv_conv2d_asks(in_count, 1);
  const ptrdiff_t weights = later ? 9 * CV_LANES * (ptrdiff_t)cv_winograd_vectors(later) : 0;
  ptrdiff_t asked = 0;
  cv_conv2d_window window = {
      .in_count = in_count,
      .kernel_h = 1,
      .kernel_w = 1,
      .x_plane = plane,
      .start_plane = adds ? plane : CV_LANES,
      .start_step = adds ? CV_LANES : 0,
      .y_plane = plane,
      .y_step = CV_LANES,
      .low = -INFINITY,
      .high = INFINITY,
  };
  v += part->slab.begin * plane;
  for (int point = 0; point < points; point++) {
    for (int i = 0; i < tiles; i += c->pixels) {
      const ptrdiff_t at = (ptrdiff_t)i * CV_LANES;
      float *sum = m + point * m_point + at;
      const int last = i + c->pixels >= tiles;
      window.next_x = last ? v_point - at : c->pixels * CV_LANES;
      window.next_y = sum + (last ? m_point - at : c->pixels * CV_LANES);
      window.next_panel = asked < weights ? later->panel + asked : NULL;
      tile(&window, v + point * v_point + at, part->u + point * u_point, adds ? sum : zeros, sum, NULL);
      asked += asks;
      if (making.begin < vectors) {
        if (making.end > vectors) making.end = vectors;
        cv_winograd_fill_u(out, c, next, making);
        making.begin += share;
        making.end += share;
      }
    }
  }
}

/* A pool that follows: 2x2, stride 2, no padding. */
typedef struct cv_winograd_pool {
  cv_pool_kind kind;
  cv_activation outer;
  cv_map y;
} cv_winograd_pool;

/* What an output tile needs beside its place. */
typedef struct cv_winograd_store {
  const cv_winograd *conv;
  const cv_map *x, *y;
  const float *w;
  const cv_epilogue *e;
  const cv_winograd_pool *pool;
  cv_epilogue_split split;
} cv_winograd_store;

/* A row of a tile's outputs, as the definition of convolution has them.
 * Each input block is summed up by itself: one sum of all would have more error than Winograd's. */
static __attribute__((noinline)) void cv_winograd_direct_row(int out, const cv_winograd_store *g, int block,
                                                             int y_row, int y_column, cv_vec *sums) {
  const cv_winograd *c = g->conv;
  const cv_map *x = g->x;
  const int in_blocks = cv_blocks(x->channels), chunk = block / c->blocks;
  const ptrdiff_t vector = (ptrdiff_t)cv_winograd_blocks(c, chunk) * CV_LANES;
  const float *corner = x->data + (y_row - c->pad_top) * x->row + (y_column - c->pad_left) * CV_LANES;
  for (int s = 0; s < out; s += 2) {
    const float *w = cv_winograd_panel(c, in_blocks, g->w, chunk) + block % c->blocks * CV_LANES;
    cv_vec total[2] = {cv_zero(), cv_zero()};
    for (int i = 0; i < in_blocks; i++) {
      cv_vec sum[2] = {cv_zero(), cv_zero()};
      for (int tap = 0; tap < 9; tap++) {
        const float *from = corner + i * x->plane + tap / 3 * x->row + (s + tap % 3) * CV_LANES;
        for (int lane = 0; lane < CV_LANES; lane++, w += vector) {
          sum[0] = cv_fma(cv_set1(from[lane]), cv_load(w), sum[0]);
          sum[1] = cv_fma(cv_set1(from[lane + CV_LANES]), cv_load(w), sum[1]);
        }
      }
      total[0] = cv_add(total[0], sum[0]);
      total[1] = cv_add(total[1], sum[1]);
    }
    sums[s] = total[0];
    sums[s + 1] = total[1];
  }
}

/* A lane of the rows is infinite or NaN, or so large that their sum is. */
CV_INLINE int cv_winograd_overflows(const int out, cv_vec o[][CV_WINOGRAD_MAX_OUT]) {
  cv_vec sum = cv_zero();
  CV_UNROLL
  for (int i = 0; i < out * out / 2; i++) sum = cv_add(sum, o[i / out][i % out]);
  const cv_vec zero = cv_sub(sum, sum);
  return __builtin_expect(cv_any(cv_unordered(zero, zero)), 0);
}

/* The windows of a clipped tile: y is the pool's map from the tile's first window on. */
static __attribute__((noinline)) void cv_winograd_pool_clipped(cv_pool_kind kind, cv_map tile, cv_map y) {
  static const cv_pool halves = {
      .kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2, .dilation_h = 1, .dilation_w = 1};
  for (int row = 0; row < y.height; row++) {
    if (kind == CV_POOL_MAX) {
      cv_pool_row(&halves, tile, y, CV_POOL_MAX, 0, row);
    } else {
      cv_pool_row(&halves, tile, y, CV_POOL_MEAN, 0, row);
    }
  }
}

/* The windows of a whole tile. */
CV_INLINE void cv_winograd_pool_whole(const int out, cv_pool_kind kind, cv_map tile, cv_map y) {
  for (int row = 0; row < out / 2; row++) {
    const cv_pool_span span = {.x = tile.data + 2 * row * tile.row,
                               .x_next = 2 * CV_LANES,
                               .tap_row = tile.row,
                               .tap_column = CV_LANES,
                               .y = y.data + row * y.row,
                               .y_next = CV_LANES,
                               .count = out / 2,
                               .scale = 0.25f};
    cv_pool_windows(&span, kind, 2, 2);
  }
}

/* The windows of a tile of one block, whose first pixel is (y_row, y_column) of the convolution. */
CV_INLINE void cv_winograd_pool_tile(const int out, const cv_winograd_pool *p, cv_map tile, int block,
                                     int y_row, int y_column) {
  const int rows = p->y.height - y_row / 2, columns = p->y.width - y_column / 2;
  cv_map y = p->y;
  y.data += block * y.plane + y_row / 2 * y.row + y_column / 2 * CV_LANES;
  y.channels -= block * CV_LANES;
  y.height = rows < out / 2 ? rows : out / 2;
  y.width = columns < out / 2 ? columns : out / 2;
  if (tile.height < out || tile.width < out) {
    cv_winograd_pool_clipped(p->kind, tile, y);
  } else if (p->kind == CV_POOL_MAX) {
    cv_winograd_pool_whole(out, CV_POOL_MAX, tile, y);
  } else {
    cv_winograd_pool_whole(out, CV_POOL_MEAN, tile, y);
  }
  for (int row = 0; row < y.height; row++) cv_pool_finish_row(y, 0, row, p->outer);
}

/* One tile of one block from M to y and its pool: rows x columns pixels of it exist. */
CV_INLINE void cv_winograd_output(const int out, const int pooled, const cv_winograd_store *g,
                                  const float *m, ptrdiff_t point, int block, int y_row, int y_column) {
  const cv_map *y = g->y, *residual = g->split.residual;
  const int rows = y->height - y_row < out ? y->height - y_row : out;
  const int columns = y->width - y_column < out ? y->width - y_column : out;
  const cv_vec bias = cv_load(g->e->bias + block * CV_LANES);
  const cv_vec low = cv_set1(g->split.low), high = cv_set1(g->split.high);
  float unkept[CV_WINOGRAD_MAX_OUT * CV_WINOGRAD_MAX_OUT * CV_LANES] __attribute__((aligned(64)));
  const int keeps = !pooled || y->data;
  const ptrdiff_t to_row = keeps ? y->row : out * CV_LANES;
  float *to = keeps ? y->data + block * y->plane + y_row * y->row + y_column * CV_LANES : unkept;
  for (int r = 0; keeps && r < out; r++)
    for (int s = 0; s < out; s++) cv_prefetch_store(to + r * to_row + (out + s) * CV_LANES);
  const float *from = NULL;
  if (residual)
    from = residual->data + block * residual->plane + y_row * residual->row + y_column * CV_LANES;
  CV_UNROLL
  for (int odd = 0; odd < 2; odd++) {
    cv_vec o[CV_WINOGRAD_MAX_OUT / 2][CV_WINOGRAD_MAX_OUT];
    cv_winograd_output_rows(out, odd, m, point, o);
    if (cv_winograd_overflows(out, o)) {
      cv_vec sums[CV_WINOGRAD_MAX_OUT];
      CV_UNROLL
      for (int i = 0; i < out / 2; i++) {
        cv_winograd_direct_row(out, g, block, y_row + 2 * i + odd, y_column, sums);
        CV_UNROLL
        for (int s = 0; s < out; s++) o[i][s] = sums[s];
      }
    }
    CV_UNROLL
    for (int i = 0; i < out / 2; i++) {
      const int r = 2 * i + odd;
      if (r < rows) {
        CV_UNROLL
        for (int s = 0; s < out; s++) {
          if (s < columns) {
            cv_vec v = cv_add(o[i][s], bias);
            if (from) v = cv_add(v, cv_load(from + r * residual->row + s * CV_LANES));
            cv_store(to + r * to_row + s * CV_LANES, cv_min(high, cv_max(low, v)));
          }
        }
      }
    }
  }
  if (g->split.finish || (block + 1) * CV_LANES > y->channels) {
    const cv_map *rest = g->e->residual;
    for (int r = 0; r < rows; r++) {
      const float *q = NULL;
      if (rest) q = rest->data + block * rest->plane + (y_row + r) * rest->row + y_column * CV_LANES;
      cv_epilogue_finish(g->e, &g->split, y, to + r * to_row, q, block, 1, columns);
    }
  }
  if (pooled) {
    const cv_map tile = {to, CV_LANES, rows, columns, 0, to_row, CV_LANES, 0, 0, 0, 0};
    cv_winograd_pool_tile(out, g->pool, tile, block, y_row, y_column);
  }
}

/* The outputs of a chunk of blocks and a group. */
CV_INLINE void cv_winograd_invert(const int out, const int pooled, const cv_winograd *c, int chunk,
                                  cv_range group, const float *m, const cv_winograd_store *g) {
  const ptrdiff_t plane = (ptrdiff_t)c->room * CV_LANES, point = cv_winograd_m_point(c);
  for (int b = 0; b < cv_winograd_blocks(c, chunk); b++) {
    for (int i = group.begin; i < group.end; i++)
      cv_winograd_output(out, pooled, g, m + b * plane + (i - group.begin) * CV_LANES, point,
                         chunk * c->blocks + b, i / c->tile_columns * out, i % c->tile_columns * out);
  }
}

/* ---- The convolution ---- */

/* pool: one that follows; pooled is a constant, 0: there is none.  v: cv_winograd_v_size floats of this
 * thread (split_chunks: of all of them); u: cv_winograd_u_size of this thread (resident: of all); m:
 * cv_winograd_m_size of this thread. */
CV_INLINE void cv_conv2d_winograd(const int out, const int pooled, cv_thread t, const cv_winograd *c,
                                  cv_map x, const float *w, cv_map y, const cv_epilogue *e,
                                  const cv_winograd_pool *pool, float *v, float *u, float *m) {
  const cv_thread alone = {0, 1};
  const int in_blocks = cv_blocks(x.channels);
  const cv_winograd_store store = {c, &x, &y, w, e, pool, cv_split_epilogue(e)};
  const cv_range groups = cv_share(c->split_chunks ? alone : t, c->groups);
  const cv_range chunks = cv_share(c->split_chunks ? t : alone, c->chunk_count);
  const int parts = (chunks.end - chunks.begin) * ((in_blocks + c->slab - 1) / c->slab); /* of a group */
  const int count = (groups.end - groups.begin) * parts;
  if (!pooled || y.data) cv_map_clear_halo(t, y);
  if (pooled) cv_map_clear_halo(t, pool->y);
  for (int i = 0; i < (c->resident ? parts : count > 0); i++) {
    const cv_winograd_part part = cv_winograd_get_part(out, c, in_blocks, chunks, w, u, i);
    cv_winograd_fill_u(out, c, &part, cv_share(c->resident ? t : alone, cv_winograd_vectors(&part)));
  }
  if (c->resident) convoy_barrier(t);
  for (int i = 0; i < groups.end - groups.begin; i++) {
    const cv_range group =
        cv_share((cv_thread){groups.begin + i, c->groups}, c->tile_rows * c->tile_columns);
    if (c->split_chunks && i > 0) convoy_barrier(t);
    cv_winograd_fill_v(out, c->split_chunks ? t : alone, c, &x, group, v);
    if (c->split_chunks) convoy_barrier(t);
    for (int k = i * parts; k < (i + 1) * parts; k++) {
      const int fills = c->resident ? 0 : count - 1 - k; /* parts after this one */
      const cv_winograd_part part = cv_winograd_get_part(out, c, in_blocks, chunks, w, u, k);
      const cv_winograd_part next = cv_winograd_get_part(out, c, in_blocks, chunks, w, u, k + 1);
      const cv_winograd_part later = cv_winograd_get_part(out, c, in_blocks, chunks, w, u, k + 2);
      cv_winograd_multiply(out, c, in_blocks, group.end - group.begin, &part, v, m,
                           fills > 0 ? &next : NULL, fills > 1 ? &later : NULL);
      if (part.slab.end == in_blocks) cv_winograd_invert(out, pooled, c, part.chunk, group, m, &store);
    }
  }
}

/* Defines the function `name`: cv_conv2d_winograd for tiles of OUT x OUT, with or without a pool. */
#define CV_WINOGRAD(name, OUT, POOLED)                                                                     \
  _Static_assert((OUT) == 2 || (OUT) == 4 || (OUT) == 6, "F(2,3), F(4,3) and F(6,3) are known");           \
  static __attribute__((noinline)) void name(cv_thread t, const cv_winograd *c, cv_map x, const float *w,  \
                                             cv_map y, const cv_epilogue *e, const cv_winograd_pool *pool, \
                                             float *v, float *u, float *m) {                               \
    cv_conv2d_winograd(OUT, POOLED, t, c, x, w, y, e, pool, v, u, m);                                      \
  }

#endif
