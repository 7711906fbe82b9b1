/* What lies between two vectors. */
#ifndef CONVOY_KERNELS_LERP_H_
#define CONVOY_KERNELS_LERP_H_

#include "simd/simd.h"

/* (1 - t) a + t b */
CV_INLINE cv_vec cv_lerp(cv_vec a, cv_vec b, cv_vec t) {
  return cv_fma(t, b, cv_mul(cv_sub(cv_set1(1.0f), t), a));
}

#endif
