/* Samples of an image at places that are computed, as ONNX's GridSample has them:
 *
 *   y[c][p] = x[c] at row (grid[1][p] + 1) / 2 and column (grid[0][p] + 1) / 2 of its height and width
 *
 * From -1 to 1 is from edge to edge of the outer pixels, or with `corners` from middle to middle.  A sample
 * is the nearest pixel (a tie takes the even one), or lies between four, as lerp over rows of lerp over
 * columns,   lerp(a, b; t) = (1 - t) a + t b. Outside is 0 (CV_GRID_ZEROS), the nearest pixel
 * (CV_GRID_BORDER), or x mirrored at its edges, or at the middles with `corners` (CV_GRID_REFLECTION).
 * Infinity and what is no number are where x begins, as in ONNX Runtime.
 *
 * grid is [2][points] and row-major.  cv_grid_sample_map_* make a blocked map of y.height * y.width points
 * of one, whose halo is zeroed; cv_grid_sample_* a row-major [channels][points] of a row-major
 * [channels][height][width].  Threads share points.  y overlaps neither of the others.
 */
#ifndef CONVOY_KERNELS_GRID_SAMPLE_H_
#define CONVOY_KERNELS_GRID_SAMPLE_H_

#include <float.h>

#include "kernels/halo.h"
#include "kernels/lerp.h"
#include "kernels/map.h"

enum { CV_GRID_ZEROS, CV_GRID_BORDER, CV_GRID_REFLECTION };

/* How places become pixels. */
typedef struct cv_grid_form {
  int padding, corners;
} cv_grid_form;

/* Points whose places are computed together, and a vector beyond. */
enum { CV_GRID_POINTS = 64, CV_GRID_ROOM = CV_GRID_POINTS + CV_LANES };

/* Of each point the numbers of four pixels, -1 of one outside: two of a row, then the two below.  Of
 * nearest samples there is but the first. */
typedef struct cv_grid_stretch {
  int count;
  int32_t at[4][CV_GRID_ROOM];
  float right[CV_GRID_ROOM], down[CV_GRID_ROOM];
} cv_grid_stretch;

/* v mirrored at low and low + span, as often as it takes. */
CV_INLINE cv_vec cv_grid_mirror(cv_vec v, float low, float span) {
  if (!(span > 0)) return cv_set1(low);
  const cv_vec from = cv_abs(cv_sub(v, cv_set1(low))), whole = cv_set1(span);
  const cv_vec turns = cv_floor(cv_div(from, whole));
  const cv_vec rest = cv_sub(from, cv_hold(cv_mul(turns, whole)));
  const cv_vec half = cv_mul(turns, cv_set1(0.5f));
  return cv_add(cv_set1(low), cv_select(cv_eq(half, cv_floor(half)), rest, cv_sub(whole, rest)));
}

/* Places along an axis of x: between pixels, or the nearest ones, which are mirrored as such. */
CV_INLINE cv_vec cv_grid_places(cv_vec v, int size, cv_grid_form f, const int nearest) {
  const cv_vec one = cv_set1(1.0f), half = cv_set1(0.5f), last = cv_set1((float)(size - 1));
  const cv_vec from = cv_add(v, one);
  cv_vec place = f.corners ? cv_mul(cv_mul(from, half), last)
                           : cv_mul(cv_sub(cv_hold(cv_mul(from, cv_set1((float)size))), one), half);
  const float begin = f.corners ? 0.0f : -0.5f, span = (float)(size - f.corners);
  place = cv_select(cv_le(cv_abs(place), cv_set1(FLT_MAX)), place, cv_set1(begin));
  if (nearest) place = cv_round(place);
  if (f.padding == CV_GRID_ZEROS) return place;
  if (f.padding == CV_GRID_REFLECTION) place = cv_grid_mirror(place, begin, span);
  return cv_min(cv_max(place, cv_zero()), last);
}

/* x is `height` rows of `width` pixels, which begin `row` pixels apart. */
typedef struct cv_grid_image {
  int height, width, row;
} cv_grid_image;

CV_INLINE cv_int cv_grid_load(const int32_t *p) {
  return cv_as_int(cv_loadu((const float *)(const void *)p));
}

/* The number of a pixel at a whole row and column, -1 outside. */
CV_INLINE cv_int cv_grid_number(cv_vec row, cv_vec column, const cv_grid_image *x) {
  const cv_vec bottom = cv_set1((float)(x->height - 1)), end = cv_set1((float)(x->width - 1));
  const cv_mask in_rows = cv_mask_and(cv_le(cv_zero(), row), cv_le(row, bottom));
  const cv_mask in_columns = cv_mask_and(cv_le(cv_zero(), column), cv_le(column, end));
  const cv_vec none = cv_set1(-1.0f); /* or a place too high for int32 */
  const cv_int r = cv_to_int(cv_select(in_rows, row, none));
  const cv_int c = cv_to_int(cv_select(in_columns, column, none));
  const cv_int at = cv_int_add(cv_int_mul(r, cv_int_set1(x->row)), c);
  return cv_as_int(
      cv_select(cv_mask_and(in_rows, in_columns), cv_as_float(at), cv_as_float(cv_int_set1(-1))));
}

CV_INLINE void cv_grid_find(cv_grid_stretch *s, const cv_grid_image *x, cv_grid_form f, const float *grid,
                            ptrdiff_t points, ptrdiff_t first, const int nearest) {
  for (int i = 0; i < s->count; i += CV_LANES) {
    const int n = s->count - i < CV_LANES ? s->count - i : CV_LANES;
    const cv_vec column = cv_grid_places(cv_load_n(grid + first + i, n), x->width, f, nearest);
    const cv_vec row = cv_grid_places(cv_load_n(grid + points + first + i, n), x->height, f, nearest);
    const cv_vec left = cv_floor(column);
    const cv_vec top = cv_floor(row);
    for (int j = 0; j < (nearest ? 1 : 4); j++) {
      const cv_vec down = cv_set1((float)(j / 2)), right = cv_set1((float)(j % 2));
      const cv_int at = cv_grid_number(cv_add(top, down), cv_add(left, right), x);
      cv_storeu((float *)(void *)(s->at[j] + i), cv_as_float(at));
    }
    cv_storeu(s->right + i, cv_sub(column, left));
    cv_storeu(s->down + i, cv_sub(row, top));
  }
}

CV_INLINE cv_vec cv_grid_pixel(const float *x, int32_t at) {
  static const float zeros[CV_LANES] __attribute__((aligned(64)));
  return cv_load(at < 0 ? zeros : x + (ptrdiff_t)at * CV_LANES);
}

CV_INLINE void cv_grid_sample_map(cv_thread thread, cv_map y, cv_map x, const float *grid, cv_grid_form f,
                                  const int nearest) {
  const cv_grid_image image = {x.height, x.width, (int)(x.row / CV_LANES)};
  const int points = y.height * y.width, blocks = cv_blocks(y.channels);
  const cv_range share = cv_share(thread, points);
  cv_grid_stretch s;
  for (int p = share.begin; p < share.end; p += s.count) {
    s.count = share.end - p < CV_GRID_POINTS ? share.end - p : CV_GRID_POINTS;
    cv_grid_find(&s, &image, f, grid, points, p, nearest);
    for (int block = 0; block < blocks; block++) {
      const float *from = x.data + block * x.plane;
      int row = p / y.width, column = p % y.width;
      for (int i = 0; i < s.count; i++) {
        cv_vec v = cv_grid_pixel(from, s.at[0][i]);
        if (!nearest) {
          const cv_vec right = cv_set1(s.right[i]);
          const cv_vec above = cv_lerp(v, cv_grid_pixel(from, s.at[1][i]), right);
          const cv_vec below =
              cv_lerp(cv_grid_pixel(from, s.at[2][i]), cv_grid_pixel(from, s.at[3][i]), right);
          v = cv_lerp(above, below, cv_set1(s.down[i]));
        }
        cv_store(y.data + block * y.plane + row * y.row + column * y.step, v);
        if (++column == y.width) column = 0, row++;
      }
    }
  }
  cv_map_clear_halo(thread, y);
}

/* Pixels of a plane, 0 for those outside. */
CV_INLINE cv_vec cv_grid_pixels(const float *x, const int32_t *at) {
  const cv_int i = cv_grid_load(at);
  return cv_load_where(cv_le(cv_zero(), cv_from_int(i)), x, i);
}

/* A stretch of one channel. */
CV_INLINE void cv_grid_channel(float *y, const float *x, const cv_grid_stretch *s, const int nearest) {
  for (int i = 0; i < s->count; i += CV_LANES) {
    cv_vec v = cv_grid_pixels(x, s->at[0] + i);
    if (!nearest) {
      const cv_vec right = cv_loadu(s->right + i);
      const cv_vec above = cv_lerp(v, cv_grid_pixels(x, s->at[1] + i), right);
      const cv_vec below = cv_lerp(cv_grid_pixels(x, s->at[2] + i), cv_grid_pixels(x, s->at[3] + i), right);
      v = cv_lerp(above, below, cv_loadu(s->down + i));
    }
    cv_store_n(y + i, v, s->count - i < CV_LANES ? s->count - i : CV_LANES);
  }
}

CV_INLINE void cv_grid_sample_rows(cv_thread thread, float *y, const float *x, int channels,
                                   const cv_grid_image *image, const float *grid, ptrdiff_t points,
                                   cv_grid_form f, const int nearest) {
  const ptrdiff_t plane = (ptrdiff_t)image->height * image->width;
  const cv_range share = cv_share(thread, (int)points);
  cv_grid_stretch s;
  for (int p = share.begin; p < share.end; p += s.count) {
    s.count = share.end - p < CV_GRID_POINTS ? share.end - p : CV_GRID_POINTS;
    cv_grid_find(&s, image, f, grid, points, p, nearest);
    for (int c = 0; c < channels; c++) cv_grid_channel(y + c * points + p, x + c * plane, &s, nearest);
  }
}

static inline void cv_grid_sample_map_nearest(cv_thread t, cv_map y, cv_map x, const float *grid,
                                              cv_grid_form f) {
  cv_grid_sample_map(t, y, x, grid, f, 1);
}

static inline void cv_grid_sample_map_bilinear(cv_thread t, cv_map y, cv_map x, const float *grid,
                                               cv_grid_form f) {
  cv_grid_sample_map(t, y, x, grid, f, 0);
}

static inline void cv_grid_sample_nearest(cv_thread t, float *y, const float *x, int channels, int height,
                                          int width, const float *grid, ptrdiff_t points, cv_grid_form f) {
  const cv_grid_image image = {height, width, width};
  cv_grid_sample_rows(t, y, x, channels, &image, grid, points, f, 1);
}

static inline void cv_grid_sample_bilinear(cv_thread t, float *y, const float *x, int channels, int height,
                                           int width, const float *grid, ptrdiff_t points, cv_grid_form f) {
  const cv_grid_image image = {height, width, width};
  cv_grid_sample_rows(t, y, x, channels, &image, grid, points, f, 0);
}

#endif
