/* Tiles of the direct convolution whose blocks hold several groups.
 *
 * A panel has zeros where an input channel belongs to another group than an output channel, and zero times
 * an infinity or NaN is NaN.  So a tile with a NaN among its sums hands over to another, which makes them
 * of the channels of their own groups alone: in the same order, so that finite sums have the same bits. */
#ifndef CONVOY_KERNELS_CONV2D_DIRECT_GROUPS_H_
#define CONVOY_KERNELS_CONV2D_DIRECT_GROUPS_H_

#include <stdint.h>
#include <string.h>

#include "kernels/conv2d_direct_end.h"
#include "kernels/conv2d_direct_taps.h"

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

/* Whether lane `lane` of block `b` belongs to the group of input channel `channel` of the panel. */
CV_INLINE int cv_conv2d_is_own(const cv_conv2d_window *g, int channel, int b, int lane) {
  const int group = (g->first_in + channel) / g->group_in;
  const int begin = group * g->group_out - g->first_out - b * CV_LANES;
  return begin <= lane && lane < begin + g->group_out;
}

/* For each lane of block `b` a cell whose elements are all ones where it belongs to the group of that input
 * channel, and zeros elsewhere. */
static inline cv_int cv_conv2d_own_cells(const cv_conv2d_form f, const cv_conv2d_window *g, int cell,
                                         int b) {
  uint32_t own[CV_LANES];
  for (int lane = 0; lane < CV_LANES; lane++) {
    own[lane] = 0;
    for (int k = 0; k < (int)f.cell; k++)
      if (cv_conv2d_is_own(g, cell * (int)f.cell + k, b, lane))
        own[lane] |= f.cell == CV_FLOATS ? 0xffffffffu : 0xffffu << 16 * k;
  }
  cv_int cells;
  memcpy(&cells, own, sizeof cells);
  return cells;
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
      const ptrdiff_t first = g->start_step ? cv_conv2d_pixel(f, g->at->y, p, g->start_step) : 0;
      sums[p * f.blocks + b] = cv_load(start + first + b * g->start_plane);
    }
    const float *weight = w + b * CV_LANES;
    for (int block = 0; block < g->in_count; block++) {
      const cv_range cells = cv_conv2d_cells(f, g, block);
      for (int tap = 0; tap < taps; tap++) {
        const float *from = x + block * g->x_plane + tap / columns * g->x_row + tap % columns * g->x_tap;
        for (int c = cells.begin; c < cells.end; c++, weight += f.blocks * CV_LANES) {
          const cv_int own = cv_conv2d_own_cells(f, g, block * f.inner + c, b);
          for (int p = 0; p < pixels; p++) {
            cv_vec *sum = &sums[p * f.blocks + b];
            const cv_vec pixel = cv_load1(from + cv_conv2d_pixel(f, g->at->x, p, f.step) + c);
            const cv_vec kept = cv_as_float(cv_int_and(cv_as_int(pixel), own));
            *sum = cv_conv2d_multiply(f, kept, cv_load(weight), *sum);
          }
        }
      }
    }
  }
  cv_conv2d_end_floats(f, g, sums, y, residual);
}

#endif
