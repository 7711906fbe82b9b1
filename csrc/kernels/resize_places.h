/* Where the pixels of a resized row or column come from, for sizes that are known at the call: the tables
 * of kernels/resize.h.
 *
 * Coordinates are computed in double from exact integers, in the order of operations of
 * graph/coordinates.py, which makes the tables of sizes that are known before.
 */
#ifndef CONVOY_KERNELS_RESIZE_PLACES_H_
#define CONVOY_KERNELS_RESIZE_PLACES_H_

#include <math.h>

typedef enum {
  CV_HALF_PIXEL,
  CV_ALIGN_CORNERS,
  CV_ASYMMETRIC,
  CV_PYTORCH_HALF_PIXEL,
} cv_coordinates;

typedef enum {
  CV_ROUND_PREFER_FLOOR,
  CV_ROUND_PREFER_CEIL,
  CV_ROUND_FLOOR,
  CV_ROUND_CEIL,
} cv_rounding;

/* From `size` pixels to `output`; scale: output per input, where it is not their quotient, else 0. */
typedef struct cv_resized {
  cv_coordinates coordinates;
  int size, output;
  double scale;
} cv_resized;

/* The coordinate in the input of the centre of an output pixel, in [0, size - 1]. */
static inline double cv_resize_place(const cv_resized *r, int pixel) {
  const double numerator = r->scale > 0 ? 1.0 : r->size, denominator = r->scale > 0 ? r->scale : r->output;
  double place = ((2.0 * pixel + 1) * numerator - denominator) / (2 * denominator);
  if (r->coordinates == CV_ALIGN_CORNERS) {
    place = (double)pixel * (r->size - 1) / (r->output > 1 ? r->output - 1 : 1);
  } else if (r->coordinates == CV_ASYMMETRIC) {
    place = pixel * numerator / denominator;
  } else if (r->coordinates == CV_PYTORCH_HALF_PIXEL && r->output == 1) {
    place = 0;
  }
  return place < 0 ? 0 : place < r->size - 1 ? place : r->size - 1;
}

/* The pixel that each of the output's copies: a coordinate is clipped before it is rounded to one, which
 * gives the same as after it. */
static inline void cv_resize_indices(int *at, const cv_resized *r, cv_rounding rounding) {
  for (int i = 0; i < r->output; i++) {
    const double place = cv_resize_place(r, i);
    const double rounded[] = {
        [CV_ROUND_PREFER_FLOOR] = ceil(place - 0.5),
        [CV_ROUND_PREFER_CEIL] = floor(place + 0.5),
        [CV_ROUND_FLOOR] = floor(place),
        [CV_ROUND_CEIL] = ceil(place),
    };
    at[i] = (int)rounded[rounding];
  }
}

/* The first of two pixels, and how much of the second; 1/2 where both are the last one. */
static inline void cv_resize_weights(int *at, float *weight, const cv_resized *r) {
  for (int i = 0; i < r->output; i++) {
    const double place = cv_resize_place(r, i);
    at[i] = (int)place;
    weight[i] = at[i] == r->size - 1 ? 0.5f : (float)(place - at[i]);
  }
}

#endif
