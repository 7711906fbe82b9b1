/* kernels/layer_norm.h: both norms against double, of rows of any length, far from zero, constant, with
 * what is not finite. */
#include "kernels/layer_norm.h"
#include "tests/check.h"

#define EPSILON 1e-5f

typedef struct rows {
  int count, columns;
  float mean, spread; /* x = mean + spread * random */
  float poison;       /* one element of a row in the middle, unless 0 */
  int has_gamma, has_beta, threads, rms;
} rows;

static void check_row(const rows *r, int row, const float *x, const float *gamma, const float *beta,
                      const float *y) {
  double mean = 0, variance = 0;
  for (int i = 0; i < r->columns && !r->rms; i++) mean += (double)x[i] / r->columns;
  for (int i = 0; i < r->columns; i++) variance += (x[i] - mean) * (x[i] - mean) / r->columns;
  for (int i = 0; i < r->columns; i++) {
    const double normal = (x[i] - mean) / sqrt(variance + EPSILON);
    const double expected = normal * (gamma ? gamma[i] : 1) + (beta ? beta[i] : 0);
    CHECK(check_near(y[i], expected, fabs(normal) + 1, 2e-6),
          "%dx%d, mean %g +- %g, poison %g: y[%d][%d] = %g, expected %g", r->count, r->columns, r->mean,
          r->spread, r->poison, row, i, y[i], expected);
  }
}

static void check_layer_norm(rows r) {
  const ptrdiff_t size = (ptrdiff_t)r.count * r.columns;
  float *x = check_floats(size + 1), *y = check_floats(size + 2), *gamma = check_floats(r.columns + 1),
        *beta = check_floats(r.columns + 1);
  for (ptrdiff_t i = 0; i < size; i++) x[1 + i] = r.mean + r.spread * check_random();
  if (r.poison != 0) x[1 + (ptrdiff_t)(r.count / 2) * r.columns + r.columns - 1] = r.poison;
  check_fill(gamma, r.columns + 1);
  check_fill(beta, r.columns + 1);
  y[0] = y[size + 1] = 7;
  for (int id = r.threads - 1; id >= 0; id--) {
    (r.rms ? cv_rms_norm : cv_layer_norm)((cv_thread){id, r.threads}, y + 1, x + 1,
                                          r.has_gamma ? gamma + 1 : NULL, r.has_beta ? beta + 1 : NULL,
                                          r.count, r.columns, EPSILON);
  }
  for (int row = 0; row < r.count; row++) {
    check_row(&r, row, x + 1 + (ptrdiff_t)row * r.columns, r.has_gamma ? gamma + 1 : NULL,
              r.has_beta ? beta + 1 : NULL, y + 1 + (ptrdiff_t)row * r.columns);
  }
  CHECK(y[0] == 7 && y[size + 1] == 7, "wrote beside y");
  free(x), free(y), free(gamma), free(beta);
}

int main(void) {
  const int counts[] = {1, 2, 3, 9, 33}, columns[] = {1, 2, 3, 5, 15, 16, 17, 64, 100, 768, 1000, 4099};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    for (size_t j = 0; j < sizeof columns / sizeof *columns; j++) {
      const int count = counts[i], wide = columns[j], threads = 1 + (int)(i + j) % 4;
      check_layer_norm((rows){count, wide, 0, 1, 0, 1, 1, threads, .rms = 0});
      check_layer_norm((rows){count, wide, 3, 0.1f, 0, (int)j % 2, (int)i % 2, threads, .rms = 0});
      check_layer_norm(
          (rows){count, wide, 1e4f, 0.01f, 0, 1, 1, threads, .rms = 0}); /* a spread of ten ulps */
      check_layer_norm((rows){count, wide, -1e6f, 1, 0, 1, 0, threads, .rms = 0});
      check_layer_norm((rows){count, wide, 0, 1e-12f, 0, 1, 1, threads, .rms = 0});
      check_layer_norm((rows){count, wide, 0, 1e15f, 0, 1, 1, threads, .rms = 0});
      check_layer_norm((rows){count, wide, 7, 0, 0, 1, 1, threads, .rms = 0}); /* no spread */
      check_layer_norm((rows){count, wide, 0, 1, 1000, 1, 1, threads, .rms = 0});
      check_layer_norm((rows){count, wide, 0, 1, 0, 1, 0, threads, .rms = 1});
      check_layer_norm((rows){count, wide, 100, 0.1f, 0, (int)j % 2, (int)i % 2, threads, .rms = 1});
      check_layer_norm((rows){count, wide, 0, 1e-12f, 0, 1, 0, threads, .rms = 1});
      check_layer_norm((rows){count, wide, 0, 1e15f, 0, 1, 0, threads, .rms = 1});
    }
    const float poisons[] = {NAN, INFINITY, -INFINITY};
    for (int p = 0; p < 3; p++) {
      check_layer_norm((rows){counts[i], 100, 0, 1, poisons[p], 1, 1, 2, .rms = 0});
      check_layer_norm((rows){counts[i], 64, 0, 1, poisons[p], 0, 1, 4, .rms = 0});
      check_layer_norm((rows){counts[i], 100, 0, 1, poisons[p], 1, 0, 2, .rms = 1});
    }
  }
  check_layer_norm((rows){1, 300000, 5, 1, 0, 1, 1, 3, .rms = 0});
  check_layer_norm((rows){1, 300000, 5, 1, 0, 1, 1, 3, .rms = 1});
  return check_done();
}
