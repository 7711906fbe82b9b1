/* Elementwise functions of one vector, and the activations an epilogue may apply.
 *
 *   cv_op_<kind>(v, a, b)   for each UnaryKind of graph/ops.py; a and b are its parameters
 *   cv_activate(v, act)     act.kind(v); CV_CLAMP with 0, INFINITY is relu
 *   cv_activate_vectors     the same of many vectors in memory: the kind is told apart once, not for each
 *
 * NaN propagates through all of them.  x * f(x) is NaN where it is inf * 0 as written: silu, hardswish,
 * gelu and mish of -inf, as in NumPy.
 */
#ifndef CONVOY_KERNELS_ACTIVATION_H_
#define CONVOY_KERNELS_ACTIVATION_H_

#include "simd/math.h"

#define CV_OP(kind, expression)                               \
  CV_INLINE cv_vec cv_op_##kind(cv_vec v, float a, float b) { \
    (void)a, (void)b; /* most kinds have no parameter */      \
    return expression;                                        \
  }

CV_OP(relu, cv_max(cv_zero(), v))
CV_OP(clip, cv_min(cv_set1(b), cv_max(cv_set1(a), v)))
CV_OP(leaky_relu, cv_select(cv_lt(v, cv_zero()), cv_mul(v, cv_set1(a)), v))
CV_OP(sigmoid, cv_sigmoid(v))
CV_OP(tanh, cv_tanh(v))
CV_OP(silu, cv_silu(v))
CV_OP(hardsigmoid, cv_op_clip(cv_fma(v, cv_set1(a), cv_set1(b)), 0.0f, 1.0f))
CV_OP(hardswish, cv_mul(v, cv_op_hardsigmoid(v, 1.0f / 6, 0.5f)))
/* v P with P = 1 - tail(v), how likely a normal variable is below v. */
CV_INLINE cv_vec cv_normal_below(cv_vec v) {
  const cv_vec tail = cv_tail(cv_abs(v));
  return cv_select(cv_lt(v, cv_zero()), tail, cv_sub(cv_set1(1.0f), tail));
}
CV_OP(gelu, cv_mul(v, cv_normal_below(v)))
/* v (1 + tanh(u)) / 2 = v / (1 + exp(-2u)), u = sqrt(2/pi) (v + 0.044715 v^3) */
CV_INLINE cv_vec cv_gelu_exponent(cv_vec v) {
  return cv_mul(v, cv_fma(cv_mul(v, v), cv_set1(0.071354816f), cv_set1(1.5957691f)));
}
CV_OP(gelu_tanh, cv_div(v, cv_logistic(cv_gelu_exponent(v))))
CV_OP(exp, cv_exp(v))
CV_OP(log, cv_log(v))
CV_OP(sqrt, cv_sqrt(v))
CV_OP(rsqrt, cv_rsqrt(v))
CV_OP(abs, cv_abs(v))
CV_OP(neg, cv_neg(v))
CV_OP(erf, cv_erf(v))
CV_OP(square, cv_mul(v, v))
/* log(1 + exp(v)) = max(v, 0) + log(1 + exp(-|v|)) */
CV_OP(softplus, cv_add(cv_max(cv_zero(), v), cv_log1p_unit(cv_exp(cv_neg(cv_abs(v))))))
CV_OP(elu, cv_select(cv_lt(v, cv_zero()), cv_mul(cv_expm1_negative(cv_min(cv_zero(), v)), cv_set1(a)), v))
/* tanh(log(1 + e)) = n / (n + 2) with n = e (e + 2), which is 1 in float from e = exp(20) on. */
CV_INLINE cv_vec cv_mish_gate(cv_vec e) {
  const cv_vec two = cv_set1(2.0f), n = cv_mul(e, cv_add(e, two));
  return cv_div(n, cv_add(n, two));
}
CV_OP(mish, cv_mul(v, cv_mish_gate(cv_exp(cv_min(cv_set1(20.0f), v)))))
CV_OP(round, cv_round(v))
CV_OP(floor, cv_floor(v))
CV_OP(ceil, cv_ceil(v))
CV_OP(reciprocal, cv_div(cv_set1(1.0f), v))
CV_OP(sin, cv_sin(v))
CV_OP(cos, cv_cos(v))
CV_OP(atan, cv_atan(v))

/* Those an epilogue may apply, all of them: X(name of the kind, operation). */
#define CV_ACTIVATIONS(X)     \
  X(CLAMP, clip)              \
  X(LEAKY_RELU, leaky_relu)   \
  X(SIGMOID, sigmoid)         \
  X(TANH, tanh)               \
  X(SILU, silu)               \
  X(HARDSWISH, hardswish)     \
  X(HARDSIGMOID, hardsigmoid) \
  X(GELU, gelu)               \
  X(GELU_TANH, gelu_tanh)     \
  X(ELU, elu)                 \
  X(MISH, mish)

#define CV_KIND(NAME, op) CV_##NAME,
typedef enum { CV_IDENTITY = 0, CV_ACTIVATIONS(CV_KIND) } cv_activation_kind;
#undef CV_KIND

typedef struct cv_activation {
  cv_activation_kind kind;
  float a, b;
} cv_activation;

CV_INLINE cv_vec cv_activate(cv_vec v, cv_activation act) {
#define CV_CASE(NAME, op) \
  case CV_##NAME:         \
    return cv_op_##op(v, act.a, act.b);
  switch (act.kind) {
    case CV_IDENTITY:
      return v;
      CV_ACTIVATIONS(CV_CASE)
  }
#undef CV_CASE
  return v;
}

/* A driver finishes this many vectors of its results together.  What it does next waits for the last of
 * them as long as an activation takes, which is half as long again for the vectors of a single tile. */
#define CV_FINISHED_TOGETHER 64

/* The first `lanes` lanes of `count` vectors, `step` floats apart, of any alignment. */
CV_SHARED void cv_activate_vectors(cv_activation act, float *p, int count, ptrdiff_t step, int lanes)
    CV_SYMBOL(cv_activate_vectors);

#if CV_DEFINES(ACTIVATION)
CV_INLINE void cv_activate_span(cv_activation act, float *p, int count, ptrdiff_t step, int lanes) {
  if (lanes == CV_LANES) {
    for (; count > 0; count--, p += step) cv_storeu(p, cv_activate(cv_loadu(p), act));
  } else {
    for (; count > 0; count--, p += step) cv_store_n(p, cv_activate(cv_load_n(p, lanes), act), lanes);
  }
}

CV_SHARED void cv_activate_vectors(cv_activation act, float *p, int count, ptrdiff_t step, int lanes) {
#define CV_CASE(NAME, op)                                                              \
  case CV_##NAME:                                                                      \
    cv_activate_span((cv_activation){CV_##NAME, act.a, act.b}, p, count, step, lanes); \
    break;
  switch (act.kind) {
    case CV_IDENTITY:
      break;
      CV_ACTIVATIONS(CV_CASE)
  }
#undef CV_CASE
}
#endif

#endif
