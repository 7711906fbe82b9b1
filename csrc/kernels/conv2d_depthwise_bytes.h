/* Tiles of bytes for the depthwise convolution (kernels/conv2d_depthwise.h): u8 times s8, sums of int32.
 *
 * Where an instruction multiplies four bytes of a lane by four, these are neighbouring pixels of a channel,
 * and taps of a kernel row.  So four pixels are loaded at once, a quad, and put in the order of channels;
 * there is a quad every `spacing` pixels (2 where a kernel row has up to three taps, else 4), and each
 * feeds all outputs whose taps it has.  An output whose first pixel is `lag` pixels into a quad takes
 *
 *   quads(lag) = ceil((lag + KW) / 4)
 *
 * of them, with weights moved by as much and zeros beside them: of a 3x3 kernel three products of four
 * taps an output, where there are nine taps.  What is left of the work is in putting quads in order, and in
 * requantising.
 *
 * Where bytes are multiplied in parts, as 16 bits, a product has two taps: a pixel and the one below, by
 * pairs of kernel rows.  A pair is loaded as it is multiplied, and feeds all taps of its columns; an odd
 * row is left by itself.
 *
 * x, y: maps of bytes as cv_map_of_cells gives them; x's halo holds its zero point.
 * weights, 64-byte aligned: [block][kernel_h][group][lag][quad][CV_LANES][4]: byte k of quad q is tap
 *   4 q + k - lag, or 0.  There are CV_DEPTHWISE_LAGS and CV_DEPTHWISE_QUADS of them.
 *   In parts [block][pair of rows][group][kernel_w][CV_LANES][2], as 16 bits, 0 where there is no row.
 * A wide dilation is a wider kernel with zeros.
 * bias: int32, where the sums begin; the rest of the epilogue is in `requantize`.
 */
#ifndef CONVOY_KERNELS_CONV2D_DEPTHWISE_BYTES_H_
#define CONVOY_KERNELS_CONV2D_DEPTHWISE_BYTES_H_

#include "kernels/conv2d_depthwise.h"

#define CV_DEPTHWISE_SPACING(KW) ((KW) > 3 ? 4 : 2)
#define CV_DEPTHWISE_LAG_STEP(KW, STRIDE_W) \
  ((STRIDE_W) % CV_DEPTHWISE_SPACING(KW) == 0 ? CV_DEPTHWISE_SPACING(KW) : (STRIDE_W) % 2 == 0 ? 2 : 1)
/* Different lags of outputs, each a multiple of the step, and the most quads of one. */
#define CV_DEPTHWISE_LAGS(KW, STRIDE_W) (CV_DEPTHWISE_SPACING(KW) / CV_DEPTHWISE_LAG_STEP(KW, STRIDE_W))
#define CV_DEPTHWISE_QUADS(KW, STRIDE_W) \
  ((CV_DEPTHWISE_SPACING(KW) - CV_DEPTHWISE_LAG_STEP(KW, STRIDE_W) + (KW) + 3) / 4)

/* Cells of a pixel of a block. */
enum { CV_DEPTHWISE_CELLS = CV_LANES / CV_BYTES };

typedef struct cv_depthwise_form {
  int kernel_h, kernel_w, stride_w, pixels, group, multiplier;
} cv_depthwise_form;

/* Adds a kernel row of one channel of each group. */
CV_INLINE void cv_depthwise_add_quads(const cv_depthwise_form f, cv_int *sum, const float *x,
                                      const float *w, const int permuted, cv_int lanes) {
  const int spacing = CV_DEPTHWISE_SPACING(f.kernel_w), span = (f.pixels - 1) * f.stride_w + f.kernel_w;
  const int quads = CV_DEPTHWISE_QUADS(f.kernel_w, f.stride_w);
  const int lag_step = CV_DEPTHWISE_LAG_STEP(f.kernel_w, f.stride_w);
  CV_UNROLL
  for (int k = 0; k < span; k += spacing) {
    const uint8_t *from = (const uint8_t *)(x + k * CV_DEPTHWISE_CELLS);
    cv_int cells = cv_quad_by_channel(cv_load_quad(from, span - k < 4 ? span - k : 4));
    if (permuted) cells = cv_as_int(cv_permute(cv_as_float(cells), lanes));
    CV_UNROLL
    for (int p = 0; p < f.pixels; p++) {
      const int lag = p * f.stride_w % spacing, after = k - (p * f.stride_w - lag);
      if (after < 0 || after % 4 || after - lag >= f.kernel_w) continue;
      const float *weight = w + (lag / lag_step * quads + after / 4) * CV_LANES;
      sum[p] = cv_dot(sum[p], cells, cv_as_int(cv_load(weight)));
    }
  }
}

/* Adds `rows` of them, one or two. */
CV_INLINE void cv_depthwise_add_pairs(const cv_depthwise_form f, cv_int *sum, const float *x,
                                      ptrdiff_t below, const int rows, const float *w, const int permuted,
                                      cv_int lanes) {
  const int span = (f.pixels - 1) * f.stride_w + f.kernel_w;
  CV_UNROLL
  for (int k = 0; k < span; k++) {
    const uint8_t *from = (const uint8_t *)(x + k * CV_DEPTHWISE_CELLS);
    cv_int pairs = rows > 1 ? cv_load_pairs(from, from + below) : cv_load_bytes(from);
    if (permuted) pairs = cv_as_int(cv_permute(cv_as_float(pairs), lanes));
    CV_UNROLL
    for (int p = 0; p < f.pixels; p++) {
      const int tap = k - p * f.stride_w;
      if (tap >= 0 && tap < f.kernel_w) sum[p] = cv_dot_at(sum[p], pairs, w + tap * CV_LANES);
    }
  }
}

/* The sums of a tile, which begin in `sum`. */
CV_INLINE void cv_depthwise_add(const cv_depthwise_form f, const cv_depthwise_window *g, cv_int *sum,
                                const float *x, const float *w) {
  const int permuted = f.group * f.multiplier > 1;
  const cv_int first = cv_depthwise_first_lanes(g, f.group, f.multiplier);
  const int quads = CV_DEPTHWISE_LAGS(f.kernel_w, f.stride_w) * CV_DEPTHWISE_QUADS(f.kernel_w, f.stride_w);
  const int vectors = CV_DOT_PARTS > 1 ? f.kernel_w : quads, odd = CV_DOT_PARTS > 1 && f.kernel_h % 2;
  for (int r = 0; r + odd < f.kernel_h; r += CV_DOT_PARTS, x += CV_DOT_PARTS * g->x_row) {
    for (int j = 0; j < f.group; j++, w += vectors * CV_LANES) {
      const cv_int lanes = cv_int_add(first, cv_int_set1(j));
      if (CV_DOT_PARTS > 1) {
        cv_depthwise_add_pairs(f, sum, x, g->x_row * CV_BYTES, 2, w, permuted, lanes);
      } else {
        cv_depthwise_add_quads(f, sum, x, w, permuted, lanes);
      }
    }
  }
  for (int j = 0; j < f.group * odd; j++, w += vectors * CV_LANES)
    cv_depthwise_add_pairs(f, sum, x, 0, 1, w, permuted, cv_int_add(first, cv_int_set1(j)));
}

/* Requantises sums that are plain (cv_requantize) and whose y has no gaps. */
CV_INLINE void cv_depthwise_store_bytes(const cv_depthwise_form f, const cv_depthwise_window *g,
                                        const cv_int *sum, float *y, const float *residual) {
  const cv_requantizer r = cv_requantizer_of(g->requantize);
  const cv_vec scale = cv_load(g->scale), residual_scale = cv_set1(g->requantize->residual_scale);
  cv_vec shift = cv_load(g->shift);
  if (residual) shift = cv_add(shift, cv_set1(g->requantize->residual_shift));
  CV_UNROLL
  for (int p = 0; p < f.pixels; p += 4) {
    const int n = f.pixels - p < 4 ? f.pixels - p : 4;
    cv_vec v[4];
    CV_UNROLL
    for (int i = 0; i < 4; i++) {
      v[i] = cv_fma(cv_from_int(sum[p + (i < n ? i : 0)]), scale, shift);
      if (residual && i < n) {
        const uint8_t *bytes = (const uint8_t *)(residual + (p + i) * g->residual_step);
        v[i] = cv_fma(cv_from_int(cv_load_bytes(bytes)), residual_scale, v[i]);
      }
    }
    cv_store_quad((uint8_t *)(y + p * CV_DEPTHWISE_CELLS), cv_requantize_quad(&r, v), n);
  }
}

/* The same of any. */
CV_INLINE void cv_depthwise_end_bytes(const cv_depthwise_form f, const cv_depthwise_window *g,
                                      const cv_int *sum, float *y, const float *residual) {
  cv_vec v[CV_DEPTHWISE_MAX_PIXELS];
  ptrdiff_t at[CV_DEPTHWISE_MAX_PIXELS], residual_at[CV_DEPTHWISE_MAX_PIXELS];
  CV_UNROLL
  for (int p = 0; p < f.pixels; p++) {
    v[p] = cv_fma(cv_from_int(sum[p]), cv_load(g->scale), cv_load(g->shift));
    at[p] = p * g->y_step;
    residual_at[p] = p * g->residual_step;
  }
  cv_requantize_any(g->requantize, v, f.pixels, y, at, residual, residual_at);
}

CV_INLINE void cv_depthwise_bytes_body(const cv_depthwise_form f, const cv_depthwise_window *g,
                                       const float *x, const float *w, const float *bias, float *y,
                                       const float *residual) {
  cv_int sum[CV_DEPTHWISE_MAX_PIXELS];
  CV_UNROLL
  for (int p = 0; p < f.pixels; p++) sum[p] = cv_as_int(cv_load(bias));
  cv_depthwise_add(f, g, sum, x, w);
  if (!g->requantize->plain || g->y_step != CV_DEPTHWISE_CELLS) {
    cv_depthwise_end_bytes(f, g, sum, y, residual);
  } else if (residual) {
    cv_depthwise_store_bytes(f, g, sum, y, residual);
  } else {
    cv_depthwise_store_bytes(f, g, sum, y, NULL);
  }
}

/* Defines the tile `name`; what the numbers are is said at CV_DEPTHWISE_TILE. */
#define CV_DEPTHWISE_BYTES_TILE(name, KH, KW, STRIDE_W, PIXELS, GROUP, MULTIPLIER)                         \
  CV_DEPTHWISE_FITS(KW, PIXELS, GROUP, MULTIPLIER)                                                         \
  _Static_assert(CV_DOT_PARTS == 1 || ((PIXELS) - 1) * (STRIDE_W) + (KW) <= CV_DEPTHWISE_MAX_SPAN,         \
                 "the columns under a tile are unrolled");                                                 \
  static __attribute__((noinline)) void name(const cv_depthwise_window *g, const float *x, const float *w, \
                                             const float *bias, float *y, const float *residual) {         \
    const cv_depthwise_form form = {KH, KW, STRIDE_W, PIXELS, GROUP, MULTIPLIER};                          \
    cv_depthwise_bytes_body(form, g, x, w, bias, y, residual);                                             \
  }

#endif
