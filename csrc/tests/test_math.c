/* simd/math.h against libm in double precision: the errors its table promises, and the edges. */
#include "simd/math.h"
#include "tests/check.h"

typedef cv_vec (*vector_function)(cv_vec);
typedef double (*scalar_function)(double);

static float apply(vector_function f, float x) {
  float lanes[CV_LANES];
  cv_storeu(lanes, f(cv_set1(x)));
  return lanes[CV_LANES - 1];
}

static float float_of_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

/* |got - expected| in units of the last place of expected. */
static double ulps(float got, double expected) {
  const float rounded = (float)expected;
  if (isnan(got) || isnan(rounded)) return isnan(got) && isnan(rounded) ? 0 : INFINITY;
  if (isinf(got) || isinf(rounded)) return got == rounded ? 0 : INFINITY;
  int exponent;
  frexp(expected, &exponent);
  return fabs(got - expected) / ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

/* Every `step`-th float between begin and end in the order of their bits, both signs if asked. */
static void sweep(const char *name, vector_function f, scalar_function reference, double begin, double end,
                  int both_signs, double bound) {
  double worst = 0;
  float at = 0;
  const float first = (float)begin, last = (float)end;
  uint32_t from, to;
  memcpy(&from, &first, 4);
  memcpy(&to, &last, 4);
  const uint32_t step = (to - from) / 40000 + 1;
  for (uint32_t bits = from; bits <= to && bits >= from; bits += step) {
    for (int sign = 0; sign <= both_signs; sign++) {
      const float x = sign ? -float_of_bits(bits) : float_of_bits(bits);
      const double error = ulps(apply(f, x), reference(x));
      if (!(error <= worst)) worst = error, at = x;
    }
  }
  printf("%s %s: %.2f ulp at %g\n", CV_ISA, name, worst, at);
  CHECK(worst <= bound, "%s: %.2f ulp at %a, bound %.2f", name, worst, at, bound);
}

static cv_vec v_exp(cv_vec x) { return cv_exp(x); }
static cv_vec v_expm1(cv_vec x) { return cv_expm1_negative(cv_neg(x)); }
static cv_vec v_log(cv_vec x) { return cv_log(x); }
static cv_vec v_log1p(cv_vec x) { return cv_log1p_unit(x); }
static cv_vec v_tanh(cv_vec x) { return cv_tanh(x); }
static cv_vec v_sigmoid(cv_vec x) { return cv_sigmoid(x); }
static cv_vec v_silu(cv_vec x) { return cv_silu(x); }
static cv_vec v_erf(cv_vec x) { return cv_erf(x); }
static cv_vec v_sin(cv_vec x) { return cv_sin(x); }
static cv_vec v_cos(cv_vec x) { return cv_cos(x); }
static cv_vec v_atan(cv_vec x) { return cv_atan(x); }
static cv_vec v_rsqrt(cv_vec x) { return cv_rsqrt(x); }
static cv_vec v_exp2(cv_vec x) { return cv_exp2(x); }
static double expm1_of_minus(double x) { return expm1(-x); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x / (1 + exp(-x)); }
static double rsqrt(double x) { return 1 / sqrt(x); }

/* Where the result nears the denormals it is either right or 0. */
static void check_flushed(const char *name, vector_function f, scalar_function reference) {
  for (float x = -86.5f; x > -120; x -= 0.01f) {
    const float got = apply(f, x);
    const double expected = reference(x);
    CHECK(ulps(got, expected) <= 3 || (got == 0 && expected < 1.7e-38), "%s(%a) = %g, expected %g", name, x,
          got, expected);
  }
}

static void check_edges(const char *name, vector_function f, scalar_function reference) {
  const float edges[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 200.0f, -200.0f, 3e38f, -3e38f, 1e-40f};
  for (size_t i = 0; i < sizeof edges / sizeof *edges; i++) {
    const float got = apply(f, edges[i]);
    CHECK(ulps(got, reference(edges[i])) <= 3, "%s(%g) = %g, expected %g", name, edges[i], got,
          reference(edges[i]));
  }
}

static void check_pow(void) {
  double worst = 0;
  for (int i = 0; i < 100000; i++) {
    const float x = (float)exp(40 * check_random()), y = 3 * check_random() * (i % 5 ? 1 : 30);
    float lanes[CV_LANES];
    cv_storeu(lanes, cv_pow(cv_set1(x), cv_set1(y)));
    const double error = ulps(lanes[0], pow(x, y));
    CHECK(error <= 1, "pow(%a, %a) = %a, %g ulp", x, y, lanes[0], error);
    if (error > worst) worst = error;
  }
  printf("%s pow: %.2f ulp\n", CV_ISA, worst);
  const float edges[] = {0.0f,  -0.0f, 1.0f, -1.0f,  2.0f,    -2.0f,  3.0f,     -3.0f,     0.5f, -0.5f,
                         1e30f, -7.0f, NAN,  1e-40f, -1e-40f, -1e30f, INFINITY, -INFINITY, 1.5f, -2.5f};
  const int count = sizeof edges / sizeof *edges;
  for (int i = 0; i < count; i++) {
    for (int j = 0; j < count; j++) {
      float lanes[CV_LANES];
      cv_storeu(lanes, cv_pow(cv_set1(edges[i]), cv_set1(edges[j])));
      const float expected = (float)pow(edges[i], edges[j]);
      CHECK(ulps(lanes[0], pow(edges[i], edges[j])) <= 1 &&
                (isnan(expected) || !signbit(lanes[0]) == !signbit(expected)),
            "pow(%g, %g) = %g, expected %g", edges[i], edges[j], lanes[0], expected);
    }
  }
}

/* Absolute errors over all floats, of which those above 1e5 are reduced one by one. */
static void check_turning(const char *name, vector_function f, scalar_function reference) {
  double worst = 0;
  for (uint32_t bits = 0; bits < 0x7f800000; bits += 20011) {
    for (int sign = 0; sign < 2; sign++) {
      const float x = float_of_bits(bits | (uint32_t)sign << 31);
      const double error = fabs(apply(f, x) - reference(x));
      CHECK(error <= 1e-7, "%s(%a) = %a, expected %a", name, x, apply(f, x), reference(x));
      if (error > worst) worst = error;
    }
  }
  printf("%s %s: %.2g\n", CV_ISA, name, worst);
  CHECK(isnan(apply(f, INFINITY)) && isnan(apply(f, -INFINITY)) && isnan(apply(f, NAN)),
        "%s where there is no angle", name);
}

/* A lane that is reduced alone leaves others as they are. */
static void check_turning_lanes(void) {
  float lanes[CV_LANES], got[CV_LANES];
  for (int i = 0; i < CV_LANES; i++) lanes[i] = i % 3 == 1 ? -3.1e20f : 0.25f * (float)i;
  cv_storeu(got, cv_sin(cv_loadu(lanes)));
  for (int i = 0; i < CV_LANES; i++)
    CHECK(fabs(got[i] - sin(lanes[i])) <= 1e-7, "lane %d: sin(%g) = %g", i, lanes[i], got[i]);
}

/* Absolute errors; nothing at all from 6 on. */
static void check_tail(void) {
  double worst = 0;
  for (int i = 0; i < 100000; i++) {
    const double x = i * 1e-4, expected = x < 6 ? erfc(x / sqrt(2)) / 2 : 0;
    const double error = fabs(apply(cv_tail, (float)x) - expected);
    if (error > worst) worst = error;
  }
  printf("%s tail: %.2g\n", CV_ISA, worst);
  CHECK(worst <= 1e-7, "tail: %g", worst);
  CHECK(apply(cv_tail, INFINITY) == 0 && isnan(apply(cv_tail, NAN)), "tail of inf, NaN");
}

int main(void) {
  /* Lanes are independent: a vector of different arguments gives what each gives alone. */
  float x[CV_LANES], lanes[CV_LANES];
  for (int i = 0; i < CV_LANES; i++) x[i] = 0.37f * (float)(i - 3);
  cv_storeu(lanes, cv_exp(cv_loadu(x)));
  for (int i = 0; i < CV_LANES; i++) CHECK(lanes[i] == apply(v_exp, x[i]), "lane %d", i);

  sweep("exp", v_exp, exp, 1e-10, 86.9, 1, 1.5);
  sweep("exp of large", v_exp, exp, 80, 110, 0, 1.5);
  check_flushed("exp", v_exp, exp);
  check_flushed("sigmoid", v_sigmoid, sigmoid);
  sweep("expm1", v_expm1, expm1_of_minus, 1e-30, 100, 0, 1.5);
  sweep("log", v_log, log, 1e-44, 3e38, 0, 1.5);
  sweep("log near 1", v_log, log, 0.7, 1.42, 0, 1.5);
  sweep("log1p", v_log1p, log1p, 1e-30, 1, 0, 2);
  sweep("tanh", v_tanh, tanh, 1e-30, 20, 1, 3);
  sweep("sigmoid", v_sigmoid, sigmoid, 1e-30, 86.9, 1, 3);
  sweep("silu", v_silu, silu, 1e-30, 86.9, 1, 3);
  sweep("erf", v_erf, erf, 1e-30, 8, 1, 2);
  sweep("rsqrt", v_rsqrt, rsqrt, 1e-40, 3e38, 0, 1.5);
  check_turning("sin", v_sin, sin);
  check_turning("cos", v_cos, cos);
  check_turning_lanes();
  sweep("sin near 0", v_sin, sin, 1e-30, 0.7, 1, 2);
  CHECK(signbit(apply(v_atan, -0.0f)), "the sign of 0");
  sweep("atan", v_atan, atan, 1e-30, 3e38, 1, 2);
  check_edges("atan", v_atan, atan);
  check_edges("exp", v_exp, exp);
  check_edges("log", v_log, log);
  check_edges("tanh", v_tanh, tanh);
  check_edges("sigmoid", v_sigmoid, sigmoid);
  check_edges("silu", v_silu, silu);
  check_edges("erf", v_erf, erf);
  check_edges("rsqrt", v_rsqrt, rsqrt);
  sweep("exp2", v_exp2, exp2, 1e-10, 125, 1, 2.5);
  CHECK(apply(v_exp2, -127) == 0 && isnan(apply(v_exp2, NAN)), "exp2 at the edges");
  check_tail();
  check_pow();
  return check_done();
}
