/* The register tile of the direct convolution (kernels/conv2d_direct.h).
 *
 *   y[o, p] = clamp(start[o, p] + sum over i, r, s of w[o, i, r, s] * x[i, where tap r, s of p lies]
 *                   + residual[o, p])
 *
 * PIXELS pixels of one row, or of each of two, or of a run, x BLOCKS blocks of CV_LANES output channels,
 * held in registers over all input channels and taps: PIXELS + BLOCKS loads feed PIXELS * BLOCKS
 * multiply-adds.  A run goes on in the next row where its row ends, so that tiles are as large in a map of
 * short rows as in one of long rows; where each of its pixels lies takes a register.
 *
 * What a tile broadcasts is a cell of 32 bits: a float, two bfloat16 or four bytes, which are as many
 * channels of a pixel (graph/dtypes.py). A lane of weights is as many.  Of bytes sums are int32, and what
 * is stored is bytes again or floats (kernels/requantize.h).  Every pointer and distance is one of cells.
 * Without an instruction for products of bytes a cell has CV_DOT_PARTS parts of 16 bits, and weights are as
 * wide: twice as many vectors.
 *
 * x: blocked (INNER = cells of a block's pixel, CV_LANES of floats) or planar (INNER = 1).
 * w: a panel, [in_count][kernel_h][kernel_w][INNER][parts][BLOCKS][CV_LANES], 64-byte aligned.
 * start: the bias, or sums that lie in y; y, residual: blocked, in place of floats also of bfloat16.
 */
#ifndef CONVOY_KERNELS_CONV2D_DIRECT_TILE_H_
#define CONVOY_KERNELS_CONV2D_DIRECT_TILE_H_

#include <math.h>

#include "kernels/conv2d_direct_amx.h"
#include "kernels/conv2d_direct_groups.h"
#include "kernels/conv2d_direct_taps.h"

/* Between the last multiply-adds of one tile and the first of the next nothing is done that most tiles do
 * without, neither loads nor bounds nor address arithmetic: of few inputs it takes a good part of the time.
 * by_groups: the tile to hand over to, or NULL where no block holds several groups. */
CV_INLINE void cv_conv2d_tile_body(const cv_conv2d_form f, const cv_conv2d_tile by_groups,
                                   const cv_conv2d_window *g, const float *x, const float *w,
                                   const float *start, float *y, const float *residual) {
  const int blocks = f.blocks;
  cv_vec sum[CV_CONV2D_MAX_ACCUMULATORS];
  if (g->start_step == 0) {
    cv_conv2d_load_sums(f, sum, start, g->start_plane, NULL, 0);
  } else {
    cv_conv2d_load_sums(f, sum, start, g->start_plane, g->at->y, g->start_step);
  }
  if (!f.ranged && cv_conv2d_fits_amx(f.inner, cv_conv2d_pixels(f), blocks) && g->amx) {
    cv_conv2d_add_amx(f, g, sum, x, w);
    cv_conv2d_end(f, g, sum, y, residual);
    return;
  }
  const ptrdiff_t to_next_tile = g->next_x - (g->in_count - 1) * g->x_plane;
  ptrdiff_t at[CV_CONV2D_PLACES];
  CV_UNROLL
  for (int p = 0; p < CV_CONV2D_PLACES; p++) at[p] = g->at->x[p];
  const float *panel = g->next_panel || CV_ASKS_EACH_CHANNEL ? g->next_panel : w;
  if (f.in_count && cv_conv2d_shares_pixels(f)) {
    const int rows = f.in_count * f.kernel_h, row_weights = f.kernel_w * blocks * CV_LANES;
    const int relu = f.cell == CV_FLOATS && !residual && g->low > -INFINITY && g->high == INFINITY &&
                     g->y_step == CV_LANES;
    CV_UNROLL
    for (int k = 0; k < rows - 1; k++, w += row_weights) {
      const int lines = (f.width + 1) / 2, half = k / 2;
      if (k % 2 && half < 2 * blocks) { /* of a block that the next tile stores: in a network it is cold */
        const float *ahead = g->next_y + half / 2 * g->y_plane + half % 2 * lines * CV_LANES / f.cell;
        CV_UNROLL
        for (int p = 0; p < lines; p += f.cell) cv_prefetch_store(ahead + p * CV_LANES / f.cell);
      }
      const float *x_row = x + k / f.kernel_h * g->x_plane + k % f.kernel_h * g->x_row;
      __asm__("" : "+r"(x_row)); /* or the compiler looks for pixels it has loaded before */
      cv_conv2d_row(f, sum, x_row, w, NULL, 0, 0.0f);
    }
    x += (f.in_count - 1) * g->x_plane + (f.kernel_h - 1) * g->x_row;
    if (relu) {
      cv_conv2d_row(f, sum, x, w, y, g->y_plane, g->low);
      return;
    }
    cv_conv2d_row(f, sum, x, w, NULL, 0, 0.0f);
    cv_conv2d_end(f, g, sum, y, residual);
    return;
  }
  const int kernel_h = f.kernel_h ? f.kernel_h : g->kernel_h;
  for (int i = 0; i < g->in_count; i++, x += g->x_plane) {
    const ptrdiff_t next = i + 1 < g->in_count ? g->x_plane : to_next_tile;
    const cv_range cells = cv_conv2d_cells(f, g, i);
    const ptrdiff_t tap_weights = (cells.end - cells.begin) * (ptrdiff_t)cv_conv2d_cell_weights(f);
    const float *x_row = x;
    for (int r = 0; r < kernel_h; r++, x_row += g->x_row) {
      const float *x_tap = x_row;
      const int part = i * kernel_h + r;
      if (!f.planar && part < cv_conv2d_ask_parts(f) * blocks) cv_conv2d_ask_output(f, g, part);
      if (cv_conv2d_shares_pixels(f)) {
        cv_conv2d_row(f, sum, x_row, w, NULL, 0, 0.0f);
        w += f.kernel_w * tap_weights;
      } else if (f.kernel_w) {
        CV_UNROLL
        for (int s = 0; s < f.kernel_w; s++, x_tap += g->x_tap, w += tap_weights)
          panel = cv_conv2d_tap(f, sum, x_tap, at, w, next, panel, cells);
      } else {
        for (int s = 0; s < g->kernel_w; s++, x_tap += g->x_tap, w += tap_weights)
          panel = cv_conv2d_tap(f, sum, x_tap, at, w, next, panel, cells);
      }
    }
  }
  if (by_groups && cv_conv2d_looks_mixed(f, sum, g->first_tells)) {
    /* Where it began: what the loop has to remember costs a small tile more than what is computed here. */
    const ptrdiff_t taps = (ptrdiff_t)kernel_h * (f.kernel_w ? f.kernel_w : g->kernel_w);
    const ptrdiff_t cells = (g->in_count - 1) * f.inner - g->begin + g->end;
    by_groups(g, x - g->in_count * g->x_plane, w - cells * taps * cv_conv2d_cell_weights(f), start, y,
              residual);
    return;
  }
  cv_conv2d_end(f, g, sum, y, residual);
}

#define CV_CONV2D_DEFINE_TILE(name, BY_GROUPS, CELL, PLANAR, ROWS, PIXELS, BLOCKS, ...)                 \
  _Static_assert(((ROWS) == 2 ? 2 : 1) * (PIXELS) * (BLOCKS) <= CV_CONV2D_MAX_ACCUMULATORS &&           \
                     (BLOCKS) <= CV_CONV2D_MAX_BLOCKS,                                                  \
                 "the tile has more accumulators than there are registers");                            \
  _Static_assert((ROWS) == 1 || (PIXELS) < CV_CONV2D_PLACES, "the tile has too many pixels");           \
  _Static_assert((CELL) != CV_BYTES || CV_CONV2D_BYTES, "the unit does not say that it has bytes");     \
  static __attribute__((noinline)) void name(const cv_conv2d_window *g, const float *x, const float *w, \
                                             const float *start, float *y, const float *residual) {     \
    const cv_conv2d_form form = {CELL, PLANAR, ROWS, PIXELS, BLOCKS, __VA_ARGS__};                      \
    cv_conv2d_tile_body(form, BY_GROUPS, g, x, w, start, y, residual);                                  \
  }

/* Defines the tile `name`: ROWS x PIXELS x BLOCKS (ROWS 0: a run); INNER = CV_LANES (blocked x) or 1
 * (planar x); STEP = floats between the inputs of neighbouring pixels, stride_w * INNER; KERNEL_H and
 * KERNEL_W: the kernel's rows and columns, or 0 for any.  Known ones cost no loop, which would take
 * long beside the few multiply-adds of a 1x1 kernel's tap or of a planar x's column.  The known columns of
 * a planar x stand next to one another: no dilation. */
#define CV_CONV2D_TILE(name, ROWS, PIXELS, BLOCKS, INNER, STEP, KERNEL_H, KERNEL_W)                       \
  CV_CONV2D_DEFINE_TILE(name, NULL, CV_FLOATS, (INNER) == 1, ROWS, PIXELS, BLOCKS, INNER, STEP, KERNEL_H, \
                        KERNEL_W, 0, 0)

/* The same of a blocked x whose first and last block may be read in part, as groups end there. */
#define CV_CONV2D_RANGED_TILE(name, ROWS, PIXELS, BLOCKS, STRIDE, KERNEL_H, KERNEL_W) \
  CV_CONV2D_PARTLY_READ(name, NULL, CV_FLOATS, ROWS, PIXELS, BLOCKS, STRIDE, KERNEL_H, KERNEL_W)
#define CV_CONV2D_BF16_RANGED_TILE(name, ROWS, PIXELS, BLOCKS, STRIDE, KERNEL_H, KERNEL_W) \
  CV_CONV2D_PARTLY_READ(name, NULL, CV_BFLOATS, ROWS, PIXELS, BLOCKS, STRIDE, KERNEL_H, KERNEL_W)

/* The same where a block of results has channels of several groups. */
#define CV_CONV2D_GROUPED_TILE(name, ...) CV_CONV2D_OF_GROUPS(name, CV_FLOATS, __VA_ARGS__)
#define CV_CONV2D_BF16_GROUPED_TILE(name, ...) CV_CONV2D_OF_GROUPS(name, CV_BFLOATS, __VA_ARGS__)

#define CV_CONV2D_PARTLY_READ(name, BY_GROUPS, CELL, ROWS, PIXELS, BLOCKS, STRIDE, KERNEL_H, KERNEL_W) \
  CV_CONV2D_DEFINE_TILE(name, BY_GROUPS, CELL, 0, ROWS, PIXELS, BLOCKS, CV_LANES / (CELL),             \
                        (STRIDE) * CV_LANES / (CELL), KERNEL_H, KERNEL_W, 0, 1)
#define CV_CONV2D_OF_GROUPS(name, CELL, ROWS, PIXELS, BLOCKS, STRIDE, KERNEL_H, KERNEL_W)                 \
  static __attribute__((noinline, cold)) void name##_by_groups(const cv_conv2d_window *g, const float *x, \
                                                               const float *w, const float *start,        \
                                                               float *y, const float *residual) {         \
    const cv_conv2d_form form = {                                                                         \
        CELL,     0,        ROWS, PIXELS, BLOCKS, CV_LANES / (CELL), (STRIDE) * CV_LANES / (CELL),        \
        KERNEL_H, KERNEL_W, 0,    1};                                                                     \
    cv_conv2d_sum_groups(form, g, x, w, start, y, residual);                                              \
  }                                                                                                       \
  CV_CONV2D_PARTLY_READ(name, name##_by_groups, CELL, ROWS, PIXELS, BLOCKS, STRIDE, KERNEL_H, KERNEL_W)

/* The same of a planar x with IN channels: no loops at all, for few taps. */
#define CV_CONV2D_PLANAR_TILE(name, PIXELS, BLOCKS, STEP, KERNEL_H, KERNEL_W, IN) \
  CV_CONV2D_DEFINE_TILE(name, NULL, CV_FLOATS, 1, 1, PIXELS, BLOCKS, 1, STEP, KERNEL_H, KERNEL_W, IN, 0)

/* The same of a blocked x of bfloat16, CV_LANES / 2 cells a pixel. */
#define CV_CONV2D_BF16_TILE(name, ROWS, PIXELS, BLOCKS, STRIDE, KERNEL_H, KERNEL_W)             \
  CV_CONV2D_DEFINE_TILE(name, NULL, CV_BFLOATS, 0, ROWS, PIXELS, BLOCKS, CV_LANES / CV_BFLOATS, \
                        (STRIDE) * CV_LANES / CV_BFLOATS, KERNEL_H, KERNEL_W, 0, 0)

/* The same of int16, two channels a cell, CV_LANES cells a pixel: sums of int32, which are stored. */
#define CV_CONV2D_SHORTS_TILE(name, ROWS, PIXELS, BLOCKS, STEP, KERNEL_H, KERNEL_W)               \
  CV_CONV2D_DEFINE_TILE(name, NULL, CV_SHORTS, 0, ROWS, PIXELS, BLOCKS, CV_LANES, STEP, KERNEL_H, \
                        KERNEL_W, 0, 0)

/* The same of bytes: a blocked x of CV_LANES / 4 cells a pixel, or a planar one of cells, whose pixels are
 * four channels each. */
#define CV_CONV2D_BYTES_TILE(name, ROWS, PIXELS, BLOCKS, STRIDE, KERNEL_H, KERNEL_W)        \
  CV_CONV2D_DEFINE_TILE(name, NULL, CV_BYTES, 0, ROWS, PIXELS, BLOCKS, CV_LANES / CV_BYTES, \
                        (STRIDE) * CV_LANES / CV_BYTES, KERNEL_H, KERNEL_W, 0, 0)
#define CV_CONV2D_PLANAR_BYTES_TILE(name, PIXELS, BLOCKS, STRIDE, KERNEL_H, KERNEL_W, IN) \
  CV_CONV2D_DEFINE_TILE(name, NULL, CV_BYTES, 1, 1, PIXELS, BLOCKS, 1, STRIDE, KERNEL_H, KERNEL_W, IN, 0)

#endif
