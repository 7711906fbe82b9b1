/* The depthwise convolution of bytes, requantised, against that of floats.
 *
 *   bench_conv2d_depthwise_bytes [--quick]
 *
 * One thread, warm, in turns, on the depthwise convolutions of MobileNetV2 and EfficientNet-B0.  The best
 * of all turns counts.  The bound is what the products alone would take: multiplying pads a kernel row to
 * cells of four taps, and requantising is as much again.
 */
#include <math.h>

#include "bench/measure.h"
#include "kernels/conv2d_depthwise_bytes.h"

typedef struct layer {
  int channels, size, kernel, stride;
} layer;

static const layer layers[] = {{32, 112, 3, 1}, {96, 112, 3, 2}, {144, 56, 3, 1}, {144, 56, 3, 2},
                               {192, 28, 3, 1}, {192, 28, 3, 2}, {384, 14, 3, 1}, {576, 14, 3, 1},
                               {576, 14, 3, 2}, {960, 7, 3, 1},  {144, 56, 5, 2}, {240, 28, 5, 1},
                               {480, 14, 5, 1}, {672, 14, 5, 2}, {1152, 7, 5, 1}};

/* Tiles that rows of these sizes are cut into; fewer pixels than 7 occur in none. */
/* clang-format off: it cannot lay out a macro list */
#define PIXELS(X, ...) X(7, __VA_ARGS__) X(14, __VA_ARGS__) X(16, __VA_ARGS__)
/* clang-format on */
#define DEFINE(P, K, S)                                       \
  CV_DEPTHWISE_TILE(floats_##K##S##_##P, K, K, S, 1, P, 1, 1) \
  CV_DEPTHWISE_BYTES_TILE(bytes_##K##S##_##P, K, K, S, P, 1, 1)
PIXELS(DEFINE, 3, 1)
PIXELS(DEFINE, 3, 2)
PIXELS(DEFINE, 5, 1)
PIXELS(DEFINE, 5, 2)
#define FLOATS(P, K, S) [P] = floats_##K##S##_##P,
#define BYTES(P, K, S) [P] = bytes_##K##S##_##P,
static const cv_depthwise_tile tiles[2][2][2][17] = {
    {{{PIXELS(FLOATS, 3, 1)}, {PIXELS(FLOATS, 3, 2)}}, {{PIXELS(FLOATS, 5, 1)}, {PIXELS(FLOATS, 5, 2)}}},
    {{{PIXELS(BYTES, 3, 1)}, {PIXELS(BYTES, 3, 2)}}, {{PIXELS(BYTES, 5, 1)}, {PIXELS(BYTES, 5, 2)}}}};

/* A row of y in tiles of at most `most` pixels that differ by one. */
static cv_depthwise convolution(const layer *l, int bytes, int most) {
  const int width = (l->size - 1) / l->stride + 1, count = (width + most - 1) / most;
  cv_depthwise c = {.stride_h = l->stride,
                    .stride_w = l->stride,
                    .dilation_h = 1,
                    .pad_top = l->kernel / 2,
                    .pad_left = l->kernel / 2,
                    .block_weights = l->kernel * l->kernel,
                    .group = 1,
                    .multiplier = 1};
  if (bytes && CV_DOT_PARTS > 1) {
    c.block_weights = (l->kernel + 1) / 2 * l->kernel;
  } else if (bytes) {
    c.block_weights =
        l->kernel * CV_DEPTHWISE_LAGS(l->kernel, l->stride) * CV_DEPTHWISE_QUADS(l->kernel, l->stride);
  }
  c.pixels[0] = (width + count - 1) / count;
  c.pixels[1] = c.pixels[0] - 1;
  c.tiles[0] = width - count * c.pixels[1];
  c.tiles[1] = count - c.tiles[0];
  for (int i = 0; i < 2; i++) c.tile[i] = tiles[bytes][l->kernel == 5][l->stride - 1][c.pixels[i]];
  return c;
}

int main(int argc, char **argv) {
  const int turns = argc > 1 && !strcmp(argv[1], "--quick") ? 1 : 300;
  printf("%s, one thread\n", CV_ISA);
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    const layer *l = &layers[i];
    const int size = (l->size - 1) / l->stride + 1, pad = l->kernel / 2, blocks = cv_blocks(l->channels);
    cv_map x[2], y[2];
    cv_depthwise c[2];
    float *w = huge_floats(blocks * l->kernel * 16 * CV_DOT_PARTS * CV_LANES),
          *vector = huge_floats(blocks * CV_LANES);
    const cv_requantize r = {.scale = vector, .shift = vector, .low = 0, .high = 255, .plain = 1};
    const cv_epilogue e[2] = {{.bias = vector, .outer = {CV_CLAMP, 0, 6}},
                              {.bias = vector, .requantize = &r}};
    for (int bytes = 0; bytes < 2; bytes++) {
      const int cells = bytes ? CV_LANES / CV_BYTES : CV_LANES, channels = blocks * cells;
      x[bytes] = make_map(channels, l->size, l->size, pad, cells);
      y[bytes] = make_map(channels, size, size, 0, cells);
      x[bytes].channels = y[bytes].channels = l->channels;
      c[bytes] = convolution(l, bytes, 16);
    }
    double best[2] = {INFINITY, INFINITY};
    for (int turn = 0; turn < turns; turn++)
      for (int bytes = 0; bytes < 2; bytes++) {
        const double start = wall_seconds();
        cv_conv2d_depthwise((cv_thread){0, 1}, &c[bytes], x[bytes], w, y[bytes], &e[bytes]);
        best[bytes] = fmin(best[bytes], wall_seconds() - start);
      }
    const double products =
        (double)blocks * size * size * l->kernel * CV_DEPTHWISE_QUADS(l->kernel, l->stride);
    const double bound = products * 8 * CV_LANES / measure_dots_peak(turns > 1 ? 30 : 1);
    printf("%4d channels, %3d, %dx%d/%d  %5.2f of the time of floats, %4.1f times the bound of products\n",
           l->channels, l->size, l->kernel, l->kernel, l->stride, best[1] / best[0], best[1] / bound);
    for (int bytes = 0; bytes < 2; bytes++) free_map(x[bytes]), free_map(y[bytes]);
    free(w);
    free(vector);
  }
  return 0;
}
