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
#include <string.h>

#include "kernels/requantize.h"
#include "simd/amx.h"

/* Room for the places of a run's pixels, and for [PIXELS] of two rows. */
#define CV_CONV2D_PLACES 17

/* What a tile needs beside the places it works on. */
typedef struct cv_conv2d_window {
  int in_count, kernel_h, kernel_w;
  ptrdiff_t x_plane, x_row, x_tap;   /* cells to the next input block, kernel row, kernel column */
  ptrdiff_t start_plane, start_step; /* of the sums it starts from: the bias (start_step 0), or y */
  ptrdiff_t y_plane, y_step;
  ptrdiff_t residual_plane, residual_step;
  int y_bf16, residual_bf16;
  /* Cells from the tile's first pixel to each of a run's; of two rows only [PIXELS] counts, where the
   * second begins; of one row none. */
  ptrdiff_t x_at[CV_CONV2D_PLACES], y_at[CV_CONV2D_PLACES], residual_at[CV_CONV2D_PLACES];
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
} cv_conv2d_form;

CV_INLINE int cv_conv2d_pixels(const cv_conv2d_form f) { return f.rows == 2 ? 2 * f.width : f.width; }

/* Parts that a cell is multiplied in, and weights for all of them. */
CV_INLINE int cv_conv2d_cell_parts(const cv_conv2d_form f) { return f.cell == CV_BYTES ? CV_DOT_PARTS : 1; }
CV_INLINE int cv_conv2d_cell_weights(const cv_conv2d_form f) {
  return cv_conv2d_cell_parts(f) * f.blocks * CV_LANES;
}

/* Cells from a tile's first pixel to number p; at: see cv_conv2d_window. */
CV_INLINE ptrdiff_t cv_conv2d_pixel(const cv_conv2d_form f, const ptrdiff_t *at, int p, ptrdiff_t step) {
  if (f.rows == 0) return p ? at[p] : 0;
  return p < f.width ? p * step : at[f.width] + (p - f.width) * step;
}

/* sum + pixel * weight, of one cell; of bytes the sums are int32. */
CV_INLINE cv_vec cv_conv2d_multiply(const cv_conv2d_form f, cv_vec pixel, cv_vec weight, cv_vec sum) {
  if (f.cell == CV_BFLOATS) return cv_dot_bf16(pixel, weight, sum);
  if (f.cell == CV_BYTES) return cv_as_float(cv_dot(cv_as_int(sum), cv_as_int(pixel), cv_as_int(weight)));
  return f.planar ? cv_fma(pixel, weight, sum) : cv_fma_sum(pixel, weight, sum); /* it is slower there */
}

/* What a tile asks for ahead of time: the same pixels of the next input block, a plane away where no
 * hardware prefetcher looks; and, into L2, the next panel's weights, a line every few channels.  From
 * memory they come so slowly that they have to come all the time: asked for in bursts, or only when they
 * are used, half of the waiting is left.
 * Where vectors are wide every channel asks for a line of pixels (CV_ASKS_EACH_CHANNEL); else, where more
 * would take issue slots, the first channels for the tile's lines and no others. */

/* Adds one cell of one tap in parts.  Weights stay in memory, operands of their products: the registers
 * have room for the sums and a pixel's parts. */
CV_INLINE void cv_conv2d_channel_in_parts(const cv_conv2d_form f, cv_vec *sum, const float *x,
                                          const ptrdiff_t *at, const float *w) {
  CV_UNROLL
  for (int p = 0; p < cv_conv2d_pixels(f); p++) {
    CV_UNROLL
    for (int part = 0; part < CV_DOT_PARTS; part++) {
      const cv_int bytes = cv_dot_cell(x + cv_conv2d_pixel(f, at, p, f.step), part);
      CV_UNROLL
      for (int b = 0; b < f.blocks; b++) {
        cv_vec *s = &sum[p * f.blocks + b];
        *s = cv_as_float(cv_dot_at(cv_as_int(*s), bytes, w + (part * f.blocks + b) * CV_LANES));
      }
    }
  }
}

/* Adds one cell of one tap: every pixel times every weight.  x: the cell of the first pixel;
 * at: where the others are. */
CV_INLINE void cv_conv2d_channel(const cv_conv2d_form f, cv_vec *sum, const float *x, const ptrdiff_t *at,
                                 const float *w) {
  const int pixels = cv_conv2d_pixels(f);
  if (cv_conv2d_cell_parts(f) > 1) {
    cv_conv2d_channel_in_parts(f, sum, x, at, w);
    return;
  }
  /* Where sums, weights and one pixel do not fit the registers, the last weight stays in memory: an
   * operand of its multiply-adds. */
  const int held = pixels * f.blocks + f.blocks + 1 > CV_REGISTERS ? f.blocks - 1 : f.blocks;
  cv_vec weight[CV_CONV2D_MAX_BLOCKS];
  CV_UNROLL
  for (int b = 0; b < held; b++) weight[b] = cv_load(w + b * CV_LANES);
  const float *last = w + (f.blocks - 1) * CV_LANES;
  CV_UNROLL
  for (int p = 0; p < pixels; p++) {
    const cv_vec pixel = cv_set1(x[cv_conv2d_pixel(f, at, p, f.step)]);
    CV_UNROLL
    for (int b = 0; b < held; b++) {
      cv_vec *s = &sum[p * f.blocks + b];
      *s = cv_conv2d_multiply(f, pixel, weight[b], *s);
    }
    if (held < f.blocks) {
      cv_vec *s = &sum[p * f.blocks + held];
      __asm__("" : "+r"(last)); /* or the compiler loads it once, into a register it has not */
      *s = f.cell == CV_FLOATS ? cv_fma(pixel, cv_load(last), *s)
                               : cv_conv2d_multiply(f, pixel, cv_load(last), *s);
    }
  }
}

/* Whether a tile of a planar x loads a pixel once for all columns of its kernel: the weights of a kernel
 * row fit the registers beside the sums. */
CV_INLINE int cv_conv2d_shares_pixels(const cv_conv2d_form f) {
  const int fits = (f.width + f.kernel_w) * f.blocks + 1 <= CV_REGISTERS;
  return f.planar && fits && f.kernel_w > f.step && cv_conv2d_cell_parts(f) == 1;
}

/* Adds one kernel row of one channel, so.  Half the loads take less power, for which the clock rises or is
 * throttled less.
 * y: where pixels are stored as soon as they are complete, at least `low`; or NULL. */
CV_INLINE void cv_conv2d_row(const cv_conv2d_form f, cv_vec *sum, const float *x, const float *w, float *y,
                             ptrdiff_t y_plane, float low) {
  cv_vec weight[CV_REGISTERS];
  CV_UNROLL
  for (int k = 0; k < f.kernel_w * f.blocks; k++) weight[k] = cv_load(w + k * CV_LANES);
  CV_UNROLL
  for (int c = 0; c < (f.width - 1) * f.step + f.kernel_w; c++) {
    const cv_vec pixel = cv_set1(x[c]);
    CV_UNROLL
    for (int s = 0; s < f.kernel_w; s++) {
      const int p = (c - s) / f.step;
      if (c < s || (c - s) % f.step || p >= f.width) continue;
      CV_UNROLL
      for (int b = 0; b < f.blocks; b++) {
        cv_vec *to = &sum[p * f.blocks + b];
        *to = cv_conv2d_multiply(f, pixel, weight[s * f.blocks + b], *to);
        if (y && s == f.kernel_w - 1) cv_store(y + p * CV_LANES + b * y_plane, cv_max(cv_set1(low), *to));
      }
      if (y) __asm__ volatile("" ::: "memory"); /* or the compiler stores all of them in the end */
    }
  }
}

/* Adds one tap of 16 cells, or fewer.  next: floats to the input the next block reads here; panel: the
 * weights to ask for, or NULL. */
CV_INLINE void cv_conv2d_wide_tap(const cv_conv2d_form f, cv_vec *sum, const float *x, const ptrdiff_t *at,
                                  const float *w, ptrdiff_t next, const float *panel) {
  const ptrdiff_t line_step = f.step < CV_CONV2D_LINE ? CV_CONV2D_LINE : f.step;
  const int two_short_rows = f.rows == 2 && 2 * f.width <= f.inner;
  /* Two streams of lines, and one loop: its turns are so few that two loops of half the channels each
   * would take longer. */
  const float *ahead = x + next, *also = ahead + (two_short_rows ? at[f.width] : line_step);
  const ptrdiff_t stream_step = two_short_rows ? line_step : 2 * line_step;
  for (int c = 0; c < f.inner; c += 2, ahead += stream_step, also += stream_step) {
    if (panel) {
      cv_prefetch_l2(panel);
      panel += CV_CONV2D_LINE;
    }
    CV_UNROLL
    for (int u = 0; u < 2; u++, w += cv_conv2d_cell_weights(f)) {
      CV_UNROLL
      for (int v = 0; v < cv_conv2d_cell_weights(f); v += CV_LANES)
        cv_prefetch(w + v + CV_CONV2D_WEIGHTS_AHEAD);
      cv_prefetch(u ? also : ahead);
      cv_conv2d_channel(f, sum, x + c + u, at, w);
    }
  }
}

/* Cells of a tap for which a tile asks for one line of the next panel. */
CV_INLINE int cv_conv2d_ask_every(int inner) { return inner < CV_ASK_EVERY ? inner : CV_ASK_EVERY; }

/* The same of narrower vectors; `panel` is never NULL. */
CV_INLINE void cv_conv2d_narrow_tap(const cv_conv2d_form f, cv_vec *sum, const float *x,
                                    const ptrdiff_t *at, const float *w, ptrdiff_t next,
                                    const float *panel) {
  const int a_line = f.step < CV_CONV2D_LINE ? CV_CONV2D_LINE / f.step : 1; /* pixels */
  const float *ahead = x + next;
  const int every = cv_conv2d_ask_every(f.inner);
  /* x moves on: from x + c + the place of each pixel GCC 12 makes as many sums, and keeps them all. */
  CV_UNROLL
  for (int c = 0; c < f.inner; c++, x++, w += cv_conv2d_cell_weights(f)) {
    const int p = c * a_line < f.width - 1 ? c * a_line : f.width - 1;
    if (p > (c - 1) * a_line) cv_prefetch(ahead + cv_conv2d_pixel(f, at, p, f.step));
    if (c % every == (every > 1)) {
      cv_prefetch_l2(panel);
      panel += CV_CONV2D_LINE;
    }
    cv_conv2d_channel(f, sum, x, at, w);
  }
}

/* The same, of any channels; returns where to go on asking for weights. */
CV_INLINE const float *cv_conv2d_tap(const cv_conv2d_form f, cv_vec *sum, const float *x,
                                     const ptrdiff_t *at, const float *w, ptrdiff_t next,
                                     const float *panel) {
  if (f.planar) {
    cv_conv2d_channel(f, sum, x, at, w);
  } else if (!CV_ASKS_EACH_CHANNEL) {
    cv_conv2d_narrow_tap(f, sum, x, at, w, next, panel);
  } else if (panel) {
    cv_conv2d_wide_tap(f, sum, x, at, w, next, panel);
  } else {
    cv_conv2d_wide_tap(f, sum, x, at, w, next, NULL);
    return NULL;
  }
  return panel + f.inner / cv_conv2d_ask_every(f.inner) * CV_CONV2D_LINE;
}

/* Cells of weights that a tile asks for. */
CV_INLINE ptrdiff_t cv_conv2d_asks(int in_count, int taps, int inner) {
  return (ptrdiff_t)in_count * taps * inner / cv_conv2d_ask_every(inner) * CV_CONV2D_LINE;
}

CV_INLINE void cv_conv2d_load_sums(const cv_conv2d_form f, cv_vec *sum, const float *start, ptrdiff_t plane,
                                   const ptrdiff_t *at, ptrdiff_t step) {
  CV_UNROLL
  for (int p = 0; p < cv_conv2d_pixels(f); p++) {
    const float *pixel = start + (at ? cv_conv2d_pixel(f, at, p, step) : 0);
    CV_UNROLL
    for (int b = 0; b < f.blocks; b++) sum[p * f.blocks + b] = cv_load(pixel + b * plane);
  }
}

CV_INLINE void cv_conv2d_store_sums(const cv_conv2d_form f, const cv_vec *sum, const int bf16, float *y,
                                    ptrdiff_t plane, const ptrdiff_t *at, ptrdiff_t step) {
  CV_UNROLL
  for (int p = 0; p < cv_conv2d_pixels(f); p++) {
    float *pixel = y + cv_conv2d_pixel(f, at, p, step);
    CV_UNROLL
    for (int b = 0; b < f.blocks; b++) cv_store_lanes(bf16, pixel + b * plane, sum[p * f.blocks + b]);
  }
}

CV_INLINE void cv_conv2d_add_residual(const cv_conv2d_form f, const cv_conv2d_window *g, const int bf16,
                                      cv_vec *sum, const float *residual) {
  CV_UNROLL
  for (int p = 0; p < cv_conv2d_pixels(f); p++) {
    const float *pixel = residual + cv_conv2d_pixel(f, g->residual_at, p, g->residual_step);
    CV_UNROLL
    for (int b = 0; b < f.blocks; b++) {
      cv_vec *s = &sum[p * f.blocks + b];
      *s = cv_add(*s, cv_load_lanes(bf16, pixel + b * g->residual_plane));
    }
  }
}

/* Asks for half a block of what the next tile stores and adds, the half number `half`.  All at once would
 * keep this tile's own lines waiting.  A run's in its next row are not asked for. */
CV_INLINE void cv_conv2d_ask_output(const cv_conv2d_form f, const cv_conv2d_window *g, int half) {
  __asm__("" : "+r"(g)); /* or the compiler keeps what this reads in registers it has not */
  const int lines = f.rows == 2 ? f.width : (f.width + 1) / 2, block = half / 2, other = half % 2;
  const float *y =
      g->next_y + block * g->y_plane + other * (f.rows == 2 ? g->y_at[f.width] : lines * g->y_step);
  CV_UNROLL
  for (int p = 0; p < lines; p += f.cell) cv_prefetch_store(y + p * g->y_step);
  if (!g->next_residual) return;
  const float *residual = g->next_residual + block * g->residual_plane +
                          other * (f.rows == 2 ? g->residual_at[f.width] : lines * g->residual_step);
  CV_UNROLL
  for (int p = 0; p < lines; p += f.cell) cv_prefetch(residual + p * g->residual_step);
}

/* Requantises sums of bytes that are plain (cv_requantize), with a residual or without one. */
CV_INLINE void cv_conv2d_store_bytes(const cv_conv2d_form f, const cv_conv2d_window *g, const cv_vec *sum,
                                     float *y, const float *residual, const int held) {
  const cv_requantize r = *g->requantize; /* bytes that are stored might else change it */
  const cv_vec low = cv_set1(r.low), high = cv_set1(r.high), residual_scale = cv_set1(r.residual_scale);
  const cv_vec held_low = cv_set1(r.held_low), held_high = cv_set1(r.held_high);
  const cv_vec held_unit = cv_set1(r.held_unit), residual_shift = cv_set1(r.residual_shift);
  const cv_int zero = cv_int_set1(r.zero);
  CV_UNROLL
  for (int b = 0; b < f.blocks; b++) {
    const cv_vec scale = cv_load(g->scale + b * CV_LANES);
    cv_vec shift = cv_load(g->shift + b * CV_LANES);
    if (residual && !held) shift = cv_add(shift, residual_shift);
    CV_UNROLL
    for (int p = 0; p < cv_conv2d_pixels(f); p++) {
      cv_vec v = cv_fma(cv_from_int(cv_as_int(sum[p * f.blocks + b])), scale, shift);
      if (held) v = cv_fma(cv_round(cv_min(held_high, cv_max(held_low, v))), held_unit, residual_shift);
      if (residual) {
        const ptrdiff_t at =
            cv_conv2d_pixel(f, g->residual_at, p, g->residual_step) + b * g->residual_plane;
        v = cv_fma(cv_from_int(cv_load_bytes((const uint8_t *)(residual + at))), residual_scale, v);
      }
      cv_store_bytes((uint8_t *)(y + cv_conv2d_pixel(f, g->y_at, p, g->y_step) + b * g->y_plane),
                     cv_requantize_round(v, low, high, zero));
    }
  }
}

/* The same of any. */
CV_INLINE void cv_conv2d_end_bytes(const cv_conv2d_form f, const cv_conv2d_window *g, const cv_vec *sum,
                                   float *y, const float *residual) {
  if (g->requantize->held) {
    cv_conv2d_store_bytes(f, g, sum, y, residual, 1);
  } else if (g->requantize->plain && residual) {
    cv_conv2d_store_bytes(f, g, sum, y, residual, 0);
  } else if (g->requantize->plain) {
    cv_conv2d_store_bytes(f, g, sum, y, NULL, 0);
  } else {
    cv_vec value[CV_CONV2D_MAX_ACCUMULATORS];
    ptrdiff_t at[CV_CONV2D_MAX_ACCUMULATORS], residual_at[CV_CONV2D_MAX_ACCUMULATORS];
    CV_UNROLL
    for (int k = 0; k < cv_conv2d_pixels(f) * f.blocks; k++) {
      const int p = k / f.blocks, b = k % f.blocks;
      value[k] = cv_fma(cv_from_int(cv_as_int(sum[k])), cv_load(g->scale + b * CV_LANES),
                        cv_load(g->shift + b * CV_LANES));
      at[k] = cv_conv2d_pixel(f, g->y_at, p, g->y_step) + b * g->y_plane;
      residual_at[k] = cv_conv2d_pixel(f, g->residual_at, p, g->residual_step) + b * g->residual_plane;
    }
    cv_requantize_any(g->requantize, value, cv_conv2d_pixels(f) * f.blocks, y, at, residual, residual_at);
  }
}

/* Adds the residual, bounds and stores, where sums are floats. */
CV_INLINE void cv_conv2d_end_floats(const cv_conv2d_form f, const cv_conv2d_window *g, cv_vec *sum,
                                    float *y, const float *residual) {
  const int pixels = cv_conv2d_pixels(f), blocks = f.blocks;
  if (residual && CV_BFLOAT16_MAPS && g->residual_bf16) {
    cv_conv2d_add_residual(f, g, 1, sum, residual);
  } else if (residual) {
    cv_conv2d_add_residual(f, g, 0, sum, residual);
  }
  if (g->low > -INFINITY) {
    const cv_vec low = cv_set1(g->low);
    CV_UNROLL
    for (int k = 0; k < pixels * blocks; k++) sum[k] = cv_max(low, sum[k]);
  }
  if (g->high < INFINITY) {
    const cv_vec high = cv_set1(g->high);
    CV_UNROLL
    for (int k = 0; k < pixels * blocks; k++) sum[k] = cv_min(high, sum[k]);
  }
  if (CV_BFLOAT16_MAPS && g->y_bf16) {
    cv_conv2d_store_sums(f, sum, 1, y, g->y_plane, g->y_at, g->y_step);
  } else if (g->y_step == CV_LANES) {
    cv_conv2d_store_sums(f, sum, 0, y, g->y_plane, g->y_at, CV_LANES);
  } else {
    cv_conv2d_store_sums(f, sum, 0, y, g->y_plane, g->y_at, g->y_step);
  }
}

CV_INLINE void cv_conv2d_end(const cv_conv2d_form f, const cv_conv2d_window *g, cv_vec *sum, float *y,
                             const float *residual) {
  if (f.cell == CV_BYTES) {
    cv_conv2d_end_bytes(f, g, sum, y, residual);
  } else {
    cv_conv2d_end_floats(f, g, sum, y, residual);
  }
}

/* ---- Groups that share blocks ---- */

/* A panel has zeros where an input channel belongs to another group than an output channel, and zero times
 * an infinity or NaN is NaN.  So a tile with a NaN among its sums hands over to another, which makes them
 * of the channels of their own groups alone: in the same order, so that finite sums have the same bits. */

/* Whether a sum is NaN, and at times where one is infinite or huge.  Every channel is foreign to a lane of
 * a block with lanes of two groups, or of none, and what is not finite there makes that lane NaN: then one
 * block tells of all.  One multiply-add looks at two sums; from 1 on it makes no denormals, which cost a
 * hundred cycles. */
CV_INLINE int cv_conv2d_looks_mixed(const cv_conv2d_form f, const cv_vec *sum, const int first_tells) {
  cv_vec found[2] = {cv_set1(1.0f), cv_set1(1.0f)};
  CV_UNROLL
  for (int b = 0; b < f.blocks; b++) {
    if (b && first_tells) break;
    CV_UNROLL
    for (int p = 0; p < cv_conv2d_pixels(f); p += 2) {
      const int other = p + 1 < cv_conv2d_pixels(f) ? p + 1 : p;
      found[p / 2 % 2] = cv_fma(sum[p * f.blocks + b], sum[other * f.blocks + b], found[p / 2 % 2]);
    }
  }
  return __builtin_expect(cv_any(cv_unordered(found[0], found[1])), 0);
}

/* The lanes of block `b` that belong to the group of input channel `channel` of the panel. */
static inline cv_mask cv_conv2d_own_lanes(const cv_conv2d_window *g, int channel, int b) {
  float lanes[CV_LANES];
  for (int lane = 0; lane < CV_LANES; lane++) lanes[lane] = (float)lane;
  const int group = (g->first_in + channel) / g->group_in;
  const int begin = group * g->group_out - g->first_out - b * CV_LANES, end = begin + g->group_out;
  const cv_vec lane = cv_loadu(lanes);
  return cv_mask_and(cv_le(cv_set1((float)begin), lane), cv_lt(lane, cv_set1((float)end)));
}

/* A tile whose sums are made by groups. */
static inline __attribute__((cold)) void cv_conv2d_sum_groups(const cv_conv2d_form f,
                                                              const cv_conv2d_window *g, const float *x,
                                                              const float *w, const float *start, float *y,
                                                              const float *residual) {
  cv_vec sums[CV_CONV2D_MAX_ACCUMULATORS];
  const int columns = f.kernel_w ? f.kernel_w : g->kernel_w;
  const int taps = (f.kernel_h ? f.kernel_h : g->kernel_h) * columns, pixels = cv_conv2d_pixels(f);
  for (int b = 0; b < f.blocks; b++) {
    for (int p = 0; p < pixels; p++) {
      const ptrdiff_t first = g->start_step ? cv_conv2d_pixel(f, g->y_at, p, g->start_step) : 0;
      sums[p * f.blocks + b] = cv_load(start + first + b * g->start_plane);
    }
    const float *weight = w + b * CV_LANES;
    for (int i = 0; i < g->in_count * taps * f.inner; i++, weight += f.blocks * CV_LANES) {
      const int block = i / (taps * f.inner), tap = i / f.inner % taps, c = i % f.inner;
      const float *from = x + block * g->x_plane + tap / columns * g->x_row + tap % columns * g->x_tap + c;
      const cv_mask own = cv_conv2d_own_lanes(g, block * f.inner + c, b);
      for (int p = 0; p < pixels; p++) {
        cv_vec *sum = &sums[p * f.blocks + b];
        const cv_vec pixel = cv_set1(from[cv_conv2d_pixel(f, g->x_at, p, f.step)]);
        *sum = cv_select(own, cv_fma(pixel, cv_load(weight), *sum), *sum);
      }
    }
  }
  cv_conv2d_end_floats(f, g, sums, y, residual);
}

/* ---- AMX ---- */

/* Rows of AMX tiles that together hold so many pixels, `parts` of them. */
CV_INLINE int cv_conv2d_parts(int pixels) { return (pixels + CV_AMX_CELLS - 1) / CV_AMX_CELLS; }
CV_INLINE int cv_conv2d_amx_rows(int pixels) {
  return (pixels + cv_conv2d_parts(pixels) - 1) / cv_conv2d_parts(pixels);
}

/* Whether AMX tiles multiply pixels of so many cells, and hold a tile's sums. */
CV_INLINE int cv_conv2d_fits_amx(const int cells, int pixels, int blocks) {
  const int multiplies = cells == CV_LANES / CV_BYTES     ? CV_AMX
                         : cells == CV_LANES / CV_BFLOATS ? CV_AMX_BF16
                                                          : 0;
  return multiplies && cv_conv2d_parts(pixels) * blocks <= CV_AMX_SUMS;
}

/* Adds all taps of all channels.  Pixels that do not lie evenly in x, or fill no parts, are copied. */
CV_INLINE void cv_conv2d_add_amx(const cv_conv2d_form f, const cv_conv2d_window *g, cv_vec *sum,
                                 const float *x, const float *w) {
  const int kernel_h = f.kernel_h ? f.kernel_h : g->kernel_h;
  const int columns = f.kernel_w ? f.kernel_w : g->kernel_w, pixels = cv_conv2d_pixels(f);
  const int tiles = cv_conv2d_parts(pixels) * f.blocks, rows = cv_conv2d_amx_rows(pixels);
  const int copies = f.rows != 1 || pixels % rows;
  float sums[CV_AMX_SUMS * CV_AMX_CELLS * CV_LANES] __attribute__((aligned(64)));
  float copy[CV_AMX_SUMS * CV_AMX_CELLS * CV_LANES] __attribute__((aligned(64)));
  CV_UNROLL
  for (int k = 0; k < tiles; k++) cv_amx_zero(k);
  for (int i = 0; i < g->in_count; i++, x += g->x_plane) {
    for (int tap = 0; tap < kernel_h * columns; tap++, w += f.inner * f.blocks * CV_LANES) {
      const float *from = x + tap / columns * g->x_row + tap % columns * g->x_tap;
      const ptrdiff_t step = copies ? f.inner : f.step;
      for (int p = 0; copies && p < pixels; p++) {
        memcpy(copy + p * f.inner, from + cv_conv2d_pixel(f, g->x_at, p, f.step), f.inner * sizeof *copy);
      }
      if (copies) from = copy;
      CV_UNROLL
      for (int k = 0; k < tiles; k++) {
        const int b = k % f.blocks;
        if (b == 0) cv_amx_load(4, from + k / f.blocks * rows * step, step);
        cv_amx_load(6 + k % 2, w + b * CV_LANES, f.blocks * CV_LANES);
        if (f.cell == CV_BYTES) {
          cv_amx_dot_bytes(k);
        } else {
          cv_amx_dot_bf16(k);
        }
      }
    }
  }
  CV_UNROLL
  for (int k = 0; k < tiles; k++) {
    const int first = k / f.blocks * rows * f.blocks + k % f.blocks;
    cv_amx_store(k, sums + first * CV_LANES, f.blocks * CV_LANES);
  }
  CV_UNROLL
  for (int k = 0; k < pixels * f.blocks; k++) {
    const cv_vec more = cv_load(sums + k * CV_LANES);
    sum[k] = f.cell == CV_BYTES ? cv_as_float(cv_int_add(cv_as_int(sum[k]), cv_as_int(more)))
                                : cv_add(sum[k], more);
  }
}

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
    cv_conv2d_load_sums(f, sum, start, g->start_plane, g->y_at, g->start_step);
  }
  if (cv_conv2d_fits_amx(f.inner, cv_conv2d_pixels(f), blocks) && g->amx) {
    cv_conv2d_add_amx(f, g, sum, x, w);
    cv_conv2d_end(f, g, sum, y, residual);
    return;
  }
  const ptrdiff_t to_next_tile = g->next_x - (g->in_count - 1) * g->x_plane;
  const ptrdiff_t tap_weights = f.inner * cv_conv2d_cell_weights(f);
  ptrdiff_t at[CV_CONV2D_PLACES];
  CV_UNROLL
  for (int p = 0; p < CV_CONV2D_PLACES; p++) at[p] = g->x_at[p];
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
    const float *x_row = x;
    for (int r = 0; r < kernel_h; r++, x_row += g->x_row) {
      const float *x_tap = x_row;
      const int half = i * kernel_h + r;
      if (!f.planar && half < 2 * blocks) cv_conv2d_ask_output(f, g, half);
      if (cv_conv2d_shares_pixels(f)) {
        cv_conv2d_row(f, sum, x_row, w, NULL, 0, 0.0f);
        w += f.kernel_w * tap_weights;
      } else if (f.kernel_w) {
        CV_UNROLL
        for (int s = 0; s < f.kernel_w; s++, x_tap += g->x_tap, w += tap_weights)
          panel = cv_conv2d_tap(f, sum, x_tap, at, w, next, panel);
      } else {
        for (int s = 0; s < g->kernel_w; s++, x_tap += g->x_tap, w += tap_weights)
          panel = cv_conv2d_tap(f, sum, x_tap, at, w, next, panel);
      }
    }
  }
  if (by_groups && cv_conv2d_looks_mixed(f, sum, g->first_tells)) {
    /* Where it began: what the loop has to remember costs a small tile more than what is computed here. */
    const ptrdiff_t taps = (ptrdiff_t)kernel_h * (f.kernel_w ? f.kernel_w : g->kernel_w);
    by_groups(g, x - g->in_count * g->x_plane, w - g->in_count * taps * tap_weights, start, y, residual);
    return;
  }
  cv_conv2d_end(f, g, sum, y, residual);
}

#define CV_CONV2D_DEFINE_TILE(name, BY_GROUPS, CELL, PLANAR, ROWS, PIXELS, BLOCKS, ...)                 \
  _Static_assert(((ROWS) == 2 ? 2 : 1) * (PIXELS) * (BLOCKS) <= CV_CONV2D_MAX_ACCUMULATORS &&           \
                     (BLOCKS) <= CV_CONV2D_MAX_BLOCKS,                                                  \
                 "the tile has more accumulators than there are registers");                            \
  _Static_assert((ROWS) == 1 || (PIXELS) < CV_CONV2D_PLACES, "the tile has too many pixels");           \
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
                        KERNEL_W, 0)

/* The same of a blocked x, where blocks hold channels of several groups. */
#define CV_CONV2D_GROUPED_TILE(name, ROWS, PIXELS, BLOCKS, STEP, KERNEL_H, KERNEL_W)                      \
  static __attribute__((noinline, cold)) void name##_by_groups(const cv_conv2d_window *g, const float *x, \
                                                               const float *w, const float *start,        \
                                                               float *y, const float *residual) {         \
    const cv_conv2d_form form = {                                                                         \
        CV_FLOATS, 0, ROWS, PIXELS, BLOCKS, CV_LANES, STEP, KERNEL_H, KERNEL_W, 0};                       \
    cv_conv2d_sum_groups(form, g, x, w, start, y, residual);                                              \
  }                                                                                                       \
  CV_CONV2D_DEFINE_TILE(name, name##_by_groups, CV_FLOATS, 0, ROWS, PIXELS, BLOCKS, CV_LANES, STEP,       \
                        KERNEL_H, KERNEL_W, 0)

/* The same of a planar x with IN channels: no loops at all, for few taps. */
#define CV_CONV2D_PLANAR_TILE(name, PIXELS, BLOCKS, STEP, KERNEL_H, KERNEL_W, IN) \
  CV_CONV2D_DEFINE_TILE(name, NULL, CV_FLOATS, 1, 1, PIXELS, BLOCKS, 1, STEP, KERNEL_H, KERNEL_W, IN)

/* The same of a blocked x of bfloat16, CV_LANES / 2 cells a pixel. */
#define CV_CONV2D_BF16_TILE(name, ROWS, PIXELS, BLOCKS, STRIDE, KERNEL_H, KERNEL_W)             \
  CV_CONV2D_DEFINE_TILE(name, NULL, CV_BFLOATS, 0, ROWS, PIXELS, BLOCKS, CV_LANES / CV_BFLOATS, \
                        (STRIDE) * CV_LANES / CV_BFLOATS, KERNEL_H, KERNEL_W, 0)

/* The same of bytes: a blocked x of CV_LANES / 4 cells a pixel, or a planar one of cells, whose pixels are
 * four channels each. */
#define CV_CONV2D_BYTES_TILE(name, ROWS, PIXELS, BLOCKS, STRIDE, KERNEL_H, KERNEL_W)        \
  CV_CONV2D_DEFINE_TILE(name, NULL, CV_BYTES, 0, ROWS, PIXELS, BLOCKS, CV_LANES / CV_BYTES, \
                        (STRIDE) * CV_LANES / CV_BYTES, KERNEL_H, KERNEL_W, 0)
#define CV_CONV2D_PLANAR_BYTES_TILE(name, PIXELS, BLOCKS, STRIDE, KERNEL_H, KERNEL_W, IN) \
  CV_CONV2D_DEFINE_TILE(name, NULL, CV_BYTES, 1, 1, PIXELS, BLOCKS, 1, STRIDE, KERNEL_H, KERNEL_W, IN)

#endif
