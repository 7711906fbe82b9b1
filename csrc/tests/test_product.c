/* kernels/product.h against double: every order of both operands and the result in memory, stacks that have
 * a matrix in common, sizes around every tile, panel and part of the depth, NaN and infinities. */
#include "kernels/product_bf16.h"
#include "tests/check.h"
#include "tests/check_strides.h"

/* As test_product_bf16.c includes this file, of bfloat16: operands are such, so that nothing is rounded. */
#ifdef OF_BF16
#define MULTIPLY cv_multiply_stack_bf16
#define BF16 1
#else
#define MULTIPLY cv_multiply_stack
#define BF16 0
#endif
enum { GUARD = 3 };

/* The axes of a stack's matrices from the slowest: two of the stack, rows, columns. */
static const char *const orders[] = {"oirc", "oicr", "roic", "rcoi", "orci", "iocr"};

static float *element(const float *data, const cv_strides *s, int o, int i, int r, int c) {
  return check_element(data, s, 0, o, i, r, c);
}

typedef struct product_case {
  int outer, inner, m, k, n, threads;
  const char *x, *w, *y;
  int common; /* the outer axis has one w */
  float poison;
} product_case;

/* Operands start one float past an aligned address; `poison` is an element of row m / 2 of each x. */
static void check_product(const product_case *c) {
  cv_product p = {.stack = {c->outer, 1, c->inner, 1}, .m = c->m, .k = c->k, .n = c->n, .scale = -0.5f};
  const int x_sizes[] = {c->outer, c->inner, c->m, c->k}, y_sizes[] = {c->outer, c->inner, c->m, c->n};
  const int w_sizes[] = {c->common ? 1 : c->outer, c->inner, c->k, c->n};
  const ptrdiff_t sizes[] = {check_lay_out(c->x, x_sizes, 0, &p.x_strides),
                             check_lay_out(c->w, w_sizes, 0, &p.w_strides),
                             check_lay_out(c->y, y_sizes, 0, &p.y_strides)};
  if (c->common) p.w_strides.stack[0] = 0;
  float *data[3];
  for (int i = 0; i < 3; i++) {
    data[i] = check_floats(sizes[i] + 1 + GUARD);
    if (i != 2) check_fill(data[i], sizes[i] + 1);
    if (BF16) check_cut(data[i], sizes[i] + 1);
    for (int g = 0; g < GUARD; g++) data[i][1 + sizes[i] + g] = 7;
  }
  p.x = data[0] + 1, p.w = data[1] + 1, p.y = data[2] + 1;
  if (c->poison != 0) {
    for (int o = 0; o < c->outer; o++) {
      for (int i = 0; i < c->inner; i++) *element(p.x, &p.x_strides, o, i, c->m / 2, c->k / 2) = c->poison;
    }
  }
  for (int id = c->threads - 1; id >= 0; id--) {
    float *scratch = check_floats(CV_PRODUCT_SCRATCH(c->k, c->n) + GUARD);
    for (int g = 0; g < GUARD; g++) scratch[CV_PRODUCT_SCRATCH(c->k, c->n) + g] = 7;
    MULTIPLY((cv_thread){id, c->threads}, &p, scratch);
    for (int g = 0; g < GUARD; g++) {
      CHECK(scratch[CV_PRODUCT_SCRATCH(c->k, c->n) + g] == 7, "wrote past the scratch");
    }
    free(scratch);
  }
  for (int o = 0; o < c->outer; o++) {
    for (int i = 0; i < c->inner; i++) {
      for (int r = 0; r < c->m; r++) {
        for (int j = 0; j < c->n; j++) {
          double sum = 0, scale = 0;
          for (int d = 0; d < c->k; d++) {
            const double product =
                (double)*element(p.x, &p.x_strides, o, i, r, d) * *element(p.w, &p.w_strides, o, i, d, j);
            sum += p.scale * product;
            scale += fabs(product);
          }
          const float got = *element(p.y, &p.y_strides, o, i, r, j);
          CHECK(check_near(got, sum, scale, 1e-6),
                "%dx%d of %d x %d x %d, %s %s %s, %d threads: y[%d][%d][%d][%d] = %g, expected %g",
                c->outer, c->inner, c->m, c->k, c->n, c->x, c->w, c->y, c->threads, o, i, r, j, got, sum);
        }
      }
    }
  }
  for (int g = 0; g < GUARD; g++) CHECK(data[2][1 + sizes[2] + g] == 7, "wrote past y");
  for (int i = 0; i < 3; i++) free(data[i]);
}

/* Orders in turn, of one to three threads. */
static void check_in_turn(int turn, int inner, int k, int n) {
  const char *x = orders[turn], *w = orders[(turn + 1) % 6], *y = orders[(turn + 3) % 6];
  check_product(&(product_case){1, inner, 17, k, n, 1 + turn % 3, x, w, y, 0, 0});
}

int main(void) {
  const int rows[] = {1, 2, 6, 14, 15, 33}, depths[] = {1, 5, 16, 37},
            columns[] = {1, 8, 16, 17, 33, 70, 150};
  int turn = 0;
  for (int m = 0; m < 6; m++) {
    for (int k = 0; k < 4; k++) {
      for (int n = 0; n < 7; n++, turn++) {
        const product_case c = {1 + turn % 2,
                                1 + turn % 3,
                                rows[m],
                                depths[k],
                                columns[n],
                                1 + turn % 4,
                                orders[turn % 6],
                                orders[turn / 6 % 6],
                                orders[turn / 2 % 6],
                                turn % 5 == 0,
                                0};
        check_product(&c);
      }
    }
  }
  for (int i = 0; i < 6; i++) {
    /* two and three parts of the depth; more panels than are packed at once, and as many */
    const int depth = i % 2 ? 200 : 300, panels = CV_PRODUCT_PACKED(depth) * (1 + i % 3 / 2);
    check_in_turn(i, 2, CV_GEMM_DEPTH * (1 + i % 2) + 3, 2 * CV_GEMM_PANEL + 5);
    check_in_turn(i, 1, depth, panels * CV_GEMM_PANEL + (i < 3 ? 0 : 5));
  }
  const float poisons[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 6; i++) {
    const product_case c = {2, 2, 17, 40, 35, 2, orders[i], orders[i], orders[i], 1, poisons[i % 3]};
    check_product(&c);
  }
  return check_done();
}
