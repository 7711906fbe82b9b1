/* Depthwise 2-D convolution of one image: each channel by itself, or with the few others of its group.
 *
 *   y[c, v, u] = epilogue(sum over j, r, s of
 *                w[c, j, r, s] * x[c / multiplier / group * group + j,
 *                                  v * stride_h + r * dilation_h - pad_top,
 *                                  u * stride_w + s * dilation_w - pad_left])
 *
 * Tile: PIXELS pixels of one row of one block, in registers over all taps.  For each kernel row, its KW
 * weights are held and every input pixel under the tile is loaded once and fed to all its taps: PIXELS *
 * KW multiply-adds for (PIXELS - 1) * STRIDE_W + (KW - 1) * DILATION_W + 1 + KW loads.  Taps too far apart
 * to share pixels load them anew.  A group is 1 channel, or some that divide CV_LANES: then this is done
 * for each of them, with the lanes of a loaded pixel permuted so that all of a group have that channel.
 * Of single channels there may be several filters, a multiplier that divides CV_LANES: their lanes are
 * permuted so that all of a channel's filters have it.
 * The work is bound by loads, stores and memory, not by multiply-adds.
 *
 * weights: [block][kernel_h][group][kernel_w][CV_LANES], 64-byte aligned, zero in the spare lanes.
 * x, y: blocked; x's halo covers all that the taps reach; y is written whole, with its halo (with another
 * step than CV_LANES, only its pixels).  Each may be of bfloat16: x where the tiles are for it.
 * Bytes: tiles and weights are kernels/conv2d_depthwise_bytes.h's, maps are cv_map_of_cells', and the halo
 * of y is the caller's.
 * Threads share blocks x rows; the rows of a block follow one another, so that the rows of x they have
 * in common are still in L1.
 */
#ifndef CONVOY_KERNELS_CONV2D_DEPTHWISE_H_
#define CONVOY_KERNELS_CONV2D_DEPTHWISE_H_

#include "kernels/epilogue.h"
#include "kernels/halo.h"
#include "kernels/map.h"

/* What a tile needs beside the places it works on. */
typedef struct cv_depthwise_window {
  ptrdiff_t x_row; /* floats to the next kernel row */
  ptrdiff_t y_step, residual_step;
  float low, high;
  int y_bf16, residual_bf16;
  int first;                       /* lane of x that the first lane of y reads */
  const cv_requantize *requantize; /* of sums of bytes; or NULL */
  const float *scale, *shift;      /* of the block */
} cv_depthwise_window;

/* x: the input under the tile's first pixel and the kernel's first tap; w, bias: of the block;
 * y: first pixel; residual: the same place, or NULL. */
typedef void (*cv_depthwise_tile)(const cv_depthwise_window *g, const float *x, const float *w,
                                  const float *bias, float *y, const float *residual);

typedef struct cv_depthwise {
  int stride_h, stride_w, dilation_h, pad_top, pad_left;
  int block_weights;       /* vectors of weights of a block */
  int group, multiplier;   /* channels of a group, filters of a channel: one of them is 1 */
  int pixels[2], tiles[2]; /* a row is tiles[0] tiles of pixels[0] pixels, then tiles[1] of pixels[1] */
  cv_depthwise_tile tile[2];
} cv_depthwise;

#define CV_DEPTHWISE_MAX_PIXELS 28
#define CV_DEPTHWISE_MAX_KERNEL_W 11
/* Pixels under a tile that are loaded once: as many as a loop is unrolled for. */
#define CV_DEPTHWISE_MAX_SPAN 64

/* A pixel, each lane the channel its filter reads: `lanes` are where that is. */
CV_INLINE cv_vec cv_depthwise_pixel(const int bf16, const float *x, const int permuted, cv_int lanes) {
  const cv_vec pixel = cv_load_lanes(bf16, x);
  return permuted ? cv_permute(pixel, lanes) : pixel;
}

/* The lanes that filters of a block read, of the first channel of each group. */
CV_INLINE cv_int cv_depthwise_first_lanes(const cv_depthwise_window *g, const int group,
                                          const int multiplier) {
  static const float numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const cv_vec shared = cv_floor(cv_mul(cv_loadu(numbers), cv_set1(1.0f / (float)multiplier)));
  return cv_int_add(cv_int_and(cv_to_int(shared), cv_int_set1(-group)), cv_int_set1(g->first));
}

CV_INLINE void cv_depthwise_store(const cv_vec *sum, const int pixels, const int bf16, float *y,
                                  ptrdiff_t step) {
  CV_UNROLL
  for (int p = 0; p < pixels; p++) cv_store_lanes(bf16, y + p * step, sum[p]);
}

CV_INLINE void cv_depthwise_tile_body(const cv_depthwise_window *g, const float *x, const float *w,
                                      const float *bias, float *y, const float *residual,
                                      const int kernel_h, const int kernel_w, const int stride_w,
                                      const int dilation_w, const int pixels, const int group,
                                      const int multiplier, const int bf16) {
  const int span = (pixels - 1) * stride_w + (kernel_w - 1) * dilation_w + 1;
  const int permuted = group * multiplier > 1, cells = cv_pixel_cells(bf16);
  const cv_int first = cv_depthwise_first_lanes(g, group, multiplier);
  cv_vec sum[CV_DEPTHWISE_MAX_PIXELS];
  CV_UNROLL
  for (int p = 0; p < pixels; p++) sum[p] = cv_load(bias);
  for (int i = 0; i < kernel_h * group; i++, w += kernel_w * CV_LANES) {
    const cv_int lanes = cv_int_add(first, cv_int_set1(i % group));
    cv_vec weight[CV_DEPTHWISE_MAX_KERNEL_W];
    CV_UNROLL
    for (int s = 0; s < kernel_w; s++) weight[s] = cv_load(w + s * CV_LANES);
    if (span > CV_DEPTHWISE_MAX_SPAN) {
      CV_UNROLL
      for (int s = 0; s < kernel_w; s++) {
        CV_UNROLL
        for (int p = 0; p < pixels; p++) {
          const float *from = x + (p * stride_w + s * dilation_w) * cells;
          sum[p] = cv_fma(cv_depthwise_pixel(bf16, from, permuted, lanes), weight[s], sum[p]);
        }
      }
    } else {
      CV_UNROLL
      for (int k = 0; k < span; k++) {
        /* Held, or gcc loads it once for each tap. */
        const cv_vec pixel = cv_hold(cv_depthwise_pixel(bf16, x + k * cells, permuted, lanes));
        CV_UNROLL
        for (int s = 0; s < kernel_w; s++) {
          const int distance = k - s * dilation_w; /* of the output pixel this tap belongs to */
          if (distance >= 0 && distance % stride_w == 0 && distance / stride_w < pixels)
            sum[distance / stride_w] = cv_fma(pixel, weight[s], sum[distance / stride_w]);
        }
      }
    }
    if (i % group == group - 1) x += g->x_row;
  }
  if (residual && CV_BFLOAT16_MAPS && g->residual_bf16) {
    CV_UNROLL
    for (int p = 0; p < pixels; p++) sum[p] = cv_add(sum[p], cv_load_bf16(residual + p * g->residual_step));
  } else if (residual) {
    CV_UNROLL
    for (int p = 0; p < pixels; p++) sum[p] = cv_add(sum[p], cv_load(residual + p * g->residual_step));
  }
  if (g->low > -INFINITY) {
    const cv_vec low = cv_set1(g->low);
    CV_UNROLL
    for (int p = 0; p < pixels; p++) sum[p] = cv_max(low, sum[p]);
  }
  if (g->high < INFINITY) {
    const cv_vec high = cv_set1(g->high);
    CV_UNROLL
    for (int p = 0; p < pixels; p++) sum[p] = cv_min(high, sum[p]);
  }
  if (CV_BFLOAT16_MAPS && g->y_bf16) {
    cv_depthwise_store(sum, pixels, 1, y, g->y_step);
  } else if (g->y_step == CV_LANES) { /* known, it needs no addresses */
    cv_depthwise_store(sum, pixels, 0, y, CV_LANES);
  } else {
    cv_depthwise_store(sum, pixels, 0, y, g->y_step);
  }
}

/* Defines the tile `name`.  Up to about 28 (AVX-512) or 12 pixels + KW stay in registers. */
#define CV_DEPTHWISE_TILE(name, ...) CV_DEPTHWISE_TILE_OF(name, 0, __VA_ARGS__)
/* The same of an x of bfloat16. */
#define CV_DEPTHWISE_BF16_TILE(name, ...) CV_DEPTHWISE_TILE_OF(name, 1, __VA_ARGS__)

#define CV_DEPTHWISE_FITS(KW, PIXELS, GROUP, MULTIPLIER)                                       \
  _Static_assert((PIXELS) <= CV_DEPTHWISE_MAX_PIXELS && (KW) <= CV_DEPTHWISE_MAX_KERNEL_W,     \
                 "the tile has more pixels or weights than there are registers");              \
  _Static_assert((GROUP) > 0 && CV_LANES % (GROUP) == 0, "a group is in one block");           \
  _Static_assert((MULTIPLIER) > 0 && CV_LANES % (MULTIPLIER) == 0, "a block reads one block"); \
  _Static_assert((GROUP) == 1 || (MULTIPLIER) == 1, "groups have as many channels in as out");

#define CV_DEPTHWISE_TILE_OF(name, BF16, KH, KW, STRIDE_W, DILATION_W, PIXELS, GROUP, MULTIPLIER)          \
  CV_DEPTHWISE_FITS(KW, PIXELS, GROUP, MULTIPLIER)                                                         \
  static __attribute__((noinline)) void name(const cv_depthwise_window *g, const float *x, const float *w, \
                                             const float *bias, float *y, const float *residual) {         \
    cv_depthwise_tile_body(g, x, w, bias, y, residual, KH, KW, STRIDE_W, DILATION_W, PIXELS, GROUP,        \
                           MULTIPLIER, BF16);                                                              \
  }

/* Rows of one block of y. */
CV_SHARED void cv_depthwise_run_rows(const cv_depthwise *c, const cv_epilogue_split *split, const cv_map *x,
                                     const float *w, const cv_map *y, const cv_epilogue *e, int block,
                                     cv_range rows) CV_SYMBOL(cv_depthwise_run_rows);

#if CV_DEFINES(CONV2D_DEPTHWISE)
/* Finishes what tiles stored of rows of a block. */
static void cv_depthwise_finish(const cv_epilogue *e, const cv_epilogue_split *split, const cv_map *y,
                                int block, cv_range rows) {
  const cv_map *residual = e->residual;
  for (int row = rows.begin; row < rows.end; row++) {
    const float *added = residual ? residual->data + block * residual->plane + row * residual->row : NULL;
    cv_epilogue_finish(e, split, y, y->data + block * y->plane + row * y->row, added, block, 1, y->width);
  }
}

CV_SHARED void cv_depthwise_run_rows(const cv_depthwise *c, const cv_epilogue_split *split, const cv_map *x,
                                     const float *w, const cv_map *y, const cv_epilogue *e, int block,
                                     cv_range rows) {
  const cv_map *residual = e->residual;
  const int spare = (block + 1) * CV_LANES > y->channels;
  const int finish = split->finish || (spare && cv_stores_floats(e));
  const int apart = cv_is_bf16(y) && finish; /* sums are finished as float32, then stored */
  float sums[CV_BFLOAT16_MAPS ? CV_DEPTHWISE_MAX_PIXELS * CV_LANES : 1] __attribute__((aligned(64)));
  const cv_map stored = {.channels = y->channels, .step = CV_LANES};
  const cv_depthwise_window window = {
      .x_row = c->dilation_h * x->row,
      .y_step = apart ? CV_LANES : y->step,
      .residual_step = residual ? residual->step : 0,
      .y_bf16 = cv_is_bf16(y) && !finish,
      .residual_bf16 = cv_is_bf16(residual),
      .low = split->low,
      .high = split->high,
      .first = block % c->multiplier * (CV_LANES / c->multiplier),
      .requantize = split->requantize,
      .scale = split->requantize ? split->requantize->scale + block * CV_LANES : NULL,
      .shift = split->requantize ? split->requantize->shift + block * CV_LANES : NULL,
  };
  const ptrdiff_t block_weights = (ptrdiff_t)c->block_weights * CV_LANES;
  const float *x_block = x->data + block / c->multiplier * x->plane;
  float *y_block = y->data + block * y->plane;
  const float *residual_block = residual ? residual->data + block * residual->plane : NULL;
  int finished = rows.begin;
  for (int row = rows.begin; row < rows.end; row++) {
    const float *x_tile = x_block + (row * c->stride_h - c->pad_top) * x->row - c->pad_left * x->step;
    float *y_tile = y_block + row * y->row;
    const float *residual_tile = residual ? residual_block + row * residual->row : NULL;
    for (int kind = 0; kind < 2; kind++) {
      const int pixels = c->pixels[kind];
      for (int i = 0; i < c->tiles[kind]; i++) {
        c->tile[kind](&window, x_tile, w + block * block_weights, e->bias + block * CV_LANES,
                      apart ? sums : y_tile, split->residual ? residual_tile : NULL);
        if (apart) cv_epilogue_finish(e, split, &stored, sums, residual_tile, block, 1, pixels);
        for (int p = 0; apart && p < pixels; p++)
          cv_store_bf16(y_tile + p * y->step, cv_load(sums + p * CV_LANES));
        x_tile += pixels * c->stride_w * x->step;
        y_tile += pixels * y->step;
        if (residual) residual_tile += pixels * residual->step;
      }
    }
    if (!finish || apart) continue;
    if (row + 1 == rows.end || (row + 1 - finished) * y->width >= CV_FINISHED_TOGETHER) {
      cv_depthwise_finish(e, split, y, block, (cv_range){finished, row + 1});
      finished = row + 1;
    }
  }
}
#endif

static inline void cv_conv2d_depthwise(cv_thread t, const cv_depthwise *c, cv_map x, const float *w,
                                       cv_map y, const cv_epilogue *e) {
  const cv_epilogue_split split = cv_split_epilogue(e);
  const cv_range share = cv_share(t, cv_blocks(y.channels) * y.height);
  if (cv_stores_floats(e)) cv_map_clear_halo(t, y);
  for (int i = share.begin, count; i < share.end; i += count) {
    const int row = i % y.height, left = share.end - i;
    count = y.height - row < left ? y.height - row : left;
    cv_depthwise_run_rows(c, &split, &x, w, &y, e, i / y.height, (cv_range){row, row + count});
  }
}

#endif
