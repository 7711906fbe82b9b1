/* kernels/product_bytes.h against sums of integers: every order of both operands and the result in memory,
 * stacks that have a matrix in common, sizes around every tile, panel and cell, the largest bytes, sums
 * that int32 does not hold. */
#include "kernels/product_bytes.h"
#include "tests/check_bytes.h"
#include "tests/check_strides.h"

enum { GUARD = 3 };

static const char *const orders[] = {"oirc", "oicr", "roic", "rcoi", "orci", "iocr"};

typedef struct product_case {
  int outer, inner, m, k, n, threads;
  const char *x, *w, *y;
  int common; /* the outer axis has one w */
  int x_zero, w_zero, largest;
} product_case;

static uint8_t *at(const uint8_t *data, const cv_strides *s, int o, int i, int r, int c) {
  return (uint8_t *)data + o * s->stack[0] + i * s->stack[2] + r * s->row + c * s->column;
}

static void check_product(const product_case *c) {
  cv_byte_product p = {.stack = {c->outer, 1, c->inner, 1},
                       .m = c->m,
                       .k = c->k,
                       .n = c->n,
                       .x_zero = c->x_zero,
                       .w_zero = c->w_zero,
                       .zero = 100,
                       .low = -100,
                       .high = 140};
  p.scale = c->largest ? 1.0f / (float)(400 * c->k) : 0.02f / sqrtf((float)c->k);
  const int x_sizes[] = {c->outer, c->inner, c->m, c->k}, y_sizes[] = {c->outer, c->inner, c->m, c->n};
  const int w_sizes[] = {c->common ? 1 : c->outer, c->inner, c->k, c->n};
  const ptrdiff_t sizes[] = {check_lay_out(c->x, x_sizes, 0, &p.x_strides),
                             check_lay_out(c->w, w_sizes, 0, &p.w_strides),
                             check_lay_out(c->y, y_sizes, 0, &p.y_strides)};
  if (c->common) p.w_strides.stack[0] = 0;
  uint8_t *data[3];
  for (int i = 0; i < 3; i++) {
    data[i] = check_bytes(1 + sizes[i] + GUARD, 99);
    if (i < 2) check_fill_bytes(data[i] + 1, sizes[i]);
    if (i < 2 && c->largest) memset(data[i] + 1, c->largest == 1 || i == 0 ? 255 : 0, (size_t)sizes[i]);
  }
  p.x = data[0] + 1, p.w = data[1] + 1, p.y = data[2] + 1;
  const ptrdiff_t need = CV_BYTE_PRODUCT_SCRATCH(c->k);
  for (int id = c->threads - 1; id >= 0; id--) {
    float *scratch = check_floats(need + GUARD);
    for (int g = 0; g < GUARD; g++) scratch[need + g] = 7;
    cv_multiply_byte_stack((cv_thread){id, c->threads}, &p, scratch);
    for (int g = 0; g < GUARD; g++) CHECK(scratch[need + g] == 7, "wrote past the scratch");
    free(scratch);
  }
  int wrong = data[2][0] != 99;
  for (int g = 0; g < GUARD; g++) wrong += data[2][1 + sizes[2] + g] != 99;
  for (int o = 0; o < c->outer; o++)
    for (int i = 0; i < c->inner; i++)
      for (int r = 0; r < c->m; r++)
        for (int j = 0; j < c->n; j++) {
          int64_t sum = 0;
          for (int d = 0; d < c->k; d++)
            sum += (*at(p.x, &p.x_strides, o, i, r, d) - c->x_zero) *
                   (*at(p.w, &p.w_strides, o, i, d, j) - c->w_zero);
          const float steps = rintf((float)sum * p.scale);
          wrong += *at(p.y, &p.y_strides, o, i, r, j) != (int)fminf(fmaxf(steps, p.low), p.high) + 100;
        }
  CHECK(wrong == 0, "%dx%d of %d x %d x %d, %s %s %s, zeros %d %d, %d threads: %d wrong", c->outer,
        c->inner, c->m, c->k, c->n, c->x, c->w, c->y, c->x_zero, c->w_zero, c->threads, wrong);
  for (int i = 0; i < 3; i++) free(data[i]);
}

int main(void) {
  for (int x = 0; x < 6; x++)
    for (int w = 0; w < 6; w++)
      for (int y = 0; y < 6; y++)
        check_product(&(product_case){2, 3, 7, 9 + x % 4, CV_GEMM_PANEL + 3, 1 + (x + w + y) % 4, orders[x],
                                      orders[w], orders[y], (x + y) % 2, 117, 3 + 25 * w, 0});
  const int ms[] = {1, CV_GEMM_ROWS, CV_GEMM_ROWS + 1, 37};
  const int ks[] = {1, 4, 31, 64, 600}, ns[] = {1, CV_LANES, CV_GEMM_PANEL, 5 * CV_GEMM_PANEL + 5};
  for (int m = 0; m < 4; m++)
    for (int k = 0; k < 5; k++)
      for (int n = 0; n < 4; n++)
        check_product(&(product_case){1, 2, ms[m], ks[k], ns[n], 1 + (m + k + n) % 3, "oirc",
                                      n % 2 ? "oicr" : "oirc", "oirc", 0, 128, 128 - m, 0});
  for (int largest = 1; largest < 3; largest++)
    for (int zero = 0; zero < 256; zero += 255)
      check_product(
          &(product_case){1, 1, 5, 32768, 20, 2, "oirc", "oicr", "oirc", 0, zero, 255 - zero, largest});
  check_product(&(product_case){1, 1, 16, 32769, 35, 2, "oirc", "oicr", "oicr", 0, 0, 0, 1});
  check_product(&(product_case){1, 2, 3, 70001, 20, 2, "oicr", "oirc", "oirc", 0, 117, 130, 0});
  return check_done();
}
