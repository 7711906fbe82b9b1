/* How fast is attention?
 *
 *   bench_attention [--quick]
 *
 * One thread, warm, against the multiply-add peak; queries, keys and values are columns of one matrix, as a
 * network's first product makes them.
 */
#include "bench/measure.h"
#include "kernels/attention.h"

/* As bench_attention_bf16.c includes this file, of bfloat16. */
#ifdef OF_BF16
#define ATTEND cv_attend_bf16
#define PEAK measure_bf16_peak
#else
#define ATTEND cv_attend
#define PEAK measure_peak
#endif

typedef struct shape {
  const char *name;
  int heads, rows, keys, depth, width;
} shape;

static const shape shapes[] = {
    {"vit-b", 12, 197, 197, 64, 64},       {"bert 64", 12, 64, 64, 64, 64},
    {"bert 256", 12, 256, 256, 64, 64},    {"whisper-tiny", 6, 1500, 1500, 64, 64},
    {"mobilevit-s", 4, 256, 256, 36, 36},  {"swin-t windows", 192, 49, 49, 32, 32},
    {"levit", 4, 196, 196, 16, 32},        {"detr", 8, 100, 625, 32, 32},
    {"one new token", 12, 1, 512, 64, 64},
};

/* Best seconds of `runs`. */
static double time_attention(const shape *s, int runs) {
  const int columns = s->heads * (2 * s->depth + s->width), most = s->rows > s->keys ? s->rows : s->keys;
  float *x = huge_floats((ptrdiff_t)most * columns);
  float *y = huge_floats((ptrdiff_t)s->rows * s->heads * s->width);
  float *scratch = huge_floats(CV_ATTENTION_SCRATCH((ptrdiff_t)s->rows, s->keys, s->depth, s->width));
  for (ptrdiff_t i = 0; i < (ptrdiff_t)most * columns; i++) x[i] = (float)(i % 17) / 17;
  const cv_attention a = {.stack = {1, 1, 1, s->heads},
                          .rows = s->rows,
                          .keys = s->keys,
                          .depth = s->depth,
                          .width = s->width,
                          .q = x,
                          .k = x + s->heads * s->depth,
                          .v = x + 2 * s->heads * s->depth,
                          .y = y,
                          .q_strides = {{0, 0, 0, s->depth}, columns, 1},
                          .k_strides = {{0, 0, 0, s->depth}, columns, 1},
                          .v_strides = {{0, 0, 0, s->width}, columns, 1},
                          .y_strides = {{0, 0, 0, s->width}, s->heads * s->width, 1},
                          .scale = 0.125f,
                          .reach = s->keys - 1};
  double best = 1e9;
  for (int run = 0; run < runs; run++) {
    const double start = seconds();
    ATTEND((cv_thread){0, 1}, &a, scratch);
    const double elapsed = seconds() - start;
    if (elapsed < best) best = elapsed;
  }
  free(x), free(y), free(scratch);
  return best;
}

int main(int argc, char **argv) {
  const int quick = argc > 1 && !strcmp(argv[1], "--quick"), runs = quick ? 2 : 20;
  printf("%s, one thread\n", CV_ISA);
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const shape *s = &shapes[i];
    const double peak = PEAK(10), time = time_attention(s, runs);
    const double flops = 2.0 * s->heads * s->rows * s->keys * (s->depth + s->width);
    printf("%-16s %3d heads %4d x %4d, %2d %2d  %8.1f us %5.1f %% of %.1f GFLOP/s\n", s->name, s->heads,
           s->rows, s->keys, s->depth, s->width, 1e6 * time, 100 * flops / time / peak, peak * 1e-9);
  }
  return 0;
}
