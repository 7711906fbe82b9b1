/* kernels/activation.h: every kind against its formula in double, and NaN and infinities. */
#include "kernels/activation.h"
#include "tests/check_activation.h"

typedef struct operation {
  const char *name;
  cv_vec (*op)(cv_vec, float, float);
  double (*reference)(double x, double a, double b);
  float a, b;
  int cancels; /* the result may be smaller than its terms, which are as large as x */
} operation;

static double f_relu(double x, double a, double b) { return (void)a, (void)b, x < 0 ? 0 : x; }
static double f_exp(double x, double a, double b) { return (void)a, (void)b, exp(x); }
static double f_log(double x, double a, double b) { return (void)a, (void)b, log(x); }
static double f_sqrt(double x, double a, double b) { return (void)a, (void)b, sqrt(x); }
static double f_rsqrt(double x, double a, double b) { return (void)a, (void)b, 1 / sqrt(x); }
static double f_abs(double x, double a, double b) { return (void)a, (void)b, fabs(x); }
static double f_neg(double x, double a, double b) { return (void)a, (void)b, -x; }
static double f_sin(double x, double a, double b) { return (void)a, (void)b, sin(x); }
static double f_cos(double x, double a, double b) { return (void)a, (void)b, cos(x); }
static double f_atan(double x, double a, double b) { return (void)a, (void)b, atan(x); }
static double f_erf(double x, double a, double b) { return (void)a, (void)b, erf(x); }
static double f_square(double x, double a, double b) { return (void)a, (void)b, x * x; }
static double f_round(double x, double a, double b) { return (void)a, (void)b, rint(x); }
static double f_floor(double x, double a, double b) { return (void)a, (void)b, floor(x); }
static double f_ceil(double x, double a, double b) { return (void)a, (void)b, ceil(x); }
static double f_reciprocal(double x, double a, double b) { return (void)a, (void)b, 1 / x; }

static cv_vec o_activate_relu(cv_vec v, float a, float b) {
  return (void)a, (void)b, cv_activate(v, (cv_activation){CV_CLAMP, 0, INFINITY});
}

#define ACTIVATED(NAME, kind)                                   \
  static cv_vec o_activate_##kind(cv_vec v, float a, float b) { \
    return cv_activate(v, (cv_activation){CV_##NAME, a, b});    \
  }
CV_ACTIVATIONS(ACTIVATED)

#define KIND(kind, a, b, cancels) {#kind, cv_op_##kind, f_##kind, a, b, cancels}
#define BOTH(kind, a, b, cancels) \
  KIND(kind, a, b, cancels), { "activate " #kind, o_activate_##kind, f_##kind, a, b, cancels }

static const operation operations[] = {
    {"activate relu", o_activate_relu, f_relu, 0, 0, 0},
    KIND(relu, 0, 0, 0),
    BOTH(clip, -0.5f, 6.0f, 0),
    BOTH(leaky_relu, 0.1f, 0, 0),
    BOTH(sigmoid, 0, 0, 0),
    BOTH(tanh, 0, 0, 0),
    BOTH(silu, 0, 0, 1),
    BOTH(hardswish, 0, 0, 1),
    BOTH(hardsigmoid, 0.2f, 0.4f, 1),
    BOTH(gelu, 0, 0, 1),
    BOTH(gelu_tanh, 0, 0, 1),
    KIND(exp, 0, 0, 0),
    KIND(log, 0, 0, 0),
    KIND(sqrt, 0, 0, 0),
    KIND(rsqrt, 0, 0, 0),
    KIND(abs, 0, 0, 0),
    KIND(neg, 0, 0, 0),
    KIND(erf, 0, 0, 0),
    KIND(sin, 0, 0, 0),
    KIND(cos, 0, 0, 0),
    KIND(atan, 0, 0, 0),
    KIND(square, 0, 0, 0),
    KIND(softplus, 0, 0, 0),
    BOTH(elu, 0.7f, 0, 0),
    BOTH(mish, 0, 0, 0),
    KIND(round, 0, 0, 0),
    KIND(floor, 0, 0, 0),
    KIND(ceil, 0, 0, 0),
    KIND(reciprocal, 0, 0, 0),
};

/* Many vectors at once have the same bits as each alone, and what lies beside their lanes stays. */
static void check_vectors(const operation *o, cv_activation_kind kind) {
  enum { COUNT = 3, STEP = 2 * CV_LANES + 1 };
  float *x = check_floats(COUNT * STEP + 1), *y = check_floats(COUNT * STEP + 1);
  for (int lanes = 0; lanes <= CV_LANES; lanes++) {
    check_fill(x, COUNT * STEP + 1);
    memcpy(y, x, (COUNT * STEP + 1) * sizeof *y);
    cv_activate_vectors((cv_activation){kind, o->a, o->b}, y + 1, COUNT, STEP, lanes);
    for (int i = 0; i <= COUNT * STEP; i++) {
      float expected[CV_LANES] = {x[i]};
      if (i > 0 && i < COUNT * STEP + 1 && (i - 1) % STEP < lanes) {
        cv_storeu(expected, o->op(cv_set1(x[i]), o->a, o->b));
      }
      CHECK(y[i] == expected[0], "%s of %d lanes: y[%d] = %a, expected %a", o->name, lanes, i, y[i],
            expected[0]);
    }
  }
  free(x), free(y);
}

static float apply(const operation *o, float x) {
  float lanes[CV_LANES];
  cv_storeu(lanes, o->op(cv_set1(x), o->a, o->b));
  return lanes[CV_LANES - 1];
}

int main(void) {
  for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
    const operation *o = &operations[i];
    for (int step = -4000; step <= 4000; step++) {
      const float x = (float)step * (step % 7 ? 0.005f : 0.02f);
      const double expected = o->reference(x, o->a, o->b);
      /* Relative to the result, and where terms cancel, to x. */
      CHECK(check_near(apply(o, x), expected, fmax(fabs(expected), o->cancels * fabs(x)), 4e-7),
            "%s(%a) = %a, expected %a", o->name, x, apply(o, x), expected);
    }
    CHECK(isnan(apply(o, NAN)), "%s(NaN) = %g", o->name, apply(o, NAN));
    CHECK(check_near(apply(o, INFINITY), (float)o->reference(INFINITY, o->a, o->b), 1, 0), "%s(inf) = %g",
          o->name, apply(o, INFINITY));
    CHECK(check_near(apply(o, -INFINITY), (float)o->reference(-INFINITY, o->a, o->b), 1, 0),
          "%s(-inf) = %g", o->name, apply(o, -INFINITY));
  }
  const cv_activation identity = {CV_IDENTITY, 0, 0};
  float lanes[CV_LANES];
  cv_storeu(lanes, cv_activate(cv_set1(-3.25f), identity));
  CHECK(lanes[0] == -3.25f, "identity");
#define VECTORS(NAME, kind) \
  check_vectors(&(operation){"vectors of " #kind, cv_op_##kind, NULL, 0.25f, 0.5f, 0}, CV_##NAME);
  CV_ACTIVATIONS(VECTORS)
  return check_done();
}
