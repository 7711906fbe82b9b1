/* kernels/quantize.h: quotients round as those of a division, beside ties, of scales of any size. */
#include "kernels/quantize.h"
#include "tests/check.h"

static uint32_t state = 1;

static uint32_t next_bits(void) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

/* A number whose last places are any, of a power of two from `low` on. */
static float any_number(int low, int powers) {
  const float m = 1.0f + (float)next_bits() * 0x1p-24f;
  return ldexpf(next_bits() % 2 ? m : -m, low + (int)(next_bits() % (uint32_t)powers));
}

static void check_vector(const float *x, float d) {
  const cv_vec by = cv_set1(d), v = cv_loadu(x);
  float got[CV_LANES];
  cv_storeu(got, cv_round(cv_quotient(v, by, cv_inverse(by))));
  for (int l = 0; l < CV_LANES; l++) {
    const float expected = rintf(x[l] / d);
    CHECK(got[l] == expected || (isnan(got[l]) && isnan(expected)), "round(%a / %a) is %g, got %g", x[l], d,
          expected, got[l]);
  }
}

/* Numbers beside those whose quotients lie between two whole ones. */
static void check_ties(float d) {
  float x[CV_LANES];
  for (int l = 0; l < CV_LANES; l++) {
    const int whole = (int)(next_bits() % 600) - 300, aside = (int)(next_bits() % 5) - 2;
    x[l] = (float)(((double)whole + 0.5) * (double)d);
    for (int i = 0; i < abs(aside); i++) x[l] = nextafterf(x[l], aside < 0 ? -INFINITY : INFINITY);
  }
  check_vector(x, d);
}

static void check_special(float d) {
  const float special[] = {0.0f,       -0.0f,     INFINITY, -INFINITY, NAN,       0x1p-149f,
                           -0x1p-140f, 0x1p-126f, 3.4e38f,  -3.4e38f,  0x1p-101f, 1.0f};
  for (int i = 0; i < 12; i++) {
    float x[CV_LANES]; /* beside plain ones: one may not change the others */
    for (int l = 0; l < CV_LANES; l++) x[l] = l % 2 ? special[i] : any_number(-4, 8) * d;
    check_vector(x, d);
  }
}

/* Bytes of a scale and a zero point that a run computes, by the definition in float. */
static void check_bytes_of(float scale, int zero) {
  float x[CV_LANES];
  uint8_t got[CV_LANES];
  for (int l = 0; l < CV_LANES; l++) x[l] = l == 1 ? NAN : l == 2 ? INFINITY : any_number(-2, 10) * scale;
  const cv_computed_scale s = cv_computed_scale_of(cv_set1(scale), cv_set1((float)zero), 0.0f, 255.0f);
  cv_store_bytes(got, cv_quantize_computed(cv_loadu(x), s));
  for (int l = 0; l < CV_LANES; l++) {
    const float steps = rintf(x[l] / scale) + (float)zero;
    const int expected = isnan(steps) || steps < 0 ? 0 : steps > 255 ? 255 : (int)steps;
    CHECK(got[l] == expected, "%a by %a and %d is %d, got %d", x[l], scale, zero, expected, got[l]);
  }
}

int main(void) {
  for (int i = 0; i < 20000; i++) {
    check_ties(any_number(-40, 80));
    check_ties(any_number(-120, 20));
    check_bytes_of(fabsf(any_number(-20, 24)), i % 256);
  }
  const float divisors[] = {1.0f,     3.0f,    -0.013f,    0x1.fffffep0f, 0x1p-60f, 0x1.000002p-60f,
                            0x1p60f,  0x1p61f, 0x1p-149f,  0x1p-126f,     3.4e38f,  0.0f,
                            INFINITY, NAN,     0x1.8p-30f, 0x1.fffffep40f};
  for (int i = 0; i < 16; i++) check_special(divisors[i]);
  return check_done();
}
