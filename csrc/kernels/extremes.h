/* The greatest and the least number of a tensor, found in one pass.
 *
 *   cv_extremes_map     of each channel of a blocked map, to maps of 1 x 1
 *   cv_extremes_pieces  of each of `pieces` parts of x[count]; of a part of none -inf and inf
 *
 * NaN propagates.  Threads share blocks, or parts.
 */
#ifndef CONVOY_KERNELS_EXTREMES_H_
#define CONVOY_KERNELS_EXTREMES_H_

#include <math.h>

#include "kernels/halo.h"
#include "kernels/map.h"

typedef struct cv_extremes {
  cv_vec most, least;
  cv_mask none; /* NaN was among a lane's numbers */
} cv_extremes;

CV_INLINE cv_extremes cv_extremes_start(void) {
  const cv_vec zero = cv_zero();
  return (cv_extremes){cv_set1(-INFINITY), cv_set1(INFINITY), cv_lt(zero, zero)};
}

CV_INLINE cv_extremes cv_extremes_step(cv_extremes e, cv_vec v) {
  return (cv_extremes){cv_max(e.most, v), cv_min(e.least, v), cv_mask_or(e.none, cv_unordered(v, v))};
}

/* `count` vectors `step` floats apart, of any alignment. */
CV_INLINE cv_extremes cv_extremes_add(cv_extremes e, const float *x, ptrdiff_t count, ptrdiff_t step) {
  cv_extremes other = cv_extremes_start();
  ptrdiff_t i = 0;
  for (; i + 2 <= count; i += 2) { /* what is found next waits for what was found before */
    e = cv_extremes_step(e, cv_loadu(x + i * step));
    other = cv_extremes_step(other, cv_loadu(x + (i + 1) * step));
  }
  if (i < count) e = cv_extremes_step(e, cv_loadu(x + i * step));
  return (cv_extremes){cv_max(e.most, other.most), cv_min(e.least, other.least),
                       cv_mask_or(e.none, other.none)};
}

CV_INLINE cv_vec cv_extremes_most(cv_extremes e) { return cv_select(e.none, cv_set1(NAN), e.most); }
CV_INLINE cv_vec cv_extremes_least(cv_extremes e) { return cv_select(e.none, cv_set1(NAN), e.least); }

static inline void cv_extremes_map(cv_thread t, cv_map most, cv_map least, cv_map x) {
  const cv_range share = cv_share(t, cv_blocks(x.channels));
  const int flat = x.row == x.width * x.step; /* without a halo the rows are one */
  const int rows = flat ? 1 : x.height, columns = flat ? x.height * x.width : x.width;
  for (int block = share.begin; block < share.end; block++) {
    cv_extremes e = cv_extremes_start();
    for (int row = 0; row < rows; row++)
      e = cv_extremes_add(e, x.data + block * x.plane + row * x.row, columns, x.step);
    cv_store(most.data + block * most.plane, cv_extremes_most(e));
    cv_store(least.data + block * least.plane, cv_extremes_least(e));
  }
}

/* most and least [pieces]. */
static inline void cv_extremes_pieces(cv_thread t, float *most, float *least, const float *x,
                                      ptrdiff_t count, int pieces) {
  const ptrdiff_t vectors = (count + CV_LANES - 1) / CV_LANES;
  const ptrdiff_t each = (vectors + pieces - 1) / pieces * CV_LANES;
  const cv_range share = cv_share(t, pieces);
  for (int i = share.begin; i < share.end; i++) {
    const ptrdiff_t begin = i * each < count ? i * each : count;
    const ptrdiff_t n = count - begin < each ? count - begin : each;
    cv_extremes e = cv_extremes_add(cv_extremes_start(), x + begin, n / CV_LANES, CV_LANES);
    const int rest = (int)(n % CV_LANES);
    if (rest) { /* the last number stands for those behind it */
      const float *last = x + begin + n - rest;
      e = cv_extremes_step(e, cv_load_n_or(last, rest, last[rest - 1]));
    }
    float highest[CV_LANES], lowest[CV_LANES];
    cv_storeu(highest, cv_extremes_most(e));
    cv_storeu(lowest, cv_extremes_least(e));
    most[i] = highest[0], least[i] = lowest[0];
    for (int l = 1; l < CV_LANES; l++) {
      if (!(highest[l] <= most[i]) && !isnan(most[i])) most[i] = highest[l];
      if (!(lowest[l] >= least[i]) && !isnan(least[i])) least[i] = lowest[l];
    }
  }
}

#endif
