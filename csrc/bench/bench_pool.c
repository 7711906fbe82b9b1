/* How much slower is pooling than reading its input and writing its output?
 *
 *   bench_pool [--quick]
 *
 * One thread, warm, on the pools of ResNet-50, VGG-19, Inception and DenseNet-121.
 */
#include "bench/measure.h"
#include "kernels/pool.h"
#include "kernels/reduce.h"

typedef struct layer {
  const char *name;
  int is_max, channels, size, kernel, stride, pad;
} layer;

static const layer layers[] = {
    {"resnet max 3x3/2", 1, 64, 112, 3, 2, 1},      {"vgg max 2x2/2", 1, 128, 112, 2, 2, 0},
    {"inception max 3x3", 1, 192, 28, 3, 1, 1},     {"inception max 3x3, deep", 1, 832, 7, 3, 1, 1},
    {"inception mean 3x3", 0, 256, 28, 3, 1, 1},    {"densenet mean 2x2/2", 0, 256, 28, 2, 2, 0},
    {"mean of 7x7 as a pool", 0, 2048, 7, 7, 1, 0},
};

static double best_of(int runs, const layer *l, const cv_pool *p, cv_map x, cv_map y) {
  const cv_thread alone = {0, 1};
  double best = 1e9;
  for (int run = 0; run < runs; run++) {
    const double start = seconds();
    if (!p) {
      cv_reduce_map(alone, CV_MEAN, x, y);
    } else if (l->is_max) {
      cv_max_pool(alone, p, x, y);
    } else {
      cv_avg_pool(alone, p, x, y);
    }
    const double elapsed = seconds() - start;
    if (elapsed < best) best = elapsed;
  }
  return best;
}

/* Reads x, writes y, computes next to nothing. */
static double time_traffic(cv_map x, cv_map y, int runs) {
  enum { CHAINS = 4 };
  const ptrdiff_t in = cv_blocks(x.channels) * x.plane, out = cv_blocks(y.channels) * y.plane;
  double best = 1e9;
  for (int run = 0; run < runs; run++) {
    cv_vec sum[CHAINS];
    CV_UNROLL
    for (int c = 0; c < CHAINS; c++) sum[c] = cv_zero();
    const double start = seconds();
    for (ptrdiff_t i = 0; i + CHAINS * CV_LANES <= in; i += CHAINS * CV_LANES) {
      CV_UNROLL
      for (int c = 0; c < CHAINS; c++) sum[c] = cv_max(sum[c], cv_load(x.data + i + c * CV_LANES));
    }
    const cv_vec total = cv_max(cv_max(sum[0], sum[1]), cv_max(sum[2], sum[3]));
    for (ptrdiff_t i = 0; i < out; i += CV_LANES) cv_store(y.data + i, total);
    const double elapsed = seconds() - start;
    if (elapsed < best) best = elapsed;
  }
  return best;
}

int main(int argc, char **argv) {
  const int runs = argc > 1 && !strcmp(argv[1], "--quick") ? 2 : 50;
  printf("%s, one thread\n", CV_ISA);
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    const layer *l = &layers[i];
    const int out = (l->size + 2 * l->pad - l->kernel) / l->stride + 1;
    const cv_pool p = {l->kernel, l->kernel, l->stride, l->stride, 1, 1,
                       l->pad,    l->pad,    l->pad,    l->pad,    0, {CV_IDENTITY, 0, 0}};
    const cv_map x = make_map(l->channels, l->size, l->size, 0, CV_LANES);
    const cv_map y = make_map(l->channels, out, out, 0, CV_LANES);
    const double traffic = time_traffic(x, y, runs), pool = best_of(runs, l, &p, x, y);
    printf("%-24s %4d x %3d x %3d  %7.1f us, %4.2f x its traffic\n", l->name, l->channels, l->size, l->size,
           pool * 1e6, pool / traffic);
    if (out == 1) {
      const double reduce = best_of(runs, l, NULL, x, y);
      printf("%-24s %4d x %3d x %3d  %7.1f us, %4.2f x its traffic\n", "mean of 7x7 reduced", l->channels,
             l->size, l->size, reduce * 1e6, reduce / traffic);
    }
    free_map(x);
    free_map(y);
  }
  return 0;
}
