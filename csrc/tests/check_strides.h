/* Stacks of matrices in any order in memory: tensors [outer][inner][row][column], whose outer axis has the
 * strides' place `stack`, and the inner one the second after it. */
#ifndef CONVOY_TESTS_CHECK_STRIDES_H_
#define CONVOY_TESTS_CHECK_STRIDES_H_

#include "kernels/strides.h"

/* Cuts floats to what bfloat16 holds. */
static inline void check_cut(float *p, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &p[i], sizeof bits);
    bits &= 0xffff0000u;
    memcpy(&p[i], &bits, sizeof bits);
  }
}

/* The strides of a tensor whose axes lie in this order, from the slowest: "oirc"; returns its elements. */
static inline ptrdiff_t check_lay_out(const char *order, const int sizes[4], int stack, cv_strides *s) {
  ptrdiff_t step = 1;
  for (int i = 3; i >= 0; i--) {
    const int axis = order[i] == 'o' ? 0 : order[i] == 'i' ? 1 : order[i] == 'r' ? 2 : 3;
    *(axis < 2 ? &s->stack[stack + 2 * axis] : axis == 2 ? &s->row : &s->column) = step;
    step *= sizes[axis];
  }
  return step;
}

static inline float *check_element(const float *data, const cv_strides *s, int stack, int o, int i, int r,
                                   int c) {
  return (float *)data + o * s->stack[stack] + i * s->stack[stack + 2] + r * s->row + c * s->column;
}

#endif
