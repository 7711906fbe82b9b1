/* Pipelined register tiles of 1x1 convolutions of bytes (kernels/conv2d_direct.h): while one is added, the
 * one before it becomes bytes.
 *
 * With few input channels requantising (kernels/requantize.h) takes a good part of a tile's time, in units
 * that products do not need: of 64 channels a vector has 16 products and some ten other operations.  The
 * processor looks ahead too little to begin the next tile meanwhile, so here the code says so: while the
 * first cells of a tile are added, the sums of the one before are rounded one by one, and become bytes with
 * those of four pixels.  Both have to fit the registers: tiles are half as large.
 *
 * One call computes window.count tiles that lie next to one another in a row.
 */
#ifndef CONVOY_KERNELS_CONV2D_DIRECT_PIPELINED_H_
#define CONVOY_KERNELS_CONV2D_DIRECT_PIPELINED_H_

#include "kernels/conv2d_direct_end.h"
#include "kernels/conv2d_direct_taps.h"

/* What is done to plain sums (cv_requantize): nothing else, a residual is added, or one is added to what
 * was held as bytes. */
typedef enum { CV_ENDS_ALONE, CV_ENDS_ADDING, CV_ENDS_HELD } cv_conv2d_ending;

#define CV_CONV2D_PIPELINED_ACCUMULATORS (CV_CONV2D_MAX_ACCUMULATORS / 2)

/* What the sums of a tile need to become bytes. */
typedef struct cv_conv2d_rounding {
  cv_vec scale[CV_CONV2D_MAX_BLOCKS], shift[CV_CONV2D_MAX_BLOCKS];
  cv_vec residual_scale, residual_shift, held_low, held_high, held_unit;
  cv_requantizer rounds;
} cv_conv2d_rounding;

CV_INLINE cv_conv2d_rounding cv_conv2d_rounding_of(const cv_conv2d_form f, const cv_conv2d_ending ending,
                                                   const cv_conv2d_window *g) {
  const cv_requantize *r = g->requantize;
  cv_conv2d_rounding of = {.residual_scale = cv_set1(r->residual_scale),
                           .residual_shift = cv_set1(r->residual_shift),
                           .held_low = cv_set1(r->held_low),
                           .held_high = cv_set1(r->held_high),
                           .held_unit = cv_set1(r->held_unit),
                           .rounds = cv_requantizer_of(r)};
  CV_UNROLL
  for (int b = 0; b < f.blocks; b++) {
    of.scale[b] = cv_load(g->scale + b * CV_LANES);
    of.shift[b] = cv_load(g->shift + b * CV_LANES);
    if (ending == CV_ENDS_ADDING) of.shift[b] = cv_add(of.shift[b], of.residual_shift);
  }
  return of;
}

/* Number k of a tile's sums, a block after the other, before it becomes bytes: the same operations as
 * cv_conv2d_store_bytes', in the same order.  They are written twice: GCC allots that one other registers
 * where both share a function, and 3x3 kernels become slower. */
CV_INLINE cv_vec cv_conv2d_round_one(const cv_conv2d_form f, const cv_conv2d_ending ending,
                                     const cv_conv2d_window *g, const cv_conv2d_rounding *of, const int k,
                                     const cv_vec *sum, const float *residual) {
  const int b = k / f.width, p = k % f.width, pixel = CV_LANES / CV_BYTES;
  cv_vec v = cv_fma(cv_from_int(cv_as_int(sum[p * f.blocks + b])), of->scale[b], of->shift[b]);
  if (ending == CV_ENDS_HELD)
    v = cv_fma(cv_round(cv_min(of->held_high, cv_max(of->held_low, v))), of->held_unit, of->residual_shift);
  if (ending == CV_ENDS_ALONE) return v;
  const cv_int added = cv_load_bytes((const uint8_t *)(residual + b * g->residual_plane + p * pixel));
  return cv_fma(cv_from_int(added), of->residual_scale, v);
}

/* Ends a tile's sums of numbers [begin, end), a block after the other: at four pixels of a block, or at its
 * last ones, those before become bytes.  v: four, which stay between calls. */
CV_INLINE void cv_conv2d_end_some(const cv_conv2d_form f, const cv_conv2d_ending ending,
                                  const cv_conv2d_window *g, const cv_conv2d_rounding *of, const int begin,
                                  const int end, const cv_vec *sum, float *y, const float *residual,
                                  cv_vec v[4]) {
  CV_UNROLL
  for (int k = begin; k < end; k++) {
    const int b = k / f.width, p = k % f.width, place = p % 4, first = p - place;
    v[place] = cv_conv2d_round_one(f, ending, g, of, k, sum, residual);
    if (place < 3 && p + 1 < f.width) continue;
    CV_UNROLL
    for (int i = place + 1; i < 4; i++) v[i] = v[place];
    uint8_t *to = (uint8_t *)(y + b * g->y_plane + first * CV_LANES / CV_BYTES);
    cv_store_quad(to, cv_requantize_quad(&of->rounds, v), place + 1);
  }
}

/* Asks for some of the weights from `panel` on, as long as there are any before `end`; returns where to go
 * on.  Nothing else is asked for: that the next tile's pixels and places come ahead of time gained nothing.
 */
CV_INLINE const float *cv_conv2d_ask_weights(const cv_conv2d_form f, const float *panel, const float *end) {
  for (int k = 0; k < f.inner / cv_conv2d_ask_every(f.inner) && panel < end; k++, panel += CV_CONV2D_LINE)
    cv_prefetch_l2(panel);
  return panel;
}

/* Adds the input's blocks from number `begin` on; asks for weights. */
CV_INLINE const float *cv_conv2d_add_blocks(const cv_conv2d_form f, const cv_conv2d_window *g, cv_vec *sum,
                                            const float *x, const float *w, int begin, const float *panel) {
  const int a_cell = cv_conv2d_cell_weights(f);
  x += begin * g->x_plane;
  w += begin * f.inner * (ptrdiff_t)a_cell;
  for (int i = begin; i < g->in_count; i++, x += g->x_plane, w += f.inner * a_cell) {
    panel = cv_conv2d_ask_weights(f, panel, g->panel_end);
    CV_UNROLL
    for (int c = 0; c < f.inner; c++) cv_conv2d_channel(f, sum, x + c, NULL, w + c * a_cell);
  }
  return panel;
}

CV_INLINE void cv_conv2d_pipeline(const cv_conv2d_form f, const int spread, const cv_conv2d_ending ending,
                                  const cv_conv2d_window *g, const float *x, const float *w,
                                  const float *start, float *y, const float *residual) {
  const int sums = f.width * f.blocks, cells = spread * f.inner, a_cell = cv_conv2d_cell_weights(f);
  const cv_conv2d_rounding of = cv_conv2d_rounding_of(f, ending, g);
  const float *panel = g->next_panel;
  cv_vec sum[CV_CONV2D_PIPELINED_ACCUMULATORS], ended[CV_CONV2D_PIPELINED_ACCUMULATORS], v[4];
  /* The first tile is added alone, the last one ends alone. */
  cv_conv2d_load_sums(f, ended, start, g->start_plane, NULL, 0);
  panel = cv_conv2d_add_blocks(f, g, ended, x, w, 0, panel);
  for (int i = 1; i < g->count; i++) {
    x += g->next_x;
    cv_conv2d_load_sums(f, sum, start, g->start_plane, NULL, 0);
    CV_UNROLL
    for (int c = 0; c < cells; c++) {
      const float *block = x + c / f.inner * g->x_plane;
      if (c % f.inner == 0) panel = cv_conv2d_ask_weights(f, panel, g->panel_end);
      cv_conv2d_channel(f, sum, block + c % f.inner, NULL, w + c * a_cell);
      cv_conv2d_end_some(f, ending, g, &of, c * sums / cells, (c + 1) * sums / cells, ended, y, residual,
                         v);
      __asm__ volatile("" ::: "memory"); /* or the compiler moves what ends behind what is added */
    }
    panel = cv_conv2d_add_blocks(f, g, sum, x, w, spread, panel);
    CV_UNROLL
    for (int k = 0; k < sums; k++) ended[k] = sum[k];
    y += g->y_tile;
    if (ending != CV_ENDS_ALONE) residual += g->residual_tile;
  }
  cv_conv2d_end_some(f, ending, g, &of, 0, sums, ended, y, residual, v);
}

/* Defines `name`, which computes tiles of PIXELS x BLOCKS.  SPREAD: over how many blocks of the input the
 * tile before ends, at most as many as there are; ENDING: a cv_conv2d_ending. */
#define CV_CONV2D_PIPELINED_TILE(name, PIXELS, BLOCKS, STRIDE, SPREAD, ENDING)                            \
  _Static_assert((PIXELS) * (BLOCKS) <= CV_CONV2D_PIPELINED_ACCUMULATORS, "the tile has too many sums");  \
  static __attribute__((noinline)) void name(const cv_conv2d_window *g, const float *x, const float *w,   \
                                             const float *start, float *y, const float *residual) {       \
    const cv_conv2d_form form = {                                                                         \
        CV_BYTES, 0, 1, PIXELS, BLOCKS, CV_LANES / CV_BYTES, (STRIDE) * CV_LANES / CV_BYTES, 1, 1, 0, 0}; \
    cv_conv2d_pipeline(form, SPREAD, ENDING, g, x, w, start, y, residual);                                \
  }

#endif
