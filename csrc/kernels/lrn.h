/* Local response normalisation across channels of a blocked map:
 *
 *   y[c] = x[c] / (bias + alpha / size * sum of x[d]^2)^beta,   c - (size-1)/2 <= d <= c + size/2
 *
 * over the channels d that exist.  Divided by square roots if beta is 0.5 or 0.75, which takes half the
 * time of the general exp(-beta log(.)), whose relative error stays below 2e-6 for sums up to 1e6.
 *
 * The squares of CV_LRN_PIXELS pixels are laid out in channel order beside those of the neighbouring
 * blocks, then summed from unaligned loads; windows wider than that go channel by channel.
 * Threads share rows of blocks; y's halo and last lanes are zeroed.  x and y do not overlap.
 */
#ifndef CONVOY_KERNELS_LRN_H_
#define CONVOY_KERNELS_LRN_H_

#include "kernels/halo.h"
#include "kernels/map.h"
#include "simd/math.h"

/* Enough to let the stores reach L1 before they are read across their borders. */
#define CV_LRN_PIXELS 16

typedef struct cv_lrn_row {
  const float *x; /* the row in its block */
  ptrdiff_t plane, step;
  int before, after;          /* channels of the window on both sides */
  int has_previous, has_next; /* blocks beside this one */
} cv_lrn_row;

/* sums[p] = the windows' sums of squares of `pixels` <= CV_LRN_PIXELS pixels from `first` on. */
CV_INLINE void cv_lrn_sums(const cv_lrn_row *r, int first, int pixels, cv_vec *sums) {
  float squares[CV_LRN_PIXELS][3 * CV_LANES];
  for (int p = 0; p < pixels; p++) {
    const float *x = r->x + (first + p) * r->step;
    const cv_vec here = cv_load(x), zero = cv_zero();
    const cv_vec previous = r->has_previous ? cv_load(x - r->plane) : zero;
    const cv_vec next = r->has_next ? cv_load(x + r->plane) : zero;
    cv_storeu(squares[p], cv_mul(previous, previous));
    cv_storeu(squares[p] + CV_LANES, cv_mul(here, here));
    cv_storeu(squares[p] + 2 * CV_LANES, cv_mul(next, next));
  }
  for (int p = 0; p < pixels; p++) {
    cv_vec sum = cv_zero();
    for (int d = -r->before; d <= r->after; d++) sum = cv_add(sum, cv_loadu(squares[p] + CV_LANES + d));
    sums[p] = sum;
  }
}

/* The same for one pixel and a window of any size; `pixel` is that of channel 0. */
static inline cv_vec cv_lrn_wide_sum(const float *pixel, ptrdiff_t plane, int channels, int block,
                                     int before, int after) {
  float sums[CV_LANES];
  for (int lane = 0; lane < CV_LANES; lane++) {
    const int channel = block * CV_LANES + lane;
    const int begin = channel > before ? channel - before : 0;
    const int end = channel + after < channels ? channel + after + 1 : channels;
    sums[lane] = 0;
    for (int d = begin; d < end; d++) {
      const float v = pixel[d / CV_LANES * plane + d % CV_LANES];
      sums[lane] += v * v;
    }
  }
  return cv_loadu(sums);
}

/* v / base^beta */
CV_INLINE cv_vec cv_lrn_divide(cv_vec v, cv_vec base, float beta) {
  if (beta == 0.5f) return cv_div(v, cv_sqrt(base));
  if (beta == 0.75f) return cv_div(v, cv_mul(cv_sqrt(base), cv_sqrt(cv_sqrt(base))));
  return cv_mul(v, cv_exp(cv_mul(cv_set1(-beta), cv_log(base))));
}

static inline void cv_lrn(cv_thread thread, cv_map y, cv_map x, int size, float alpha, float beta,
                          float bias) {
  const int blocks = cv_blocks(x.channels), before = (size - 1) / 2, after = size / 2;
  const cv_vec scale = cv_set1(alpha / (float)size), offset = cv_set1(bias);
  const cv_range share = cv_share(thread, blocks * x.height);
  for (int i = share.begin; i < share.end; i++) {
    const int block = i / x.height, row = i % x.height, rest = x.channels - block * CV_LANES;
    const int lanes = rest < CV_LANES ? rest : CV_LANES;
    const float *from = x.data + block * x.plane + row * x.row;
    float *to = y.data + block * y.plane + row * y.row;
    const cv_lrn_row r = {from, x.plane, x.step, before, after, block > 0, block + 1 < blocks};
    for (int first = 0; first < x.width; first += CV_LRN_PIXELS) {
      const int pixels = x.width - first < CV_LRN_PIXELS ? x.width - first : CV_LRN_PIXELS;
      cv_vec sums[CV_LRN_PIXELS];
      if (after <= CV_LANES) {
        cv_lrn_sums(&r, first, pixels, sums);
      } else {
        for (int p = 0; p < pixels; p++) {
          sums[p] = cv_lrn_wide_sum(x.data + row * x.row + (first + p) * x.step, x.plane, x.channels, block,
                                    before, after);
        }
      }
      for (int p = 0; p < pixels; p++) {
        const cv_vec v = cv_load(from + (first + p) * x.step);
        const cv_vec base = cv_fma(scale, sums[p], offset);
        float *out = to + (first + p) * y.step;
        if (lanes < CV_LANES) cv_store(out, cv_zero());
        cv_store_n(out, cv_lrn_divide(v, base, beta), lanes);
      }
    }
  }
  cv_map_clear_halo(thread, y);
}

#endif
