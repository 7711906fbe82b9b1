/* The far end of a Winograd convolution: y = epilogue(A^T M A) of a portion of tiles, and its pool.
 *
 * What comes out not finite is computed again, from x and w: a tile mixes (out + 2)^2 inputs, so that an
 * infinity or NaN among them reaches all its outputs, not only the nine that see it; and its sums may
 * overflow where a direct convolution's do not.  Where a pool follows whose 2x2 windows do not overlap, its
 * windows come from the tile just stored, still in L1: whole in a tile, or clipped where y ends.
 *
 * y: blocked, written whole with its halo; with a pool its data may be NULL: then only the pool's map is
 *    written.
 * w: as a direct convolution's.
 * y, the residual and the pool's map may be of bfloat16.  Where the form says bytes, x and y are such, as
 * cv_map_of_cells', and the epilogue has what requantises; the halo of y is the caller's, and no pool
 * follows.
 */
#ifndef CONVOY_KERNELS_CONV2D_WINOGRAD_OUTPUTS_H_
#define CONVOY_KERNELS_CONV2D_WINOGRAD_OUTPUTS_H_

#include "kernels/conv2d_winograd_tiles.h"
#include "kernels/epilogue.h"
#include "kernels/pool.h"

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
  int bytes;  /* x and y are */
} cv_winograd_store;

/* A pixel of x in a block. */
CV_INLINE cv_vec cv_winograd_pixel(const cv_winograd_store *g, const float *p) {
  if (!g->bytes) return cv_load_lanes(cv_is_bf16(g->x), p);
  return cv_from_int(cv_int_sub(cv_load_bytes((const uint8_t *)p), cv_int_set1(g->conv->x_zero)));
}

/* A row of a tile's outputs, as the definition of convolution has them.
 * Each input block is summed up by itself: one sum of all would have more error than Winograd's. */
static __attribute__((noinline)) void cv_winograd_direct_row(int out, const cv_winograd_store *g, int block,
                                                             int y_row, int y_column, cv_vec *sums) {
  const cv_winograd *c = g->conv;
  const cv_map *x = g->x;
  const int in_blocks = cv_blocks(x->channels), chunk = block / c->blocks;
  const ptrdiff_t vector = (ptrdiff_t)cv_winograd_blocks(c, chunk) * CV_LANES;
  const int cells = g->bytes ? CV_LANES / CV_BYTES : cv_pixel_cells(cv_is_bf16(x));
  const float *corner = x->data + (y_row - c->pad_top) * x->row + (y_column - c->pad_left) * cells;
  for (int s = 0; s < out; s += 2) {
    const cv_winograd_form form = {.rounds = g->rounds};
    const float *w = cv_winograd_panel(form, c, in_blocks, g->w, chunk) + block % c->blocks * CV_LANES;
    cv_vec total[2] = {cv_zero(), cv_zero()};
    const int next = s + 1 < out ? g->dilation_w * cells : 0;
    for (int i = 0; i < in_blocks; i++) {
      cv_vec sum[2] = {cv_zero(), cv_zero()};
      for (int tap = 0; tap < 9; tap++) {
        const float *from = corner + i * x->plane + tap / 3 * g->dilation_h * x->row +
                            (s + tap % 3) * g->dilation_w * cells;
        float pixel[2][CV_LANES];
        cv_storeu(pixel[0], cv_winograd_pixel(g, from));
        cv_storeu(pixel[1], cv_winograd_pixel(g, from + next));
        for (int lane = 0; lane < CV_LANES; lane++) {
          cv_vec weight = cv_load(w);
          if (g->rounds) weight = lane % 2 ? cv_high_bf16(weight) : cv_low_bf16(weight);
          sum[0] = cv_fma(cv_load1(pixel[0] + lane), weight, sum[0]);
          sum[1] = cv_fma(cv_load1(pixel[1] + lane), weight, sum[1]);
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

/* The even or the odd rows of the outputs of one tile, before the epilogue. */
CV_INLINE void cv_winograd_sums(const cv_winograd_form f, const int odd, const cv_winograd_store *g,
                                const float *m, const cv_winograd_layout *l, int block, int y_row,
                                int y_column, cv_vec o[][CV_WINOGRAD_MAX_OUT]) {
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
    cv_winograd_sums(f, odd, g, m, l, block, y_row, y_column, o);
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

/* What is added to plain sums as they are scaled. */
CV_INLINE cv_vec cv_winograd_shift(const cv_requantize *r, int block, const cv_map *residual) {
  const cv_vec shift = cv_load(r->shift + block * CV_LANES);
  return residual && r->plain && !r->held ? cv_add(shift, cv_set1(r->residual_shift)) : shift;
}

/* A row of a tile from sums to bytes, `columns` of which exist; added: the residual there, or NULL. */
CV_INLINE void cv_winograd_store_bytes(const cv_winograd_form f, const cv_requantize *r, const cv_vec *sums,
                                       cv_vec scale, cv_vec shift, float *y, const float *added,
                                       int columns) {
  const ptrdiff_t next = f.dilation_w * (CV_LANES / CV_BYTES);
  const ptrdiff_t added_next = r->residual_scale != 0.0f ? next : next * CV_BYTES;
  cv_vec v[CV_WINOGRAD_MAX_OUT];
  CV_UNROLL
  for (int s = 0; s < f.width; s++) v[s] = cv_fma(sums[s], scale, shift);
  if (!r->plain) {
    ptrdiff_t at[CV_WINOGRAD_MAX_OUT], added_at[CV_WINOGRAD_MAX_OUT];
    for (int s = 0; s < f.width; s++) {
      at[s] = s * next;
      added_at[s] = s * added_next;
    }
    cv_requantize_any(r, v, columns, y, at, added, added_at);
    return;
  }
  if (r->held) {
    CV_UNROLL
    for (int s = 0; s < f.width; s++) {
      v[s] = cv_round(cv_min(cv_set1(r->held_high), cv_max(cv_set1(r->held_low), v[s])));
      v[s] = cv_fma(v[s], cv_set1(r->held_unit), cv_set1(r->residual_shift));
    }
  }
  if (added) {
    CV_UNROLL
    for (int s = 0; s < f.width; s++) {
      if (s >= columns) break;
      const cv_vec bytes = cv_from_int(cv_load_bytes((const uint8_t *)(added + s * next)));
      v[s] = cv_fma(bytes, cv_set1(r->residual_scale), v[s]);
    }
  }
  if (f.width == 4 && f.dilation_w == 1 && columns == 4) {
    const cv_requantizer q = cv_requantizer_of(r);
    CV_UNROLL
    for (int s = 0; s < 4; s++) v[s] = cv_max(v[s], cv_set1(r->low)); /* a NaN is low */
    cv_store_quad((uint8_t *)y, cv_requantize_quad(&q, v), 4);
  } else {
    const cv_vec low = cv_set1(r->low), high = cv_set1(r->high);
    const cv_int zero = cv_int_set1(r->zero);
    CV_UNROLL
    for (int s = 0; s < f.width; s++)
      if (s < columns)
        cv_store_bytes((uint8_t *)(y + s * next), cv_requantize_round(v[s], low, high, zero));
  }
}

/* One tile of one block from M to y, of bytes. */
CV_INLINE void cv_winograd_output_bytes(const cv_winograd_form f, const cv_winograd_store *g,
                                        const float *m, const cv_winograd_layout *l, int block, int y_row,
                                        int y_column) {
  const cv_map *y = g->y, *rest = g->e->residual;
  const int rows = cv_winograd_inside(y->height - y_row, f.dilation_h, f.height);
  const int columns = cv_winograd_inside(y->width - y_column, f.dilation_w, f.width);
  if (cv_winograd_phases(f) > 1 && (rows <= 0 || columns <= 0)) return; /* another phase has this tile */
  const cv_requantize r = *g->e->requantize; /* bytes that are stored might else change it */
  const cv_vec unit = cv_set1(f.exact ? 1.0f / CV_WINOGRAD_TIMES : 1.0f);
  const cv_vec scale = cv_mul(cv_load(r.scale + block * CV_LANES), unit);
  const cv_vec shift = cv_winograd_shift(&r, block, rest);
  float *y_tile = y->data + block * y->plane + y_row * y->row + y_column * (CV_LANES / CV_BYTES);
  const float *added = NULL;
  const ptrdiff_t y_next = f.dilation_h * y->row, added_next = rest ? f.dilation_h * rest->row : 0;
  if (rest) added = rest->data + block * rest->plane + y_row * rest->row + y_column * rest->step;
  for (int i = 0; i < f.height; i++) cv_prefetch_store(y_tile + i * y_next + f.out * CV_LANES / CV_BYTES);
  if (f.exact) {
    cv_int w[CV_WINOGRAD_MAX_OUT][CV_WINOGRAD_MAX_IN];
    cv_winograd_output_columns(f, m, l, w);
    CV_UNROLL
    for (int i = 0; i < f.height; i++) {
      cv_vec o[CV_WINOGRAD_MAX_OUT];
      cv_winograd_output_row(f, i, w[i], o);
      if (i < rows)
        cv_winograd_store_bytes(f, &r, o, scale, shift, y_tile + i * y_next,
                                added ? added + i * added_next : NULL, columns);
    }
    return;
  }
  CV_UNROLL
  for (int odd = 0; odd < 2; odd++) {
    cv_vec o[CV_WINOGRAD_MAX_OUT / 2][CV_WINOGRAD_MAX_OUT];
    cv_winograd_sums(f, odd, g, m, l, block, y_row, y_column, o);
    CV_UNROLL
    for (int i = odd; i < f.height; i += 2) {
      if (i < rows)
        cv_winograd_store_bytes(f, &r, o[i / 2], scale, shift, y_tile + i * y_next,
                                added ? added + i * added_next : NULL, columns);
    }
  }
}

CV_INLINE void cv_winograd_output_any(const cv_winograd_form f, const int pooled,
                                      const cv_winograd_store *g, const float *m,
                                      const cv_winograd_layout *l, int block, int y_row, int y_column) {
  if (f.bytes) {
    cv_winograd_output_bytes(f, g, m, l, block, y_row, y_column);
  } else {
    cv_winograd_output(f, pooled, g, m, l, block, y_row, y_column);
  }
}

/* Some tiles of a block, number b of its chunk, from M to y and its pool; all are low or none, all narrow
 * or none. */
typedef void cv_winograd_output_function(const cv_winograd *c, int chunk, int b, cv_range portion,
                                         cv_range tiles, const float *m, const cv_winograd_layout *l,
                                         const cv_winograd_store *g);
CV_INLINE void cv_winograd_output_tiles(const cv_winograd_form f, const int low, const int narrow,
                                        const int pooled, const cv_winograd *c, int chunk, int b,
                                        cv_range portion, cv_range tiles, const float *m,
                                        const cv_winograd_layout *l, const cv_winograd_store *g) {
  for (int i = tiles.begin; i < tiles.end; i++) {
    const cv_winograd_place at = cv_winograd_find(f, c, i);
    const float *from = m + cv_winograd_at_tile(l, b, i - portion.begin);
    cv_winograd_output_any(cv_winograd_tile_form(f, low, narrow), pooled, g, from, l, chunk * c->blocks + b,
                           at.row, at.column);
  }
}

/* The outputs of a chunk of blocks and a portion.  output: of tiles by [low][narrow]. */
CV_INLINE void cv_winograd_invert(const cv_winograd_form f, cv_winograd_output_function *const (*output)[2],
                                  const cv_winograd *c, int chunk, cv_range portion, const float *m,
                                  const cv_winograd_layout *l, const cv_winograd_store *g) {
  for (int b = 0; b < cv_winograd_blocks(c, chunk); b++) {
    for (int i = portion.begin; i < portion.end;) {
      const int alike = cv_winograd_alike(f, c, i);
      const cv_range some = {i, alike < portion.end ? alike : portion.end};
      const cv_winograd_place at = cv_winograd_find(f, c, i);
      output[at.low][at.narrow](c, chunk, b, portion, some, m, l, g);
      i = some.end;
    }
  }
}

/* ---- The tiles of a form ---- */

/* What transforms its tiles, by [low][narrow].  These are functions of their own: all in one took GCC twice
 * as long (docs/toolchain.md). */
typedef struct cv_winograd_ends {
  cv_winograd_input_function *input[2][2];
  cv_winograd_output_function *output[2][2];
} cv_winograd_ends;

/* Defines name_ends, of the form that the numbers are. */
#define CV_WINOGRAD_ENDS(name, POOLED, OUT, HEIGHT, WIDTH, ...)                 \
  CV_WINOGRAD_END(name##_whole, 0, 0, POOLED, OUT, HEIGHT, WIDTH, __VA_ARGS__)  \
  CV_WINOGRAD_END(name##_narrow, 0, 1, POOLED, OUT, HEIGHT, WIDTH, __VA_ARGS__) \
  CV_WINOGRAD_END(name##_low, 1, 0, POOLED, OUT, HEIGHT, WIDTH, __VA_ARGS__)    \
  CV_WINOGRAD_END(name##_corner, 1, 1, POOLED, OUT, HEIGHT, WIDTH, __VA_ARGS__) \
  static const cv_winograd_ends name##_ends = {                                 \
      CV_WINOGRAD_BY_TILE(name, input, (HEIGHT) < (OUT), (WIDTH) < (OUT)),      \
      CV_WINOGRAD_BY_TILE(name, output, (HEIGHT) < (OUT), (WIDTH) < (OUT)),     \
  };

#define CV_WINOGRAD_END(name, low, narrow, POOLED, ...)                                                   \
  static __attribute__((noinline, unused)) void name##_input(const cv_winograd *c, const cv_map *x,       \
                                                             cv_range portion, int block, cv_range tiles, \
                                                             float *v, const cv_winograd_layout *l) {     \
    const cv_winograd_form form = {__VA_ARGS__};                                                          \
    cv_winograd_input_tiles(form, low, narrow, c, x, portion, block, tiles, v, l);                        \
  }                                                                                                       \
  static __attribute__((noinline, unused)) void name##_output(                                            \
      const cv_winograd *c, int chunk, int b, cv_range portion, cv_range tiles, const float *m,           \
      const cv_winograd_layout *l, const cv_winograd_store *g) {                                          \
    const cv_winograd_form form = {__VA_ARGS__};                                                          \
    cv_winograd_output_tiles(form, low, narrow, POOLED, c, chunk, b, portion, tiles, m, l, g);            \
  }

/* Where no tiles are low or narrow, what they would take is not even compiled. */
#define CV_WINOGRAD_BY_TILE(name, end, has_low, has_narrow)                                       \
  {                                                                                               \
    {name##_whole_##end, (has_narrow) ? name##_narrow_##end : NULL}, {                            \
      (has_low) ? name##_low_##end : NULL, (has_low) && (has_narrow) ? name##_corner_##end : NULL \
    }                                                                                             \
  }

#endif
