/* Both ends of a Winograd convolution: V = B^T x B of a portion of tiles, and y = epilogue(A^T M A).
 *
 * What comes out not finite is computed again, from x and w: a tile mixes (out + 2)^2 inputs, so that an
 * infinity or NaN among them reaches all its outputs, not only the nine that see it; and its sums may
 * overflow where a direct convolution's do not.  Where a pool follows whose 2x2 windows do not overlap, its
 * windows come from the tile just stored, still in L1: whole in a tile, or clipped where y ends.
 *
 * Where y ends, the tiles of the last row may have fewer rows of outputs, and those of the last column
 * fewer columns: then they have fewer points, too (14x14 pixels, three tiles of 4x4 and one of 2: 484
 * products instead of 576).  `f` is the form of the last tile of all.  Tiles stand in this order: the
 * narrow ones of the last column, whole ones row by row, the low ones of the last row, the corner.  So
 * those that have some point are neighbours.
 *
 * A dilated convolution is dilation_h x dilation_w others with the same weights, one for each phase: each
 * of the pixels so far apart.  All phases have as many tiles, of the same forms; in the order above the
 * tiles of a kind stand phase by phase.  Where a phase has a pixel less than others, so has its last tile.
 *
 * x: blocked; its halo covers the padding and all of the last tile: it is readable up to row
 *    dilation_h * (out * (tile_rows - 1) + f.height + 2) - 1 - pad_top, and so in columns.
 * y: blocked, written whole with its halo; with a pool its data may be NULL: then only the pool's map is
 *    written.
 * w: as a direct convolution's.
 * x may be of bfloat16 where the form says so; y, the residual and the pool's map may be, too.
 */
#ifndef CONVOY_KERNELS_CONV2D_WINOGRAD_TILES_H_
#define CONVOY_KERNELS_CONV2D_WINOGRAD_TILES_H_

#include "kernels/conv2d_winograd_transforms.h"
#include "kernels/epilogue.h"
#include "kernels/pool.h"

/* Tiles that are asked for before they are transformed. */
enum { CV_WINOGRAD_AHEAD = 2 };

typedef struct cv_winograd {
  int pad_top, pad_left;
  int chunk_count, blocks, tail_blocks; /* output blocks of a chunk, and of the last one */
  int tile_rows, tile_columns;          /* of the output, of each of its phases */
  int portions;                         /* of tiles, of nearly equal size */
  int room;                             /* for tiles, of V and M: the largest portion's */
  int split_chunks;                     /* 1: threads share chunks, 0: threads share portions */
} cv_winograd;

CV_INLINE int cv_winograd_blocks(const cv_winograd *c, int chunk) {
  return chunk == c->chunk_count - 1 ? c->tail_blocks : c->blocks;
}

/* Panels of a chunk: [in block][3][3][cells][blocks][lanes], a cell is a lane or of bfloat16 two. */
CV_INLINE const float *cv_winograd_panel(const cv_winograd *c, int in_blocks, int cells, const float *w,
                                         int chunk) {
  return w + (ptrdiff_t)chunk * c->blocks * CV_LANES * in_blocks * cells * 9;
}

/* ---- Where tiles are ---- */

/* The first output of a tile, and which are its form's height and width. */
typedef struct cv_winograd_place {
  int row, column;
  int low, narrow;
} cv_winograd_place;

/* The form of such a tile. */
CV_INLINE cv_winograd_form cv_winograd_tile_form(cv_winograd_form f, const int low, const int narrow) {
  if (!low) f.height = f.out;
  if (!narrow) f.width = f.out;
  return f;
}

CV_INLINE int cv_winograd_phases(const cv_winograd_form f) { return f.dilation_h * f.dilation_w; }

/* Of all phases. */
CV_INLINE int cv_winograd_tile_count(const cv_winograd_form f, const cv_winograd *c) {
  return cv_winograd_phases(f) * c->tile_rows * c->tile_columns;
}

/* Whole rows or columns of so many of the output's. */
CV_INLINE int cv_winograd_whole_rows(const cv_winograd_form f, const cv_winograd *c) {
  return c->tile_rows - (f.height < f.out);
}
CV_INLINE int cv_winograd_whole_columns(const cv_winograd_form f, const cv_winograd *c) {
  return c->tile_columns - (f.width < f.out);
}

/* The phase of number i of the tiles of a kind, so many of each. */
CV_INLINE int cv_winograd_phase(const cv_winograd_form f, int i, int each) {
  return cv_winograd_phases(f) > 1 ? i / each : 0;
}

CV_INLINE cv_winograd_place cv_winograd_place_of(const cv_winograd_form f, int phase, int row, int column,
                                                 const int low, const int narrow) {
  return (cv_winograd_place){row * f.out * f.dilation_h + phase / f.dilation_w,
                             column * f.out * f.dilation_w + phase % f.dilation_w, low, narrow};
}

CV_INLINE cv_winograd_place cv_winograd_find(const cv_winograd_form f, const cv_winograd *c, int tile) {
  const int rows = cv_winograd_whole_rows(f, c), columns = cv_winograd_whole_columns(f, c);
  const int phases = cv_winograd_phases(f);
  if (f.width < f.out) {
    if (tile < phases * rows) {
      const int phase = cv_winograd_phase(f, tile, rows);
      return cv_winograd_place_of(f, phase, tile - phase * rows, columns, 0, 1);
    }
    tile -= phases * rows;
  }
  if (tile < phases * rows * columns) {
    const int phase = cv_winograd_phase(f, tile, rows * columns);
    tile -= phase * rows * columns;
    return cv_winograd_place_of(f, phase, tile / columns, tile % columns, 0, 0);
  }
  tile -= phases * rows * columns;
  if (tile < phases * columns) {
    const int phase = cv_winograd_phase(f, tile, columns);
    return cv_winograd_place_of(f, phase, rows, tile - phase * columns, 1, 0);
  }
  return cv_winograd_place_of(f, tile - phases * columns, rows, columns, 1, 1);
}

/* Those tiles of a portion, counted from its first, that have the point of a row and a column. */
CV_INLINE cv_range cv_winograd_having(const cv_winograd_form f, const cv_winograd *c, cv_range portion,
                                      int row, int column) {
  const int not_low = row >= f.height + 2, not_narrow = column >= f.width + 2;
  const int phases = cv_winograd_phases(f);
  int begin = 0, end = cv_winograd_tile_count(f, c);
  if (not_narrow) begin = phases * cv_winograd_whole_rows(f, c);
  if (not_low) {
    end -= phases * c->tile_columns;
  } else if (not_narrow && f.height < f.out) {
    end -= phases; /* the corner */
  }
  begin -= portion.begin;
  end -= portion.begin;
  const int count = portion.end - portion.begin;
  return (cv_range){begin < 0 ? 0 : begin < count ? begin : count, end < 0 ? 0 : end < count ? end : count};
}

/* ---- Of x ---- */

/* V of a portion: the share of `t` in its blocks x tiles. */
CV_INLINE void cv_winograd_fill_v(const cv_winograd_form f, cv_thread t, const cv_winograd *c,
                                  const cv_map *x, cv_range portion, float *v,
                                  const cv_winograd_layout *l) {
  const int out = f.out, blocks = cv_blocks(x->channels), tiles = portion.end - portion.begin;
  const int cells = cv_pixel_cells(f.x_bf16);
  const cv_range share = cv_share(t, blocks * tiles);
  for (int i = share.begin; i < share.end; i++) {
    const int block = i / tiles, tile = i % tiles;
    const cv_winograd_place at = cv_winograd_find(f, c, portion.begin + tile);
    const float *from =
        x->data + block * x->plane + (at.row - c->pad_top) * x->row + (at.column - c->pad_left) * cells;
    float *to = v + cv_winograd_at_tile(l, block, tile);
    /* The short rows of a tile are too many streams for the hardware to guess. */
    for (int r = 0; r < out + 2; r++)
      for (int s = 0; s < out; s++)
        cv_prefetch(from + f.dilation_h * r * x->row +
                    f.dilation_w * (CV_WINOGRAD_AHEAD * out + 2 + s) * cells);
    if (at.low && at.narrow) {
      cv_winograd_input(f, from, x->row, to, l);
    } else if (at.low) {
      cv_winograd_input(cv_winograd_tile_form(f, 1, 0), from, x->row, to, l);
    } else if (at.narrow) {
      cv_winograd_input(cv_winograd_tile_form(f, 0, 1), from, x->row, to, l);
    } else {
      cv_winograd_input(cv_winograd_tile_form(f, 0, 0), from, x->row, to, l);
    }
  }
}

/* ---- To y ---- */

/* A pool that follows a convolution without dilation: 2x2, stride 2, no padding. */
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
  int dilation_h, dilation_w;
  int rounds; /* w is cells of bfloat16 */
} cv_winograd_store;

/* A row of a tile's outputs, as the definition of convolution has them.
 * Each input block is summed up by itself: one sum of all would have more error than Winograd's. */
static __attribute__((noinline)) void cv_winograd_direct_row(int out, const cv_winograd_store *g, int block,
                                                             int y_row, int y_column, cv_vec *sums) {
  const cv_winograd *c = g->conv;
  const cv_map *x = g->x;
  const int in_blocks = cv_blocks(x->channels), chunk = block / c->blocks;
  const ptrdiff_t vector = (ptrdiff_t)cv_winograd_blocks(c, chunk) * CV_LANES;
  const int bf16 = cv_is_bf16(x), cells = cv_pixel_cells(bf16);
  const float *corner = x->data + (y_row - c->pad_top) * x->row + (y_column - c->pad_left) * cells;
  for (int s = 0; s < out; s += 2) {
    const float *w = cv_winograd_panel(c, in_blocks, cv_pixel_cells(g->rounds), g->w, chunk) +
                     block % c->blocks * CV_LANES;
    cv_vec total[2] = {cv_zero(), cv_zero()};
    const int next = s + 1 < out ? g->dilation_w * cells : 0;
    for (int i = 0; i < in_blocks; i++) {
      cv_vec sum[2] = {cv_zero(), cv_zero()};
      for (int tap = 0; tap < 9; tap++) {
        const float *from = corner + i * x->plane + tap / 3 * g->dilation_h * x->row +
                            (s + tap % 3) * g->dilation_w * cells;
        float pixel[2][CV_LANES];
        cv_storeu(pixel[0], cv_load_lanes(bf16, from));
        cv_storeu(pixel[1], cv_load_lanes(bf16, from + next));
        for (int lane = 0; lane < CV_LANES; lane++) {
          cv_vec weight = cv_load(w);
          if (g->rounds) weight = lane % 2 ? cv_high_bf16(weight) : cv_low_bf16(weight);
          sum[0] = cv_fma(cv_set1(pixel[0][lane]), weight, sum[0]);
          sum[1] = cv_fma(cv_set1(pixel[1][lane]), weight, sum[1]);
          if (!g->rounds || lane % 2) w += vector;
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
CV_INLINE int cv_winograd_overflows(const int rows, const int columns, cv_vec o[][CV_WINOGRAD_MAX_OUT]) {
  cv_vec sum = cv_zero();
  CV_UNROLL
  for (int i = 0; i < rows * columns; i++) sum = cv_add(sum, o[i / columns][i % columns]);
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

/* The windows of a whole tile, of float32. */
CV_INLINE void cv_winograd_pool_whole(const cv_winograd_form f, cv_pool_kind kind, cv_map tile, cv_map y) {
  for (int row = 0; row < f.height / 2; row++) {
    const cv_pool_span span = {.x = tile.data + 2 * row * tile.row,
                               .x_next = 2 * CV_LANES,
                               .tap_row = tile.row,
                               .tap_column = CV_LANES,
                               .y = y.data + row * y.row,
                               .y_next = y.step,
                               .count = f.width / 2,
                               .scale = 0.25f,
                               .y_bf16 = cv_is_bf16(&y)};
    cv_pool_windows(&span, kind, 2, 2);
  }
}

/* The windows of a tile of one block, whose first pixel is (y_row, y_column) of the convolution. */
CV_INLINE void cv_winograd_pool_tile(const cv_winograd_form f, const cv_winograd_pool *p, cv_map tile,
                                     int block, int y_row, int y_column) {
  const int rows = p->y.height - y_row / 2, columns = p->y.width - y_column / 2;
  cv_map y = p->y;
  y.data += block * y.plane + y_row / 2 * y.row + y_column / 2 * y.step;
  y.channels -= block * CV_LANES;
  y.height = rows < (f.height + 1) / 2 ? rows : (f.height + 1) / 2;
  y.width = columns < (f.width + 1) / 2 ? columns : (f.width + 1) / 2;
  if (tile.height < f.height || tile.width < f.width || f.height % 2 || f.width % 2) {
    cv_winograd_pool_clipped(p->kind, tile, y);
  } else if (p->kind == CV_POOL_MAX) {
    cv_winograd_pool_whole(f, CV_POOL_MAX, tile, y);
  } else {
    cv_winograd_pool_whole(f, CV_POOL_MEAN, tile, y);
  }
  for (int row = 0; row < y.height; row++) cv_pool_finish_row(y, 0, row, p->outer);
}

/* Of `size` outputs from a tile's first one to y's end, those `dilation` apart: at most `most`. */
CV_INLINE int cv_winograd_inside(int size, const int dilation, const int most) {
  return size < dilation * most ? (size + dilation - 1) / dilation : most;
}

/* One tile of one block from M to y and its pool: rows x columns pixels of it exist. */
CV_INLINE void cv_winograd_output(const cv_winograd_form f, const int pooled, const cv_winograd_store *g,
                                  const float *m, const cv_winograd_layout *l, int block, int y_row,
                                  int y_column) {
  const cv_map *y = g->y, *residual = g->split.residual;
  const int rows = cv_winograd_inside(y->height - y_row, f.dilation_h, f.height);
  const int columns = cv_winograd_inside(y->width - y_column, f.dilation_w, f.width);
  if (cv_winograd_phases(f) > 1 && (rows <= 0 || columns <= 0)) return; /* another phase has this tile */
  const cv_vec bias = cv_load(g->e->bias + block * CV_LANES);
  const cv_vec low = cv_set1(g->split.low), high = cv_set1(g->split.high);
  float unkept[CV_WINOGRAD_MAX_OUT * CV_WINOGRAD_MAX_OUT * CV_LANES] __attribute__((aligned(64)));
  const int keeps = !pooled || y->data, rounds = cv_is_bf16(y), apart = !keeps || rounds;
  const int cells = cv_pixel_cells(rounds);
  float *y_tile = keeps ? y->data + block * y->plane + y_row * y->row + y_column * cells : NULL;
  const ptrdiff_t y_next = f.dilation_h * y->row, y_column_next = f.dilation_w * cells;
  const ptrdiff_t to_row = apart ? f.width * CV_LANES : y_next;
  const ptrdiff_t to_column = apart ? CV_LANES : y_column_next;
  float *to = apart ? unkept : y_tile;
  for (int r = 0; keeps && r < f.height; r++)
    for (int s = 0; s < f.width; s++) cv_prefetch_store(y_tile + r * y_next + (f.out + s) * y_column_next);
  const float *from = NULL;
  const int added_bf16 = cv_is_bf16(g->e->residual), added_cells = cv_pixel_cells(added_bf16);
  if (residual)
    from = residual->data + block * residual->plane + y_row * residual->row + y_column * added_cells;
  const ptrdiff_t from_row = residual ? f.dilation_h * residual->row : 0;
  const ptrdiff_t from_column = f.dilation_w * added_cells;
  CV_UNROLL
  for (int odd = 0; odd < 2; odd++) {
    cv_vec o[CV_WINOGRAD_MAX_OUT / 2][CV_WINOGRAD_MAX_OUT];
    cv_winograd_output_rows(f, odd, m, l, o);
    if (cv_winograd_overflows((f.height + 1 - odd) / 2, f.width, o)) {
      cv_vec sums[CV_WINOGRAD_MAX_OUT];
      CV_UNROLL
      for (int r = odd; r < f.height; r += 2) {
        cv_winograd_direct_row(f.width, g, block, y_row + r * f.dilation_h, y_column, sums);
        CV_UNROLL
        for (int s = 0; s < f.width; s++) o[r / 2][s] = sums[s];
      }
    }
    CV_UNROLL
    for (int r = odd; r < f.height; r += 2) {
      if (r < rows) {
        CV_UNROLL
        for (int s = 0; s < f.width; s++) {
          if (s < columns) {
            cv_vec v = cv_add(o[r / 2][s], bias);
            if (from) v = cv_add(v, cv_load_lanes(added_bf16, from + r * from_row + s * from_column));
            cv_store(to + r * to_row + s * to_column, cv_min(high, cv_max(low, v)));
          }
        }
      }
    }
  }
  if (g->split.finish || (block + 1) * CV_LANES > y->channels) {
    const cv_map *rest = g->e->residual;
    const int together = f.dilation_w == 1 ? columns : 1;
    const cv_map stored = {.channels = y->channels, .step = CV_LANES};
    for (int r = 0; r < rows; r++) {
      const float *q = NULL;
      if (rest)
        q = rest->data + block * rest->plane + (y_row + r * f.dilation_h) * rest->row +
            y_column * added_cells;
      for (int s = 0; s < columns; s += together) {
        cv_epilogue_finish(g->e, &g->split, apart ? &stored : y, to + r * to_row + s * to_column, q, block,
                           1, together);
        if (q) q += from_column;
      }
    }
  }
  if (pooled) {
    const cv_map tile = {.data = to,
                         .channels = CV_LANES,
                         .height = rows,
                         .width = columns,
                         .row = to_row,
                         .step = CV_LANES};
    cv_winograd_pool_tile(f, g->pool, tile, block, y_row, y_column);
  }
  for (int r = 0; keeps && rounds && r < rows; r++)
    for (int s = 0; s < columns; s++)
      cv_store_bf16(y_tile + r * y_next + s * y_column_next, cv_load(to + r * to_row + s * to_column));
}

/* The outputs of a chunk of blocks and a portion. */
CV_INLINE void cv_winograd_invert(const cv_winograd_form f, const int pooled, const cv_winograd *c,
                                  int chunk, cv_range portion, const float *m, const cv_winograd_layout *l,
                                  const cv_winograd_store *g) {
  for (int b = 0; b < cv_winograd_blocks(c, chunk); b++) {
    const int block = chunk * c->blocks + b;
    for (int i = portion.begin; i < portion.end; i++) {
      const cv_winograd_place at = cv_winograd_find(f, c, i);
      const float *from = m + cv_winograd_at_tile(l, b, i - portion.begin);
      const cv_winograd_form low = cv_winograd_tile_form(f, 1, 0);
      const cv_winograd_form narrow = cv_winograd_tile_form(f, 0, 1);
      const cv_winograd_form whole = cv_winograd_tile_form(f, 0, 0);
      if (at.low && at.narrow) {
        cv_winograd_output(f, pooled, g, from, l, block, at.row, at.column);
      } else if (at.low) {
        cv_winograd_output(low, pooled, g, from, l, block, at.row, at.column);
      } else if (at.narrow) {
        cv_winograd_output(narrow, pooled, g, from, l, block, at.row, at.column);
      } else {
        cv_winograd_output(whole, pooled, g, from, l, block, at.row, at.column);
      }
    }
  }
}

#endif
