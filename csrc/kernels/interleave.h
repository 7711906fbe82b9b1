/* Elements that lie two to CV_MOST_APART apart, brought side by side, and back.
 *
 *   cv_deinterleave   y[r * y_row + c] = x[c * apart + r] for r < rows <= apart
 *   cv_interleave     y[c * apart + r] = x[r * x_row + c] for r < apart
 *
 * As many vectors as elements are apart hold as many whole ones of each row: of each vector the lanes that
 * belong to a row are brought to their places, and chosen.  Any alignment; nothing but the elements named
 * is read or written, so what does not fill those vectors goes one by one.
 */
#ifndef CONVOY_KERNELS_INTERLEAVE_H_
#define CONVOY_KERNELS_INTERLEAVE_H_

#include "simd/simd.h"

#define CV_MOST_APART 4
#define CV_INTERLEAVED 1024 /* columns of a piece, which a core's first cache holds */

/* What has lane index[l] of vector v in lane l, where that is chosen[v]'s. */
typedef struct cv_comb {
  cv_int index;
  cv_mask chosen[CV_MOST_APART];
} cv_comb;

/* Lane l is element e = first + l * step, which is lane e % CV_LANES of vector e / CV_LANES; or, where rows
 * lie `across`, lane e / apart of vector e % apart. */
CV_INLINE cv_comb cv_make_comb(const int apart, int first, int step, const int across) {
  static const float numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const cv_int e = cv_to_int(cv_fma(cv_loadu(numbers), cv_set1((float)step), cv_set1((float)first)));
  /* right for all that are less than 4 * CV_LANES */
  const int by = across ? apart : CV_LANES;
  const cv_int whole = cv_int_shr(cv_int_mul(e, cv_int_set1((1 << 16) / by + 1)), 16);
  const cv_int rest = cv_int_sub(e, cv_int_mul(whole, cv_int_set1(by)));
  const cv_vec vector = cv_from_int(across ? rest : whole);
  cv_comb comb = {.index = across ? whole : rest};
  CV_UNROLL
  for (int v = 0; v < apart; v++) comb.chosen[v] = cv_eq(vector, cv_set1((float)v));
  return comb;
}

/* What the comb chooses of the vectors at x, x + step … */
CV_INLINE cv_vec cv_comb_vectors(const int apart, const cv_comb *comb, const float *x, ptrdiff_t step) {
  cv_vec y = cv_permute(cv_loadu(x), comb->index);
  CV_UNROLL
  for (int v = 1; v < apart; v++)
    y = cv_select(comb->chosen[v], cv_permute(cv_loadu(x + v * step), comb->index), y);
  return y;
}

/* A row of a piece at a time: its neighbours are read again, but only one is written. */
CV_INLINE void cv_deinterleave_vectors(const int apart, float *y, ptrdiff_t y_row, const float *x, int rows,
                                       ptrdiff_t columns) {
  for (ptrdiff_t begin = 0; begin < columns; begin += CV_INTERLEAVED) {
    const ptrdiff_t end = columns - begin < CV_INTERLEAVED ? columns : begin + CV_INTERLEAVED;
    for (int r = 0; r < rows; r++) {
      const cv_comb comb = cv_make_comb(apart, r, apart, 0);
      for (ptrdiff_t c = begin; c < end; c += CV_LANES)
        cv_storeu(y + r * y_row + c, cv_comb_vectors(apart, &comb, x + c * apart, CV_LANES));
    }
  }
}

CV_INLINE void cv_interleave_vectors(const int apart, float *y, const float *x, ptrdiff_t x_row,
                                     ptrdiff_t columns) {
  cv_comb combs[CV_MOST_APART];
  CV_UNROLL
  for (int i = 0; i < apart; i++) combs[i] = cv_make_comb(apart, i * CV_LANES, 1, 1);
  for (ptrdiff_t c = 0; c < columns; c += CV_LANES) {
    CV_UNROLL
    for (int i = 0; i < apart; i++)
      cv_storeu(y + c * apart + i * CV_LANES, cv_comb_vectors(apart, &combs[i], x + c, x_row));
  }
}

CV_SHARED void cv_deinterleave(float *y, ptrdiff_t y_row, const float *x, int apart, int rows,
                               ptrdiff_t columns) CV_SYMBOL(cv_deinterleave);
CV_SHARED void cv_interleave(float *y, const float *x, ptrdiff_t x_row, int apart, ptrdiff_t columns)
    CV_SYMBOL(cv_interleave);

#if CV_DEFINES(INTERLEAVE)
CV_SHARED void cv_deinterleave(float *y, ptrdiff_t y_row, const float *x, int apart, int rows,
                               ptrdiff_t columns) {
  /* of fewer rows the last vector may have elements of none behind the last that is one */
  const ptrdiff_t whole = (columns - (rows < apart)) / CV_LANES * CV_LANES;
  switch (whole > 0 ? apart : 0) {
    case 2:
      cv_deinterleave_vectors(2, y, y_row, x, rows, whole);
      break;
    case 3:
      cv_deinterleave_vectors(3, y, y_row, x, rows, whole);
      break;
    case 4:
      cv_deinterleave_vectors(4, y, y_row, x, rows, whole);
      break;
  }
  for (ptrdiff_t c = whole > 0 ? whole : 0; c < columns; c++)
    for (int r = 0; r < rows; r++) y[r * y_row + c] = x[c * apart + r];
}

CV_SHARED void cv_interleave(float *y, const float *x, ptrdiff_t x_row, int apart, ptrdiff_t columns) {
  const ptrdiff_t whole = columns / CV_LANES * CV_LANES;
  switch (apart) {
    case 2:
      cv_interleave_vectors(2, y, x, x_row, whole);
      break;
    case 3:
      cv_interleave_vectors(3, y, x, x_row, whole);
      break;
    case 4:
      cv_interleave_vectors(4, y, x, x_row, whole);
      break;
  }
  for (ptrdiff_t c = whole; c < columns; c++)
    for (int r = 0; r < apart; r++) y[c * apart + r] = x[r * x_row + c];
}
#endif

#endif
