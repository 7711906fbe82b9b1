/* Pairs of numbers, turned, in a stack of rows of them:
 *
 *   y[0][i] = x[0][i] * cos[0][i] - x[1][i] * sin[0][i]
 *   y[1][i] = x[1][i] * cos[1][i] + x[0][i] * sin[1][i]
 *
 * x, cos, sin and y [2][pairs] lie by any strides: row is from one of a pair to the other, column from pair
 * to pair.  A stride of 0 is what pairs or the rows of the stack have in common.  y overlaps none of the
 * others.
 *
 * Threads share the rows of the stack.
 */
#ifndef CONVOY_KERNELS_ROTATE_H_
#define CONVOY_KERNELS_ROTATE_H_

#include "kernels/strides.h"

typedef struct cv_rotation {
  int stack[CV_STACK];
  int pairs;
  const float *x, *cos, *sin;
  float *y;
  cv_strides x_strides, cos_strides, sin_strides, y_strides;
} cv_rotation;

/* Pairs whose neighbours are neighbours in all four. */
static inline void cv_turn_vectors(cv_matrix x, cv_matrix c, cv_matrix s, cv_matrix y, int pairs) {
  for (int i = 0; i < pairs; i += CV_LANES) {
    const int n = cv_least(pairs - i, CV_LANES);
    const cv_vec a = cv_load_n(cv_element(x, 0, i), n), b = cv_load_n(cv_element(x, 1, i), n);
    const cv_vec across = cv_mul(b, cv_load_n(cv_element(s, 0, i), n));
    const cv_vec along = cv_mul(a, cv_load_n(cv_element(s, 1, i), n));
    cv_store_n(y.data + i, cv_sub(cv_mul(a, cv_load_n(cv_element(c, 0, i), n)), across), n);
    cv_store_n(y.data + y.row + i, cv_fma(b, cv_load_n(cv_element(c, 1, i), n), along), n);
  }
}

static inline void cv_turn_pairs(cv_matrix x, cv_matrix c, cv_matrix s, cv_matrix y, int pairs) {
  if (x.column == 1 && c.column == 1 && s.column == 1 && y.column == 1) {
    cv_turn_vectors(x, c, s, y, pairs);
    return;
  }
  for (int i = 0; i < pairs; i++) {
    const float a = *cv_element(x, 0, i), b = *cv_element(x, 1, i);
    y.data[i * y.column] = a * *cv_element(c, 0, i) - b * *cv_element(s, 0, i);
    y.data[y.row + i * y.column] = b * *cv_element(c, 1, i) + a * *cv_element(s, 1, i);
  }
}

static inline void cv_rotate(cv_thread thread, const cv_rotation *r) {
  const cv_range share = cv_share(thread, cv_stack_size(r->stack));
  for (int i = share.begin; i < share.end; i++) {
    cv_turn_pairs(cv_find_matrix(r->x, &r->x_strides, r->stack, i),
                  cv_find_matrix(r->cos, &r->cos_strides, r->stack, i),
                  cv_find_matrix(r->sin, &r->sin_strides, r->stack, i),
                  cv_find_matrix(r->y, &r->y_strides, r->stack, i), r->pairs);
  }
}

#endif
