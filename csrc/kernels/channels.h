/* Channels moved between blocked maps of one height and width.
 *
 *   cv_copy_channels     y[y_channel + i] = x[x_channel + i], i < count        (concat, slice)
 *   cv_channel_shuffle   y[k * groups + g] = x[g * (channels / groups) + k]
 *
 * cv_copy_channels takes channels at any offset: where both offsets agree modulo a block, whole pixels
 * are copied; else each pixel of a block is put together from pieces of two.  It touches these channels
 * only, and the lanes past y's last channel if that is among them; y's halo is the caller's.
 * cv_channel_shuffle writes all of y, its halo and last lanes too.  x and y do not overlap.
 *
 * Threads share rows of y's blocks.
 */
#ifndef CONVOY_KERNELS_CHANNELS_H_
#define CONVOY_KERNELS_CHANNELS_H_

#include <string.h>

#include "kernels/halo.h"
#include "kernels/map.h"

/* `lanes` lanes of each pixel of a row. */
static inline void cv_copy_lanes(float *y, ptrdiff_t y_step, const float *x, ptrdiff_t x_step, int pixels,
                                 int lanes) {
  if (lanes == CV_LANES && y_step == CV_LANES && x_step == CV_LANES) {
    memcpy(y, x, (size_t)pixels * CV_LANES * sizeof *y);
  } else if (lanes == CV_LANES) {
    for (int i = 0; i < pixels; i++) cv_store(y + i * y_step, cv_load(x + i * x_step));
  } else {
    for (int i = 0; i < pixels; i++) cv_store_n(y + i * y_step, cv_load_n(x + i * x_step, lanes), lanes);
  }
}

/* One row of the block of y that holds channels [begin, end). */
static inline void cv_copy_block_row(cv_map y, int begin, int end, cv_map x, int x_channel, int row) {
  while (begin < end) {
    /* The piece that also lies in one block of x. */
    const int x_lane = x_channel % CV_LANES;
    const int lanes = end - begin < CV_LANES - x_lane ? end - begin : CV_LANES - x_lane;
    const float *from = x.data + (x_channel / CV_LANES) * x.plane + row * x.row + x_lane;
    float *to = y.data + (begin / CV_LANES) * y.plane + row * y.row + begin % CV_LANES;
    cv_copy_lanes(to, y.step, from, x.step, y.width, lanes);
    begin += lanes;
    x_channel += lanes;
  }
}

static inline void cv_copy_channels(cv_thread thread, cv_map y, int y_channel, cv_map x, int x_channel,
                                    int count) {
  if (count <= 0) return;
  const int y_end = y_channel + count, first_block = y_channel / CV_LANES;
  const cv_range share = cv_share(thread, (cv_blocks(y_end) - first_block) * y.height);
  for (int i = share.begin; i < share.end; i++) {
    const int block = first_block + i / y.height, row = i % y.height;
    const int begin = block * CV_LANES > y_channel ? block * CV_LANES : y_channel;
    const int end = (block + 1) * CV_LANES < y_end ? (block + 1) * CV_LANES : y_end;
    cv_copy_block_row(y, begin, end, x, x_channel + begin - y_channel, row);
    const int lane = end % CV_LANES;
    if (end == y.channels && lane != 0) {
      float *past = y.data + block * y.plane + row * y.row + lane;
      for (int p = 0; p < y.width; p++) cv_store_n(past + p * y.step, cv_zero(), CV_LANES - lane);
    }
  }
}

/* How a block of a shuffle's output is put together: lanes of `count` blocks of x, in any order.  The
 * count is even: of the last one no lane may be taken. */
typedef struct cv_shuffle_block {
  int count;
  ptrdiff_t source[CV_LANES]; /* offsets of those blocks */
  cv_int lane[CV_LANES];      /* from which lane each lane comes */
  cv_mask taken[CV_LANES];    /* and whether it does */
} cv_shuffle_block;

static inline void cv_shuffle_plan(cv_shuffle_block *b, int block, int channels, ptrdiff_t plane,
                                   int groups) {
  const int size = channels / groups, first = block * CV_LANES;
  int group = first % groups, from = group * size + first / groups;
  int32_t lane[CV_LANES][CV_LANES] = {0};
  float taken[CV_LANES][CV_LANES] = {0};
  b->count = 0;
  for (int i = 0; i < CV_LANES && first + i < channels; i++) {
    const ptrdiff_t source = from / CV_LANES * plane;
    int piece = 0;
    while (piece < b->count && b->source[piece] != source) piece++;
    if (piece == b->count) b->source[b->count++] = source;
    lane[piece][i] = from % CV_LANES;
    taken[piece][i] = 1;
    from += size;
    if (++group == groups) {
      group = 0;
      from += 1 - channels;
    }
  }
  if (b->count % 2) b->source[b->count++] = 0;
  for (int piece = 0; piece < b->count; piece++) {
    memcpy(&b->lane[piece], lane[piece], sizeof b->lane[piece]);
    b->taken[piece] = cv_lt(cv_zero(), cv_loadu(taken[piece]));
  }
}

/* Two pieces at a time: what says how they fall stays in registers. */
static inline void cv_shuffle_row(const cv_shuffle_block *b, float *y, ptrdiff_t y_step, const float *x,
                                  ptrdiff_t x_step, int pixels) {
  for (int piece = 0; piece < b->count; piece += 2) {
    const float *one = x + b->source[piece], *two = x + b->source[piece + 1];
    const cv_int one_lane = b->lane[piece], two_lane = b->lane[piece + 1];
    const cv_mask one_taken = b->taken[piece], two_taken = b->taken[piece + 1];
    for (int p = 0; p < pixels; p++) {
      cv_vec v = piece > 0 ? cv_load(y + p * y_step) : cv_zero();
      v = cv_select(one_taken, cv_permute(cv_load(one + p * x_step), one_lane), v);
      v = cv_select(two_taken, cv_permute(cv_load(two + p * x_step), two_lane), v);
      cv_store(y + p * y_step, v);
    }
  }
}

/* Blocks of y, at most, that are put together row by row: neighbours come from the same blocks of x, and
 * find them in L1. */
enum { CV_SHUFFLE_BLOCKS = 4 };

/* channels is a multiple of groups. */
static inline void cv_channel_shuffle(cv_thread thread, cv_map y, cv_map x, int groups) {
  const int blocks = cv_blocks(y.channels), parts = (blocks + CV_SHUFFLE_BLOCKS - 1) / CV_SHUFFLE_BLOCKS;
  const cv_range share = cv_share(thread, parts * y.height);
  cv_shuffle_block plan[CV_SHUFFLE_BLOCKS] = {0};
  for (int i = share.begin; i < share.end; i++) {
    const cv_range part = cv_share((cv_thread){i / y.height, parts}, blocks);
    const int row = i % y.height;
    for (int b = part.begin; b < part.end; b++) {
      cv_shuffle_block *p = &plan[b - part.begin];
      if (row == 0 || i == share.begin) cv_shuffle_plan(p, b, y.channels, x.plane, groups);
      cv_shuffle_row(p, y.data + b * y.plane + row * y.row, y.step, x.data + row * x.row, x.step, y.width);
    }
  }
  cv_map_clear_halo(thread, y);
}

#endif
