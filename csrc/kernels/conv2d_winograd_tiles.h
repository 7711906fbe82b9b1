/* The near end of a Winograd convolution: where its tiles are, and V = B^T x B of a portion of them.
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
 * x may be of bfloat16 where the form says so.  Where it says bytes, x is such, as cv_map_of_cells', and V
 * is of steps from x_zero.
 */
#ifndef CONVOY_KERNELS_CONV2D_WINOGRAD_TILES_H_
#define CONVOY_KERNELS_CONV2D_WINOGRAD_TILES_H_

#include "kernels/conv2d_winograd_integers.h"

/* Tiles that are asked for before they are transformed. */
enum { CV_WINOGRAD_AHEAD = 2 };

typedef struct cv_winograd {
  int pad_top, pad_left;
  int chunk_count, blocks, tail_blocks; /* output blocks of a chunk, and of the last one */
  int tile_rows, tile_columns;          /* of the output, of each of its phases */
  int portions;                         /* of tiles, of nearly equal size */
  int room;                             /* for tiles, of V and M: the largest portion's */
  int split_chunks;                     /* 1: threads share chunks, 0: threads share portions */
  int x_zero;                           /* of an x of bytes */
} cv_winograd;

CV_INLINE int cv_winograd_blocks(const cv_winograd *c, int chunk) {
  return chunk == c->chunk_count - 1 ? c->tail_blocks : c->blocks;
}

/* Panels of a chunk: [in block][3][3][cells][blocks][lanes], a cell is a lane or of bfloat16 or bytes two.
 */
CV_INLINE const float *cv_winograd_panel(const cv_winograd_form f, const cv_winograd *c, int in_blocks,
                                         const float *w, int chunk) {
  const ptrdiff_t vectors = (ptrdiff_t)in_blocks * cv_winograd_cells(f) * c->blocks * 9;
  return w + chunk * vectors * cv_winograd_weights(f);
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
    return cv_winograd_place_of(f, phase, rows, tile - phase * columns, f.height < f.out, 0);
  }
  return cv_winograd_place_of(f, tile - phases * columns, rows, columns, f.height < f.out, f.width < f.out);
}

/* Where those end that are of one form with a tile. */
CV_INLINE int cv_winograd_alike(const cv_winograd_form f, const cv_winograd *c, int tile) {
  const int phases = cv_winograd_phases(f), columns = cv_winograd_whole_columns(f, c);
  int end = f.width < f.out ? phases * cv_winograd_whole_rows(f, c) : 0;
  if (tile < end) return end;
  end += phases * cv_winograd_whole_rows(f, c) * columns;
  if (tile < end) return end;
  end += f.height < f.out ? phases * columns : 0;
  return tile < end ? end : cv_winograd_tile_count(f, c);
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

/* Blocks of V. */
CV_INLINE int cv_winograd_in_blocks(const cv_winograd_form f, int channels) {
  return f.exact ? (cv_blocks(channels) + 1) / 2 : cv_blocks(channels);
}

CV_INLINE void cv_winograd_input_any(const cv_winograd_form f, const cv_winograd *c, const float *x,
                                     ptrdiff_t second, ptrdiff_t row, float *v,
                                     const cv_winograd_layout *l) {
  if (f.exact) {
    cv_winograd_input_shorts(f, x, second, row, c->x_zero, v, l);
  } else if (f.bytes) {
    cv_winograd_input_bytes(f, x, row, c->x_zero, v, l);
  } else {
    cv_winograd_input(f, x, row, v, l);
  }
}

/* V of some tiles of a block, all low or none, all narrow or none. */
typedef void cv_winograd_input_function(const cv_winograd *c, const cv_map *x, cv_range portion, int block,
                                        cv_range tiles, float *v, const cv_winograd_layout *l);
CV_INLINE void cv_winograd_input_tiles(const cv_winograd_form f, const int low, const int narrow,
                                       const cv_winograd *c, const cv_map *x, cv_range portion, int block,
                                       cv_range tiles, float *v, const cv_winograd_layout *l) {
  const int out = f.out, each = f.exact ? 2 : 1, cells = cv_winograd_x_cells(f);
  /* Where there is no second block its weights are zeros. */
  const ptrdiff_t second = each * block + 1 < cv_blocks(x->channels) ? x->plane : 0;
  for (int i = tiles.begin; i < tiles.end; i++) {
    const cv_winograd_place at = cv_winograd_find(f, c, i);
    const float *from = x->data + each * block * x->plane + (at.row - c->pad_top) * x->row +
                        (at.column - c->pad_left) * cells;
    /* The short rows of a tile are too many streams for the hardware to guess. */
    for (int r = 0; r < out + 2; r++)
      for (int s = 0; s < out; s++)
        cv_prefetch(from + f.dilation_h * r * x->row +
                    f.dilation_w * (CV_WINOGRAD_AHEAD * out + 2 + s) * cells);
    cv_winograd_input_any(cv_winograd_tile_form(f, low, narrow), c, from, second, x->row,
                          v + cv_winograd_at_tile(l, block, i - portion.begin), l);
  }
}

/* V of a portion: the share of `t` in its blocks x tiles.  input: of tiles by [low][narrow]. */
CV_INLINE void cv_winograd_fill_v(const cv_winograd_form f, cv_winograd_input_function *const (*input)[2],
                                  cv_thread t, const cv_winograd *c, const cv_map *x, cv_range portion,
                                  float *v, const cv_winograd_layout *l) {
  const int tiles = portion.end - portion.begin, blocks = cv_winograd_in_blocks(f, x->channels);
  const cv_range share = cv_share(t, blocks * tiles);
  for (int i = share.begin; i < share.end;) {
    const int block = i / tiles, first = portion.begin + i % tiles;
    const int alike = cv_winograd_alike(f, c, first), left = share.end - i + first;
    cv_range some = {first, portion.end < left ? portion.end : left};
    if (alike < some.end) some.end = alike;
    const cv_winograd_place at = cv_winograd_find(f, c, first);
    input[at.low][at.narrow](c, x, portion, block, some, v, l);
    i += some.end - some.begin;
  }
}

#endif
