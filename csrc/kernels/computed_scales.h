/* Scale and shift of sums of bytes (requantize.h) where a run computes the scale:
 *
 *   scale[o] = factor[o] * by[o]
 *   shift[o] = offset[o] * by[o] * unit + bias[o]
 *
 * of n channels.  factor and bias have as many numbers as `scale` and `shift`, 0 behind the channels; `by`
 * and offset are one number (step 0) or one of each channel (step 1), and offset may be NULL.
 */
#ifndef CONVOY_KERNELS_COMPUTED_SCALES_H_
#define CONVOY_KERNELS_COMPUTED_SCALES_H_

#include <string.h>

#include "kernels/map.h"

static inline void cv_compute_scales(float *scale, float *shift, const float *factor, const float *by,
                                     int by_step, const float *offset, int offset_step, float unit,
                                     const float *bias, int n, int padded) {
  for (int o = 0; o < n; o++) {
    const float each = by[o * by_step];
    scale[o] = factor[o] * each;
    shift[o] = (offset ? offset[o * offset_step] * each * unit : 0.0f) + bias[o];
  }
  memset(scale + n, 0, (size_t)(padded - n) * sizeof(float));
  memset(shift + n, 0, (size_t)(padded - n) * sizeof(float));
}

#endif
