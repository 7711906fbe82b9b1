/* A recurrent layer in one direction: a loop over steps, each of which multiplies the state by its weights.
 *
 *   sum[g][j] = x[t][g][j] + sum_k h[k] * r[k][g][j]     for each gate g and cell j; clipped if clip > 0
 *
 * CV_LSTM, gates i, o, f, c:
 *   c' = f c + i tanh(sum[c]),  h' = o tanh(c')
 *   i, f see extra[0], extra[2] times c, o sees extra[1] times c'
 *
 * CV_GRU, gates z, r, g:
 *   g = tanh(x[t][g] + r (h R_g + extra)),  h' = g + z (h - g)
 *
 * CV_RNN, one gate:
 *   h' = tanh(sum)
 *
 * x [sequences][steps][gates][cells], y [sequences][steps][cells]; of an LSTM y has one more row, the last
 * c. h0, c0 [sequences][cells], NULL for zeros.  extra, of as many rows as named above, may be NULL.
 *
 * r is packed in panels of CV_RECURRENT_CELLS cells, zero-padded: [panel][k][gate][CV_RECURRENT_CELLS],
 * aligned to a vector, so that all gates of a cell are sums in registers at once.  The rows of y are the
 * states.
 *
 * Of one sequence, threads share the panels, if `shared`, and meet after each step; else they share the
 * sequences.
 */
#ifndef CONVOY_KERNELS_RECURRENT_H_
#define CONVOY_KERNELS_RECURRENT_H_

#include <stddef.h>

#include "convoy/runtime.h"
#include "kernels/map.h"
#include "simd/math.h"

#define CV_RECURRENT_VECTORS 2
#define CV_RECURRENT_CELLS (CV_RECURRENT_VECTORS * CV_LANES)

typedef enum { CV_RNN = 1, CV_GRU = 3, CV_LSTM = 4 } cv_recurrent_kind; /* its gates */

typedef struct cv_recurrent {
  cv_recurrent_kind kind;
  int sequences, steps, cells;
  int back; /* from the last step to the first */
  int shared;
  float clip;
  const float *x, *r, *extra, *h0, *c0;
  float *y;
} cv_recurrent;

CV_INLINE cv_vec cv_recurrent_clip(const cv_recurrent *a, cv_vec v) {
  return a->clip > 0 ? cv_min(cv_set1(a->clip), cv_max(cv_set1(-a->clip), v)) : v;
}

/* Where one vector of cells is at a step. */
typedef struct cv_recurrent_place {
  int cell, lanes;
  const float *before; /* the state before; NULL for zeros */
  float *after, *c;
} cv_recurrent_place;

CV_INLINE cv_vec cv_recurrent_row(const float *row, const cv_recurrent_place *at) {
  return row ? cv_load_n(row + at->cell, at->lanes) : cv_zero();
}

CV_INLINE void cv_lstm_cells(const cv_recurrent *a, const cv_recurrent_place *at, const float *x,
                             const cv_vec sum[]) {
  cv_vec gate[4], peep[3];
  CV_UNROLL
  for (int g = 0; g < 4; g++) gate[g] = cv_add(sum[g], cv_load_n(x + (ptrdiff_t)g * a->cells, at->lanes));
  CV_UNROLL
  for (int g = 0; g < 3; g++) peep[g] = cv_recurrent_row(a->extra ? a->extra + g * a->cells : NULL, at);
  cv_vec c = cv_recurrent_row(at->c, at);
  const cv_vec i = cv_sigmoid(cv_recurrent_clip(a, cv_fma(peep[0], c, gate[0])));
  const cv_vec f = cv_sigmoid(cv_recurrent_clip(a, cv_fma(peep[2], c, gate[2])));
  c = cv_fma(f, c, cv_mul(i, cv_tanh(cv_recurrent_clip(a, gate[3]))));
  const cv_vec o = cv_sigmoid(cv_recurrent_clip(a, cv_fma(peep[1], c, gate[1])));
  cv_store_n(at->c + at->cell, c, at->lanes);
  cv_store_n(at->after + at->cell, cv_mul(o, cv_tanh(c)), at->lanes);
}

CV_INLINE void cv_gru_cells(const cv_recurrent *a, const cv_recurrent_place *at, const float *x,
                            const cv_vec sum[]) {
  cv_vec gate[3];
  CV_UNROLL
  for (int g = 0; g < 3; g++) gate[g] = cv_load_n(x + (ptrdiff_t)g * a->cells, at->lanes);
  const cv_vec z = cv_sigmoid(cv_recurrent_clip(a, cv_add(gate[0], sum[0])));
  const cv_vec r = cv_sigmoid(cv_recurrent_clip(a, cv_add(gate[1], sum[1])));
  const cv_vec own = cv_add(sum[2], cv_recurrent_row(a->extra, at));
  const cv_vec g = cv_tanh(cv_recurrent_clip(a, cv_fma(r, own, gate[2])));
  const cv_vec h = cv_recurrent_row(at->before, at);
  cv_store_n(at->after + at->cell, cv_fma(z, cv_sub(h, g), g), at->lanes);
}

CV_INLINE void cv_rnn_cells(const cv_recurrent *a, const cv_recurrent_place *at, const float *x,
                            const cv_vec sum[]) {
  const cv_vec v = cv_recurrent_clip(a, cv_add(sum[0], cv_load_n(x, at->lanes)));
  cv_store_n(at->after + at->cell, cv_tanh(v), at->lanes);
}

/* The cells of a panel at a step, whose x is [gates][cells]. */
CV_INLINE void cv_recurrent_panel(const cv_recurrent *a, int panel, const float *x, const float *before,
                                  float *after, float *c, const int gates) {
  cv_vec sum[CV_RECURRENT_VECTORS][CV_LSTM];
  const float *r = a->r + (ptrdiff_t)panel * a->cells * gates * CV_RECURRENT_CELLS;
  CV_UNROLL
  for (int b = 0; b < CV_RECURRENT_VECTORS; b++) {
    CV_UNROLL
    for (int g = 0; g < gates; g++) sum[b][g] = cv_zero();
  }
  for (int k = 0; before && k < a->cells; k++, r += gates * CV_RECURRENT_CELLS) {
    const cv_vec h = cv_load1(before + k);
    CV_UNROLL
    for (int g = 0; g < gates; g++) {
      CV_UNROLL
      for (int b = 0; b < CV_RECURRENT_VECTORS; b++)
        sum[b][g] = cv_fma(h, cv_load(r + (g * CV_RECURRENT_VECTORS + b) * CV_LANES), sum[b][g]);
    }
  }
  CV_UNROLL
  for (int b = 0; b < CV_RECURRENT_VECTORS; b++) {
    const int cell = panel * CV_RECURRENT_CELLS + b * CV_LANES, rest = a->cells - cell;
    if (rest <= 0) return;
    const cv_recurrent_place at = {cell, rest < CV_LANES ? rest : CV_LANES, before, after, c};
    if (gates == CV_LSTM) cv_lstm_cells(a, &at, x + cell, sum[b]);
    if (gates == CV_GRU) cv_gru_cells(a, &at, x + cell, sum[b]);
    if (gates == CV_RNN) cv_rnn_cells(a, &at, x + cell, sum[b]);
  }
}

/* The panels of `share` over all steps of one sequence; `together`: with the other threads. */
CV_INLINE void cv_recurrent_run(cv_thread thread, const cv_recurrent *a, int sequence, cv_range share,
                                int together, const int gates) {
  const ptrdiff_t cells = a->cells, rows = a->steps + (gates == CV_LSTM);
  const float *x = a->x + sequence * a->steps * gates * cells;
  float *y = a->y + sequence * rows * cells, *c = y + a->steps * cells;
  const float *before = a->h0 ? a->h0 + sequence * cells : NULL;
  const int last = share.end * CV_RECURRENT_CELLS < cells ? share.end * CV_RECURRENT_CELLS : (int)cells;
  for (int j = share.begin * CV_RECURRENT_CELLS; gates == CV_LSTM && j < last; j++) {
    c[j] = a->c0 ? a->c0[sequence * cells + j] : 0.0f;
  }
  for (int step = 0; step < a->steps; step++) {
    const ptrdiff_t t = a->back ? a->steps - 1 - step : step;
    for (int panel = share.begin; panel < share.end; panel++) {
      cv_recurrent_panel(a, panel, x + t * gates * cells, before, y + t * cells, c, gates);
    }
    before = y + t * cells;
    if (together) convoy_barrier(thread);
  }
}

CV_INLINE void cv_recurrent_gates(cv_thread thread, const cv_recurrent *a, const int gates) {
  const int panels = (a->cells + CV_RECURRENT_CELLS - 1) / CV_RECURRENT_CELLS;
  const cv_range all = {0, panels};
  if (a->shared) {
    for (int s = 0; s < a->sequences; s++)
      cv_recurrent_run(thread, a, s, cv_share(thread, panels), 1, gates);
    return;
  }
  const cv_range own = cv_share(thread, a->sequences);
  for (int s = own.begin; s < own.end; s++) cv_recurrent_run(thread, a, s, all, 0, gates);
}

CV_SHARED void cv_recur(cv_thread thread, const cv_recurrent *a) CV_SYMBOL(cv_recur);

#if CV_DEFINES(RECURRENT)
CV_SHARED void cv_recur(cv_thread thread, const cv_recurrent *a) {
  if (a->kind == CV_LSTM) cv_recurrent_gates(thread, a, CV_LSTM);
  if (a->kind == CV_GRU) cv_recurrent_gates(thread, a, CV_GRU);
  if (a->kind == CV_RNN) cv_recurrent_gates(thread, a, CV_RNN);
}
#endif

#endif
