/* cv_gemm_bytes against the product in integers, requantised in double precision. */
#include "kernels/gemm_bytes.h"
#include "tests/check_activation.h"
#include "tests/check_bytes.h"

typedef struct ending {
  const char *name;
  int residual; /* 1: bytes, 2: floats */
  int floats;
  cv_activation inner, outer;
} ending;

static const ending endings[] = {
    {"bytes", 0, 0, {CV_IDENTITY, 0, 0}, {CV_IDENTITY, 0, 0}},
    {"gelu, bytes", 0, 0, {CV_GELU, 0, 0}, {CV_IDENTITY, 0, 0}},
    {"plus bytes, clip", 1, 0, {CV_IDENTITY, 0, 0}, {CV_CLAMP, -1, 2}},
    {"sigmoid, plus floats, bytes", 2, 0, {CV_SIGMOID, 0, 0}, {CV_IDENTITY, 0, 0}},
    {"floats", 0, 1, {CV_IDENTITY, 0, 0}, {CV_IDENTITY, 0, 0}},
    {"plus bytes, floats", 1, 1, {CV_IDENTITY, 0, 0}, {CV_IDENTITY, 0, 0}},
};
enum { ENDINGS = sizeof endings / sizeof *endings, X_ZERO = 131, Y_ZERO = 90, R_ZERO = 19, GUARD = 3 };
static const float y_scale = 0.04f, r_scale = 0.031f;

static void run(int m, int k, int n, int threads, const ending *e, int largest) {
  const int panels = (n + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL, padded = panels * CV_GEMM_PANEL;
  uint8_t *x = check_bytes((ptrdiff_t)m * k, 255), *residual = check_bytes((ptrdiff_t)m * n, 0);
  int8_t *w = (int8_t *)check_bytes((ptrdiff_t)k * n, -128);
  int8_t *cells = (int8_t *)check_bytes((ptrdiff_t)padded * k, 0);
  float *scale = check_floats(padded), *shift = check_floats(padded), *start = check_floats(padded);
  float *floats = check_floats((ptrdiff_t)m * n), *y_floats = check_floats((ptrdiff_t)m * n + GUARD);
  uint8_t *y = check_bytes((ptrdiff_t)m * n + GUARD, 99);
  int32_t *from = (int32_t *)(void *)start;
  if (!largest) {
    check_fill_bytes(x, (ptrdiff_t)m * k);
    check_fill_bytes((uint8_t *)w, (ptrdiff_t)k * n);
  }
  check_fill_bytes(residual, (ptrdiff_t)m * n);
  check_fill(floats, (ptrdiff_t)m * n);
  for (int j = 0; j < padded; j++) {
    from[j] = 0;
    scale[j] = j < n ? (0.7f + 0.3f * check_random()) / (float)(128 * 128) / sqrtf((float)k) * 4 : 0;
    shift[j] = j < n ? check_random() : 0;
    for (int p = 0; j < n && p < k; p++) {
      from[j] -= X_ZERO * w[(ptrdiff_t)p * n + j];
      cells[(((ptrdiff_t)(j / CV_GEMM_PANEL) * (k / 4) + p / 4) * CV_GEMM_PANEL + j % CV_GEMM_PANEL) * 4 +
            p % 4] = w[(ptrdiff_t)p * n + j];
    }
  }
  int8_t *packed = check_dot_weights(cells, (ptrdiff_t)padded * k / 4, CV_GEMM_PANEL);
  cv_requantize r = {.scale = scale,
                     .shift = shift,
                     .low = -INFINITY,
                     .high = INFINITY,
                     .zero = Y_ZERO,
                     .floats = e->floats,
                     .residual_scale = e->residual == 1 ? r_scale : 0,
                     .residual_shift = e->residual == 1 ? -R_ZERO * r_scale : 0,
                     .inner = e->inner,
                     .outer = e->outer,
                     .unit = e->floats ? 1 : 1 / y_scale};
  if (!e->floats) r.low = -Y_ZERO, r.high = 255 - Y_ZERO;
  const cv_gemm_requantized ending = {e->floats ? (void *)y_floats : y,
                                      e->residual == 1   ? (const void *)residual
                                      : e->residual == 2 ? floats
                                                         : NULL,
                                      &r};
  for (int id = threads - 1; id >= 0; id--)
    cv_gemm_bytes((cv_thread){id, threads}, m, k, n, x, (const float *)(const void *)packed, n & 1, start,
                  ending);

  const cv_scale to = {y_scale, Y_ZERO, 0, 255};
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      const ptrdiff_t at = (ptrdiff_t)i * n + j;
      int64_t sum = from[j];
      for (int p = 0; p < k; p++) sum += x[(ptrdiff_t)i * k + p] * w[(ptrdiff_t)p * n + j];
      double value = check_activate((double)sum * scale[j] + shift[j], e->inner);
      if (e->residual == 1) value += (residual[at] - R_ZERO) * (double)r_scale;
      if (e->residual == 2) value += floats[at];
      value = check_activate(value, e->outer);
      const int right = e->floats ? check_near(y_floats[at], value, fabs(value) + 1, 1e-5)
                                  : check_quantised(y[at], value, to);
      CHECK(right, "%d x %d x %d, %d threads, %s: y[%d][%d]: expected %g, got %g", m, k, n, threads,
            e->name, i, j, e->floats ? value : value / y_scale + Y_ZERO,
            e->floats ? (double)y_floats[at] : y[at]);
    }
  for (int i = 0; i < GUARD; i++) CHECK(y[(ptrdiff_t)m * n + i] == 99, "wrote past y: m %d n %d", m, n);
  free(x), free(residual), free(w), free(cells), free(packed), free(scale), free(shift), free(start),
      free(floats);
  free(y_floats), free(y);
}

int main(void) {
  const int rows[] = {1, 2, 5, 13, 15, 29, 130}, depths[] = {4, 12, 64, 268};
  const int columns[] = {1, 4, 15, 16, 33, 100};
  int turn = 0;
  for (size_t a = 0; a < sizeof rows / sizeof *rows; a++)
    for (size_t b = 0; b < sizeof depths / sizeof *depths; b++)
      for (size_t c = 0; c < sizeof columns / sizeof *columns; c++, turn++)
        run(rows[a], depths[b], columns[c], 1 + turn % 3, &endings[turn % ENDINGS], turn % 7 == 0);
  for (int e = 0; e < ENDINGS; e++) { /* deeper than a part of k of floats; more panels than a group */
    run(1 + 14 * (e % 2), 4 * CV_GEMM_DEPTH + 8, 7, 2, &endings[e], e == 0);
    run(1 + 14 * (e % 2), 8, 19 * CV_GEMM_PANEL + 1, 3, &endings[e], 0);
  }
  return check_done();
}
