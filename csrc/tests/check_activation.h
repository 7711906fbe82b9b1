/* The activations' formulas in double, which kernels are held against. */
#ifndef CONVOY_TESTS_CHECK_ACTIVATION_H_
#define CONVOY_TESTS_CHECK_ACTIVATION_H_

#include "kernels/activation.h"
#include "tests/check.h"

static inline double check_clamp(double x, double low, double high) {
  return x < low ? low : x > high ? high : x;
}
static inline double f_clip(double x, double a, double b) { return check_clamp(x, a, b); }
static inline double f_leaky_relu(double x, double a, double b) { return (void)b, x < 0 ? a * x : x; }
static inline double f_sigmoid(double x, double a, double b) { return (void)a, (void)b, 1 / (1 + exp(-x)); }
static inline double f_tanh(double x, double a, double b) { return (void)a, (void)b, tanh(x); }
static inline double f_silu(double x, double a, double b) { return x * f_sigmoid(x, a, b); }
static inline double f_hardsigmoid(double x, double a, double b) { return check_clamp(a * x + b, 0, 1); }
static inline double f_hardswish(double x, double a, double b) {
  return (void)a, (void)b, x * f_hardsigmoid(x, 1.0 / 6, 0.5);
}
static inline double f_gelu(double x, double a, double b) {
  return (void)a, (void)b, 0.5 * x * (1 + erf(x / sqrt(2)));
}
static inline double f_gelu_tanh(double x, double a, double b) {
  return (void)a, (void)b, 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}
static inline double f_elu(double x, double a, double b) { return (void)b, x < 0 ? a * expm1(x) : x; }
static inline double f_softplus(double x, double a, double b) {
  return (void)a, (void)b, x > 40 ? x : log1p(exp(x));
}
static inline double f_mish(double x, double a, double b) { return x * tanh(f_softplus(x, a, b)); }

static inline double check_activate(double x, cv_activation act) {
#define CHECK_CASE(NAME, kind) \
  case CV_##NAME:              \
    return f_##kind(x, act.a, act.b);
  switch (act.kind) {
    case CV_IDENTITY:
      return x;
      CV_ACTIVATIONS(CHECK_CASE)
  }
#undef CHECK_CASE
  return x;
}

#endif
