/* What becomes of the sums of a tile of a matrix product: residual and activations, of bytes requantised
 * (gemm.h). */
#ifndef CONVOY_KERNELS_GEMM_END_H_
#define CONVOY_KERNELS_GEMM_END_H_

#include "kernels/activation.h"
#include "kernels/gemm_form.h"

/* y = outer(inner(y) + residual) of `rows` x `columns` that are stored, rows y_row floats apart, while they
 * are still in L1. */
static inline void cv_gemm_finish(float *y, ptrdiff_t y_row, int rows, int columns, const float *residual,
                                  cv_activation inner, cv_activation outer) {
  const int whole = columns / CV_LANES, rest = columns % CV_LANES, first = columns - rest;
  for (int r = 0; r < rows; r++, y += y_row) {
    const float *added = residual ? residual + r * y_row : NULL;
    if (inner.kind != CV_IDENTITY) {
      cv_activate_vectors(inner, y, whole, CV_LANES, CV_LANES);
      if (rest) cv_activate_vectors(inner, y + first, 1, CV_LANES, rest);
    }
    for (int i = 0; added && i < first; i += CV_LANES)
      cv_storeu(y + i, cv_add(cv_loadu(y + i), cv_loadu(added + i)));
    if (added && rest) {
      const cv_vec sum = cv_add(cv_load_n(y + first, rest), cv_load_n(added + first, rest));
      cv_store_n(y + first, sum, rest);
    }
    if (outer.kind != CV_IDENTITY) {
      cv_activate_vectors(outer, y, whole, CV_LANES, CV_LANES);
      if (rest) cv_activate_vectors(outer, y + first, 1, CV_LANES, rest);
    }
  }
}

/* y and residual are [m][n], bytes or floats as cv_requantize says. */
typedef struct cv_gemm_requantized {
  void *y;
  const void *residual; /* or NULL */
  const cv_requantize *requantize;
} cv_gemm_requantized;

CV_INLINE cv_vec cv_gemm_added(const cv_gemm_requantized *e, ptrdiff_t at, int lanes) {
  const cv_requantize *r = e->requantize;
  if (r->residual_scale == 0.0f) return cv_load_n((const float *)e->residual + at, lanes);
  const cv_vec bytes = cv_from_int(cv_load_bytes_n((const uint8_t *)e->residual + at, lanes));
  return cv_fma(bytes, cv_set1(r->residual_scale), cv_set1(r->residual_shift));
}

/* What becomes of a tile's sums of bytes, a row after the other: floats in their place, then y. */
static __attribute__((noinline, unused)) void cv_gemm_end_bytes(const cv_gemm_requantized *e, float *sums,
                                                                int rows, int columns, int column,
                                                                ptrdiff_t at, int n) {
  const cv_requantize *r = e->requantize;
  const cv_vec low = cv_set1(r->low), high = cv_set1(r->high), unit = cv_set1(r->unit);
  for (int b = 0; b < CV_GEMM_BLOCKS; b++, sums += CV_LANES, column += CV_LANES, at += CV_LANES) {
    const int lanes = cv_gemm_lanes(columns, b);
    const cv_vec scale = cv_load(r->scale + column), shift = cv_load(r->shift + column);
    for (int i = 0; i < rows; i++) {
      float *sum = sums + i * CV_GEMM_PANEL;
      cv_store(sum, cv_fma(cv_from_int(cv_as_int(cv_load(sum))), scale, shift));
    }
    if (r->inner.kind != CV_IDENTITY) cv_activate_vectors(r->inner, sums, rows, CV_GEMM_PANEL, lanes);
    for (int i = 0; e->residual && i < rows; i++) {
      float *sum = sums + i * CV_GEMM_PANEL;
      cv_store(sum, cv_add(cv_load(sum), cv_gemm_added(e, at + (ptrdiff_t)i * n, lanes)));
    }
    if (r->outer.kind != CV_IDENTITY) cv_activate_vectors(r->outer, sums, rows, CV_GEMM_PANEL, lanes);
    for (int i = 0; i < rows; i++) {
      const ptrdiff_t to = at + (ptrdiff_t)i * n;
      const cv_vec v = cv_mul(cv_load(sums + i * CV_GEMM_PANEL), unit);
      if (r->floats) {
        cv_store_n((float *)e->y + to, cv_min(high, cv_max(low, v)), lanes);
      } else {
        cv_store_bytes_n((uint8_t *)e->y + to, cv_requantize_round(v, low, high, cv_int_set1(r->zero)),
                         lanes);
      }
    }
  }
}

#endif
