/* kernels/gemm_scaled.h: whole numbers of 4 and 8 bits times their scales, sizes around every edge. */
#include "kernels/gemm_scaled.h"
#include "tests/check_activation.h"

enum { GUARD = 3 };

typedef struct matrix {
  int k, n, bits, block, panels, blocks;
  int8_t *whole;                  /* [k][n] */
  float *each;                    /* [k][n]: what they stand for */
  float *packed, *scales, *zeros; /* as cv_gemm_scales says */
} matrix;

static float *scale_at(const matrix *w, float *scales, int p, int j) {
  return scales + ((ptrdiff_t)(j / CV_GEMM_PANEL) * w->blocks + p / w->block) * CV_GEMM_PANEL +
         j % CV_GEMM_PANEL;
}

static void put(const matrix *w, int p, int j, int value) {
  const int panel = j / CV_GEMM_PANEL, column = j % CV_GEMM_PANEL;
  if (w->bits == 8) {
    ((int8_t *)w->packed)[((ptrdiff_t)panel * w->k + p) * CV_GEMM_PANEL + column] = (int8_t)value;
    return;
  }
  const int words = (w->k + CV_GEMM_NIBBLES - 1) / CV_GEMM_NIBBLES;
  uint32_t *word =
      (uint32_t *)w->packed + ((ptrdiff_t)panel * words + p / CV_GEMM_NIBBLES) * CV_GEMM_PANEL + column;
  *word |= (uint32_t)(value & 15) << 4 * (p % CV_GEMM_NIBBLES);
}

static matrix make_matrix(int k, int n, int bits, int block, int zeros, float factor) {
  matrix w = {.k = k, .n = n, .bits = bits, .block = block};
  w.panels = (n + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL;
  w.blocks = (k + block - 1) / block;
  const ptrdiff_t columns = (ptrdiff_t)w.panels * CV_GEMM_PANEL, deep = k + CV_GEMM_NIBBLES;
  w.whole = calloc((size_t)k * n, 1);
  w.each = check_floats((ptrdiff_t)k * n);
  w.packed = check_floats(deep * columns / 4 + CV_LANES);
  w.scales = check_floats(columns * w.blocks);
  w.zeros = zeros ? check_floats(columns * w.blocks) : NULL;
  memset(w.packed, 0, (size_t)(deep * columns));
  check_fill(w.scales, columns * w.blocks);
  for (ptrdiff_t i = 0; i < columns * w.blocks; i++) w.scales[i] *= factor;
  for (ptrdiff_t i = 0; zeros && i < columns * w.blocks; i++) w.zeros[i] = (float)(i * 7 % 11 - 5);
  const int most = bits == 8 ? 255 : 15;
  for (int p = 0; p < k; p++) {
    for (int j = 0; j < n; j++) {
      const int value = (p * 31 + j * 17 + p * j) % (most + 1) - (most + 1) / 2;
      const float zero = zeros ? *scale_at(&w, w.zeros, p, j) : 0;
      put(&w, p, j, value);
      w.each[(ptrdiff_t)p * n + j] = ((float)value - zero) * *scale_at(&w, w.scales, p, j);
    }
  }
  return w;
}

/* x and y start one float past an aligned address. */
static void check_product(int m, int k, int n, int bits, int block, int zeros, int threads, float poison) {
  const float factor =
      fabsf(poison) > 1 && isfinite(poison) ? 1.0f / 256 : 1; /* then the answer is finite */
  matrix w = make_matrix(k, n, bits, block, zeros, factor);
  float *x = check_floats((ptrdiff_t)m * k + 1), *bias = check_floats(w.panels * CV_GEMM_PANEL);
  float *residual = check_floats((ptrdiff_t)m * n + 1), *y = check_floats((ptrdiff_t)m * n + 1 + GUARD);
  check_fill(x, (ptrdiff_t)m * k + 1);
  check_fill(bias, w.panels * CV_GEMM_PANEL);
  check_fill(residual, (ptrdiff_t)m * n + 1);
  for (int i = 0; i < GUARD; i++) y[(ptrdiff_t)m * n + 1 + i] = 7;
  if (poison != 0) x[1 + (ptrdiff_t)(m / 2) * k + k / 2] = poison;
  const cv_activation inner = {CV_CLAMP, 0, INFINITY}, outer = {CV_IDENTITY, 0, 0};
  float *unpacked = check_floats(CV_GEMM_UNPACKED(k));
  const cv_gemm_scales scales = {w.scales, w.zeros, block, bits, unpacked};
  for (int id = threads - 1; id >= 0; id--) {
    cv_gemm_scaled((cv_thread){id, threads}, m, k, n, x + 1, w.packed, &scales, y + 1, bias, residual + 1,
                   inner, outer);
  }
  for (int i = 0; i < m; i++) {
    for (int j = 0; j < n; j++) {
      double sum = bias[j], size = fabs(bias[j]);
      for (int p = 0; p < k; p++) {
        const double product = (double)x[1 + (ptrdiff_t)i * k + p] * w.each[(ptrdiff_t)p * n + j];
        sum += product;
        size += fabs(product);
      }
      const double expected = check_activate(sum, inner) + residual[1 + (ptrdiff_t)i * n + j];
      const float got = y[1 + (ptrdiff_t)i * n + j];
      CHECK(check_near(got, expected, size + 1, 2e-6),
            "m %d k %d n %d bits %d block %d threads %d: y[%d][%d] = %g, expected %g", m, k, n, bits, block,
            threads, i, j, got, expected);
    }
  }
  for (int i = 0; i < GUARD; i++) CHECK(y[(ptrdiff_t)m * n + 1 + i] == 7, "wrote past y: m %d n %d", m, n);
  free(w.whole), free(w.each), free(w.packed), free(w.scales), free(w.zeros);
  free(x), free(bias), free(residual), free(y), free(unpacked);
}

int main(void) {
  const int rows[] = {1, 2, 3, 4, 5, 8, 9, 16, 17, 30}, columns[] = {1, 5, 16, 33, 67};
  const int depths[] = {1, 7, 8, 16, 37, 64, 70}, blocks[] = {16, 32, 128};
  int turn = 0;
  for (size_t a = 0; a < sizeof rows / sizeof *rows; a++) {
    for (size_t b = 0; b < sizeof depths / sizeof *depths; b++) {
      for (size_t c = 0; c < sizeof columns / sizeof *columns; c++, turn++) {
        const int block = turn % 4 == 3 ? depths[b] : blocks[turn % 3];
        check_product(rows[a], depths[b], columns[c], turn % 2 ? 4 : 8, block, turn / 2 % 2, 1 + turn % 3,
                      0);
      }
    }
  }
  /* Parts of k that are no whole words or blocks; more panels than a group; rows that threads share. */
  const int deep = CV_GEMM_DEPTH + 100, wide = (CV_GEMM_GROUP + 1) * CV_GEMM_PANEL + 3;
  for (int bits = 4; bits <= 8; bits += 4) {
    check_product(2, deep, 35, bits, 32, 1, 2, 0);
    check_product(CV_GEMM_SCALED_MOST + 1, deep, 35, bits, 32, 1, 2, 0);
    check_product(CV_GEMM_SCALED_MOST + 1, deep + 1, 35, bits, deep + 1, 0, 3, 0);
    check_product(CV_GEMM_SCALED_MOST + 3, 24, wide, bits, 16, 1, 2, 0);
    check_product(8 * CV_GEMM_ROWS + 5, 40, CV_GEMM_PANEL - 1, bits, 16, 0, 2, 0);
    check_product(1, 37, 35, bits, 16, 0, 2, NAN);
    check_product(5, 37, 35, bits, 16, 1, 2, INFINITY);
    check_product(40, 37, 35, bits, 16, 1, 2, NAN);
    check_product(3, 37, 35, bits, 16, 0, 2, 1e38f);
    check_product(3, 37, 35, bits, 16, 1, 2, -1e38f);
  }
  return check_done();
}
