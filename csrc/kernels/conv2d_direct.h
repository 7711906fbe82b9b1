/* Direct 2-D convolution of one image.
 *
 *   y[o, v, u] = epilogue(sum over i, r, s of
 *                w[o, i, r, s] * x[i, v * stride_h + r * dilation_h - pad_top,
 *                                     u * stride_w + s * dilation_w - pad_left])
 *
 * Tile: some pixels x some output blocks, computed in registers: kernels/conv2d_direct_tile.h.
 * Chunk: `blocks` output blocks and the input they need; its weights are one panel, packed in the order
 * they are read: [in_count][kernel_h][kernel_w][inner][blocks][CV_LANES], 64-byte aligned.
 *    A panel too large for L2 is cut along the input: the first chunk starts from the bias, the next ones
 *    `adds` to what it left in y, all but the last are `partial`; they stand next to one another.
 * Order: for each group of at most tiles_per_block tiles (their input stays in L2), for each chunk (its
 * panel stays in L2, or in L1), for each tile of the group.
 *
 * x: blocked (inner = CV_LANES) or planar (inner = 1, in_begin and in_count are channels).  Its halo
 *    covers all that the taps reach.
 * Bytes: maps are cv_map_of_cells', four bytes a float, so that inner is CV_LANES / 4.  Chunks are not cut
 *    along the input.  Lanes past y's channels are anything, and its halo is the caller's.  Panels have
 *    CV_DOT_PARTS vectors for each.
 * y: blocked, written whole with its halo.  With another step than CV_LANES (a transposed convolution
 *    writes its phases) only the pixels are written.
 *    Of bfloat16 it has no sums to add to: no chunk is partial or `adds`.
 * residual: may be y itself where no chunk is partial.
 * Each map may be of bfloat16: x only where the tiles are for it; then weights are cells of two inputs.
 * Groups: a chunk reads those channels alone that its outputs are made of, and its panel has no others:
 * then tiles are CV_CONV2D_RANGED_TILEs.  Where a block has outputs of several groups its chunk's panel has
 * zeros between them; then tiles are CV_CONV2D_GROUPED_TILEs, which keep what is not finite in its group.
 * Threads have equal shares of the tiles of all chunks.  With split_chunks all tiles are one group, so that
 * each reads its part of the weights; else a group is a thread's share at most, so that each reads its part
 * of the input.
 * also: other chunks of the same maps, of other widths, which have tiles of their own.
 */
#ifndef CONVOY_KERNELS_CONV2D_DIRECT_H_
#define CONVOY_KERNELS_CONV2D_DIRECT_H_

#include "kernels/conv2d_direct_tile.h"
#include "kernels/epilogue.h"
#include "kernels/halo.h"
#include "kernels/map.h"

typedef struct cv_conv2d_chunk {
  int out_block, blocks;
  int in_begin, in_count;
  ptrdiff_t weights;  /* cells from w to its panel, of one part each */
  int adds;           /* to the sums an earlier chunk left in y; 0: to the bias */
  int partial;        /* a later chunk adds to its sums: no epilogue yet */
  int before, behind; /* channels of its first and of its last input block that it does not read */
} cv_conv2d_chunk;

typedef struct cv_conv2d {
  int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_top, pad_left;
  int inner; /* cells of a pixel of a blocked x; 0: CV_LANES */
  const cv_conv2d_chunk *chunks;
  int chunk_count;
  int split_chunks;          /* threads share 1: chunks, 0: tiles */
  int rows;                  /* of a tile: 1; or 2, where all of two rows is a tile, and one row the last;
                              * or 0: tiles are runs, pixels[0] >= pixels[1] */
  int pixels[2], tiles[2];   /* a row (of runs: the map) is tiles[0] tiles of pixels[0] pixels, then
                              * tiles[1] of pixels[1]; with rows = 2: {width, width}, {0, 1} */
  int tiles_per_block;       /* tiles (row-major over the map) computed for every chunk before the next */
  cv_conv2d_tile tile[2][2]; /* [which pixels, or 0: two rows][0: chunk has `blocks`, 1: tail_blocks] */
  int blocks, tail_blocks;
  int group_in, group_out; /* channels of a group where blocks hold several (tiles are grouped), or 0 */
  int adds;                /* to what y holds, in place of the bias */
  const struct cv_conv2d *also; /* or NULL */
} cv_conv2d;

/* The tiles of so many pixels of full chunks and the last one. */
typedef cv_conv2d_tile cv_conv2d_tile_pair[2];

/* The tiles for rows that were cut at the call, from those of each number of pixels. */
static inline void cv_conv2d_take_tiles(cv_conv2d *c, const cv_conv2d_tile_pair *of_pixels) {
  for (int i = 0; i < 4; i++) c->tile[i / 2][i % 2] = of_pixels[c->pixels[i / 2]][i % 2];
}

/* Where a tile begins: the first of its rows, its number in the row, which pixels; and how many floats
 * from a map's first pixel that is in x, y and the residual. */
typedef struct cv_conv2d_place {
  int row, tile, kind;
  ptrdiff_t x, y, residual;
  int column; /* where it begins; all runs are of row 0 */
} cv_conv2d_place;

/* Floats to the next pixel, to the next row of pixels and to the next tile of each kind, in x, y and the
 * residual; and from behind the end of a row to the next row. */
typedef struct cv_conv2d_strides {
  int height, width;
  cv_conv2d_place pixel, row, tile[2], wrap;
} cv_conv2d_strides;

CV_INLINE int cv_conv2d_kind(const cv_conv2d *c, int height, int row, int tile) {
  return c->rows == 2 ? row + 1 >= height : tile >= c->tiles[0];
}

CV_INLINE cv_conv2d_strides cv_conv2d_stride(const cv_conv2d *c, const cv_map *x, const cv_map *y,
                                             const cv_map *residual) {
  cv_conv2d_strides s = {.height = y->height, .width = y->width};
  s.pixel.x = c->stride_w * x->step;
  s.pixel.y = y->step;
  s.pixel.residual = residual ? residual->step : 0;
  s.row.x = c->stride_h * x->row;
  s.row.y = y->row;
  s.row.residual = residual ? residual->row : 0;
  for (int k = 0; k < 2; k++) {
    s.tile[k].x = c->pixels[k] * s.pixel.x;
    s.tile[k].y = c->pixels[k] * s.pixel.y;
    s.tile[k].residual = c->pixels[k] * s.pixel.residual;
  }
  s.wrap.x = s.row.x - y->width * s.pixel.x;
  s.wrap.y = s.row.y - y->width * s.pixel.y;
  s.wrap.residual = s.row.residual - y->width * s.pixel.residual;
  return s;
}

/* The first tile of `row`. */
CV_INLINE cv_conv2d_place cv_conv2d_begin_row(const cv_conv2d *c, const cv_conv2d_strides *s, int row) {
  return (cv_conv2d_place){
      row, 0, cv_conv2d_kind(c, s->height, row, 0), row * s->row.x, row * s->row.y, row * s->row.residual,
      0};
}

/* How many tiles from `at` on are of its kind and, if they are runs, lie in its row alone; at least 1. */
CV_INLINE int cv_conv2d_neighbours(const cv_conv2d *c, const cv_conv2d_strides *s, cv_conv2d_place at) {
  const int count = (at.tile < c->tiles[0] ? c->tiles[0] : c->tiles[0] + c->tiles[1]) - at.tile;
  if (c->rows) return count;
  const int whole = (s->width - at.column) / c->pixels[at.kind];
  return whole == 0 ? 1 : whole < count ? whole : count;
}

/* The tile behind `count` neighbours. */
CV_INLINE cv_conv2d_place cv_conv2d_behind(const cv_conv2d *c, const cv_conv2d_strides *s,
                                           cv_conv2d_place at, int count) {
  const int tile = at.tile + count;
  if (tile == c->tiles[0] + c->tiles[1]) return cv_conv2d_begin_row(c, s, at.row + c->rows);
  const cv_conv2d_place *step = &s->tile[at.kind];
  cv_conv2d_place after = {at.row,
                           tile,
                           cv_conv2d_kind(c, s->height, at.row, tile),
                           at.x + count * step->x,
                           at.y + count * step->y,
                           at.residual + count * step->residual,
                           at.column + count * c->pixels[at.kind]};
  for (; c->rows == 0 && after.column >= s->width; after.column -= s->width) {
    after.x += s->wrap.x;
    after.y += s->wrap.y;
    after.residual += s->wrap.residual;
  }
  return after;
}

/* Tile number `tile` of the map. */
CV_INLINE cv_conv2d_place cv_conv2d_find(const cv_conv2d *c, const cv_conv2d_strides *s, int tile) {
  const int a_row = c->tiles[0] + c->tiles[1], number = tile % a_row;
  const int first = number < c->tiles[0] ? number : c->tiles[0];
  const int pixels = first * c->pixels[0] + (number - first) * c->pixels[1];
  cv_conv2d_place at = cv_conv2d_begin_row(c, s, tile / a_row * c->rows);
  const int rows = c->rows ? 0 : pixels / s->width;
  at.tile = number;
  at.kind = cv_conv2d_kind(c, s->height, at.row, number);
  at.column = pixels - rows * s->width;
  at.x += pixels * s->pixel.x + rows * s->wrap.x;
  at.y += pixels * s->pixel.y + rows * s->wrap.y;
  at.residual += pixels * s->pixel.residual + rows * s->wrap.residual;
  return at;
}

/* at[p]: floats from a run's first pixel to number p, `in_row` of them before its row ends, in a map of
 * `width` columns whose pixels lie `step` and rows `row` floats apart. */
static inline void cv_conv2d_place_run(ptrdiff_t *at, int pixels, int in_row, int width, ptrdiff_t row,
                                       ptrdiff_t step) {
  ptrdiff_t offset = 0;
  for (int p = 0; p < pixels; p++, offset += step) {
    if (p == in_row) {
      offset += row - width * step;
      in_row += width;
    }
    at[p] = offset;
  }
}

/* One chunk on the tiles [begin, end) of the map; next: the chunk after it on the same tiles, or NULL. */
CV_SHARED void cv_conv2d_run_chunk(const cv_conv2d *c, const cv_conv2d_chunk *chunk, cv_range tiles,
                                   const cv_map *x, const float *w, const cv_map *y, const cv_epilogue *e,
                                   const cv_conv2d_chunk *next) CV_SYMBOL(cv_conv2d_run_chunk);

#if CV_DEFINES(CONV2D_DIRECT)
/* Tiles next to one another that are stored, but not finished: the first one's place, and the pixels of
 * all. sums: where they were stored instead, a block after the other, as y is of bfloat16; or NULL. */
typedef struct cv_conv2d_stored {
  float *y, *sums;
  const float *residual;
  int column, pixels;
} cv_conv2d_stored;

/* Finishes what is stored, part by part of each row. */
static __attribute__((noinline)) void cv_conv2d_finish(const cv_epilogue *e, const cv_epilogue_split *split,
                                                       const cv_conv2d_chunk *chunk, const cv_map *y,
                                                       cv_conv2d_stored *t) {
  const cv_map *residual = e->residual;
  cv_map stored = {.channels = y->channels, .plane = (ptrdiff_t)t->pixels * CV_LANES, .step = CV_LANES};
  for (int part; t->pixels > 0; t->pixels -= part, t->column = 0) {
    part = t->pixels < y->width - t->column ? t->pixels : y->width - t->column;
    if (CV_BFLOAT16_MAPS && t->sums) {
      cv_epilogue_finish(e, split, &stored, t->sums, t->residual, chunk->out_block, chunk->blocks, part);
      for (int b = 0; b < chunk->blocks; b++)
        for (int p = 0; p < part; p++)
          cv_store_bf16(t->y + b * y->plane + p * y->step,
                        cv_load(t->sums + b * stored.plane + p * CV_LANES));
      t->sums += part * CV_LANES;
    } else {
      cv_epilogue_finish(e, split, y, t->y, t->residual, chunk->out_block, chunk->blocks, part);
    }
    t->y += y->row - t->column * y->step;
    if (residual) t->residual += residual->row - t->column * residual->step;
  }
}

/* Whether an output block has lanes of two groups, or of none. */
CV_INLINE int cv_conv2d_mixes(const cv_conv2d *c, int block, int channels) {
  const int first = block * CV_LANES, last = first + CV_LANES - 1;
  return c->group_out && (last >= channels || first / c->group_out != last / c->group_out);
}

/* Where the pixels of a tile lie: of a run with `in_row` of them before its row ends, or of two rows.
 * apart: y is the tile's own memory, a block's pixels after one another. */
CV_INLINE void cv_conv2d_place_pixels(cv_conv2d_places *at, const cv_conv2d *c, int in_row, int apart,
                                      const cv_map *x, const cv_map *y, const cv_map *residual) {
  const int pixels = c->pixels[0];
  if (c->rows == 2) {
    at->x[pixels] = c->stride_h * x->row;
    at->y[pixels] = apart ? (ptrdiff_t)pixels * CV_LANES : y->row;
    at->residual[pixels] = residual ? residual->row : 0;
    return;
  }
  cv_conv2d_place_run(at->x, pixels, in_row, y->width, c->stride_h * x->row, c->stride_w * x->step);
  cv_conv2d_place_run(at->y, pixels, apart ? pixels : in_row, y->width, y->row, apart ? CV_LANES : y->step);
  if (residual) cv_conv2d_place_run(at->residual, pixels, in_row, y->width, residual->row, residual->step);
}

/* What the tiles of a chunk share, but for where their pixels lie. */
CV_INLINE cv_conv2d_window cv_conv2d_open_window(const cv_conv2d *c, const cv_conv2d_chunk *chunk,
                                                 const cv_map *x, const cv_map *y, const cv_map *residual,
                                                 const cv_epilogue_split *split, int adds) {
  cv_conv2d_window window = {
      .in_count = chunk->in_count,
      .begin = chunk->before,
      .end = (c->inner ? c->inner : CV_LANES) - chunk->behind,
      .kernel_h = c->kernel_h,
      .kernel_w = c->kernel_w,
      .x_plane = x->plane,
      .x_row = c->dilation_h * x->row,
      .x_tap = c->dilation_w * x->step,
      .start_plane = adds ? y->plane : CV_LANES,
      .start_step = adds ? y->step : 0,
      .y_plane = y->plane,
      .y_step = y->step,
      .residual_plane = residual ? residual->plane : 0,
      .residual_step = residual ? residual->step : 0,
      .y_bf16 = cv_is_bf16(y),
      .residual_bf16 = cv_is_bf16(residual),
      .low = split->low,
      .high = split->high,
      .requantize = split->requantize,
      .scale = split->requantize ? split->requantize->scale + chunk->out_block * CV_LANES : NULL,
      .shift = split->requantize ? split->requantize->shift + chunk->out_block * CV_LANES : NULL,
      .group_in = c->group_in,
      .group_out = c->group_out,
      .first_in = chunk->in_begin * CV_LANES,
      .first_out = chunk->out_block * CV_LANES,
      .first_tells = cv_conv2d_mixes(c, chunk->out_block, y->channels),
      .at = &cv_conv2d_no_places,
  };
  return window;
}

/* Where `next` begins on the tiles that `chunk` begins at `at`, from what is `chunk`'s in the maps. */
CV_INLINE cv_conv2d_place cv_conv2d_enter(cv_conv2d_place at, const cv_conv2d_chunk *chunk,
                                          const cv_conv2d_chunk *next, const cv_map *x, const cv_map *y,
                                          const cv_map *residual) {
  at.x += (next->in_begin - chunk->in_begin) * x->plane;
  at.y += (next->out_block - chunk->out_block) * y->plane;
  if (residual) at.residual += (next->out_block - chunk->out_block) * residual->plane;
  return at;
}

CV_SHARED void cv_conv2d_run_chunk(const cv_conv2d *c, const cv_conv2d_chunk *chunk, cv_range tiles,
                                   const cv_map *x, const float *w, const cv_map *y, const cv_epilogue *e,
                                   const cv_conv2d_chunk *next) {
  const float *bias = e->bias + chunk->out_block * CV_LANES;
  const cv_epilogue bare = {.bias = NULL};
  if (chunk->partial) e = &bare;
  const cv_epilogue_split split = cv_split_epilogue(e);
  const int spare = (chunk->out_block + chunk->blocks) * CV_LANES > y->channels;
  const int finish = split.finish || (spare && cv_stores_floats(e));
  const int tail = chunk->blocks != c->blocks, adds = chunk->adds || c->adds;
  const cv_map *residual = e->residual;
  cv_conv2d_window window = cv_conv2d_open_window(c, chunk, x, y, residual, &split, adds);
  const float *x_first = x->data + chunk->in_begin * x->plane - c->pad_top * x->row - c->pad_left * x->step;
  float *y_first = y->data + chunk->out_block * y->plane;
  const float *residual_first = residual ? residual->data + chunk->out_block * residual->plane : NULL;

  const int inner = c->inner ? c->inner : CV_LANES, parts = split.requantize ? CV_DOT_PARTS : 1;
  const ptrdiff_t cells = (ptrdiff_t)chunk->in_count * inner - chunk->before - chunk->behind;
  const ptrdiff_t panel_size = cells * c->kernel_h * c->kernel_w * parts * chunk->blocks * CV_LANES;
  const float *panel = w + parts * chunk->weights, *next_panel = next ? w + parts * next->weights : NULL;
  ptrdiff_t asked = next ? 0 : panel_size; /* floats of it */
  const ptrdiff_t asks = cv_conv2d_asks((int)(cells / inner), c->kernel_h * c->kernel_w, inner);
  const cv_conv2d_strides strides = cv_conv2d_stride(c, x, y, residual);
  cv_conv2d_place at = cv_conv2d_find(c, &strides, tiles.begin);
  const cv_conv2d_place then = cv_conv2d_enter(at, chunk, next ? next : chunk, x, y, residual);
  float sums[CV_BFLOAT16_MAPS ? CV_CONV2D_MAX_ACCUMULATORS * CV_LANES : 1] __attribute__((aligned(64)));
  const int apart = CV_BFLOAT16_MAPS && finish && window.y_bf16;
  if (apart) { /* tiles store their sums as float32 */
    window.y_bf16 = 0;
    window.y_step = CV_LANES;
  }
  cv_conv2d_stored stored = {.pixels = 0};
  cv_conv2d_places places[CV_CONV2D_PLACES]; /* by the pixels of a run's first row; */
  int placed = 0;                            /* a bit for each that is known */
  int shaped = 0;                            /* rows of AMX tiles */
  for (int left = tiles.end - tiles.begin; left > 0;) {
    const int neighbours = cv_conv2d_neighbours(c, &strides, at);
    const int count = neighbours < left ? neighbours : left;
    left -= count;
    const cv_conv2d_place after = left ? cv_conv2d_behind(c, &strides, at, count) : then;
    const int pixels = (c->rows == 2 && !at.kind ? 2 : 1) * c->pixels[at.kind];
    if (c->rows != 1) {
      const int rest = y->width - at.column, in_row = rest < c->pixels[0] ? rest : c->pixels[0];
      if (!(placed >> in_row & 1))
        cv_conv2d_place_pixels(&places[in_row], c, in_row, apart, x, y, residual);
      placed |= 1 << in_row;
      window.at = &places[in_row];
    }
    if (apart) window.y_plane = (ptrdiff_t)pixels * CV_LANES;
    window.amx = cv_conv2d_fits_amx(inner, pixels, chunk->blocks) && cv_amx_allowed();
    const int rows = cv_conv2d_amx_rows(pixels);
    if (window.amx && rows != shaped) cv_amx_shape(shaped = rows, inner);
    const cv_conv2d_tile tile = c->tile[at.kind][tail];
    const cv_conv2d_place *step = &strides.tile[at.kind];
    const float *x_tile = x_first + at.x;
    float *y_tile = y_first + at.y;
    const float *residual_tile = residual ? residual_first + at.residual : NULL;
    const float *start = adds ? y_tile : bias;
    const ptrdiff_t start_step = adds ? step->y : 0;
    window.next_x = step->x;
    for (int i = count; i > 0; i--) { /* short: a tile of few inputs does not hide it */
      float *next_y = y_tile + step->y;
      const float *next_residual = residual ? residual_tile + step->residual : NULL;
      window.next_y = next_y;
      window.next_residual = next_residual;
      if (i == 1) {
        window.next_x = x_first + after.x - x_tile;
        window.next_y = y_first + after.y;
        if (residual) window.next_residual = residual_first + after.residual;
      }
      window.next_panel = asked < panel_size ? next_panel + asked : NULL;
      asked += asks;
      tile(&window, x_tile, panel, start, apart ? sums : y_tile, split.residual ? residual_tile : NULL);
      if (finish) {
        if (!stored.pixels)
          stored = (cv_conv2d_stored){y_tile, apart ? sums : NULL, residual_tile,
                                      at.column + (count - i) * c->pixels[at.kind], 0};
        stored.pixels += pixels;
        if (apart || stored.pixels * chunk->blocks >= CV_FINISHED_TOGETHER)
          cv_conv2d_finish(e, &split, chunk, y, &stored);
      }
      x_tile += step->x;
      y_tile = next_y;
      start += start_step;
      residual_tile = next_residual;
    }
    at = after;
  }
  if (stored.pixels) cv_conv2d_finish(e, &split, chunk, y, &stored);
  if (shaped) cv_amx_release();
}
#endif

/* Chunks that add belong to the one they add to: how many there are without them, ... */
static inline int cv_conv2d_count_wholes(const cv_conv2d *c) {
  int count = 0;
  for (int i = 0; i < c->chunk_count; i++) count += !c->chunks[i].adds;
  return count;
}

/* ... and where number `whole` of those `wholes` begins; past the last one, where the chunks end. */
static inline int cv_conv2d_find_whole(const cv_conv2d *c, int wholes, int whole) {
  if (wholes == c->chunk_count) return whole;
  int i = 0;
  while (i < c->chunk_count && (c->chunks[i].adds || whole-- > 0)) i++;
  return i;
}

/* A piece of work is a tile and a whole chunk; pieces are numbered in the order they are computed in, and
 * each thread has as many. */
static inline void cv_conv2d_share(cv_thread t, const cv_conv2d *c, cv_map x, const float *w, cv_map y,
                                   const cv_epilogue *e) {
  const int rows = c->rows ? (y.height + c->rows - 1) / c->rows : 1;
  const int tiles = rows * (c->tiles[0] + c->tiles[1]), wholes = cv_conv2d_count_wholes(c);
  const int share = (tiles + t.count - 1) / t.count;
  const int groups = c->split_chunks ? 1 : (share + c->tiles_per_block - 1) / c->tiles_per_block * t.count;
  const int a_group = (tiles + groups - 1) / groups;
  const cv_range pieces = cv_share(t, tiles * wholes);
  for (int i = pieces.begin, count; i < pieces.end; i += count) {
    const int group = i / (a_group * wholes) * a_group;
    const int size = tiles - group < a_group ? tiles - group : a_group;
    const int begin = (i - group * wholes) % size, whole = (i - group * wholes) / size;
    count = size - begin < pieces.end - i ? size - begin : pieces.end - i;
    const cv_range run = {group + begin, group + begin + count};
    const int end = cv_conv2d_find_whole(c, wholes, whole + 1), more = i + count < pieces.end;
    for (int k = cv_conv2d_find_whole(c, wholes, whole); k < end; k++) {
      const cv_conv2d_chunk *next = k + 1 < (more ? c->chunk_count : end) ? &c->chunks[k + 1] : NULL;
      cv_conv2d_run_chunk(c, &c->chunks[k], run, &x, w, &y, e, next);
    }
  }
}

static inline void cv_conv2d_direct(cv_thread t, const cv_conv2d *c, cv_map x, const float *w, cv_map y,
                                    const cv_epilogue *e) {
  if (cv_stores_floats(e)) cv_map_clear_halo(t, y);
  for (; c; c = c->also) cv_conv2d_share(t, c, x, w, y, e);
}

#endif
