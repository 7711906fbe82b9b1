/* kernels/lrn.h: windows of every width across block borders against the formula in double. */
#include "kernels/lrn.h"
#include "tests/check_map.h"

static void check_lrn(int channels, int height, int width, int size, float alpha, float beta, float bias,
                      int threads, float poison) {
  cv_map x = check_map(channels, height, width, 0), y = check_map(channels, height, width, 1);
  check_map_fill(x);
  if (poison != 0) *check_at(x, channels / 2, 0, 0) = poison;
  for (int id = threads - 1; id >= 0; id--) cv_lrn((cv_thread){id, threads}, y, x, size, alpha, beta, bias);
  for (int c = 0; c < channels; c++) {
    for (int i = 0; i < height * width; i++) {
      double sum = 0;
      for (int d = c - (size - 1) / 2; d <= c + size / 2; d++) {
        if (d >= 0 && d < channels) sum += pow(*check_at(x, d, i / width, i % width), 2);
      }
      const double expected = *check_at(x, c, i / width, i % width) / pow(bias + alpha / size * sum, beta);
      const float got = *check_at(y, c, i / width, i % width);
      CHECK(check_near(got, expected, expected, 2e-6),
            "%d channels, size %d, beta %g: y[%d] = %g, expected %g", channels, size, beta, c, got,
            expected);
    }
  }
  check_map_zeros(y, "lrn");
  check_map_free(x), check_map_free(y);
}

int main(void) {
  const int channels[] = {1, 3, CV_LANES, CV_LANES + 1, 3 * CV_LANES + 5};
  const int sizes[] = {1, 2, 3, 5, 6, 9, 2 * CV_LANES + 1, 2 * CV_LANES + 2, 3 * CV_LANES};
  for (size_t i = 0; i < 5; i++) {
    for (size_t j = 0; j < 9; j++) {
      check_lrn(channels[i], 3, 19, sizes[j], 1e-4f, 0.75f, 1, 1 + (int)(i + j) % 4, 0);
      check_lrn(channels[i], 2, 7, sizes[j], 20, 0.5f + 0.1f * (float)j, 2, 2, 0);
    }
    check_lrn(channels[i], 2, 5, 5, 1, 0.75f, 1, 2, NAN);
    check_lrn(channels[i], 2, 5, 5, 1, 0.75f, 1, 2, INFINITY);
    check_lrn(channels[i], 2, 5, 5, 1e6f, 0.75f, 1, 1, 0);
  }
  return check_done();
}
