/* kernels/resize.h: nearest and bilinear, larger and smaller, infinities too, against the formula in
 * double; row-major results have the same bits. */
#include <string.h>

#include "kernels/resize.h"
#include "tests/check_bytes.h"
#include "tests/check_map.h"

static double lerp(double a, double b, double t) { return (1 - t) * a + t * b; }

static int next_index(int i, int size) { return i + 1 < size ? i + 1 : i; }

/* Of the two same pixels at an end half is taken of each. */
static float weight(double at, int size) { return at < size - 1 ? (float)(at - (int)at) : 0.5f; }

static void check_resize(int channels, int x_height, int x_width, int y_height, int y_width, int threads,
                         int infinities) {
  cv_map x = check_map(channels, x_height, x_width, 1);
  check_map_fill(x);
  for (int i = 0; i < infinities; i++)
    *check_at(x, channels - 1, i / 2, x_width - 1 - i % 2) = i % 3 == 1 ? -INFINITY : INFINITY;
  int rows[320], columns[320];
  float row_weight[320], column_weight[320];
  for (int i = 0; i < y_height; i++) {
    const double at = fmin(fmax((i + 0.5) * x_height / y_height - 0.5, 0), x_height - 1);
    rows[i] = (int)at;
    row_weight[i] = weight(at, x_height);
  }
  for (int j = 0; j < y_width; j++) {
    const double at = fmin((double)j * x_width / y_width, x_width - 1);
    columns[j] = (int)at;
    column_weight[j] = weight(at, x_width);
  }
  for (int bilinear = 0; bilinear < 2; bilinear++) {
    cv_map y = check_map(channels, y_height, y_width, bilinear);
    for (int id = threads - 1; id >= 0; id--) {
      const cv_thread thread = {id, threads};
      if (bilinear) {
        cv_resize_bilinear(thread, y, x, rows, row_weight, columns, column_weight);
      } else {
        cv_resize_nearest(thread, y, x, rows, columns);
      }
    }
    for (int c = 0; c < channels; c++) {
      for (int i = 0; i < y_height; i++) {
        for (int j = 0; j < y_width; j++) {
          const int r = rows[i], q = columns[j], r1 = next_index(r, x_height), q1 = next_index(q, x_width);
          const double top = lerp(*check_at(x, c, r, q), *check_at(x, c, r, q1), column_weight[j]);
          const double bottom = lerp(*check_at(x, c, r1, q), *check_at(x, c, r1, q1), column_weight[j]);
          const double expected = bilinear ? lerp(top, bottom, row_weight[i]) : *check_at(x, c, r, q);
          const float got = *check_at(y, c, i, j);
          CHECK(check_near(got, expected, 1, bilinear ? 4e-7 : 0),
                "%s %dx%dx%d to %dx%d: y[%d][%d][%d] = %g, expected %g", bilinear ? "bilinear" : "nearest",
                channels, x_height, x_width, y_height, y_width, c, i, j, got, expected);
        }
      }
    }
    check_map_zeros(y, "resize");
    const size_t size = (size_t)channels * (size_t)y_height * (size_t)y_width;
    float *flat = malloc((size + 1) * sizeof(float)); /* and one that nobody writes */
    for (size_t i = 0; i <= size; i++) flat[i] = 12345.0f;
    for (int id = threads - 1; id >= 0; id--) {
      const cv_thread thread = {id, threads};
      if (bilinear) {
        cv_resize_bilinear_rows(thread, flat, y_height, y_width, x, rows, row_weight, columns,
                                column_weight);
      } else {
        cv_resize_nearest_rows(thread, flat, y_height, y_width, x, rows, columns);
      }
    }
    size_t other = flat[size] != 12345.0f;
    for (size_t i = 0; i < size; i++) {
      const int row = (int)(i / (size_t)y_width), column = (int)(i % (size_t)y_width);
      const float want = *check_at(y, row / y_height, row % y_height, column);
      other += memcmp(&flat[i], &want, sizeof want) != 0;
    }
    CHECK(other == 0, "rows, bilinear %d, %dx%dx%d to %dx%d: %zu wrong", bilinear, channels, x_height,
          x_width, y_height, y_width, other);
    free(flat);
    check_map_free(y);
  }
  const cv_scale x_scale = {0.05f, 131, 0, 255}, y_scale = {0.04f, -7, -128, 127};
  cv_byte_map bytes = check_bytes_map(channels, x_height, x_width, 1, CV_LANES);
  check_bytes_map_fill(bytes, CV_LANES);
  for (int bilinear = 0; bilinear < 2; bilinear++) {
    cv_byte_map y = check_bytes_map(channels, y_height, y_width, bilinear, CV_LANES);
    for (int id = threads - 1; id >= 0; id--) {
      const cv_thread thread = {id, threads};
      if (bilinear) {
        cv_resize_bilinear_bytes(thread, y, bytes, rows, row_weight, columns, column_weight, x_scale,
                                 y_scale);
      } else {
        cv_resize_nearest_bytes(thread, y, bytes, rows, columns);
      }
    }
    int wrong = 0;
    for (int c = 0; c < channels; c++)
      for (int i = 0; i < y_height; i++)
        for (int j = 0; j < y_width; j++) {
          const int r = rows[i], q = columns[j], r1 = next_index(r, x_height), q1 = next_index(q, x_width);
          const int got = *check_byte_at(y, CV_LANES, c, i, j);
          const double top = lerp(*check_byte_at(bytes, CV_LANES, c, r, q),
                                  *check_byte_at(bytes, CV_LANES, c, r, q1), column_weight[j]);
          const double bottom = lerp(*check_byte_at(bytes, CV_LANES, c, r1, q),
                                     *check_byte_at(bytes, CV_LANES, c, r1, q1), column_weight[j]);
          const double v = (lerp(top, bottom, row_weight[i]) - x_scale.zero) * x_scale.scale;
          wrong += bilinear ? !check_quantised((int8_t)got, v, y_scale)
                            : got != *check_byte_at(bytes, CV_LANES, c, r, q);
        }
    CHECK(wrong == 0, "bytes, bilinear %d, %dx%dx%d to %dx%d: %d wrong", bilinear, channels, x_height,
          x_width, y_height, y_width, wrong);
    check_bytes_free(y);
  }
  check_bytes_free(bytes);
  check_map_free(x);
}

int main(void) {
  const int channels[] = {1, CV_LANES, CV_LANES + 3, 3 * CV_LANES - 1};
  for (int i = 0; i < 4; i++) {
    check_resize(channels[i], 4, 5, 8, 10, 1 + i, 0);
    check_resize(channels[i], 6, 6, 12, 12, 2, 6);
    check_resize(channels[i], 7, 9, 7, 9, 2, 4);
    check_resize(channels[i], 7, 9, 3, 4, 3, 0);
    check_resize(channels[i], 5, 6, 17, 11, 4 - i, 5);
    check_resize(channels[i], 1, 1, 5, 4, 2, 1);
    check_resize(channels[i], 3, 20, 5, 300, 3, 2);
  }
  return check_done();
}
