/* How fast is the matrix product?
 *
 *   bench_gemm [--quick]
 *
 * One thread.  Many rows: warm, against the multiply-add peak.  One row: weights larger than any cache,
 * against a loop that only reads them.
 */
#include "bench/measure.h"
#include "kernels/gemm_bytes.h"

typedef struct product {
  const char *name;
  int m, k, n;
} product;

static const product many_rows[] = {
    {"vit-s attention", 196, 384, 384}, {"vit-b attention", 197, 768, 768}, {"vit-b mlp", 197, 3072, 768},
    {"batch of 14", 14, 2048, 1000},    {"batch of 4", 4, 512, 512},        {"narrow", 1000, 64, 64},
};
static const product one_row = {"vgg fc6, a quarter", 1, 25088, 1024};

enum { PRODUCT_COUNT = sizeof many_rows / sizeof *many_rows };

typedef struct operands {
  float *x, *w, *y, *bias;
} operands;

/* As bench_gemm_bytes.c includes this file, of bytes. */
#ifdef OF_BYTES
#define CELL CV_BYTES
#else
#define CELL CV_FLOATS
#endif

/* Cells. */
static ptrdiff_t weight_count(const product *p) {
  return (ptrdiff_t)(p->n + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL * cv_gemm_weights(CELL) * p->k / CELL;
}

static void run(const product *p, operands o) {
  const cv_thread alone = {0, 1};
#ifdef OF_BYTES
  const cv_requantize r = {.scale = o.bias, .shift = o.bias, .low = 0.0f, .high = 255.0f, .unit = 1.0f};
  cv_gemm_bytes(alone, p->m, p->k, p->n, o.x, o.w, 1, o.bias, (cv_gemm_requantized){o.y, NULL, &r});
#else
  const cv_activation none = {CV_IDENTITY, 0, 0};
  cv_gemm(alone, p->m, p->k, p->n, o.x, o.w, 1, o.y, o.bias, NULL, none, none);
#endif
}

static operands make_operands(const product *p) {
  return (operands){huge_floats((ptrdiff_t)p->m * p->k), huge_floats(weight_count(p)),
                    huge_floats((ptrdiff_t)p->m * p->n), huge_floats(p->n + CV_GEMM_PANEL)};
}

static void free_operands(operands o) { free(o.x), free(o.w), free(o.y), free(o.bias); }

/* Best seconds of `runs`. */
static double time_gemm(const product *p, operands o, int runs) {
  double best = 1e9;
  for (int i = 0; i < runs; i++) {
    const double start = seconds();
    run(p, o);
    const double elapsed = seconds() - start;
    if (elapsed < best) best = elapsed;
  }
  return best;
}

static double time_read(const float *p, ptrdiff_t count, int runs) {
  enum { CHAINS = 8 };
  double best = 1e9;
  for (int run = 0; run < runs; run++) {
    cv_vec sum[CHAINS];
    CV_UNROLL
    for (int c = 0; c < CHAINS; c++) sum[c] = cv_zero();
    const double start = seconds();
    for (ptrdiff_t i = 0; i + CHAINS * CV_LANES <= count; i += CHAINS * CV_LANES) {
      CV_UNROLL
      for (int c = 0; c < CHAINS; c++) sum[c] = cv_add(sum[c], cv_load(p + i + c * CV_LANES));
    }
    const double elapsed = seconds() - start;
    float total = 0;
    CV_UNROLL
    for (int c = 0; c < CHAINS; c++) total += cv_reduce_add(sum[c]);
    if (total == 12345.0f) puts(""); /* the sums are used */
    if (elapsed < best) best = elapsed;
  }
  return best;
}

int main(int argc, char **argv) {
  const int quick = argc > 1 && !strcmp(argv[1], "--quick"), runs = quick ? 2 : 20;
  printf("%s, one thread\n", CV_ISA);
  for (int i = 0; i < PRODUCT_COUNT; i++) {
    const product *p = &many_rows[i];
    const operands o = make_operands(p);
    const double peak = CELL == CV_BYTES ? measure_dots_peak(10) : measure_peak(10),
                 rate = 2.0 * p->m * p->k * p->n / time_gemm(p, o, runs);
    printf("%-20s %4d x %5d x %4d  %5.1f %% of %.1f GFLOP/s\n", p->name, p->m, p->k, p->n,
           100 * rate / peak, peak * 1e-9);
    free_operands(o);
  }
  const operands o = make_operands(&one_row);
  const ptrdiff_t count = weight_count(&one_row);
  const double read = time_read(o.w, count, quick ? 1 : 8), gemm = time_gemm(&one_row, o, quick ? 1 : 8);
  printf("%-20s %4d x %5d x %4d  %5.1f %% of %.1f GB/s read\n", one_row.name, one_row.m, one_row.k,
         one_row.n, 100 * read / gemm, 1e-9 * (double)count * sizeof(float) / read);
  free_operands(o);
  return 0;
}
