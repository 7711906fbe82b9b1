/* simd/bfloat16.h: rounding, loads, stores and products, with the instruction and without. */
#include "tests/check.h"

static float of_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

static uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

/* To nearest even; a NaN keeps its upper half, quiet. */
static uint16_t rounded(float f) {
  const uint32_t bits = bits_of(f);
  if (isnan(f)) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float widened(uint16_t half) { return of_bits((uint32_t)half << 16); }

static void check_vector(const float *from, const char *what) {
  uint16_t stored[CV_LANES] __attribute__((aligned(64)));
  float loaded[CV_LANES];
  cv_store_bf16((float *)stored, cv_loadu(from));
  cv_storeu(loaded, cv_load_bf16((const float *)stored));
  for (int i = 0; i < CV_LANES; i++) {
    CHECK(stored[i] == rounded(from[i]), "%s: %g is %04x, expected %04x", what, from[i], stored[i],
          rounded(from[i]));
    CHECK(bits_of(loaded[i]) == (uint32_t)stored[i] << 16, "%s: %04x is loaded as %g", what, stored[i],
          loaded[i]);
  }
}

static void check_pairs(const float *a, const float *b) {
  uint16_t cells[CV_LANES][2];
  float low[CV_LANES], high[CV_LANES], sums[CV_LANES];
  const cv_vec pairs = cv_pair_bf16(cv_loadu(a), cv_loadu(b));
  cv_storeu((float *)cells, pairs);
  cv_storeu(low, cv_low_bf16(pairs));
  cv_storeu(high, cv_high_bf16(pairs));
  cv_storeu(sums, cv_dot_bf16(pairs, cv_pair_bf16(cv_loadu(b), cv_loadu(a)), cv_set1(0.5f)));
  for (int i = 0; i < CV_LANES; i++) {
    const double x = widened(rounded(a[i])), y = widened(rounded(b[i]));
    CHECK(cells[i][0] == rounded(a[i]) && cells[i][1] == rounded(b[i]), "a pair of %g and %g", a[i], b[i]);
    CHECK(low[i] == (float)x && high[i] == (float)y, "the halves of %g and %g", a[i], b[i]);
    CHECK(check_near(sums[i], 0.5 + 2 * x * y, 0.5 + 2 * fabs(x * y), 3e-7), "0.5 + 2 %g %g: got %g", x, y,
          sums[i]);
  }
}

int main(void) {
  static const uint32_t special[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f817fff, 0xbf808000, 0x7f7fffff,
                                     0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffc12345,
                                     0x00000000, 0x80000000, 0x7f7f0000, 0x00800000};
  float from[CV_LANES], other[CV_LANES];
  for (int i = 0; i < 16; i += CV_LANES) {
    for (int lane = 0; lane < CV_LANES; lane++) from[lane] = of_bits(special[i + lane]);
    check_vector(from, "special");
  }
  for (int i = 0; i < 1000; i++) {
    check_fill(from, CV_LANES);
    check_fill(other, CV_LANES);
    check_vector(from, "random");
    check_pairs(from, other);
  }
  return check_done();
}
