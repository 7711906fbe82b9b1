/* Winograd convolution F(4x4, 3x3) of a map of few tiles: U passes through registers and is never stored.
 *
 * What conv2d_winograd.h says of the algorithm holds here too.  There each vector of U is stored, and
 * loaded again for one multiply-add a tile; with the 4 tiles of 7x7 pixels that costs more than it saves.
 *
 *   1. V[in block][row][4 tiles][point][tile][lanes] = B^T x B, by all threads
 *   2. for each output block, input block and pair of the 6 rows of points:
 *      (G w)[row][3][in channel][lanes], in L1; for the rows of 0 and infinity it is w itself
 *      M[row][4 tiles][point][tile][lanes] += V * U by register tiles of 4 tiles and a row of points, or
 *      half a row: U of an input channel takes a multiply-add a vector to make, and stays in registers
 *   3. y = epilogue(A^T M A): conv2d_winograd_outputs.h, which says what y has to be
 *
 * Threads share output blocks, so that weights are read once in all, and in order.  They come from beyond
 * L2: CV_WINOGRAD_FAR input blocks ahead they are asked for into L2, one ahead into L1.  One output block
 * at a time: with two V is loaded half as often, but what is used again no longer fits L1.
 *
 * Where tiles are counted at the call, panels are those of conv2d_winograd.h, of several blocks: a vector
 * of weights is `blocks` vectors from the next one of its block.
 */
#ifndef CONVOY_KERNELS_CONV2D_WINOGRAD_STREAMED_H_
#define CONVOY_KERNELS_CONV2D_WINOGRAD_STREAMED_H_

#include "kernels/conv2d_winograd_outputs.h"

enum {
  CV_WINOGRAD_OUT = 4,
  CV_WINOGRAD_ROW = 6,                   /* points of a row, and rows */
  CV_WINOGRAD_FOUR = 4,                  /* tiles of a register tile */
  CV_WINOGRAD_TAP = CV_LANES * CV_LANES, /* floats between the taps of an input block, or the 3 of (G w) */
  CV_WINOGRAD_BLOCK = 9 * CV_WINOGRAD_TAP,
  CV_WINOGRAD_FAR = 512 / CV_WINOGRAD_TAP, /* input blocks */
  /* Points of a register tile: 24 sums for 32 registers; or +p_0, -p_0, 0, or infinity, +p_1, -p_1: 12
     for 16. */
  CV_WINOGRAD_PART = CV_REGISTERS == 32 ? 6 : 3
};

/* ---- Sizes, in floats; `room`: for tiles, whole fours ---- */

CV_INLINE ptrdiff_t cv_winograd_streamed_m_size(int room) {
  return (ptrdiff_t)CV_WINOGRAD_ROW * CV_WINOGRAD_ROW * room * CV_LANES;
}

CV_INLINE ptrdiff_t cv_winograd_streamed_v_size(int room, int in_blocks) {
  return in_blocks * cv_winograd_streamed_m_size(room);
}

/* Of V, and of M, which is one block of it. */
CV_INLINE cv_winograd_layout cv_winograd_streamed_layout(int room) {
  const ptrdiff_t row = (ptrdiff_t)CV_WINOGRAD_ROW * room * CV_LANES;
  return (cv_winograd_layout){.pair = 2 * row,
                              .row = row,
                              .point = CV_WINOGRAD_FOUR * CV_LANES,
                              .block = CV_WINOGRAD_ROW * row,
                              .four = CV_WINOGRAD_ROW * CV_WINOGRAD_FOUR * CV_LANES,
                              .tile = CV_LANES};
}

/* ---- Products ---- */

/* U of the points of a row from `first` on, of an input channel, from its 3 vectors of (G w).  A vector is
 * loaded again, and held, where a multiply-add may then overwrite it: a copy takes one's place. */
CV_INLINE void cv_winograd_streamed_u(const int first, const float *w, cv_vec *u) {
  const cv_vec zero = cv_hold(cv_load(w)), infinity = cv_hold(cv_load(w + 2 * CV_WINOGRAD_TAP));
  if (first <= CV_WINOGRAD_ZERO) u[CV_WINOGRAD_ZERO - first] = zero;
  if (first + CV_WINOGRAD_PART > CV_WINOGRAD_INFINITY) u[CV_WINOGRAD_INFINITY - first] = infinity;
  CV_UNROLL
  for (int i = 0; i < CV_WINOGRAD_OUT / 2; i++) {
    const int at = cv_winograd_pair(i) - first;
    if (at < 0 || at >= CV_WINOGRAD_PART) continue;
    const double p = cv_winograd_p(CV_WINOGRAD_OUT, i);
    const cv_vec along = cv_set1((float)p), even = cv_fma(cv_set1((float)(p * p)), infinity, zero);
    u[at] = cv_fma(along, cv_hold(cv_load(w + CV_WINOGRAD_TAP)), even);
    u[at + 1] = cv_fnma(along, cv_load(w + CV_WINOGRAD_TAP), even);
  }
}

/* Whether a tile has a point: number i of a register tile whose first point of a row is `first`.  With
 * smaller last tiles there are four, of one phase, in the order of conv2d_winograd_tiles.h. */
CV_INLINE int cv_winograd_streamed_has(const cv_winograd_form f, const int first, const int not_low,
                                       const int i) {
  const int tile = i % CV_WINOGRAD_FOUR, low = f.height < f.out;
  const int not_narrow = first + i / CV_WINOGRAD_FOUR >= f.width + 2;
  return (!not_low || tile < 2) && (!not_narrow || (tile >= 2 - low && tile < 4 - low));
}

/* M of a register tile, or its sum (`adds`) with the products of an input block; w: its row of (G w);
 * not_low: low tiles have no points of that row.  Of the weights from `ask` on, 3 lines every 2 channels
 * are asked for. */
CV_INLINE void cv_winograd_streamed_tile(const cv_winograd_form f, const int blocks, const int first,
                                         const int not_low, int adds, const float *w, const float *v,
                                         float *m, const float *ask) {
  enum { VECTORS = CV_WINOGRAD_PART * CV_WINOGRAD_FOUR, NEAR = VECTORS / 3, FAR = 2 * NEAR };
  cv_vec sum[VECTORS];
  v += first * CV_WINOGRAD_FOUR * CV_LANES;
  m += first * CV_WINOGRAD_FOUR * CV_LANES;
  CV_UNROLL
  for (int i = 0; i < VECTORS; i++)
    if (cv_winograd_streamed_has(f, first, not_low, i))
      sum[i] = adds ? cv_load(m + i * CV_LANES) : cv_zero();
  /* Two places from which 1-byte displacements reach all of V. */
  const float *near = v + NEAR * CV_LANES, *far = v + (NEAR + FAR) * CV_LANES;
  __asm__("" : "+r"(near), "+r"(far));
  for (int channel = 0; channel < CV_LANES; channel += 2) {
    CV_UNROLL
    for (int odd = 0; odd < 2; odd++, near++, far++, w += CV_LANES) {
      cv_vec u[CV_WINOGRAD_PART];
      cv_winograd_streamed_u(first, w, u);
      CV_UNROLL
      for (int a = 0; a < 1 + odd; a++, ask += blocks * CV_LANES) {
        cv_prefetch(ask);
        cv_prefetch_l2(ask + (CV_WINOGRAD_FAR - 1) * blocks * CV_WINOGRAD_BLOCK);
      }
      CV_UNROLL
      for (int i = 0; i < VECTORS; i++) {
        if (!cv_winograd_streamed_has(f, first, not_low, i)) continue;
        const float *x = i < FAR ? near + (i - NEAR) * CV_LANES : far + (i - NEAR - FAR) * CV_LANES;
        sum[i] = cv_fma(cv_load1(x), u[i / CV_WINOGRAD_FOUR], sum[i]);
      }
    }
  }
  CV_UNROLL
  for (int i = 0; i < VECTORS; i++)
    if (cv_winograd_streamed_has(f, first, not_low, i)) cv_store(m + i * CV_LANES, sum[i]);
}

/* (G w)[+p] and (G w)[-p] of an input block. */
CV_INLINE void cv_winograd_streamed_rows(const int blocks, const double p, const float *w, float *rows) {
  const cv_vec along = cv_set1((float)p), squared = cv_set1((float)(p * p));
  for (int i = 0; i < 3 * CV_WINOGRAD_TAP; i += CV_LANES) {
    const float *from = w + blocks * i;
    const cv_vec odd = cv_load(from + 3 * blocks * CV_WINOGRAD_TAP);
    const cv_vec even = cv_fma(squared, cv_load(from + 6 * blocks * CV_WINOGRAD_TAP), cv_load(from));
    cv_store(rows + i, cv_fma(along, odd, even));
    cv_store(rows + 3 * CV_WINOGRAD_TAP + i, cv_fnma(along, odd, even));
  }
}

/* (G w)[0] or [infinity], which is a row of w: where it lies, or a copy whose vectors are neighbours. */
CV_INLINE const float *cv_winograd_streamed_plain(const int blocks, const float *w, float *copy) {
  if (blocks == 1) return w;
  for (int i = 0; i < 3 * CV_WINOGRAD_TAP; i += CV_LANES) cv_store(copy + i, cv_load(w + blocks * i));
  return copy;
}

/* M, or its sum (`adds`) with the products of an input block, of one of the `blocks` of a panel. */
CV_INLINE void cv_winograd_streamed_block(const cv_winograd_form f, const int blocks,
                                          const cv_winograd_layout *l, int fours, int adds, const float *w,
                                          const float *v, float *m) {
  enum { ASKED = CV_LANES * 3 / 2 * CV_LANES };
  float rows[2 * 3 * CV_WINOGRAD_TAP] __attribute__((aligned(64)));
  const float *ask = w + blocks * CV_WINOGRAD_BLOCK, *const asked = ask + blocks * CV_WINOGRAD_BLOCK;
  for (int row = 0; row < CV_WINOGRAD_ROW; row++) {
    const float *from = rows + row % 2 * 3 * CV_WINOGRAD_TAP;
    if (row == cv_winograd_pair(0))
      cv_winograd_streamed_rows(blocks, cv_winograd_p(CV_WINOGRAD_OUT, 0), w, rows);
    if (row == cv_winograd_pair(1))
      cv_winograd_streamed_rows(blocks, cv_winograd_p(CV_WINOGRAD_OUT, 1), w, rows);
    if (row == CV_WINOGRAD_ZERO) from = cv_winograd_streamed_plain(blocks, w, rows);
    if (row == CV_WINOGRAD_INFINITY)
      from = cv_winograd_streamed_plain(blocks, w + 6 * blocks * CV_WINOGRAD_TAP, rows);
    for (int four = 0; four < fours; four++) {
      const float *x = v + row * l->row + four * l->four;
      float *sum = m + row * l->row + four * l->four;
      CV_UNROLL
      for (int first = 0; first < CV_WINOGRAD_ROW; first += CV_WINOGRAD_PART) {
        if (row < f.height + 2) {
          cv_winograd_streamed_tile(f, blocks, first, 0, adds, from, x, sum, ask);
        } else {
          cv_winograd_streamed_tile(f, blocks, first, 1, adds, from, x, sum, ask);
        }
        if (ask < asked) ask += blocks * ASKED;
      }
    }
  }
}

/* M of a chunk. */
CV_INLINE void cv_winograd_streamed_multiply(const cv_winograd_form f, const int blocks, int in_blocks,
                                             const cv_winograd_layout *l, int fours, const float *w,
                                             const float *v, float *m) {
  for (int i = 0; i < in_blocks; i++, w += blocks * CV_WINOGRAD_BLOCK, v += l->block)
    for (int b = 0; b < blocks; b++)
      cv_winograd_streamed_block(f, blocks, l, fours, i > 0, w + b * CV_LANES, v, m + b * l->block);
}

/* ---- The convolution ---- */

/* f: of the last tile; smaller ones only where there is one phase of two rows and columns of tiles.
 * c: `blocks` a chunk, a constant, one portion, in `room` for whole fours of tiles; split_chunks.  pool:
 * one that follows; pooled is a constant, 0: there is none.  v: cv_winograd_streamed_v_size floats of all
 * threads; m: cv_winograd_streamed_m_size of this thread for each block. */
CV_INLINE void cv_conv2d_winograd_streamed(const cv_winograd_form f, const int blocks, const int pooled,
                                           const cv_winograd_ends *ends, cv_thread t, const cv_winograd *c,
                                           cv_map x, const float *w, cv_map y, const cv_epilogue *e,
                                           const cv_winograd_pool *pool, float *v, float *m) {
  const int in_blocks = cv_blocks(x.channels);
  const cv_range tiles = {0, cv_winograd_tile_count(f, c)};
  const cv_winograd_layout layout = cv_winograd_streamed_layout(c->room);
  const cv_winograd_store store = {
      c, &x, &y, w, e, pool, cv_split_epilogue(e), f.dilation_h, f.dilation_w, 0, f.bytes};
  const cv_range chunks = cv_share(t, c->chunk_count);
  if (!f.bytes && (!pooled || y.data)) cv_map_clear_halo(t, y);
  if (pooled) cv_map_clear_halo(t, pool->y);
  cv_winograd_fill_v(f, ends->input, t, c, &x, tiles, v, &layout);
  convoy_barrier(t);
  for (int chunk = chunks.begin; chunk < chunks.end; chunk++) {
    const float *panel = cv_winograd_panel(f, c, in_blocks, w, chunk);
    cv_winograd_streamed_multiply(f, blocks, in_blocks, &layout, c->room / CV_WINOGRAD_FOUR, panel, v, m);
    cv_winograd_invert(f, ends->output, c, chunk, tiles, m, &layout, &store);
  }
}

/* Defines the function `name`: cv_conv2d_winograd_streamed, the last tile HEIGHT x WIDTH, with or without a
 * pool. */
#define CV_WINOGRAD_STREAMED(name, ...) CV_WINOGRAD_STREAMED_OF(name, 0, 0, 1, __VA_ARGS__)
/* The same of an x of bfloat16. */
#define CV_WINOGRAD_STREAMED_BF16(name, ...) CV_WINOGRAD_STREAMED_OF(name, 1, 0, 1, __VA_ARGS__)
/* The same of an x and y of bytes. */
#define CV_WINOGRAD_STREAMED_BYTES(name, ...) CV_WINOGRAD_STREAMED_OF(name, 0, 1, 1, __VA_ARGS__)
/* The same of panels of BLOCKS output blocks, of which chunks have no rest. */
#define CV_WINOGRAD_STREAMED_BLOCKS(name, ...) CV_WINOGRAD_STREAMED_OF(name, 0, 0, __VA_ARGS__)

#define CV_WINOGRAD_STREAMED_OF(name, X_BF16, BYTES, BLOCKS, HEIGHT, WIDTH, DILATION_H, DILATION_W,      \
                                POOLED)                                                                  \
  _Static_assert(                                                                                        \
      (HEIGHT) >= 2 && (HEIGHT) <= CV_WINOGRAD_OUT && (WIDTH) >= 2 && (WIDTH) <= CV_WINOGRAD_OUT,        \
      "the last tile has 2 to 4 rows and columns");                                                      \
  _Static_assert(!(POOLED) || (DILATION_H) * (DILATION_W) == 1, "a window of a pool is in one phase");   \
  _Static_assert(                                                                                        \
      ((HEIGHT) == CV_WINOGRAD_OUT && (WIDTH) == CV_WINOGRAD_OUT) || (DILATION_H) * (DILATION_W) == 1,   \
      "the smaller tiles of one phase");                                                                 \
  CV_FORM_PARTS(CV_WINOGRAD_ENDS(name, POOLED, CV_WINOGRAD_OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W,   \
                                 X_BF16, 0, BYTES, 0))                                                   \
  CV_FORM(name,                                                                                          \
          (cv_thread t, const cv_winograd *c, cv_map x, const float *w, cv_map y, const cv_epilogue *e,  \
           const cv_winograd_pool *pool, float *v, float *m),                                            \
          const cv_winograd_form form = {CV_WINOGRAD_OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W, X_BF16, \
                                         0, BYTES, 0};                                                   \
          cv_conv2d_winograd_streamed(form, BLOCKS, POOLED, &name##_ends, t, c, x, w, y, e, pool, v, m);)

typedef void (*cv_winograd_streamed_function)(cv_thread t, const cv_winograd *c, cv_map x, const float *w,
                                              cv_map y, const cv_epilogue *e, const cv_winograd_pool *pool,
                                              float *v, float *m);

#endif
