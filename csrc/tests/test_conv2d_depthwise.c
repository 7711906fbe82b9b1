/* cv_conv2d_depthwise against the definition of depthwise convolution, in double precision. */
#include "kernels/conv2d_depthwise.h"
#include "tests/check_activation.h"

typedef struct shape {
  int kernel_h, kernel_w, stride, dilation, group, multiplier;
  cv_depthwise_tile four, one; /* tiles of 4 pixels and of 1 */
} shape;

#define TILES(KH, KW, STRIDE, DILATION, GROUP, MULTIPLIER)                                                 \
  CV_DEPTHWISE_TILE(four_##KH##KW##STRIDE##DILATION##GROUP##MULTIPLIER, KH, KW, STRIDE, DILATION, 4,       \
                    GROUP, MULTIPLIER)                                                                     \
  CV_DEPTHWISE_TILE(one_##KH##KW##STRIDE##DILATION##GROUP##MULTIPLIER, KH, KW, STRIDE, DILATION, 1, GROUP, \
                    MULTIPLIER)
#define SHAPES(X)            \
  X(3, 3, 1, 1, 1, 1)        \
  X(3, 3, 2, 1, 1, 1)        \
  X(5, 5, 1, 1, 1, 1)        \
  X(5, 5, 2, 1, 1, 1)        \
  X(3, 3, 1, 2, 1, 1)        \
  X(3, 2, 3, 2, 1, 1)        \
  X(7, 7, 1, 1, 1, 1)        \
  X(1, 1, 1, 1, 1, 1)        \
  X(3, 3, 1, 1, 4, 1)        \
  X(3, 3, 2, 1, 2, 1)        \
  X(3, 2, 3, 2, 2, 1)        \
  X(1, 1, 1, 1, CV_LANES, 1) \
  X(3, 3, 1, 33, 4, 1)       \
  X(3, 3, 1, 1, 1, 2)        \
  X(7, 7, 2, 1, 1, 2)        \
  X(3, 2, 3, 2, 1, 4)        \
  X(1, 1, 1, 1, 1, CV_LANES) \
  X(3, 3, 1, 33, 1, 2)
SHAPES(TILES)

#define SHAPE(KH, KW, STRIDE, DILATION, GROUP, MULTIPLIER) \
  {KH,                                                     \
   KW,                                                     \
   STRIDE,                                                 \
   DILATION,                                               \
   GROUP,                                                  \
   MULTIPLIER,                                             \
   four_##KH##KW##STRIDE##DILATION##GROUP##MULTIPLIER,     \
   one_##KH##KW##STRIDE##DILATION##GROUP##MULTIPLIER},
static const shape shapes[] = {SHAPES(SHAPE)};

typedef struct epilogue {
  const char *name;
  cv_activation inner, outer;
  int residual;
} epilogue;

static const epilogue epilogues[] = {
    {"none", {CV_IDENTITY, 0, 0}, {CV_IDENTITY, 0, 0}, 0},
    {"relu6", {CV_CLAMP, 0, 6}, {CV_IDENTITY, 0, 0}, 0},
    {"residual, relu", {CV_IDENTITY, 0, 0}, {CV_CLAMP, 0, INFINITY}, 1},
    {"sigmoid, residual, clip", {CV_SIGMOID, 0, 0}, {CV_CLAMP, 0.25f, 0.5f}, 1},
};

static float *at(const cv_map *m, int c, int y, int x) {
  return m->data + (c / CV_LANES) * m->plane + y * m->row + x * m->step + c % CV_LANES;
}

/* A map of NaN, or of random numbers in zeros. */
static cv_map make_map(int channels, int height, int width, int top, int left, int bottom, int right,
                       int step, int filled) {
  cv_map m = {NULL, channels, height, width, 0,         0, (ptrdiff_t)step * CV_LANES,
              top,  left,     bottom, right, CV_FLOAT32};
  m.row = (ptrdiff_t)(left + width * step + right) * CV_LANES;
  m.plane = (top + height + bottom) * m.row;
  float *p = check_floats(cv_blocks(channels) * m.plane);
  if (filled) memset(p, 0, (size_t)(cv_blocks(channels) * m.plane) * sizeof *p);
  m.data = p + top * m.row + left * CV_LANES;
  for (int c = 0; filled && c < channels; c++)
    for (int y = 0; y < height; y++)
      for (int x = 0; x < width; x++) *at(&m, c, y, x) = check_random();
  return m;
}

static void free_map(cv_map m) { free(m.data - m.top * m.row - m.left * CV_LANES); }

static void run(const shape *k, const epilogue *e, int channels, int in_height, int in_width, int pad[4],
                int halo, int step, int threads) {
  const int height = (in_height + pad[0] + pad[2] - k->dilation * (k->kernel_h - 1) - 1) / k->stride + 1;
  const int width = (in_width + pad[1] + pad[3] - k->dilation * (k->kernel_w - 1) - 1) / k->stride + 1;
  const int given = (channels + k->multiplier - 1) / k->multiplier;
  cv_map x = make_map(given, in_height, in_width, pad[0], pad[1], pad[2], pad[3], 1, 1);
  cv_map y = make_map(channels, height, width, halo, halo, halo, halo, step, 0);
  cv_map residual = make_map(channels, height, width, halo, halo, halo, halo, 1, 1);
  const int taps = k->kernel_h * k->group * k->kernel_w, blocks = cv_blocks(channels);
  float *w = check_floats((ptrdiff_t)blocks * taps * CV_LANES), *bias = check_floats(blocks * CV_LANES);
  for (int c = 0; c < blocks * CV_LANES; c++) {
    bias[c] = c < channels ? check_random() : 0.0f;
    for (int i = 0; i < taps; i++)
      w[(c / CV_LANES * taps + i) * CV_LANES + c % CV_LANES] = c < channels ? check_random() : 0.0f;
  }
  const cv_depthwise conv = {.block_weights = taps,
                             .stride_h = k->stride,
                             .stride_w = k->stride,
                             .dilation_h = k->dilation,
                             .pad_top = pad[0],
                             .pad_left = pad[1],
                             .group = k->group,
                             .multiplier = k->multiplier,
                             .pixels = {4, 1},
                             .tiles = {width / 4, width % 4},
                             .tile = {k->four, k->one}};
  const cv_epilogue epilogue = {
      .bias = bias, .inner = e->inner, .residual = e->residual ? &residual : NULL, .outer = e->outer};
  for (int id = 0; id < threads; id++)
    cv_conv2d_depthwise((cv_thread){id, threads}, &conv, x, w, y, &epilogue);

  for (int c = 0; c < blocks * CV_LANES; c++)
    for (int v = -halo; v < height + halo; v++)
      for (int u = -halo; u < width + halo; u++) {
        const int inside = c < channels && v >= 0 && v < height && u >= 0 && u < width;
        if (!inside && step > 1 && (v < 0 || v >= height || u < 0 || u >= width)) continue;
        double sum = 0, scale = 1;
        for (int i = 0; inside && i < taps; i++) {
          const int row = v * k->stride + i / k->kernel_w / k->group * k->dilation - pad[0];
          const int column = u * k->stride + i % k->kernel_w * k->dilation - pad[1];
          if (row < 0 || row >= in_height || column < 0 || column >= in_width) continue;
          const int channel = c / k->multiplier / k->group * k->group + i / k->kernel_w % k->group;
          if (channel >= given) continue;
          sum += (double)*at(&x, channel, row, column) *
                 w[(c / CV_LANES * taps + i) * CV_LANES + c % CV_LANES];
          scale += 1;
        }
        if (inside) {
          sum = check_activate(sum + bias[c], e->inner);
          if (e->residual) sum += *at(&residual, c, v, u);
          sum = check_activate(sum, e->outer);
        }
        const float got = *at(&y, c, v, u);
        CHECK(check_near(got, sum, scale, inside ? 1e-6 : 0),
              "%dx%d stride %d dilation %d groups of %d times %d, %s: (%d, %d, %d): expected %g, got %g",
              k->kernel_h, k->kernel_w, k->stride, k->dilation, k->group, k->multiplier, e->name, c, v, u,
              sum, got);
      }
  free_map(x);
  free_map(y);
  free_map(residual);
  free(w);
  free(bias);
}

int main(void) {
  int same[4] = {1, 1, 1, 1}, uneven[4] = {0, 2, 3, 1};
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
    for (int e = 0; e < 4; e++) {
      const int more = 33 * (shapes[k].dilation > 2); /* so that a wide kernel fits */
      run(&shapes[k], &epilogues[e], 2 * CV_LANES, 9 + 2 * more, 11 + 2 * more, same, 0, 1, 1);
      run(&shapes[k], &epilogues[e], CV_LANES + 3, 8 + 2 * more, 14 + 2 * more, uneven, 2, 1, 3);
      run(&shapes[k], &epilogues[e], CV_LANES, 9 + 2 * more, 7 + 2 * more, uneven, 0, 2, 2);
    }
  return check_done();
}
