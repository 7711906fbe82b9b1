/* What becomes of the int32 sums of a kernel that multiplies bytes, once they are floats:
 *
 *   v = sum * scale[o] + shift[o]
 *   v = outer(inner(v) + residual) * unit, at least low and at most high
 *   y = round(v) + zero, a byte; or v itself, a float
 *
 * Rounding is to nearest even, before the zero point is added, as ONNX defines it.  The bias is where the
 * sums began, less the zero point of x times the weights, so that a sum is what a float would hold.
 * Without inner and outer, whose place low and high take where they are clamps, scale and shift hold unit.
 *
 * What a residual is added to may be held as bytes before, whose unit is held_unit in that of y:
 *
 *   v = round(v, at least held_low and at most held_high) * held_unit + residual
 */
#ifndef CONVOY_KERNELS_REQUANTIZE_H_
#define CONVOY_KERNELS_REQUANTIZE_H_

#include "kernels/activation.h"
#include "kernels/map.h"

/* What a cell holds, and how many; of int16 two. */
typedef enum { CV_FLOATS = 1, CV_BFLOATS = 2, CV_SHORTS = 3, CV_BYTES = 4 } cv_cell;

typedef struct cv_requantize {
  const float *scale, *shift; /* [blocks * CV_LANES] */
  float low, high;            /* of bytes, what fits them less `zero` or nearer */
  int zero;
  int floats; /* y is floats, not bytes */
  /* A residual of bytes is added as byte * residual_scale + residual_shift; with residual_scale 0 it is
   * floats. */
  float residual_scale, residual_shift;
  cv_activation inner, outer;
  float unit;
  int plain; /* of bytes, a residual too; neither inner nor outer, and unit is 1 */
  int held;  /* plain, with a residual */
  float held_low, held_high, held_unit;
} cv_requantize;

/* A map of bytes as one of cells of 32 bits. */
static inline cv_map cv_map_of_cells(cv_byte_map m) {
  const cv_map cells = {.data = (float *)(void *)m.data,
                        .channels = m.channels,
                        .height = m.height,
                        .width = m.width,
                        .plane = m.plane / CV_BYTES,
                        .row = m.row / CV_BYTES,
                        .step = m.step / CV_BYTES,
                        .top = m.top,
                        .left = m.left,
                        .bottom = m.bottom,
                        .right = m.right};
  return cells;
}

/* v as it is rounded, of vectors that are bytes already; a NaN is low. */
CV_INLINE cv_int cv_requantize_round(cv_vec v, cv_vec low, cv_vec high, cv_int zero) {
  return cv_int_add(cv_to_int(cv_min(high, cv_max(v, low))), zero);
}

/* What four neighbouring pixels that are plain need beside scale and shift. */
typedef struct cv_requantizer {
  cv_vec high;
  cv_int zero, low; /* low: bytes */
} cv_requantizer;

CV_INLINE cv_requantizer cv_requantizer_of(const cv_requantize *r) {
  const cv_int zero = cv_int_set1(r->zero), low = cv_to_int(cv_set1(r->low));
  return (cv_requantizer){cv_set1(r->high), zero, cv_quad_of(low, low, low, low, zero)};
}

/* v as it is rounded, of four pixels.  What is too low for int32 becomes its least number. */
CV_INLINE cv_int cv_requantize_quad(const cv_requantizer *r, const cv_vec v[4]) {
  const cv_int a = cv_to_int(cv_min(r->high, v[0])), b = cv_to_int(cv_min(r->high, v[1]));
  const cv_int c = cv_to_int(cv_min(r->high, v[2])), d = cv_to_int(cv_min(r->high, v[3]));
  return cv_max_bytes(cv_quad_of(a, b, c, d, r->zero), r->low);
}

/* Any y of `count` vectors of scaled sums, which are changed; vector k is stored at y + at[k], the residual
 * there is at residual + residual_at[k].  What is told apart once is not told apart for each vector. */
CV_SHARED void cv_requantize_any(const cv_requantize *r, cv_vec *v, int count, float *y,
                                 const ptrdiff_t *at, const float *residual, const ptrdiff_t *residual_at)
    CV_SYMBOL(cv_requantize_any);

#if CV_DEFINES(REQUANTIZE)
CV_SHARED void cv_requantize_any(const cv_requantize *r, cv_vec *v, int count, float *y,
                                 const ptrdiff_t *at, const float *residual, const ptrdiff_t *residual_at) {
  const cv_vec low = cv_set1(r->low), high = cv_set1(r->high), unit = cv_set1(r->unit);
  const cv_int zero = cv_int_set1(r->zero);
  cv_activate_vectors(r->inner, (float *)v, count, CV_LANES, CV_LANES);
  if (residual && r->residual_scale != 0.0f) {
    const cv_vec scale = cv_set1(r->residual_scale), shift = cv_set1(r->residual_shift);
    for (int k = 0; k < count; k++) {
      const cv_vec bytes = cv_from_int(cv_load_bytes((const uint8_t *)(residual + residual_at[k])));
      v[k] = cv_add(v[k], cv_fma(bytes, scale, shift));
    }
  } else if (residual) {
    for (int k = 0; k < count; k++) v[k] = cv_add(v[k], cv_load(residual + residual_at[k]));
  }
  cv_activate_vectors(r->outer, (float *)v, count, CV_LANES, CV_LANES);
  if (r->floats) {
    for (int k = 0; k < count; k++) cv_store(y + at[k], cv_min(high, cv_max(low, cv_mul(v[k], unit))));
  } else {
    for (int k = 0; k < count; k++) {
      const cv_int steps = cv_requantize_round(cv_mul(v[k], unit), low, high, zero);
      cv_store_bytes((uint8_t *)(y + at[k]), steps);
    }
  }
}
#endif

#endif
