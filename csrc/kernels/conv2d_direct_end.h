/* How a tile of the direct convolution begins and ends: sums are loaded, bounded or requantised, and stored
 * (kernels/conv2d_direct_tile.h). */
#ifndef CONVOY_KERNELS_CONV2D_DIRECT_END_H_
#define CONVOY_KERNELS_CONV2D_DIRECT_END_H_

#include <math.h>
#include <string.h>

#include "kernels/conv2d_direct_form.h"

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
    const float *pixel = residual + cv_conv2d_pixel(f, g->at->residual, p, g->residual_step);
    CV_UNROLL
    for (int b = 0; b < f.blocks; b++) {
      cv_vec *s = &sum[p * f.blocks + b];
      *s = cv_add(*s, cv_load_lanes(bf16, pixel + b * g->residual_plane));
    }
  }
}

/* In how many parts a tile asks for a block of what the next one stores and adds.  Of wide vectors all at
 * once would keep its own lines waiting; narrow ones have half as many, or fewer. */
CV_INLINE int cv_conv2d_ask_parts(const cv_conv2d_form f) {
  return f.rows == 2 || CV_LANES == CV_CONV2D_LINE ? 2 : 1;
}

/* Asks for part number `part` of all blocks'.  A run's pixels in its next row are not asked for. */
CV_INLINE void cv_conv2d_ask_output(const cv_conv2d_form f, const cv_conv2d_window *g, int part) {
  __asm__("" : "+r"(g)); /* or the compiler keeps what this reads in registers it has not */
  const int parts = cv_conv2d_ask_parts(f), block = part / parts, other = part % parts;
  const int pixels = f.rows == 2 ? f.width : (f.width + parts - 1) / parts;
  const int next = (f.cell == CV_SHORTS ? 1 : f.cell) * CV_CONV2D_LINE / CV_LANES; /* pixel, a line on */
  const float *y =
      g->next_y + block * g->y_plane + other * (f.rows == 2 ? g->at->y[f.width] : pixels * g->y_step);
  CV_UNROLL
  for (int p = 0; p < pixels; p += next) cv_prefetch_store(y + p * g->y_step);
  if (!g->next_residual) return;
  const float *residual = g->next_residual + block * g->residual_plane +
                          other * (f.rows == 2 ? g->at->residual[f.width] : pixels * g->residual_step);
  CV_UNROLL
  for (int p = 0; p < pixels; p += next) cv_prefetch(residual + p * g->residual_step);
}

/* Stores `count` <= 4 neighbouring pixels of bytes, from number p on. */
CV_INLINE void cv_conv2d_store_quad(const cv_conv2d_form f, const cv_conv2d_window *g, float *y, int p,
                                    const int count, cv_int quad) {
  const ptrdiff_t first = cv_conv2d_pixel(f, g->at->y, p, g->y_step);
  const ptrdiff_t last = cv_conv2d_pixel(f, g->at->y, p + count - 1, g->y_step);
  if (last - first == (count - 1) * (CV_LANES / CV_BYTES)) {
    cv_store_quad((uint8_t *)(y + first), quad, count);
    return;
  }
  uint8_t bytes[4 * CV_LANES];
  cv_store_quad(bytes, quad, 4);
  CV_UNROLL
  for (int i = 0; i < count; i++)
    memcpy(y + cv_conv2d_pixel(f, g->at->y, p + i, g->y_step), bytes + i * CV_LANES, CV_LANES);
}

/* Requantises sums of bytes that are plain (cv_requantize), with a residual or without one: four
 * neighbouring pixels at a time, which become bytes together. */
CV_INLINE void cv_conv2d_store_bytes(const cv_conv2d_form f, const cv_conv2d_window *g, const cv_vec *sum,
                                     float *y, const float *residual, const int held) {
  const cv_requantize r = *g->requantize; /* bytes that are stored might else change it */
  const cv_requantizer rounds = cv_requantizer_of(&r);
  const cv_vec low = cv_set1(r.low), residual_scale = cv_set1(r.residual_scale);
  const cv_vec residual_shift = cv_set1(r.residual_shift);
  const cv_vec held_low = cv_set1(r.held_low), held_high = cv_set1(r.held_high);
  const cv_vec held_unit = cv_set1(r.held_unit);
  CV_UNROLL
  for (int b = 0; b < f.blocks; b++) {
    const cv_vec scale = cv_load(g->scale + b * CV_LANES);
    cv_vec shift = cv_load(g->shift + b * CV_LANES);
    if (residual && !held) shift = cv_add(shift, residual_shift);
    cv_vec v[CV_CONV2D_MAX_ACCUMULATORS];
    CV_UNROLL
    for (int p = 0; p < cv_conv2d_pixels(f); p++) {
      v[p] = cv_fma(cv_from_int(cv_as_int(sum[p * f.blocks + b])), scale, shift);
      if (held)
        v[p] = cv_fma(cv_round(cv_min(held_high, cv_max(held_low, v[p]))), held_unit, residual_shift);
      if (residual) {
        const ptrdiff_t at =
            cv_conv2d_pixel(f, g->at->residual, p, g->residual_step) + b * g->residual_plane;
        v[p] = cv_fma(cv_from_int(cv_load_bytes((const uint8_t *)(residual + at))), residual_scale, v[p]);
      }
      if (CV_DOT_PARTS > 1) { /* its sums leave no registers for more pixels */
        cv_store_bytes((uint8_t *)(y + cv_conv2d_pixel(f, g->at->y, p, g->y_step) + b * g->y_plane),
                       cv_requantize_round(v[p], low, rounds.high, rounds.zero));
        continue;
      }
      const int column = f.rows == 2 ? p % f.width : p, first = p - column % 4;
      if (column % 4 < 3 && column + 1 < f.width) continue;
      const cv_vec four[4] = {v[first], v[p - first > 0 ? first + 1 : first],
                              v[p - first > 1 ? first + 2 : first], v[p]};
      cv_conv2d_store_quad(f, g, y + b * g->y_plane, first, p - first + 1,
                           cv_requantize_quad(&rounds, four));
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
      at[k] = cv_conv2d_pixel(f, g->at->y, p, g->y_step) + b * g->y_plane;
      if (!residual) continue;
      residual_at[k] = cv_conv2d_pixel(f, g->at->residual, p, g->residual_step) + b * g->residual_plane;
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
    cv_conv2d_store_sums(f, sum, 1, y, g->y_plane, g->at->y, g->y_step);
  } else if (g->y_step == CV_LANES) {
    cv_conv2d_store_sums(f, sum, 0, y, g->y_plane, g->at->y, CV_LANES);
  } else {
    cv_conv2d_store_sums(f, sum, 0, y, g->y_plane, g->at->y, g->y_step);
  }
}

CV_INLINE void cv_conv2d_end(const cv_conv2d_form f, const cv_conv2d_window *g, cv_vec *sum, float *y,
                             const float *residual) {
  if (CV_CONV2D_BYTES && f.cell == CV_BYTES) {
    cv_conv2d_end_bytes(f, g, sum, y, residual);
  } else {
    cv_conv2d_end_floats(f, g, sum, y, residual);
  }
}

#endif
