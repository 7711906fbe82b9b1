/* Recurrent layers, each in one direction: a loop over steps, each of which multiplies the state by its
 * weights.
 *
 *   sum[g][j] = x[t][g][j] + sum_k h[k] * r[k][g][j]     for each gate g and cell j; clipped if clip > 0
 *
 * CV_LSTM, gates i, o, f, c:
 *   c' = f c + i inner(sum[c]),  h' = o outer(c')
 *   i, f see extra[0], extra[2] times c, o sees extra[1] times c'
 *
 * CV_GRU, gates z, r, g:
 *   g = inner(x[t][g] + r (h R_g + extra)),  h' = (1 - z) g + z h
 *
 * CV_GRU_RESET_FIRST, gates z, r, g:
 *   g = inner(x[t][g] + (r h) R_g),  h' = (1 - z) g + z h
 *
 * CV_RNN, one gate:
 *   h' = inner(sum)
 *
 * Where nothing else is said, the other gates are sigmoids, and inner and outer tanh.
 *
 * x [sequences][steps][gates][cells], y [sequences][steps][cells]; of an LSTM y has one more row, the last
 * c. h0, c0 [sequences][cells], NULL for zeros.  extra, of as many rows as named above, may be NULL.
 *
 * r is packed in panels of CV_RECURRENT_CELLS cells, zero-padded: [panel][k][gate][CV_RECURRENT_CELLS],
 * aligned to a vector, so that all gates of a cell are sums in registers at once.  What is reset first has
 * panels of z and r, and others, r_inner, of g; kept [sequences][cells] is its scratch.  The rows of y are
 * the states.
 *
 * Sequences go through a step together.  Layers that do not read each other, and are alike but for their
 * pointers, activations and direction, run side by side.  Threads share the panels of all of them, if
 * `shared`, and meet after each step; else they share the sequences of all.
 */
#ifndef CONVOY_KERNELS_RECURRENT_H_
#define CONVOY_KERNELS_RECURRENT_H_

#include <stddef.h>
#include <string.h>

#include "convoy/runtime.h"
#include "kernels/activation.h"
#include "kernels/map.h"
#include "simd/math.h"

#define CV_RECURRENT_VECTORS 2
#define CV_RECURRENT_TILE 4       /* sequences whose sums are in registers together, at most */
#define CV_RECURRENT_SEQUENCES 24 /* whose sums are in memory together, at most */
#define CV_RECURRENT_PART 8192    /* weights that stay in a first-level cache */
#define CV_RECURRENT_CELLS (CV_RECURRENT_VECTORS * CV_LANES)

typedef enum { CV_RNN, CV_GRU, CV_LSTM, CV_GRU_RESET_FIRST } cv_recurrent_kind;

/* What is computed between two meetings: a step, or its gates z and r, and the rest of it. */
typedef enum { CV_STEP, CV_RESET, CV_AFTER_RESET } cv_recurrent_part;

#define CV_RECURRENT_GATES 4 /* of any kind, at most */

typedef struct cv_recurrent {
  cv_recurrent_kind kind;
  int sequences, steps, cells;
  int back; /* from the last step to the first */
  int shared;
  float clip;
  cv_activation gate, inner, outer;
  const float *x, *r, *r_inner, *extra, *h0, *c0;
  float *y, *kept;
} cv_recurrent;

CV_INLINE int cv_recurrent_gates(const cv_recurrent_kind kind) {
  return kind == CV_RNN ? 1 : kind == CV_LSTM ? 4 : 3;
}

CV_INLINE int cv_recurrent_rows(const cv_recurrent *a, const cv_recurrent_kind kind) {
  return a->steps + (kind == CV_LSTM);
}

CV_INLINE cv_vec cv_recurrent_clip(const cv_recurrent *a, cv_vec v) {
  return a->clip > 0 ? cv_min(cv_set1(a->clip), cv_max(cv_set1(-a->clip), v)) : v;
}

/* Any activation, of which `usual` is computed in place. */
CV_INLINE cv_vec cv_recurrent_activate(cv_activation act, cv_vec v, const cv_activation_kind usual) {
  if (act.kind == usual) return usual == CV_TANH ? cv_tanh(v) : cv_sigmoid(v);
  float kept[CV_LANES];
  cv_storeu(kept, v);
  cv_activate_vectors(act, kept, 1, CV_LANES, CV_LANES);
  return cv_loadu(kept);
}

/* What becomes of the sum of a gate. */
CV_INLINE cv_vec cv_recurrent_gate(const cv_recurrent *a, cv_vec v) {
  return cv_recurrent_activate(a->gate, cv_recurrent_clip(a, v), CV_SIGMOID);
}

CV_INLINE cv_vec cv_recurrent_inner(const cv_recurrent *a, cv_vec v) {
  return cv_recurrent_activate(a->inner, cv_recurrent_clip(a, v), CV_TANH);
}

/* Where one vector of cells is at a step. */
typedef struct cv_recurrent_place {
  int cell, lanes;
  const float *before; /* the state before; NULL for zeros */
  float *after, *c, *kept;
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
  const cv_vec i = cv_recurrent_gate(a, cv_fma(peep[0], c, gate[0]));
  const cv_vec f = cv_recurrent_gate(a, cv_fma(peep[2], c, gate[2]));
  c = cv_fma(f, c, cv_mul(i, cv_recurrent_inner(a, gate[3])));
  const cv_vec o = cv_recurrent_gate(a, cv_fma(peep[1], c, gate[1]));
  cv_store_n(at->c + at->cell, c, at->lanes);
  cv_store_n(at->after + at->cell, cv_mul(o, cv_recurrent_activate(a->outer, c, CV_TANH)), at->lanes);
}

/* (1 - z) g + z h */
CV_INLINE cv_vec cv_gru_blend(cv_vec z, cv_vec g, cv_vec h) {
  return cv_fma(z, h, cv_mul(cv_sub(cv_set1(1.0f), z), g));
}

/* z stays where the state comes, until that is known. */
CV_INLINE void cv_reset_cells(const cv_recurrent *a, const cv_recurrent_place *at, const float *x,
                              const cv_vec sum[]) {
  const cv_vec z = cv_recurrent_gate(a, cv_add(cv_load_n(x, at->lanes), sum[0]));
  const cv_vec r = cv_recurrent_gate(a, cv_add(cv_load_n(x + a->cells, at->lanes), sum[1]));
  cv_store_n(at->after + at->cell, z, at->lanes);
  cv_store_n(at->kept + at->cell, cv_mul(r, cv_recurrent_row(at->before, at)), at->lanes);
}

CV_INLINE void cv_after_reset_cells(const cv_recurrent *a, const cv_recurrent_place *at, const float *x,
                                    const cv_vec sum[]) {
  const cv_vec g = cv_recurrent_inner(a, cv_add(cv_load_n(x + 2 * (ptrdiff_t)a->cells, at->lanes), sum[0]));
  const cv_vec z = cv_load_n(at->after + at->cell, at->lanes);
  cv_store_n(at->after + at->cell, cv_gru_blend(z, g, cv_recurrent_row(at->before, at)), at->lanes);
}

CV_INLINE void cv_gru_cells(const cv_recurrent *a, const cv_recurrent_place *at, const float *x,
                            const cv_vec sum[]) {
  cv_vec gate[3];
  CV_UNROLL
  for (int g = 0; g < 3; g++) gate[g] = cv_load_n(x + (ptrdiff_t)g * a->cells, at->lanes);
  const cv_vec z = cv_recurrent_gate(a, cv_add(gate[0], sum[0]));
  const cv_vec r = cv_recurrent_gate(a, cv_add(gate[1], sum[1]));
  const cv_vec own = cv_add(sum[2], cv_recurrent_row(a->extra, at));
  const cv_vec g = cv_recurrent_inner(a, cv_fma(r, own, gate[2]));
  const cv_vec h = cv_recurrent_row(at->before, at);
  cv_store_n(at->after + at->cell, cv_gru_blend(z, g, h), at->lanes);
}

CV_INLINE void cv_rnn_cells(const cv_recurrent *a, const cv_recurrent_place *at, const float *x,
                            const cv_vec sum[]) {
  const cv_vec v = cv_add(sum[0], cv_load_n(x, at->lanes));
  cv_store_n(at->after + at->cell, cv_recurrent_inner(a, v), at->lanes);
}

/* Sums of a panel, in registers or in memory. */
typedef cv_vec cv_recurrent_sums[CV_RECURRENT_VECTORS][CV_RECURRENT_GATES];

CV_INLINE void cv_recurrent_copy(const cv_recurrent_sums from[], cv_recurrent_sums to[], const int count,
                                 const int gates) {
  CV_UNROLL
  for (int s = 0; s < count; s++) {
    CV_UNROLL
    for (int b = 0; b < CV_RECURRENT_VECTORS; b++) {
      CV_UNROLL
      for (int g = 0; g < gates; g++) to[s][b][g] = from[s][b][g];
    }
  }
}

/* What `depth` states of `count` sequences, `apart` floats apart, add to their sums. */
CV_INLINE void cv_recurrent_add(const float *r, const float *before, ptrdiff_t apart, int depth,
                                cv_recurrent_sums to[], const int count, const int gates) {
  cv_recurrent_sums sum[CV_RECURRENT_TILE];
  cv_recurrent_copy((const cv_recurrent_sums *)to, sum, count, gates);
  for (int k = 0; k < depth; k++, r += gates * CV_RECURRENT_CELLS) {
    CV_UNROLL
    for (int g = 0; g < gates; g++) {
      CV_UNROLL
      for (int b = 0; b < CV_RECURRENT_VECTORS; b++) {
        const cv_vec loaded = cv_load(r + (g * CV_RECURRENT_VECTORS + b) * CV_LANES);
        const cv_vec weight = count > 1 ? cv_hold(loaded) : loaded; /* or it is loaded for each sequence */
        CV_UNROLL
        for (int s = 0; s < count; s++)
          sum[s][b][g] = cv_fma(cv_load1(before + s * apart + k), weight, sum[s][b][g]);
      }
    }
  }
  cv_recurrent_copy((const cv_recurrent_sums *)sum, to, count, gates);
}

/* The sums of a panel for `count` sequences: a part of the weights is read once for all of them, and is
 * used for as many at a time as there are registers for. */
CV_INLINE void cv_recurrent_multiply(const cv_recurrent *a, const float *r, const float *before,
                                     ptrdiff_t apart, cv_recurrent_sums sum[], int count, const int gates) {
  const int fits = (CV_REGISTERS - 4) / (CV_RECURRENT_VECTORS * gates);
  const int most = fits < 1 ? 1 : fits > CV_RECURRENT_TILE ? CV_RECURRENT_TILE : fits;
  const int part = count == 1 ? a->cells : CV_RECURRENT_PART / (gates * CV_RECURRENT_CELLS);
  memset(sum, 0, (size_t)count * sizeof *sum);
  for (int k = 0; before && k < a->cells; k += part, r += part * gates * CV_RECURRENT_CELLS) {
    const int depth = a->cells - k < part ? a->cells - k : part;
    for (int s = 0; s < count;) {
      const int left = count - s, tiles = (left + most - 1) / most, tile = (left + tiles - 1) / tiles;
      const float *h = before + s * apart + k;
      if (tile == 1) cv_recurrent_add(r, h, apart, depth, sum + s, 1, gates);
      if (most >= 2 && tile == 2) cv_recurrent_add(r, h, apart, depth, sum + s, 2, gates);
      if (most >= 3 && tile == 3) cv_recurrent_add(r, h, apart, depth, sum + s, 3, gates);
      if (most >= 4 && tile == 4) cv_recurrent_add(r, h, apart, depth, sum + s, 4, gates);
      s += tile;
    }
  }
}

/* The cells of a panel for `count` sequences from `first` on, at a step. */
CV_INLINE void cv_recurrent_panel(const cv_recurrent *a, int panel, int first, int count, int step,
                                  const cv_recurrent_kind kind, const cv_recurrent_part part) {
  const ptrdiff_t cells = a->cells, rows = cv_recurrent_rows(a, kind), all = cv_recurrent_gates(kind);
  const int t = a->back ? a->steps - 1 - step : step;
  const int gates = part == CV_RESET ? 2 : part == CV_AFTER_RESET ? 1 : (int)all;
  float *y = a->y + first * rows * cells, *after = y + t * cells, *c = y + a->steps * cells;
  float *kept = part == CV_STEP ? NULL : a->kept + first * cells;
  const float *before = a->back ? after + cells : after - cells;
  if (step == 0) before = a->h0 ? a->h0 + first * cells : NULL;
  const ptrdiff_t apart = step == 0 ? cells : rows * cells;
  const float *x = a->x + ((ptrdiff_t)first * a->steps + t) * all * cells;
  const float *r = part == CV_AFTER_RESET ? a->r_inner : a->r;
  const int reset = part == CV_AFTER_RESET && before;
  cv_recurrent_sums sum[CV_RECURRENT_SEQUENCES];
  cv_recurrent_multiply(a, r + panel * cells * gates * CV_RECURRENT_CELLS, reset ? kept : before,
                        reset ? cells : apart, sum, count, gates);
  for (int s = 0; s < count; s++, after += rows * cells, c += rows * cells, x += a->steps * all * cells) {
    for (int b = 0; b < CV_RECURRENT_VECTORS; b++) {
      const int cell = panel * CV_RECURRENT_CELLS + b * CV_LANES, rest = a->cells - cell;
      if (rest <= 0) break;
      const int lanes = rest < CV_LANES ? rest : CV_LANES;
      const cv_recurrent_place at = {cell,  lanes, before ? before + s * apart : NULL,
                                     after, c,     kept ? kept + s * cells : NULL};
      if (kind == CV_LSTM) cv_lstm_cells(a, &at, x + cell, sum[s][b]);
      if (kind == CV_GRU) cv_gru_cells(a, &at, x + cell, sum[s][b]);
      if (kind == CV_RNN) cv_rnn_cells(a, &at, x + cell, sum[s][b]);
      if (part == CV_RESET) cv_reset_cells(a, &at, x + cell, sum[s][b]);
      if (part == CV_AFTER_RESET) cv_after_reset_cells(a, &at, x + cell, sum[s][b]);
    }
  }
}

/* The cells before the first step, of the panels of `share`. */
CV_INLINE void cv_lstm_begin(const cv_recurrent *a, cv_range own, cv_range share) {
  const ptrdiff_t cells = a->cells;
  const int last = share.end * CV_RECURRENT_CELLS;
  for (int s = own.begin; s < own.end; s++) {
    float *c = a->y + ((ptrdiff_t)s * (a->steps + 1) + a->steps) * cells;
    for (int j = share.begin * CV_RECURRENT_CELLS; j < last && j < a->cells; j++)
      c[j] = a->c0 ? a->c0[s * cells + j] : 0.0f;
  }
}

/* The panels of `share` for the sequences of `own`, at a step. */
CV_INLINE void cv_recurrent_advance(const cv_recurrent *a, cv_range own, cv_range share, int step,
                                    const cv_recurrent_kind kind, const cv_recurrent_part part) {
  for (int panel = share.begin; panel < share.end; panel++) {
    for (int first = own.begin; first < own.end; first += CV_RECURRENT_SEQUENCES) {
      const int left = own.end - first;
      const int count = left < CV_RECURRENT_SEQUENCES ? left : CV_RECURRENT_SEQUENCES;
      cv_recurrent_panel(a, panel, first, count, step, kind, part);
    }
  }
}

/* What of `share` is of layer `i`, where each has `each`. */
CV_INLINE cv_range cv_recurrent_of(cv_range share, int i, int each) {
  const int begin = share.begin - i * each, end = share.end - i * each;
  return (cv_range){begin < 0 ? 0 : begin, end > each ? each : end};
}

/* The panels of `share`, of all layers, at a step; then threads meet. */
CV_INLINE void cv_recurrent_meet(cv_thread thread, const cv_recurrent a[], int layers, int panels,
                                 cv_range share, int step, const cv_recurrent_kind kind,
                                 const cv_recurrent_part part) {
  const cv_range own = {0, a->sequences};
  for (int i = 0; i < layers; i++)
    cv_recurrent_advance(a + i, own, cv_recurrent_of(share, i, panels), step, kind, part);
  convoy_barrier(thread);
}

CV_INLINE void cv_recurrent_share_panels(cv_thread thread, const cv_recurrent a[], int layers, int panels,
                                         const cv_recurrent_kind kind) {
  const cv_range own = {0, a->sequences}, share = cv_share(thread, layers * panels);
  const int apart = kind == CV_GRU_RESET_FIRST;
  for (int i = 0; kind == CV_LSTM && i < layers; i++)
    cv_lstm_begin(a + i, own, cv_recurrent_of(share, i, panels));
  for (int step = 0; step < a->steps; step++) {
    cv_recurrent_meet(thread, a, layers, panels, share, step, kind, apart ? CV_RESET : CV_STEP);
    if (apart) cv_recurrent_meet(thread, a, layers, panels, share, step, kind, CV_AFTER_RESET);
  }
}

CV_INLINE void cv_recurrent_share_sequences(cv_thread thread, const cv_recurrent a[], int layers,
                                            int panels, const cv_recurrent_kind kind) {
  const cv_range all = {0, panels}, share = cv_share(thread, layers * a->sequences);
  for (int i = 0; i < layers; i++) {
    const cv_range own = cv_recurrent_of(share, i, a->sequences);
    if (own.begin >= own.end) continue;
    if (kind == CV_LSTM) cv_lstm_begin(a + i, own, all);
    for (int step = 0; step < a->steps; step++) {
      const int apart = kind == CV_GRU_RESET_FIRST;
      cv_recurrent_advance(a + i, own, all, step, kind, apart ? CV_RESET : CV_STEP);
      if (apart) cv_recurrent_advance(a + i, own, all, step, kind, CV_AFTER_RESET);
    }
  }
}

CV_INLINE void cv_recurrent_run(cv_thread thread, const cv_recurrent a[], int layers,
                                const cv_recurrent_kind kind) {
  const int panels = (a->cells + CV_RECURRENT_CELLS - 1) / CV_RECURRENT_CELLS;
  if (a->shared)
    cv_recurrent_share_panels(thread, a, layers, panels, kind);
  else
    cv_recurrent_share_sequences(thread, a, layers, panels, kind);
}

CV_SHARED void cv_recur(cv_thread thread, const cv_recurrent a[], int layers) CV_SYMBOL(cv_recur);

#if CV_DEFINES(RECURRENT)
CV_SHARED void cv_recur(cv_thread thread, const cv_recurrent a[], int layers) {
  if (a->kind == CV_LSTM) cv_recurrent_run(thread, a, layers, CV_LSTM);
  if (a->kind == CV_GRU) cv_recurrent_run(thread, a, layers, CV_GRU);
  if (a->kind == CV_RNN) cv_recurrent_run(thread, a, layers, CV_RNN);
  if (a->kind == CV_GRU_RESET_FIRST) cv_recurrent_run(thread, a, layers, CV_GRU_RESET_FIRST);
}
#endif

#endif
