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

#include "kernels/conv2d_direct_pipelined.h"
#include "kernels/conv2d_direct_places.h"
#include "kernels/conv2d_direct_tile.h"
#include "kernels/epilogue.h"
#include "kernels/halo.h"
#include "kernels/map.h"

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

/* Where `next` begins on the tiles that `chunk` begins at `at`, from what is `chunk`'s in the maps. */
CV_INLINE cv_conv2d_place cv_conv2d_enter(cv_conv2d_place at, const cv_conv2d_chunk *chunk,
                                          const cv_conv2d_chunk *next, const cv_map *x, const cv_map *y,
                                          const cv_map *residual) {
  at.x += (next->in_begin - chunk->in_begin) * x->plane;
  at.y += (next->out_block - chunk->out_block) * y->plane;
  if (residual) at.residual += (next->out_block - chunk->out_block) * residual->plane;
  return at;
}

/* The next chunk's weights from where tiles ask for them on, or NULL; how many are left, and how many each
 * tile asks for. */
typedef struct cv_conv2d_ahead {
  const float *panel;
  ptrdiff_t left, asks;
} cv_conv2d_ahead;

CV_INLINE cv_conv2d_ahead cv_conv2d_look_ahead(const cv_conv2d *c, const cv_conv2d_chunk *chunk,
                                               const cv_conv2d_chunk *next, const float *w, int parts) {
  const int inner = c->inner ? c->inner : CV_LANES, taps = c->kernel_h * c->kernel_w;
  const ptrdiff_t cells = (ptrdiff_t)chunk->in_count * inner - chunk->before - chunk->behind;
  return (cv_conv2d_ahead){.panel = next ? w + parts * next->weights : NULL,
                           .left = next ? cells * taps * parts * chunk->blocks * CV_LANES : 0,
                           .asks = cv_conv2d_asks((int)(cells / inner), taps, inner)};
}

CV_INLINE const float *cv_conv2d_ask(cv_conv2d_ahead *ahead) {
  const float *panel = ahead->panel;
  if (ahead->left <= 0) return NULL;
  ahead->panel += ahead->asks;
  ahead->left -= ahead->asks;
  return panel;
}

/* One chunk as it runs: its maps, each from the first channel it reads or writes on, and its weights. */
typedef struct cv_conv2d_run {
  const cv_conv2d *c;
  const cv_conv2d_chunk *chunk;
  const cv_map *x_map, *y_map;
  const cv_epilogue *e;
  const cv_epilogue_split *split;
  const float *x, *residual; /* residual: or NULL */
  float *y;
  const float *panel, *bias; /* bias: or NULL, where tiles add to what y holds */
  float *sums;               /* where tiles store float32, as y is of bfloat16 and not finished; or NULL */
  int finish;                /* tiles are finished after they are stored */
} cv_conv2d_run;

/* What the tiles of a chunk share, but for where their pixels lie. */
CV_INLINE cv_conv2d_window cv_conv2d_open_window(const cv_conv2d_run *run, const cv_map *residual) {
  const cv_conv2d *c = run->c;
  const cv_conv2d_chunk *chunk = run->chunk;
  const cv_map *x = run->x_map, *y = run->y_map;
  const cv_requantize *requantize = run->split->requantize;
  return (cv_conv2d_window){
      .in_count = chunk->in_count,
      .begin = chunk->before,
      .end = (c->inner ? c->inner : CV_LANES) - chunk->behind,
      .kernel_h = c->kernel_h,
      .kernel_w = c->kernel_w,
      .x_plane = x->plane,
      .x_row = c->dilation_h * x->row,
      .x_tap = c->dilation_w * x->step,
      .start_plane = run->bias ? CV_LANES : y->plane,
      .start_step = run->bias ? 0 : y->step,
      .y_plane = y->plane,
      .y_step = run->sums ? CV_LANES : y->step,
      .residual_plane = residual ? residual->plane : 0,
      .residual_step = residual ? residual->step : 0,
      .y_bf16 = cv_is_bf16(y) && !run->sums,
      .residual_bf16 = cv_is_bf16(residual),
      .low = run->split->low,
      .high = run->split->high,
      .requantize = requantize,
      .scale = requantize ? requantize->scale + chunk->out_block * CV_LANES : NULL,
      .shift = requantize ? requantize->shift + chunk->out_block * CV_LANES : NULL,
      .group_in = c->group_in,
      .group_out = c->group_out,
      .first_in = chunk->in_begin * CV_LANES,
      .first_out = chunk->out_block * CV_LANES,
      .first_tells = cv_conv2d_mixes(c, chunk->out_block, y->channels),
      .at = &cv_conv2d_no_places,
  };
}

/* What depends on the tile's form: where its pixels lie, by those of its first row, with a bit for each
 * that is known; and the rows AMX tiles have. */
typedef struct cv_conv2d_formed {
  cv_conv2d_places places[CV_CONV2D_PLACES];
  int placed, amx_rows;
} cv_conv2d_formed;

/* Makes the window one of tiles like that at `at`, of so many pixels. */
CV_INLINE void cv_conv2d_form_window(cv_conv2d_window *window, const cv_conv2d_run *run, cv_conv2d_place at,
                                     int pixels, cv_conv2d_formed *formed) {
  const cv_conv2d *c = run->c;
  if (c->rows != 1) {
    const int rest = run->y_map->width - at.column, in_row = rest < c->pixels[0] ? rest : c->pixels[0];
    cv_conv2d_places *places = &formed->places[in_row];
    if (!(formed->placed >> in_row & 1))
      cv_conv2d_place_pixels(places, c, in_row, run->sums != NULL, run->x_map, run->y_map,
                             run->e->residual);
    formed->placed |= 1 << in_row;
    window->at = places;
  }
  if (run->sums) window->y_plane = (ptrdiff_t)pixels * CV_LANES;
  const int inner = c->inner ? c->inner : CV_LANES, rows = cv_conv2d_amx_rows(pixels);
  window->amx = cv_conv2d_fits_amx(inner, pixels, run->chunk->blocks) && cv_amx_allowed();
  if (window->amx && rows != formed->amx_rows) cv_amx_shape(formed->amx_rows = rows, inner);
}

/* Neighbouring tiles from those places on, which are computed at one call. */
CV_INLINE void cv_conv2d_run_pipelined(const cv_conv2d_run *run, const cv_conv2d_place *step,
                                       cv_conv2d_tile tile, cv_conv2d_window *window, const float *x,
                                       float *y, const float *residual, int count, cv_conv2d_ahead *ahead) {
  window->count = count;
  window->y_tile = step->y;
  window->residual_tile = step->residual;
  window->next_panel = ahead->panel;
  window->panel_end = ahead->left > 0 ? ahead->panel + ahead->left : ahead->panel;
  for (int i = 0; i < count; i++) cv_conv2d_ask(ahead);
  tile(window, x, run->panel, run->bias, y, residual);
}

/* `count` neighbouring tiles from `at` on, of so many pixels; after: the tile behind them. */
CV_INLINE void cv_conv2d_run_tiles(const cv_conv2d_run *run, const cv_conv2d_place *step,
                                   cv_conv2d_window *window, cv_conv2d_place at, int count, int pixels,
                                   cv_conv2d_place after, cv_conv2d_ahead *ahead,
                                   cv_conv2d_stored *stored) {
  const cv_conv2d_tile tile = run->c->tile[at.kind][run->chunk->blocks != run->c->blocks];
  const float *x = run->x + at.x, *residual = run->residual ? run->residual + at.residual : NULL;
  float *y = run->y + at.y;
  const float *start = run->bias ? run->bias : y;
  const ptrdiff_t start_step = run->bias ? 0 : step->y;
  window->next_x = step->x;
  if (run->c->pipelined) {
    cv_conv2d_run_pipelined(run, step, tile, window, x, y, residual, count, ahead);
    return;
  }
  for (int i = 0; i < count; i++) { /* short: a tile of few inputs does not hide it */
    float *next_y = y + step->y;
    const float *next_residual = residual ? residual + step->residual : NULL;
    window->next_y = next_y;
    window->next_residual = next_residual;
    if (i + 1 == count) {
      window->next_x = run->x + after.x - x;
      window->next_y = run->y + after.y;
      if (residual) window->next_residual = run->residual + after.residual;
    }
    window->next_panel = cv_conv2d_ask(ahead);
    tile(window, x, run->panel, start, run->sums ? run->sums : y, run->split->residual ? residual : NULL);
    if (run->finish) {
      if (!stored->pixels) {
        const int column = at.column + i * run->c->pixels[at.kind];
        *stored = (cv_conv2d_stored){y, run->sums, residual, column, 0};
      }
      stored->pixels += pixels;
      if (run->sums || stored->pixels * run->chunk->blocks >= CV_FINISHED_TOGETHER)
        cv_conv2d_finish(run->e, run->split, run->chunk, run->y_map, stored);
    }
    x += step->x;
    y = next_y;
    start += start_step;
    residual = next_residual;
  }
}

CV_SHARED void cv_conv2d_run_chunk(const cv_conv2d *c, const cv_conv2d_chunk *chunk, cv_range tiles,
                                   const cv_map *x, const float *w, const cv_map *y, const cv_epilogue *e,
                                   const cv_conv2d_chunk *next) {
  const float *bias = chunk->adds || c->adds ? NULL : e->bias + chunk->out_block * CV_LANES;
  const cv_epilogue bare = {.bias = NULL};
  if (chunk->partial) e = &bare;
  const cv_epilogue_split split = cv_split_epilogue(e);
  const int spare = (chunk->out_block + chunk->blocks) * CV_LANES > y->channels;
  const int finish = split.finish || (spare && cv_stores_floats(e));
  const int parts = split.requantize ? CV_DOT_PARTS : 1;
  const cv_map *residual = e->residual;
  float sums[CV_BFLOAT16_MAPS ? CV_CONV2D_MAX_ACCUMULATORS * CV_LANES : 1] __attribute__((aligned(64)));
  const cv_conv2d_run run = {
      .c = c,
      .chunk = chunk,
      .x_map = x,
      .y_map = y,
      .e = e,
      .split = &split,
      .x = x->data + chunk->in_begin * x->plane - c->pad_top * x->row - c->pad_left * x->step,
      .residual = residual ? residual->data + chunk->out_block * residual->plane : NULL,
      .y = y->data + chunk->out_block * y->plane,
      .panel = w + parts * chunk->weights,
      .bias = bias,
      .sums = CV_BFLOAT16_MAPS && finish && cv_is_bf16(y) ? sums : NULL,
      .finish = finish,
  };
  cv_conv2d_window window = cv_conv2d_open_window(&run, residual);
  cv_conv2d_ahead ahead = cv_conv2d_look_ahead(c, chunk, next, w, parts);
  const cv_conv2d_strides strides = cv_conv2d_stride(c, x, y, residual);
  cv_conv2d_place at = cv_conv2d_find(c, &strides, tiles.begin);
  const cv_conv2d_place then = cv_conv2d_enter(at, chunk, next ? next : chunk, x, y, residual);
  cv_conv2d_stored stored = {.pixels = 0};
  cv_conv2d_formed formed;
  formed.placed = formed.amx_rows = 0;
  for (int left = tiles.end - tiles.begin; left > 0;) {
    const int neighbours = cv_conv2d_neighbours(c, &strides, at);
    const int count = neighbours < left ? neighbours : left;
    left -= count;
    const cv_conv2d_place after = left ? cv_conv2d_behind(c, &strides, at, count) : then;
    const int pixels = (c->rows == 2 && !at.kind ? 2 : 1) * c->pixels[at.kind];
    cv_conv2d_form_window(&window, &run, at, pixels, &formed);
    cv_conv2d_run_tiles(&run, &strides.tile[at.kind], &window, at, count, pixels, after, &ahead, &stored);
    at = after;
  }
  if (stored.pixels) cv_conv2d_finish(e, &split, chunk, y, &stored);
  if (formed.amx_rows) cv_amx_release();
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
