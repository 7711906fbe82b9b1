/* What a tile of the direct convolution adds: one cell, one kernel row, one tap
 * (kernels/conv2d_direct_tile.h). */
#ifndef CONVOY_KERNELS_CONV2D_DIRECT_TAPS_H_
#define CONVOY_KERNELS_CONV2D_DIRECT_TAPS_H_

#include "kernels/conv2d_direct_form.h"

/* sum + pixel * weight, of one cell; of bytes the sums are int32. */
CV_INLINE cv_vec cv_conv2d_multiply(const cv_conv2d_form f, cv_vec pixel, cv_vec weight, cv_vec sum) {
  if (f.cell == CV_BFLOATS) return cv_dot_bf16(pixel, weight, sum);
  if (f.cell == CV_SHORTS)
    return cv_as_float(cv_dot_shorts(cv_as_int(sum), cv_as_int(pixel), cv_as_int(weight)));
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
  if (CV_CONV2D_BYTES && cv_conv2d_cell_parts(f) > 1) {
    cv_conv2d_channel_in_parts(f, sum, x, at, w);
    return;
  }
  /* Where sums, weights, one pixel and of integers a product do not fit the registers, the last weight
   * stays in memory: an operand of its multiply-adds. */
  const int others = f.cell == CV_SHORTS ? 2 : 1;
  const int held = pixels * f.blocks + f.blocks + others > CV_REGISTERS ? f.blocks - 1 : f.blocks;
  cv_vec weight[CV_CONV2D_MAX_BLOCKS];
  CV_UNROLL
  for (int b = 0; b < held; b++) weight[b] = cv_load(w + b * CV_LANES);
  const float *last = w + (f.blocks - 1) * CV_LANES;
  CV_UNROLL
  for (int p = 0; p < pixels; p++) {
    const cv_vec pixel = cv_load1(x + cv_conv2d_pixel(f, at, p, f.step));
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

/* Columns of x under a row of a tile, at most: as many as a loop is unrolled for. In a loop sums are
 * memory. */
#define CV_CONV2D_MAX_SPAN 64

CV_INLINE int cv_conv2d_span(const cv_conv2d_form f) { return (f.width - 1) * f.step + f.kernel_w; }

/* Whether a tile of a planar x loads a pixel once for all columns of its kernel: the weights of a kernel
 * row fit the registers beside the sums. */
CV_INLINE int cv_conv2d_shares_pixels(const cv_conv2d_form f) {
  const int fits = (f.width + f.kernel_w) * f.blocks + 1 <= CV_REGISTERS;
  return f.planar && fits && f.kernel_w > f.step && cv_conv2d_span(f) <= CV_CONV2D_MAX_SPAN &&
         cv_conv2d_cell_parts(f) == 1;
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
  for (int c = 0; c < cv_conv2d_span(f); c++) {
    const cv_vec pixel = cv_load1(x + c);
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

/* Adds some of the cells of one tap; asks for pixels of the next block, but for no weights. */
CV_INLINE void cv_conv2d_part_tap(const cv_conv2d_form f, cv_vec *sum, const float *x, const ptrdiff_t *at,
                                  const float *w, ptrdiff_t next, const cv_range cells) {
  const ptrdiff_t line_step = f.step < CV_CONV2D_LINE ? CV_CONV2D_LINE : f.step;
  const float *ahead = x + next;
  x += cells.begin;
  for (int left = cells.end - cells.begin; left > 0; left--, x++, w += cv_conv2d_cell_weights(f)) {
    cv_prefetch(ahead);
    ahead += line_step;
    cv_conv2d_channel(f, sum, x, at, w);
  }
}

/* The same, of any channels; returns where to go on asking for weights. */
CV_INLINE const float *cv_conv2d_tap(const cv_conv2d_form f, cv_vec *sum, const float *x,
                                     const ptrdiff_t *at, const float *w, ptrdiff_t next,
                                     const float *panel, const cv_range cells) {
  if (f.ranged && cells.end - cells.begin < f.inner) {
    cv_conv2d_part_tap(f, sum, x, at, w, next, cells);
    return panel;
  }
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

/* Cells of weights that a tile asks for in so many whole blocks. */
CV_INLINE ptrdiff_t cv_conv2d_asks(int in_count, int taps, int inner) {
  return (ptrdiff_t)in_count * taps * inner / cv_conv2d_ask_every(inner) * CV_CONV2D_LINE;
}

#endif
