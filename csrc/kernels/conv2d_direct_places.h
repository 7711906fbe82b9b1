/* What a direct convolution is (kernels/conv2d_direct.h), and where its tiles lie in its maps. */
#ifndef CONVOY_KERNELS_CONV2D_DIRECT_PLACES_H_
#define CONVOY_KERNELS_CONV2D_DIRECT_PLACES_H_

#include "kernels/conv2d_direct_form.h"
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
  int pipelined;           /* tiles that lie next to one another in a row are computed at one call */
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

#endif
