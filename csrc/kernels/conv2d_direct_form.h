/* What a tile of the direct convolution is, and what it is given (kernels/conv2d_direct_tile.h). */
#ifndef CONVOY_KERNELS_CONV2D_DIRECT_FORM_H_
#define CONVOY_KERNELS_CONV2D_DIRECT_FORM_H_

#include "kernels/requantize.h"

/* Whether the unit has tiles of bytes.  The compiler takes a sixth of a first tile's time for what only
 * these do, so a generated unit says that it has some; any other may have. */
#ifndef CV_CONV2D_BYTES
#if CV_LINKS_KERNELS
#define CV_CONV2D_BYTES 0
#else
#define CV_CONV2D_BYTES 1
#endif
#endif

/* Room for the places of a run's pixels, and for [PIXELS] of two rows. */
#define CV_CONV2D_PLACES 17

/* Cells from a tile's first pixel to each of a run's in each map; of two rows only [PIXELS] counts, where
 * the second begins; of one row none. */
typedef struct cv_conv2d_places {
  ptrdiff_t x[CV_CONV2D_PLACES], y[CV_CONV2D_PLACES], residual[CV_CONV2D_PLACES];
} cv_conv2d_places;

/* Those of a tile of one row, which looks at none, but without optimisation loads some. */
static const cv_conv2d_places cv_conv2d_no_places = {{0}, {0}, {0}};

/* What a tile needs beside the places it works on. */
typedef struct cv_conv2d_window {
  int in_count, kernel_h, kernel_w;
  int begin, end;                    /* of a ranged tile: cells it reads of its first and its last block */
  ptrdiff_t x_plane, x_row, x_tap;   /* cells to the next input block, kernel row, kernel column */
  ptrdiff_t start_plane, start_step; /* of the sums it starts from: the bias (start_step 0), or y */
  ptrdiff_t y_plane, y_step;
  ptrdiff_t residual_plane, residual_step;
  int y_bf16, residual_bf16;
  const cv_conv2d_places *at;
  float low, high;
  const cv_requantize *requantize; /* of sums of bytes; or NULL */
  const float *scale, *shift;      /* of the tile's first channel */
  /* Of a tile whose blocks hold several groups: channels of a group, and the first ones of the panel. */
  int group_in, group_out, first_in, first_out;
  int amx;         /* this thread's AMX tiles have cv_conv2d_amx_rows, of a pixel's cells */
  int first_tells; /* whether no channel of the panel belongs to all lanes of its first block */
  /* To ask for while it runs: */
  ptrdiff_t next_x;           /* the input of the next tile, cells from its own */
  const float *next_y;        /* where the next tile stores */
  const float *next_residual; /* what the next tile adds, or NULL */
  const float *next_panel;    /* weights, or NULL */
  /* Of pipelined tiles (kernels/conv2d_direct_pipelined.h): how many are computed, cells to the next one,
   * and where the weights to ask for end. */
  int count;
  ptrdiff_t y_tile, residual_tile;
  const float *panel_end;
} cv_conv2d_window;

/* x: the input under the tile's first pixel and the kernel's first tap; w: the panel; start: the sums it
 * starts from; y: first pixel, first block; residual: the same place, or NULL. */
typedef void (*cv_conv2d_tile)(const cv_conv2d_window *g, const float *x, const float *w,
                               const float *start, float *y, const float *residual);

#define CV_CONV2D_MAX_BLOCKS 8
#define CV_CONV2D_MAX_ACCUMULATORS 32

/* Cells of a cache line. */
#define CV_CONV2D_LINE 16

/* Tiles that ask with each channel ask for weights this many cells before they use them: they come from
 * L2, once from L3.  The others use them more slowly, and the hardware keeps up. */
#define CV_CONV2D_WEIGHTS_AHEAD 512

/* A tile, as the compiler knows it; see CV_CONV2D_TILE. */
typedef struct cv_conv2d_form {
  cv_cell cell;
  int planar, rows, width, blocks, inner, step, kernel_h, kernel_w;
  int in_count; /* of a planar x, or 0 for any */
  int ranged;   /* its first and its last input block may be read in part */
} cv_conv2d_form;

CV_INLINE int cv_conv2d_pixels(const cv_conv2d_form f) { return f.rows == 2 ? 2 * f.width : f.width; }

/* Parts that a cell is multiplied in, and weights for all of them. */
CV_INLINE int cv_conv2d_cell_parts(const cv_conv2d_form f) { return f.cell == CV_BYTES ? CV_DOT_PARTS : 1; }
CV_INLINE int cv_conv2d_cell_weights(const cv_conv2d_form f) {
  return cv_conv2d_cell_parts(f) * f.blocks * CV_LANES;
}

/* The cells that a tile reads of input block `i`. */
CV_INLINE cv_range cv_conv2d_cells(const cv_conv2d_form f, const cv_conv2d_window *g, int i) {
  return (cv_range){f.ranged && i == 0 ? g->begin : 0, f.ranged && i + 1 == g->in_count ? g->end : f.inner};
}

/* Cells from a tile's first pixel to number p; at: see cv_conv2d_window. */
CV_INLINE ptrdiff_t cv_conv2d_pixel(const cv_conv2d_form f, const ptrdiff_t *at, int p, ptrdiff_t step) {
  if (f.rows == 0) return p ? at[p] : 0;
  return p < f.width ? p * step : at[f.width] + (p - f.width) * step;
}

#endif
