/* simd/amx.h, emulated: signs, order and rounding of sums, denormals, and that shapes are kept. */
#include "tests/check.h"

#if CV_AMX
enum { ROWS = 3, CELLS = 5 };

/* x, w and sums with a row more than tiles have, so that what is read or written too far shows. */
static uint32_t x[ROWS + 1][CV_AMX_CELLS], w[CELLS + 1][CV_AMX_CELLS], sums[ROWS + 1][CV_AMX_CELLS];

/* All cells of x and w alike; past the shape others, which would show. */
static void fill(uint32_t of_x, uint32_t of_w) {
  for (int i = 0; i <= ROWS; i++)
    for (int c = 0; c < CV_AMX_CELLS; c++) x[i][c] = i < ROWS && c < CELLS ? of_x : 0x7fc17fc1;
  for (int c = 0; c <= CELLS; c++)
    for (int j = 0; j < CV_AMX_CELLS; j++) w[c][j] = c < CELLS ? of_w : 0x7fc17fc1;
}

static void multiply(int bf16, int sum) {
  memset(sums, 0x55, sizeof sums);
  cv_amx_load(4, (const float *)(const void *)x, CV_AMX_CELLS);
  cv_amx_load(6 + sum % 2, (const float *)(const void *)w, CV_AMX_CELLS);
  if (bf16) {
    cv_amx_dot_bf16(sum);
  } else {
    cv_amx_dot_bytes(sum);
  }
  cv_amx_store(sum, (float *)(void *)sums, CV_AMX_CELLS);
}

static void check_sums(uint32_t expected, const char *what) {
  for (int i = 0; i <= ROWS; i++)
    for (int j = 0; j < CV_AMX_CELLS; j++)
      CHECK(sums[i][j] == (i < ROWS ? expected : 0x55555555), "%s: sum %d, %d is %08x, expected %08x", what,
            i, j, sums[i][j], expected);
}

static uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static uint32_t pair(float first, float second) {
  return bits_of(first) >> 16 | (bits_of(second) & 0xffff0000);
}

int main(void) {
  cv_amx_shape(ROWS, CELLS);
  for (int sum = 0; sum < CV_AMX_SUMS; sum++) cv_amx_zero(sum);

  fill(0xff0000ff, 0x80123480); /* 255 · -128, twice */
  multiply(0, 0);
  check_sums((uint32_t)(CELLS * 2 * 255 * -128), "bytes of x have no sign, those of w have one");
  multiply(0, 0);
  check_sums((uint32_t)(2 * CELLS * 2 * 255 * -128), "the next products are added");

  /* First elements: 2^24 and four ones, each lost beside it; second ones: 1 in each of two cells. */
  fill(pair(1, 0), pair(1, 1));
  for (int i = 0; i < ROWS; i++) x[i][0] = pair(4096, 1), x[i][1] = pair(1, 1);
  for (int j = 0; j < CV_AMX_CELLS; j++) w[0][j] = pair(4096, 1);
  multiply(1, 1);
  check_sums(bits_of(0x1p24f + 2), "the sums of first and second elements meet at the end");
  fill(0, 0);
  for (int i = 0; i < ROWS; i++) x[i][0] = pair(1, 0);
  for (int j = 0; j < CV_AMX_CELLS; j++) w[0][j] = pair(1, 0);
  multiply(1, 1);
  check_sums(bits_of(0x1p24f + 4), "a tie is rounded to even");

  fill(0x00010001, pair(0x1p127f, 0x1p127f));
  multiply(1, 2);
  check_sums(0, "a denormal is taken for 0");
  fill(pair(0x1p-100f, 0), pair(0x1p-40f, 0));
  multiply(1, 3);
  check_sums(0, "and becomes 0");
  return check_done();
}
#else
int main(void) {
  CHECK(!cv_amx_allowed(), "tiles of AMX in a unit without them");
  return check_done();
}
#endif
