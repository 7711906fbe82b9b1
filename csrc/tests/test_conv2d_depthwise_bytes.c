/* cv_conv2d_depthwise of bytes against the definition in integers, requantised in double precision. */
#include "kernels/conv2d_depthwise_bytes.h"
#include "tests/check_activation.h"
#include "tests/check_bytes.h"

typedef struct shape {
  int kernel_h, kernel_w, stride, group, multiplier;
  cv_depthwise_tile six, one; /* tiles of 6 pixels and of 1 */
} shape;

#define TILES(KH, KW, STRIDE, GROUP, MULTIPLIER)                                                         \
  CV_DEPTHWISE_BYTES_TILE(six_##KH##KW##STRIDE##GROUP##MULTIPLIER, KH, KW, STRIDE, 6, GROUP, MULTIPLIER) \
  CV_DEPTHWISE_BYTES_TILE(one_##KH##KW##STRIDE##GROUP##MULTIPLIER, KH, KW, STRIDE, 1, GROUP, MULTIPLIER)
#define SHAPES(X)         \
  X(3, 3, 1, 1, 1)        \
  X(3, 3, 2, 1, 1)        \
  X(5, 5, 1, 1, 1)        \
  X(5, 5, 2, 1, 1)        \
  X(7, 7, 1, 1, 1)        \
  X(7, 7, 2, 1, 1)        \
  X(5, 2, 3, 1, 1)        \
  X(1, 9, 3, 1, 1)        \
  X(1, 1, 1, 1, 1)        \
  X(3, 3, 1, 4, 1)        \
  X(3, 3, 2, 2, 1)        \
  X(3, 3, 2, 1, 2)        \
  X(1, 1, 1, CV_LANES, 1) \
  X(5, 5, 1, 1, CV_LANES)
SHAPES(TILES)

#define SHAPE(KH, KW, STRIDE, GROUP, MULTIPLIER) \
  {KH,                                           \
   KW,                                           \
   STRIDE,                                       \
   GROUP,                                        \
   MULTIPLIER,                                   \
   six_##KH##KW##STRIDE##GROUP##MULTIPLIER,      \
   one_##KH##KW##STRIDE##GROUP##MULTIPLIER},
static const shape shapes[] = {SHAPES(SHAPE)};

typedef struct ending {
  const char *name;
  int residual, floats;
  float low, high; /* numbers */
  cv_activation inner;
} ending;

static const ending endings[] = {
    {"bytes", 0, 0, -INFINITY, INFINITY, {CV_IDENTITY, 0, 0}},
    {"relu6, plus bytes", 1, 0, 0.0f, 6.0f, {CV_IDENTITY, 0, 0}},
    {"sigmoid, plus bytes", 1, 0, -INFINITY, INFINITY, {CV_SIGMOID, 0, 0}},
    {"floats", 0, 1, -INFINITY, 3.0f, {CV_IDENTITY, 0, 0}},
};

enum { Y_ZERO = 31, R_ZERO = 19 };
static const float y_scale = 0.05f, r_scale = 0.031f;

static int weight_of(const shape *k, const int8_t *w, int c, int j, int r, int s) {
  return s < 0 || s >= k->kernel_w ? 0 : w[((c * k->group + j) * k->kernel_h + r) * k->kernel_w + s];
}

/* [block][kernel_h][group][lag][quad][CV_LANES][4] */
static int8_t *pack_quads(const shape *k, const int8_t *w, int channels, int *block_weights) {
  const int step = CV_DEPTHWISE_LAG_STEP(k->kernel_w, k->stride);
  const int lags = CV_DEPTHWISE_LAGS(k->kernel_w, k->stride);
  const int quads = CV_DEPTHWISE_QUADS(k->kernel_w, k->stride);
  *block_weights = k->kernel_h * k->group * lags * quads;
  const int size = *block_weights * CV_LANES * 4;
  int8_t *packed = (int8_t *)check_bytes((ptrdiff_t)cv_blocks(channels) * size, 0), *to = packed;
  for (int b = 0; b < cv_blocks(channels); b++)
    for (int i = 0; i < size; i++, to++) {
      const int byte = i % 4, c = b * CV_LANES + i / 4 % CV_LANES, quad = i / 4 / CV_LANES % quads;
      const int lag = i / 4 / CV_LANES / quads % lags * step, row = i / 4 / CV_LANES / quads / lags;
      if (c < channels)
        *to = (int8_t)weight_of(k, w, c, row % k->group, row / k->group, 4 * quad + byte - lag);
    }
  return packed;
}

/* [block][pair of rows][group][kernel_w][CV_LANES][2] */
static int8_t *pack_pairs(const shape *k, const int8_t *w, int channels, int *block_weights) {
  *block_weights = (k->kernel_h + 1) / 2 * k->group * k->kernel_w;
  const int size = *block_weights * CV_LANES * 2;
  int8_t *packed = (int8_t *)check_bytes((ptrdiff_t)cv_blocks(channels) * size * 2, 0);
  int16_t *to = (int16_t *)(void *)packed;
  for (int b = 0; b < cv_blocks(channels); b++)
    for (int i = 0; i < size; i++, to++) {
      const int c = b * CV_LANES + i / 2 % CV_LANES, tap = i / 2 / CV_LANES % k->kernel_w;
      const int j = i / 2 / CV_LANES / k->kernel_w % k->group;
      const int row = i / 2 / CV_LANES / k->kernel_w / k->group * 2 + i % 2;
      if (c < channels && row < k->kernel_h) *to = (int16_t)weight_of(k, w, c, j, row, tap);
    }
  return packed;
}

static int random_below(int below) { return (int)((check_random() + 1) / 2 * (float)below); }

static void run(const shape *k, const ending *e, int channels, int in_height, int in_width, int pad,
                int halo, int threads, int largest) {
  const int height = (in_height + 2 * pad - k->kernel_h) / k->stride + 1;
  const int width = (in_width + 2 * pad - k->kernel_w) / k->stride + 1;
  const int given = (channels + k->multiplier - 1) / k->multiplier, padded = cv_blocks(channels) * CV_LANES;
  const int taps = k->kernel_h * k->group * k->kernel_w;
  cv_byte_map x = check_bytes_map(given, in_height, in_width, pad, CV_LANES);
  check_bytes_map_fill(x, CV_LANES);
  if (largest) memset(x.data, 255, (size_t)((in_height - 1) * x.row + in_width * x.step));
  cv_byte_map_fill_halo((cv_thread){0, 1}, x, CV_LANES, CHECK_ZERO);
  cv_byte_map bytes = check_bytes_map(channels, height, width, 0, CV_LANES);
  check_bytes_map_fill(bytes, CV_LANES);
  cv_byte_map y = check_bytes_map(channels, height, width, halo, CV_LANES);
  cv_map floats = {.channels = channels, .height = height, .width = width, .step = CV_LANES};
  floats.row = (ptrdiff_t)width * CV_LANES;
  floats.plane = height * floats.row;
  floats.data = check_floats(cv_blocks(channels) * floats.plane);

  int8_t *w = malloc((size_t)(channels * taps));
  float *scale = check_floats(padded), *shift = check_floats(padded), *start = check_floats(padded);
  int32_t *bias = (int32_t *)(void *)start;
  for (int i = 0; i < channels * taps; i++) w[i] = (int8_t)(largest ? -128 : random_below(256) - 128);
  for (int c = 0; c < padded; c++) {
    bias[c] = c < channels ? random_below(2000) - 1000 : 0;
    for (int i = 0; c < channels && i < taps; i++) bias[c] -= CHECK_ZERO * w[c * taps + i];
    scale[c] =
        c < channels ? (float)(0.7 + 0.3 * check_random()) * 4 / (float)(128 * 128 * k->kernel_w) : 0;
    shift[c] = 0;
  }
  int block_weights;
  int8_t *packed = (CV_DOT_PARTS > 1 ? pack_pairs : pack_quads)(k, w, channels, &block_weights);
  const int plain = !e->floats && e->inner.kind == CV_IDENTITY;
  const float inverse = 1 / y_scale, unit = plain ? inverse : 1;
  cv_requantize r = {.scale = scale,
                     .shift = shift,
                     .low = e->low,
                     .high = e->high,
                     .zero = Y_ZERO,
                     .floats = e->floats,
                     .residual_scale = r_scale * unit,
                     .residual_shift = -R_ZERO * r_scale * unit,
                     .inner = e->inner,
                     .unit = plain || e->floats ? 1 : inverse,
                     .plain = plain};
  if (!e->floats) {
    r.low = fmaxf(-Y_ZERO, e->low * inverse);
    r.high = fminf(255 - Y_ZERO, e->high * inverse);
  }
  for (int c = 0; plain && c < padded; c++) scale[c] *= inverse;
  const cv_depthwise conv = {.stride_h = k->stride,
                             .stride_w = k->stride,
                             .dilation_h = 1,
                             .pad_top = pad,
                             .pad_left = pad,
                             .block_weights = block_weights,
                             .group = k->group,
                             .multiplier = k->multiplier,
                             .pixels = {6, 1},
                             .tiles = {width / 6, width % 6},
                             .tile = {k->six, k->one}};
  const cv_map residual = cv_map_of_cells(bytes);
  const cv_epilogue epilogue = {
      .bias = start, .residual = e->residual ? &residual : NULL, .requantize = &r};
  for (int id = 0; id < threads; id++) {
    const cv_thread thread = {id, threads};
    cv_conv2d_depthwise(thread, &conv, cv_map_of_cells(x), (const float *)(const void *)packed,
                        e->floats ? floats : cv_map_of_cells(y), &epilogue);
    cv_byte_map_fill_halo(thread, y, CV_LANES, CHECK_ZERO);
  }

  const cv_scale to = {y_scale, Y_ZERO, 0, 255};
  for (int c = 0; c < (e->floats ? padded : channels); c++)
    for (int v = 0; v < height; v++)
      for (int u = 0; u < width; u++) {
        int64_t sum = bias[c];
        for (int i = 0; c < channels && i < taps; i++) {
          const int j = i / (k->kernel_h * k->kernel_w), tap = i % (k->kernel_h * k->kernel_w);
          const int row = v * k->stride + tap / k->kernel_w - pad;
          const int column = u * k->stride + tap % k->kernel_w - pad;
          const int inside = row >= 0 && row < in_height && column >= 0 && column < in_width;
          const int from = c / k->multiplier / k->group * k->group + j;
          sum += (inside ? *check_byte_at(x, CV_LANES, from, row, column) : CHECK_ZERO) *
                 weight_of(k, w, c, j, tap / k->kernel_w, tap % k->kernel_w);
        }
        double value = (double)sum * scale[c] * (plain ? y_scale : 1);
        value = check_activate(value, e->inner);
        if (e->residual) value += (*check_byte_at(bytes, CV_LANES, c, v, u) - R_ZERO) * (double)r_scale;
        value = fmin(fmax(value, e->low), e->high);
        const double got =
            e->floats
                ? floats.data[c / CV_LANES * floats.plane + v * floats.row + u * CV_LANES + c % CV_LANES]
                : *check_byte_at(y, CV_LANES, c, v, u);
        const int right = e->floats ? check_near(got, c < channels ? value : 0, 1, 1e-5)
                                    : check_quantised((int)got, value, to);
        CHECK(right, "%dx%d stride %d groups of %d times %d, %s: (%d, %d, %d): expected %g, got %g",
              k->kernel_h, k->kernel_w, k->stride, k->group, k->multiplier, e->name, c, v, u,
              e->floats ? value : value / y_scale + Y_ZERO, got);
      }
  if (!e->floats) check_bytes_halo(y, CV_LANES, "depthwise");
  check_bytes_free(x);
  check_bytes_free(y);
  check_bytes_free(bytes);
  free(floats.data);
  free(w);
  free(packed);
  free(scale);
  free(shift);
  free(start);
}

/* Four pixels of a block: in the order of channels, and from int32 at the ends of each range. */
static void check_quads(void) {
  uint8_t pixels[4 * CV_LANES], got[4 * CV_LANES + 1];
  check_fill_bytes(pixels, sizeof pixels);
  CV_UNROLL
  for (int n = 1; n <= 4; n++) {
    const cv_int cells = cv_quad_by_channel(cv_load_quad(pixels, n));
    memcpy(got, &cells, 4 * CV_LANES);
    for (int i = 0; i < 4 * CV_LANES; i++)
      CHECK(got[i] == (i % 4 < n ? pixels[i % 4 * CV_LANES + i / 4] : 0), "quad of %d: byte %d", n, i);
    memset(got, 9, sizeof got);
    cv_store_quad(got, cv_load_quad(pixels, 4), n);
    for (int i = 0; i <= 4 * CV_LANES; i++)
      CHECK(got[i] == (i < n * CV_LANES ? pixels[i] : 9), "quad of %d stored: byte %d", n, i);
  }
  static const int32_t numbers[] = {INT32_MIN, -40000, -32768, -8, -7, 0, 1, 247, 248, 249, 300, 70000};
  enum { COUNT = sizeof numbers / sizeof *numbers };
  for (int i = 0; i < COUNT; i++) {
    cv_int four[4];
    for (int k = 0; k < 4; k++) {
      int32_t lanes[CV_LANES];
      for (int l = 0; l < CV_LANES; l++) lanes[l] = numbers[(i + 5 * k + l) % COUNT];
      memcpy(&four[k], lanes, sizeof lanes);
    }
    cv_store_quad(got, cv_quad_of(four[0], four[1], four[2], four[3], cv_int_set1(7)), 4);
    for (int b = 0; b < 4 * CV_LANES; b++) {
      const int32_t n = numbers[(i + 5 * (b / CV_LANES) + b % CV_LANES) % COUNT];
      const int expected = n < -7 ? 0 : n > 248 ? 255 : n + 7;
      CHECK(got[b] == expected, "quad of int32: %d became %d", n, got[b]);
    }
  }
}

int main(void) {
  check_quads();
  for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
    for (size_t e = 0; e < sizeof endings / sizeof *endings; e++) {
      run(&shapes[k], &endings[e], 2 * CV_LANES, 9, 15, shapes[k].kernel_h / 2, 0, 2, 0);
      run(&shapes[k], &endings[e], CV_LANES + 3, 10, 14, 1, 2, 3, e == 0);
    }
  return check_done();
}
