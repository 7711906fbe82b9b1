/* kernels/reduce_bytes.h: means of rows and of columns, against the definition in double. */
#include "kernels/reduce_bytes.h"
#include "tests/check_bytes.h"

static void check_mean(int outer, int axis, int inner, int threads, cv_scale xs, cv_scale ys) {
  const ptrdiff_t count = (ptrdiff_t)outer * axis * inner, results = (ptrdiff_t)outer * inner;
  uint8_t *x = check_bytes(count + 1, 0), *y = check_bytes(results + 2, 99);
  check_fill_bytes(x, count + 1);
  for (int id = threads - 1; id >= 0; id--)
    cv_mean_bytes((cv_thread){id, threads}, y + 1, x + 1, outer, axis, inner, xs, ys);
  for (int o = 0; o < outer; o++)
    for (int i = 0; i < inner; i++) {
      int64_t sum = 0;
      for (int a = 0; a < axis; a++) sum += x[1 + ((ptrdiff_t)o * axis + a) * inner + i] - xs.zero;
      const double mean = (double)sum * xs.scale / axis;
      const int byte = y[1 + (ptrdiff_t)o * inner + i];
      CHECK(check_quantised(byte, mean, ys), "mean of [%d][%d][%d]: y[%d][%d] = %d, expected %g", outer,
            axis, inner, o, i, byte, mean);
    }
  CHECK(y[0] == 99 && y[results + 1] == 99, "the mean of [%d][%d][%d] wrote beside y", outer, axis, inner);
  free(x), free(y);
}

int main(void) {
  const cv_scale bytes = {0.05f, 131, 0, 255}, fine = {0.0031f, 120, 0, 255};
  const int axes[] = {1, 2, 5, 16, 17, 63, 300}, inners[] = {1, 3, 4, 16, 21, 64};
  for (int i = 0; i < 7; i++)
    for (int j = 0; j < 6; j++) {
      check_mean(1 + (i + j) % 5, axes[i], inners[j], 1 + i % 4, bytes, fine);
      check_mean(3, axes[i], inners[j], 2, fine, bytes);
    }
  for (int beyond = 0; beyond < 2; beyond++) { /* what int32 holds */
    const int most = CV_BYTE_SUM_MOST + 2 * beyond * (CV_BYTE_SUM_MOST + 500);
    check_mean(1, most, 1, 1, (cv_scale){0.05f, 0, 0, 255}, bytes);
    check_mean(1, most, 3, 1, (cv_scale){0.05f, 255, 0, 255}, bytes);
  }
  return check_done();
}
