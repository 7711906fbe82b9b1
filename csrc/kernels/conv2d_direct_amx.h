/* Tiles of the direct convolution that AMX multiplies (simd/amx.h): bytes and bfloat16. */
#ifndef CONVOY_KERNELS_CONV2D_DIRECT_AMX_H_
#define CONVOY_KERNELS_CONV2D_DIRECT_AMX_H_

#include <string.h>

#include "kernels/conv2d_direct_form.h"
#include "simd/amx.h"

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
        memcpy(copy + p * f.inner, from + cv_conv2d_pixel(f, g->at->x, p, f.step), f.inner * sizeof *copy);
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

#endif
