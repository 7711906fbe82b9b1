/* Group normalisation: over groups of neighbouring channels, each with all of its pixels.
 *
 *   y = outer((x - mean) / sqrt(variance + epsilon) * gamma + beta)
 *
 * mean and variance are those of each group of `size` channels; gamma and beta have a number a channel, or
 * are NULL: 1 and 0.  Instance normalisation is that of size 1.
 *
 *   cv_group_norm_plain   x, y row-major [groups][size][pixels], any alignment
 *   cv_group_sums, then cv_group_norm_map   blocked maps of any number of channels to a group
 *
 * Of a map, cv_group_sums leaves three vectors for each block and each of `pieces` pieces of its pixels:
 * by channels the mean, and the sums of the deviations from it and of their squares.
 * cv_group_norm_map puts them together in double precision, channel by channel, so that groups may begin
 * and end within a block; it begins when all threads are done with the sums.  A piece is a number of rows,
 * or where rows follow one another without a gap, of pixels; none is empty.
 *
 * For the digits of the sums, see layer_norm.h.  A NaN, an infinity, or a sum that overflows makes its
 * group NaN, and no other.  x and y do not overlap.  y's halo and the lanes past its channels are zeroed.
 *
 * Threads share channels (plain), or pieces of blocks.
 */
#ifndef CONVOY_KERNELS_GROUP_NORM_H_
#define CONVOY_KERNELS_GROUP_NORM_H_

#include <float.h>

#include "kernels/activation.h"
#include "kernels/halo.h"
#include "kernels/layer_norm.h"

/* Vectors of sums of a piece of a block: centre, first, second. */
#define CV_GROUP_SUMS 3

CV_INLINE void cv_group_norm_plain(cv_thread thread, float *y, const float *x, const float *gamma,
                                   const float *beta, int groups, int size, ptrdiff_t pixels, float epsilon,
                                   cv_activation outer) {
  const cv_range share = cv_share(thread, groups * size);
  cv_normal n = {0, 0, 0};
  for (int c = share.begin; c < share.end; c++) {
    if (c == share.begin || c % size == 0) {
      cv_row_normals(&n, x + c / size * size * pixels, 1, size * pixels, epsilon, 1);
    }
    const float *from = x + c * pixels;
    const cv_vec scale = cv_set1(gamma ? gamma[c] : 1.0f), shift = cv_set1(beta ? beta[c] : 0.0f);
    for (ptrdiff_t i = 0; i < pixels; i += CV_LANES) {
      const int lanes = pixels - i < CV_LANES ? (int)(pixels - i) : CV_LANES;
      const cv_vec v = cv_fma(cv_normalize(cv_load_n(from + i, lanes), n), scale, shift);
      cv_store_n(y + c * pixels + i, cv_activate(v, outer), lanes);
    }
  }
}

/* Do the map's rows follow one another? */
CV_INLINE int cv_is_flat(cv_map m) { return m.step == CV_LANES && m.row == m.width * m.step; }

/* `rows` rows of `pixels` pixels, the first at row `row`, pixel `pixel`. */
typedef struct cv_piece {
  int row, pixel, rows, pixels;
} cv_piece;

static inline cv_piece cv_piece_of(cv_map m, int flat, int piece, int pieces) {
  const cv_range share = cv_share((cv_thread){piece, pieces}, flat ? m.height * m.width : m.height);
  const int count = share.end - share.begin;
  return flat ? (cv_piece){0, share.begin, 1, count} : (cv_piece){share.begin, 0, count, m.width};
}

/* sums [pieces][blocks][CV_GROUP_SUMS][CV_LANES], aligned to a vector. */
static inline void cv_group_sums(cv_thread thread, float *sums, cv_map x, int pieces) {
  const int blocks = cv_blocks(x.channels);
  const cv_range share = cv_share(thread, blocks * pieces);
  for (int i = share.begin; i < share.end; i++) {
    const int block = i / pieces;
    const cv_piece p = cv_piece_of(x, cv_is_flat(x), i % pieces, pieces);
    const float *from = x.data + block * x.plane + p.row * x.row + p.pixel * x.step;
    cv_vec total = cv_zero();
    for (int row = 0; row < p.rows; row++) {
      total = cv_add(total, cv_reduce_runs(CV_SUM, 0, from + row * x.row, p.pixels, x.step));
    }
    const cv_vec centre = cv_div(total, cv_set1((float)(p.rows * p.pixels)));
    cv_deviations d = {cv_zero(), cv_zero()};
    for (int row = 0; row < p.rows; row++) {
      cv_sum_deviations(&d, from + row * x.row, p.pixels, x.step, centre);
    }
    float *to = sums + (ptrdiff_t)(i % pieces * blocks + block) * CV_GROUP_SUMS * CV_LANES;
    cv_store(to, centre);
    cv_store(to + CV_LANES, d.first);
    cv_store(to + 2 * CV_LANES, d.second);
  }
}

/* Of channels [begin, end) of map x.  Deviations are from the centre of one of them first. */
static inline cv_normal cv_group_normal(const float *sums, cv_map x, int pieces, int begin, int end,
                                        float epsilon) {
  const double count = (double)(end - begin) * x.height * x.width;
  const int blocks = cv_blocks(x.channels), flat = cv_is_flat(x);
  const double start = sums[(ptrdiff_t)begin / CV_LANES * CV_GROUP_SUMS * CV_LANES + begin % CV_LANES];
  double first = 0, second = 0;
  for (int piece = 0; piece < pieces; piece++) {
    const cv_piece p = cv_piece_of(x, flat, piece, pieces);
    const double pixels = (double)p.rows * p.pixels;
    for (int c = begin; c < end; c++) {
      const ptrdiff_t block = piece * blocks + c / CV_LANES;
      const float *s = sums + block * CV_GROUP_SUMS * CV_LANES + c % CV_LANES;
      const double off = s[0] - start;
      first += pixels * off + s[CV_LANES];
      second += s[2 * CV_LANES] + off * (2.0 * s[CV_LANES] + pixels * off);
    }
  }
  const double rest = first / count, squares = second - rest * first;
  /* Overflows where sums in float do. */
  const double mean = fabs(first + count * start) <= FLT_MAX ? start + rest : NAN;
  const double variance = squares > FLT_MAX ? INFINITY : squares < 0 ? 0 : squares / count;
  const double factor = 1 / sqrt(variance + epsilon);
  const float centre = (float)mean;
  return (cv_normal){centre, (float)factor, (float)((centre - mean) * factor)};
}

/* A block's channels: y = (x - centre) * scale + shift, and 0 where none is. */
typedef struct cv_group_block {
  float centre[CV_LANES], scale[CV_LANES], shift[CV_LANES], used[CV_LANES];
  int group; /* of the last channel */
  cv_normal normal;
} cv_group_block;

static inline void cv_group_channels(cv_group_block *b, int block, const float *sums, cv_map x, int pieces,
                                     const float *gamma, const float *beta, int size, float epsilon) {
  for (int lane = 0; lane < CV_LANES; lane++) {
    const int c = block * CV_LANES + lane;
    b->centre[lane] = b->scale[lane] = b->shift[lane] = b->used[lane] = 0;
    if (c >= x.channels) continue;
    if (c / size != b->group) {
      b->group = c / size;
      b->normal = cv_group_normal(sums, x, pieces, b->group * size, (b->group + 1) * size, epsilon);
    }
    const float g = gamma ? gamma[c] : 1.0f;
    b->centre[lane] = b->normal.centre;
    b->scale[lane] = b->normal.factor * g;
    b->shift[lane] = b->normal.offset * g + (beta ? beta[c] : 0.0f);
    b->used[lane] = 1;
  }
}

/* x.channels is a multiple of size. */
CV_INLINE void cv_group_norm_map(cv_thread thread, cv_map y, cv_map x, const float *sums, int pieces,
                                 const float *gamma, const float *beta, int size, float epsilon,
                                 cv_activation outer) {
  const int flat = cv_is_flat(x) && cv_is_flat(y);
  const cv_range share = cv_share(thread, cv_blocks(x.channels) * pieces);
  cv_group_block b = {.group = -1};
  for (int i = share.begin; i < share.end; i++) {
    const int block = i / pieces;
    if (i == share.begin || i % pieces == 0) {
      cv_group_channels(&b, block, sums, x, pieces, gamma, beta, size, epsilon);
    }
    const cv_vec centre = cv_loadu(b.centre), scale = cv_loadu(b.scale), shift = cv_loadu(b.shift);
    const cv_mask used = cv_lt(cv_zero(), cv_loadu(b.used));
    const cv_piece p = cv_piece_of(x, flat, i % pieces, pieces);
    const float *from = x.data + block * x.plane + p.row * x.row + p.pixel * x.step;
    float *to = y.data + block * y.plane + p.row * y.row + p.pixel * y.step;
    for (int row = 0; row < p.rows; row++) {
      for (int w = 0; w < p.pixels; w++) {
        const cv_vec v = cv_fma(cv_sub(cv_load(from + row * x.row + w * x.step), centre), scale, shift);
        cv_store(to + row * y.row + w * y.step, cv_select(used, cv_activate(v, outer), cv_zero()));
      }
    }
  }
  cv_map_clear_halo(thread, y);
}

#endif
