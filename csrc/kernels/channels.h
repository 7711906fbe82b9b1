/* Channels moved between blocked maps of one height and width.
 *
 *   cv_copy_channels     y[y_channel + i] = x[x_channel + i], i < count        (concat, slice)
 *   cv_channel_shuffle   y[k * groups + g] = x[g * (channels / groups) + k]
 *   cv_copy_byte_channels, cv_shuffle_byte_channels   the same of bytes
 *
 * cv_copy_channels takes channels at any offset: where both offsets agree modulo a block, whole pixels
 * are copied; else each pixel of a block is put together from pieces of two.  It touches these channels
 * only, and the lanes past y's last channel if that is among them; y's halo is the caller's.  Of floats a
 * shuffle writes all of y, its halo and last lanes too; of bytes its pixels.  x and y do not overlap.
 *
 * x and y are of one type.  Threads share rows of y's blocks.
 */
#ifndef CONVOY_KERNELS_CHANNELS_H_
#define CONVOY_KERNELS_CHANNELS_H_

#include <string.h>

#include "kernels/halo.h"
#include "kernels/map.h"

/* `lanes` lanes of `size` bytes of each pixel of a row; distances are bytes. */
CV_INLINE void cv_copy_lanes(const int size, uint8_t *y, ptrdiff_t y_step, const uint8_t *x,
                             ptrdiff_t x_step, int pixels, int lanes) {
  const int pixel = CV_LANES * size;
  if (lanes == CV_LANES && y_step == pixel && x_step == pixel) {
    memcpy(y, x, (size_t)(pixels * pixel));
  } else if (lanes == CV_LANES) {
    for (int i = 0; i < pixels; i++) memcpy(y + i * y_step, x + i * x_step, (size_t)pixel);
  } else if (size == sizeof(float)) {
    for (int i = 0; i < pixels; i++)
      cv_store_n((float *)(y + i * y_step), cv_load_n((const float *)(x + i * x_step), lanes), lanes);
  } else {
    for (int i = 0; i < pixels; i++)
      for (int k = 0; k < lanes * size; k++) y[i * y_step + k] = x[i * x_step + k];
  }
}

/* One row of the block of y that holds channels [begin, end). */
CV_INLINE void cv_copy_block_row(const int size, cv_byte_map y, int begin, int end, cv_byte_map x,
                                 int x_channel, int row) {
  while (begin < end) {
    /* The piece that also lies in one block of x. */
    const int x_lane = x_channel % CV_LANES;
    const int lanes = end - begin < CV_LANES - x_lane ? end - begin : CV_LANES - x_lane;
    const uint8_t *from = x.data + (x_channel / CV_LANES) * x.plane + row * x.row + x_lane * size;
    uint8_t *to = y.data + (begin / CV_LANES) * y.plane + row * y.row + begin % CV_LANES * size;
    cv_copy_lanes(size, to, y.step, from, x.step, y.width, lanes);
    begin += lanes;
    x_channel += lanes;
  }
}

CV_INLINE void cv_copy_lanes_of_channels(cv_thread thread, const int size, cv_byte_map y, int y_channel,
                                         cv_byte_map x, int x_channel, int count) {
  if (count <= 0) return;
  const int y_end = y_channel + count, first_block = y_channel / CV_LANES;
  const cv_range share = cv_share(thread, (cv_blocks(y_end) - first_block) * y.height);
  for (int i = share.begin; i < share.end; i++) {
    const int block = first_block + i / y.height, row = i % y.height;
    const int begin = block * CV_LANES > y_channel ? block * CV_LANES : y_channel;
    const int end = (block + 1) * CV_LANES < y_end ? (block + 1) * CV_LANES : y_end;
    cv_copy_block_row(size, y, begin, end, x, x_channel + begin - y_channel, row);
    const int lane = end % CV_LANES;
    if (size > 1 && end == y.channels && lane != 0) {
      uint8_t *past = y.data + block * y.plane + row * y.row + lane * size;
      for (int p = 0; p < y.width; p++) memset(past + p * y.step, 0, (size_t)((CV_LANES - lane) * size));
    }
  }
}

/* A map of floats by the bytes it lies in. */
CV_INLINE cv_byte_map cv_bytes_of_map(cv_map m) {
  enum { SIZE = sizeof *m.data };
  const cv_byte_map bytes = {
      (uint8_t *)m.data, m.channels, m.height, m.width,  m.plane * SIZE, m.row * SIZE,
      m.step * SIZE,     m.top,      m.left,   m.bottom, m.right};
  return bytes;
}

static inline void cv_copy_channels(cv_thread thread, cv_map y, int y_channel, cv_map x, int x_channel,
                                    int count) {
  const cv_byte_map to = cv_bytes_of_map(y), from = cv_bytes_of_map(x);
  if (cv_is_bf16(&x)) {
    cv_copy_lanes_of_channels(thread, sizeof(uint16_t), to, y_channel, from, x_channel, count);
  } else {
    cv_copy_lanes_of_channels(thread, sizeof(float), to, y_channel, from, x_channel, count);
  }
}

static inline void cv_copy_byte_channels(cv_thread thread, cv_byte_map y, int y_channel, cv_byte_map x,
                                         int x_channel, int count) {
  cv_copy_lanes_of_channels(thread, 1, y, y_channel, x, x_channel, count);
}

/* Lanes of two blocks of x that no one lane is taken from in both: what is taken is one vector of the two,
 * permuted once. */
typedef struct cv_shuffle_pair {
  ptrdiff_t source[2]; /* offsets of the blocks */
  cv_mask second;      /* lanes taken from the second one */
  cv_int lane;         /* from which lane each lane comes */
  cv_mask taken;       /* and whether it does */
} cv_shuffle_pair;

/* How a block of a shuffle's output is put together. */
typedef struct cv_shuffle_block {
  int count;
  cv_shuffle_pair pair[CV_LANES];
} cv_shuffle_block;

/* What output lanes take of one block of x: `from` that lane of it, of those that are `taken`. */
typedef struct cv_shuffle_piece {
  ptrdiff_t source;
  int32_t from[CV_LANES];
  uint32_t taken, lanes; /* bits: which output lanes, from which of its own */
} cv_shuffle_piece;

/* The pieces of a block of the output; returns how many. */
static inline int cv_shuffle_pieces(cv_shuffle_piece *pieces, int block, int channels, ptrdiff_t plane,
                                    int groups) {
  const int size = channels / groups, first = block * CV_LANES;
  int count = 0, group = first % groups, from = group * size + first / groups;
  for (int i = 0; i < CV_LANES && first + i < channels; i++) {
    const ptrdiff_t source = from / CV_LANES * plane;
    int piece = 0;
    while (piece < count && pieces[piece].source != source) piece++;
    if (piece == count) pieces[count++] = (cv_shuffle_piece){.source = source};
    pieces[piece].from[i] = from % CV_LANES;
    pieces[piece].taken |= 1u << i;
    pieces[piece].lanes |= 1u << from % CV_LANES;
    from += size;
    if (++group == groups) {
      group = 0;
      from += 1 - channels;
    }
  }
  return count;
}

static inline cv_shuffle_pair cv_shuffle_join(const cv_shuffle_piece *a, const cv_shuffle_piece *b) {
  cv_shuffle_pair pair = {.source = {a->source, b->source}};
  int32_t lane[CV_LANES];
  float taken[CV_LANES], second[CV_LANES];
  for (int i = 0; i < CV_LANES; i++) {
    lane[i] = a->taken >> i & 1 ? a->from[i] : b->from[i];
    taken[i] = (float)((a->taken | b->taken) >> i & 1);
    second[i] = (float)(b->lanes >> i & 1);
  }
  memcpy(&pair.lane, lane, sizeof pair.lane);
  pair.taken = cv_lt(cv_zero(), cv_loadu(taken));
  pair.second = cv_lt(cv_zero(), cv_loadu(second));
  return pair;
}

static inline void cv_shuffle_plan(cv_shuffle_block *b, int block, int channels, ptrdiff_t plane,
                                   int groups) {
  cv_shuffle_piece pieces[CV_LANES];
  const int count = cv_shuffle_pieces(pieces, block, channels, plane, groups);
  uint32_t joined = 0;
  b->count = 0;
  for (int i = 0; i < count; i++) {
    if (joined >> i & 1) continue;
    int other = i + 1;
    while (other < count && (joined >> other & 1 || pieces[i].lanes & pieces[other].lanes)) other++;
    joined |= 1u << other;
    b->pair[b->count++] = cv_shuffle_join(&pieces[i], &pieces[other < count ? other : i]);
  }
}

/* Adds `count` pairs to what earlier ones left in y, or begins: one or two, as what says how they fall
 * stays in registers. */
CV_INLINE void cv_shuffle_pairs(const int bf16, const int count, const int begins,
                                const cv_shuffle_pair *pairs, float *y, ptrdiff_t y_step, const float *x,
                                ptrdiff_t x_step, int pixels) {
  const cv_shuffle_pair one = pairs[0], two = pairs[count - 1];
  for (int p = 0; p < pixels; p++, x += x_step, y += y_step) {
    cv_vec v = begins ? cv_zero() : cv_load_lanes(bf16, y);
    const cv_vec of_one = cv_select(one.second, cv_load_lanes(bf16, x + one.source[1]),
                                    cv_load_lanes(bf16, x + one.source[0]));
    v = cv_select(one.taken, cv_permute(of_one, one.lane), v);
    if (count > 1) {
      const cv_vec of_two = cv_select(two.second, cv_load_lanes(bf16, x + two.source[1]),
                                      cv_load_lanes(bf16, x + two.source[0]));
      v = cv_select(two.taken, cv_permute(of_two, two.lane), v);
    }
    cv_store_lanes(bf16, y, v);
  }
}

CV_INLINE void cv_shuffle_row_of(const int bf16, const cv_shuffle_block *b, float *y, ptrdiff_t y_step,
                                 const float *x, ptrdiff_t x_step, int pixels) {
  if (b->count == 1) {
    cv_shuffle_pairs(bf16, 1, 1, b->pair, y, y_step, x, x_step, pixels);
    return;
  }
  cv_shuffle_pairs(bf16, 2, 1, b->pair, y, y_step, x, x_step, pixels);
  int pair = 2;
  for (; pair + 1 < b->count; pair += 2)
    cv_shuffle_pairs(bf16, 2, 0, b->pair + pair, y, y_step, x, x_step, pixels);
  if (pair < b->count) cv_shuffle_pairs(bf16, 1, 0, b->pair + pair, y, y_step, x, x_step, pixels);
}

static inline void cv_shuffle_row(const int bf16, const cv_shuffle_block *b, float *y, ptrdiff_t y_step,
                                  const float *x, ptrdiff_t x_step, int pixels) {
  if (bf16) {
    cv_shuffle_row_of(1, b, y, y_step, x, x_step, pixels);
  } else {
    cv_shuffle_row_of(0, b, y, y_step, x, x_step, pixels);
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
      float *to = y.data + b * y.plane + row * y.row;
      cv_shuffle_row(cv_is_bf16(&x), p, to, y.step, x.data + row * x.row, x.step, y.width);
    }
  }
  cv_map_clear_halo(thread, y);
}

/* The same of a block of bytes, four pixels at a time: byte l of the output is byte lane[piece][l] of a
 * source, and 255 where it is another's. */
typedef struct cv_byte_shuffle {
  int count;
  ptrdiff_t source[CV_LANES];
  cv_int lane[CV_LANES];
} cv_byte_shuffle;

static inline void cv_byte_shuffle_plan(cv_byte_shuffle *b, int block, int channels, ptrdiff_t plane,
                                        int groups) {
  cv_shuffle_piece pieces[CV_LANES];
  b->count = cv_shuffle_pieces(pieces, block, channels, plane, groups);
  for (int piece = 0; piece < b->count; piece++) {
    uint8_t lane[4 * CV_LANES];
    for (int i = 0; i < 4 * CV_LANES; i++) {
      const int taken = pieces[piece].taken >> i % CV_LANES & 1;
      lane[i] = taken ? (uint8_t)(i - i % CV_LANES + pieces[piece].from[i % CV_LANES]) : 255;
    }
    b->source[piece] = pieces[piece].source;
    b->lane[piece] = cv_load_quad(lane, 4);
  }
}

/* `n` pixels side by side, up to four. */
CV_INLINE void cv_shuffle_quad(const cv_byte_shuffle *b, uint8_t *y, const uint8_t *x, const int n) {
  cv_int v = cv_pick(cv_load_quad(x + b->source[0], n), b->lane[0]);
  for (int piece = 1; piece < b->count; piece++)
    v = cv_int_or(v, cv_pick(cv_load_quad(x + b->source[piece], n), b->lane[piece]));
  cv_store_quad(y, v, n);
}

static inline void cv_shuffle_byte_row(const cv_byte_shuffle *b, uint8_t *y, ptrdiff_t y_step,
                                       const uint8_t *x, ptrdiff_t x_step, int pixels) {
  int p = 0;
  if (x_step == CV_LANES && y_step == CV_LANES) {
    for (; p + 4 <= pixels; p += 4) cv_shuffle_quad(b, y + p * CV_LANES, x + p * CV_LANES, 4);
    for (; p + 2 <= pixels; p += 2) cv_shuffle_quad(b, y + p * CV_LANES, x + p * CV_LANES, 2);
  }
  for (; p < pixels; p++) cv_shuffle_quad(b, y + p * y_step, x + p * x_step, 1);
}

static inline void cv_shuffle_byte_channels(cv_thread thread, cv_byte_map y, cv_byte_map x, int groups) {
  const cv_range share = cv_share(thread, cv_blocks(y.channels) * y.height);
  cv_byte_shuffle plan = {0};
  for (int i = share.begin; i < share.end; i++) {
    const int block = i / y.height, row = i % y.height;
    if (row == 0 || i == share.begin) cv_byte_shuffle_plan(&plan, block, y.channels, x.plane, groups);
    cv_shuffle_byte_row(&plan, y.data + block * y.plane + row * y.row, y.step, x.data + row * x.row, x.step,
                        y.width);
  }
}

#endif
