/* kernels/reduce.h: each reduction of maps and of plain tensors against a sum in double. */
#include "kernels/reduce.h"
#include "tests/check_map.h"

static const char *const names[] = {"mean", "sum", "max", "min"};

typedef struct folded {
  double value;
  ptrdiff_t count;
} folded;

static void fold(folded *f, cv_reduction kind, double v) {
  if (f->count++ == 0) {
    f->value = v;
  } else if (kind == CV_MEAN || kind == CV_SUM) {
    f->value += v;
  } else if (!isnan(f->value) && (isnan(v) || (kind == CV_MAX ? v > f->value : v < f->value))) {
    f->value = v;
  }
}

static double folded_value(folded f, cv_reduction kind) {
  return kind == CV_MEAN ? f.value / f.count : f.value;
}

static void check_map_reduction(int channels, int height, int width, int threads, float poison) {
  cv_map x = check_map(channels, height, width, threads % 2);
  check_map_fill(x);
  if (poison != 0) *check_at(x, channels - 1, height / 2, width / 2) = poison;
  for (cv_reduction kind = CV_MEAN; kind <= CV_MIN; kind++) {
    cv_map y = check_map(channels, 1, 1, kind % 2);
    for (int id = threads - 1; id >= 0; id--) cv_reduce_map((cv_thread){id, threads}, kind, x, y);
    for (int c = 0; c < channels; c++) {
      folded f = {0, 0};
      for (int i = 0; i < height * width; i++) fold(&f, kind, *check_at(x, c, i / width, i % width));
      const double expected = folded_value(f, kind), scale = kind == CV_SUM ? height * width : 1;
      CHECK(check_near(*check_at(y, c, 0, 0), expected, scale, 3e-7),
            "%s of %dx%dx%d: y[%d] = %g, expected %g", names[kind], channels, height, width, c,
            *check_at(y, c, 0, 0), expected);
    }
    check_map_zeros(y, names[kind]);
    check_map_free(y);
  }
  check_map_free(x);
}

static void check_plain_reduction(int outer, int axis, int inner, int threads, float poison) {
  float *x = check_floats((ptrdiff_t)outer * axis * inner + 1),
        *y = check_floats((ptrdiff_t)outer * inner + 2);
  check_fill(x, (ptrdiff_t)outer * axis * inner + 1);
  if (poison != 0) x[1 + (outer / 2 * axis + axis - 1) * inner] = poison;
  for (cv_reduction kind = CV_MEAN; kind <= CV_MIN; kind++) {
    y[(ptrdiff_t)outer * inner + 1] = 7;
    for (int id = threads - 1; id >= 0; id--) {
      cv_reduce_plain((cv_thread){id, threads}, kind, y + 1, x + 1, outer, axis, inner);
    }
    for (int o = 0; o < outer; o++) {
      for (int i = 0; i < inner; i++) {
        folded f = {0, 0};
        for (int a = 0; a < axis; a++) fold(&f, kind, x[1 + ((ptrdiff_t)o * axis + a) * inner + i]);
        const double expected = folded_value(f, kind), scale = kind == CV_SUM ? axis : 1;
        const float got = y[1 + (ptrdiff_t)o * inner + i];
        CHECK(check_near(got, expected, scale, 3e-7), "%s of [%d][%d][%d]: y[%d][%d] = %g, expected %g",
              names[kind], outer, axis, inner, o, i, got, expected);
      }
    }
    CHECK(y[(ptrdiff_t)outer * inner + 1] == 7, "%s wrote past y", names[kind]);
  }
  free(x), free(y);
}

int main(void) {
  const int channels[] = {1, CV_LANES - 1, CV_LANES, 2 * CV_LANES + 5}, sizes[] = {1, 2, 7, 15, 70};
  for (size_t i = 0; i < 4; i++) {
    for (size_t j = 0; j < 5; j++) {
      check_map_reduction(channels[i], sizes[j], sizes[(j + i) % 5], 1 + (int)j % 4, 0);
    }
    check_map_reduction(channels[i], 6, 5, 2, NAN);
    check_map_reduction(channels[i], 6, 5, 2, INFINITY);
    check_map_reduction(channels[i], 6, 5, 2, -INFINITY);
  }
  const int axes[] = {1, 2, 5, 16, 17, 63, 300}, inners[] = {1, 3, 4, 16, 21, 64};
  for (size_t i = 0; i < 7; i++) {
    for (size_t j = 0; j < 6; j++) {
      check_plain_reduction(1 + (int)(i + j) % 5, axes[i], inners[j], 1 + (int)i % 4, 0);
      check_plain_reduction(3, axes[i], inners[j], 2, NAN);
      check_plain_reduction(2, axes[i], inners[j], 3, INFINITY);
    }
  }
  /* Many short rows: some together, the rest one by one. */
  const int rows[] = {1, 2, 8, CV_LANES - 1, CV_LANES, CV_LANES + 3, 2 * CV_LANES, 4 * CV_LANES + 1};
  for (size_t i = 0; i < 8; i++) {
    check_plain_reduction(2 * CV_LANES + 3, rows[i], 1, 1, 0);
    check_plain_reduction(4 * CV_LANES - 1, rows[i], 1, 3, NAN);
    check_plain_reduction(2 * CV_LANES, rows[i], 1, 1, INFINITY);
    check_plain_reduction(2 * CV_LANES, rows[i], 1, 1, -INFINITY);
  }
  check_plain_reduction(1, 100000, 1, 1, 0);
  return check_done();
}
