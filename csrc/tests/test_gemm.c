/* kernels/gemm.h: y = outer(inner(x w + bias) + residual), sizes around every block and tile edge. */
#include "kernels/gemm.h"
#include "tests/check_activation.h"

enum { GUARD = 3 };

typedef struct epilogue_case {
  int residual;
  cv_activation inner, outer;
} epilogue_case;

static const epilogue_case epilogues[] = {
    {0, {CV_IDENTITY, 0, 0}, {CV_IDENTITY, 0, 0}},
    {0, {CV_CLAMP, 0, INFINITY}, {CV_IDENTITY, 0, 0}},
    {1, {CV_IDENTITY, 0, 0}, {CV_LEAKY_RELU, 0.25f, 0}},
    {1, {CV_CLAMP, -0.5f, 0.5f}, {CV_IDENTITY, 0, 0}},
};

#define KIND(NAME, op) CV_##NAME,
static const cv_activation_kind kinds[] = {CV_ACTIVATIONS(KIND)};

/* w [k][n] row-major to panels. */
static float *pack(const float *w, int k, int n, int panels) {
  float *packed = check_floats((ptrdiff_t)panels * k * CV_GEMM_PANEL);
  for (int j = 0; j < panels * CV_GEMM_PANEL; j++) {
    for (int p = 0; p < k; p++) {
      packed[((ptrdiff_t)(j / CV_GEMM_PANEL) * k + p) * CV_GEMM_PANEL + j % CV_GEMM_PANEL] =
          j < n ? w[(ptrdiff_t)p * n + j] : 0;
    }
  }
  return packed;
}

/* x and y start one float past an aligned address; `poison` makes one element of x NaN or infinite. */
static void check_gemm(int m, int k, int n, int threads, const epilogue_case *e, float poison) {
  const int panels = (n + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL;
  float *x = check_floats((ptrdiff_t)m * k + 1), *w = check_floats((ptrdiff_t)k * n);
  float *bias = check_floats(panels * CV_GEMM_PANEL), *residual = check_floats((ptrdiff_t)m * n + 1);
  float *y = check_floats((ptrdiff_t)m * n + 1 + GUARD);
  check_fill(x, (ptrdiff_t)m * k + 1);
  check_fill(w, (ptrdiff_t)k * n);
  check_fill(bias, n);
  check_fill(residual, (ptrdiff_t)m * n + 1);
  for (int j = n; j < panels * CV_GEMM_PANEL; j++) bias[j] = 0;
  for (int i = 0; i < GUARD; i++) y[(ptrdiff_t)m * n + 1 + i] = 7;
  const int poisoned = poison != 0 ? m / 2 : -1;
  if (poison != 0) x[1 + (ptrdiff_t)poisoned * k + k / 2] = poison;
  float *packed = pack(w, k, n, panels);
  for (int id = threads - 1; id >= 0; id--) {
    cv_gemm((cv_thread){id, threads}, m, k, n, x + 1, packed, n & 1, y + 1, bias,
            e->residual ? residual + 1 : NULL, e->inner, e->outer);
  }
  for (int i = 0; i < m; i++) {
    for (int j = 0; j < n; j++) {
      double sum = bias[j], scale = fabs(bias[j]);
      for (int p = 0; p < k; p++) {
        const double product = (double)x[1 + (ptrdiff_t)i * k + p] * w[(ptrdiff_t)p * n + j];
        sum += product;
        scale += fabs(product);
      }
      double expected = check_activate(sum, e->inner);
      if (e->residual) expected += residual[1 + (ptrdiff_t)i * n + j];
      expected = check_activate(expected, e->outer);
      const float got = y[1 + (ptrdiff_t)i * n + j];
      CHECK(check_near(got, expected, scale + 1, 1e-6),
            "m %d k %d n %d threads %d: y[%d][%d] = %g, expected %g", m, k, n, threads, i, j, got,
            expected);
    }
  }
  for (int i = 0; i < GUARD; i++) CHECK(y[(ptrdiff_t)m * n + 1 + i] == 7, "wrote past y: m %d n %d", m, n);
  free(x), free(w), free(bias), free(residual), free(y), free(packed);
}

int main(void) {
  const int rows[] = {1, 2, 3, 4, 5, 6, 7, 13, 14, 15, 29, 43}, depths[] = {1, 3, 4, 19, 64};
  const int columns[] = {1, 4, 5, 8, 15, 16, 17, 31, 32, 33, 63, 65, 100};
  int turn = 0;
  for (size_t a = 0; a < sizeof rows / sizeof *rows; a++) {
    for (size_t b = 0; b < sizeof depths / sizeof *depths; b++) {
      for (size_t c = 0; c < sizeof columns / sizeof *columns; c++, turn++) {
        check_gemm(rows[a], depths[b], columns[c], 1 + turn % 5, &epilogues[turn / 2 % 4], 0);
      }
    }
  }
  /* k over one and over two blocks of depth; more panels than one group. */
  for (int m = 1; m <= 2 * CV_GEMM_ROWS + 1; m += CV_GEMM_ROWS) {
    for (int threads = 1; threads <= 3; threads++) {
      check_gemm(m, CV_GEMM_DEPTH + 1, 2 * CV_GEMM_PANEL + 3, threads, &epilogues[threads], 0);
      check_gemm(m, 2 * CV_GEMM_DEPTH + 5, 7, threads, &epilogues[threads], 0);
      check_gemm(m, 9, 19 * CV_GEMM_PANEL + 1, threads, &epilogues[threads], 0);
    }
  }
  /* Rows enough to be what threads share, of one group of panels and of several; and one row too few. */
  for (int threads = 1; threads <= 3; threads++) {
    const int least = 4 * threads * CV_GEMM_ROWS;
    CHECK(cv_gemm_shares_rows(least, CV_GEMM_PANEL, threads) == (threads > 1), "few columns, %d threads",
          threads);
    CHECK(!cv_gemm_shares_rows(least - 1, CV_GEMM_PANEL, threads), "few rows, %d threads", threads);
    check_gemm(least, 21, CV_GEMM_PANEL - 1, threads, &epilogues[threads], 0);
    check_gemm(least + 5, CV_GEMM_DEPTH + 1, CV_GEMM_PANEL, threads, &epilogues[threads], 0);
  }
  CHECK(cv_gemm_shares_rows(20 * CV_GEMM_PANEL, 17 * CV_GEMM_PANEL, 2), "more panels than a group");
  check_gemm(20 * CV_GEMM_PANEL, 3, 17 * CV_GEMM_PANEL, 2, &epilogues[0], 0);
  /* Every kind before the residual and behind it, of whole vectors and parts, m = 1 and more. */
  for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
    const cv_activation act = {kinds[kind], 0.25f, 0.5f};
    const epilogue_case each[] = {
        {0, act, {CV_IDENTITY, 0, 0}}, {1, {CV_IDENTITY, 0, 0}, act}, {1, act, act}};
    for (int i = 0; i < 9; i++) {
      check_gemm(1 + i / 3 * 9, 37, 35, 1 + i % 2, &each[i % 3], 0);
      check_gemm(1 + i / 3 * 9, 37, 2, 1, &each[i % 3], i % 2 ? INFINITY : NAN);
    }
  }
  const float poisons[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 3; i++) {
    check_gemm(1, 37, 35, 2, &epilogues[0], poisons[i]);
    check_gemm(17, 37, 35, 2, &epilogues[1], poisons[i]);
    check_gemm(17, 600, 35, 3, &epilogues[2], poisons[i]);
  }
  return check_done();
}
