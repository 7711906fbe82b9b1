/* cv_conv2d_direct of bytes against the same in plain integers, to the last bit. */
#include "kernels/conv2d_direct.h"
#include "tests/check_bytes.h"

/* Blocked tiles of two widths for any kernel and for 1x1, of stride 1 and 2; runs and pairs of rows. */
#define WIDE CHECK_MORE(X(1, 7, 2) X(2, 3, 2) X(0, 5, 2) X(0, 4, 2))
#define FORMS X(1, 4, 2) X(1, 3, 2) X(1, 4, 1) X(1, 3, 1) WIDE
#define X(R, P, B)                                       \
  CV_CONV2D_BYTES_TILE(any1_##R##P##B, R, P, B, 1, 0, 0) \
  CV_CONV2D_BYTES_TILE(any2_##R##P##B, R, P, B, 2, 0, 0) \
  CV_CONV2D_BYTES_TILE(point1_##R##P##B, R, P, B, 1, 1, 1)
FORMS
#undef X
#define PIPELINED X(4, 2) X(3, 2) X(4, 1) X(3, 1)
#define X(P, B)                                                        \
  CV_CONV2D_PIPELINED_TILE(alone1_##P##B, P, B, 1, 1, CV_ENDS_ALONE)   \
  CV_CONV2D_PIPELINED_TILE(alone2_##P##B, P, B, 2, 2, CV_ENDS_ALONE)   \
  CV_CONV2D_PIPELINED_TILE(adding1_##P##B, P, B, 1, 2, CV_ENDS_ADDING) \
  CV_CONV2D_PIPELINED_TILE(adding2_##P##B, P, B, 2, 1, CV_ENDS_ADDING)
PIPELINED
#undef X
CV_CONV2D_PLANAR_BYTES_TILE(rgb_4, 4, 2, 2, 3, 3, 1)
CV_CONV2D_PLANAR_BYTES_TILE(rgb_3, 3, 2, 2, 3, 3, 1)

/* In the place of rows, of pipelined tiles: those that add a residual, or not. */
enum { ALONE = 10, ADDING };

typedef struct entry {
  int rows, pixels, blocks, stride, point, planar;
  cv_conv2d_tile tile;
} entry;

#define X(R, P, B)                                                        \
  {R, P, B, 1, 0, 0, any1_##R##P##B}, {R, P, B, 2, 0, 0, any2_##R##P##B}, \
      {R, P, B, 1, 1, 0, point1_##R##P##B},
static const entry entries[] = {FORMS{1, 4, 2, 2, 0, 1, rgb_4}, {1, 3, 2, 2, 0, 1, rgb_3}};
#undef X
#define X(P, B)                                                                 \
  {ALONE, P, B, 1, 1, 0, alone1_##P##B}, {ALONE, P, B, 2, 1, 0, alone2_##P##B}, \
      {ADDING, P, B, 1, 1, 0, adding1_##P##B}, {ADDING, P, B, 2, 1, 0, adding2_##P##B},
static const entry pipelined[] = {PIPELINED};
#undef X

typedef struct trial {
  const char *name;
  int in, out, height, width, kernel, stride, dilation, pad, groups, planar;
  int rows, pixels[2], tiles[2], blocks, tail;
  int threads, split_chunks, y_halo;
  int floats;   /* of y */
  int residual; /* 1: bytes, 2: floats */
  cv_activation inner, outer;
  int pipelined;
  int largest; /* bytes of x and weights are as far from 0 as they can be */
} trial;

static cv_conv2d_tile find_tile(const trial *t, int pixels, int blocks, int rows) {
  const size_t count = (t->pipelined ? sizeof pipelined : sizeof entries) / sizeof(entry);
  if (t->pipelined) rows = t->residual ? ADDING : ALONE;
  for (size_t i = 0; i < count; i++) {
    const entry *e = &(t->pipelined ? pipelined : entries)[i];
    if (e->rows == rows && e->pixels == pixels && e->blocks == blocks && e->stride == t->stride &&
        e->point == (t->kernel == 1) && e->planar == t->planar)
      return e->tile;
  }
  return NULL;
}

static cv_byte_map make_bytes(int channels, int height, int width, int halo, int lanes) {
  cv_byte_map m = {NULL, channels, height, width, 0, 0, lanes, halo, halo, halo, halo};
  m.row = (ptrdiff_t)(width + 2 * halo) * lanes;
  m.plane = (height + 2 * halo) * m.row + 64;
  const ptrdiff_t size = (channels + lanes - 1) / lanes * m.plane + 64;
  uint8_t *p = (uint8_t *)check_floats(size / 4 + 1);
  memset(p, 0xa5, (size_t)size);
  m.data = p + halo * m.row + halo * lanes;
  return m;
}

static uint8_t *byte_at(cv_byte_map m, int c, int y, int x) {
  return m.data + c / (int)m.step * m.plane + y * m.row + x * m.step + c % (int)m.step;
}

static int random_int(int below) { return (int)((check_random() + 1) / 2 * (float)below); }

static double act(cv_activation a, double v) {
  if (a.kind == CV_CLAMP) return fmin(fmax(v, a.a), a.b);
  return a.kind == CV_SIGMOID ? 1 / (1 + exp(-v)) : v;
}

static void run(const trial *t) {
  enum { X_ZERO = 119, Y_ZERO = 31, R_ZERO = 7 };
  const float unit = 0.05f, residual_unit = 0.03f;
  const int groups = t->groups ? t->groups : 1, in_group = t->in / groups, out_group = t->out / groups;
  const int reach = t->dilation * (t->kernel - 1) + 1, taps = t->kernel * t->kernel;
  const int height = (t->height + 2 * t->pad - reach) / t->stride + 1;
  const int width = (t->width + 2 * t->pad - reach) / t->stride + 1;
  const int lanes = t->planar ? 4 : CV_LANES, blocks = cv_blocks(t->out);
  const int in_blocks = (t->in + lanes - 1) / lanes, padded = blocks * CV_LANES;

  cv_byte_map x = make_bytes(t->in, t->height, t->width, t->pad, lanes);
  for (int c = 0; c < t->in; c++)
    for (int v = 0; v < t->height; v++)
      for (int u = 0; u < t->width; u++)
        *byte_at(x, c, v, u) = (uint8_t)(t->largest ? 255 : random_int(256));
  cv_byte_map_fill_halo((cv_thread){0, 1}, x, lanes, X_ZERO);
  int8_t *w = malloc((size_t)(t->out * in_group * taps));
  for (int i = 0; i < t->out * in_group * taps; i++)
    w[i] = (int8_t)(t->largest ? i % 2 * 255 - 128 : random_int(256) - 128);
  float *scale = check_floats(padded), *shift = check_floats(padded), *start = check_floats(padded);
  int32_t *bias = (int32_t *)(void *)start;
  for (int o = 0; o < padded; o++) {
    const int real = o < t->out;
    scale[o] = real ? (float)(0.7 + 0.3 * check_random()) / (float)(in_group * taps) / 64 : 0.0f;
    shift[o] = 0.0f;
    bias[o] = real ? random_int(2000) - 1000 : 0;
    for (int i = 0; real && i < in_group * taps; i++) bias[o] -= X_ZERO * w[o * in_group * taps + i];
  }
  cv_byte_map bytes = make_bytes(t->out, height, width, 0, CV_LANES);
  cv_map floats = {.channels = t->out,
                   .height = height,
                   .width = width,
                   .row = (ptrdiff_t)width * CV_LANES,
                   .step = CV_LANES};
  floats.plane = height * floats.row;
  floats.data = check_floats(blocks * floats.plane);
  for (int b = 0; b < blocks * CV_LANES; b++)
    for (int i = 0; i < height * width; i++) {
      *byte_at(bytes, b, i / width, i % width) = (uint8_t)random_int(256);
      floats.data[b / CV_LANES * floats.plane + i * CV_LANES + b % CV_LANES] =
          b < t->out ? check_random() : 0.0f;
    }

  /* Panels, all of the input in each chunk; groups share blocks. */
  cv_conv2d_chunk chunks[16];
  int count = 0;
  const int inner = lanes / 4;
  const ptrdiff_t cells = (ptrdiff_t)in_blocks * taps * inner * padded;
  int8_t *panel = (int8_t *)check_floats(CV_DOT_PARTS * cells), *chunk = (int8_t *)check_floats(cells);
  ptrdiff_t at = 0;
  for (int o = 0; o < blocks; o += chunks[count++].blocks) {
    const int size = blocks - o < t->blocks ? blocks - o : t->blocks;
    chunks[count] = (cv_conv2d_chunk){o, size, 0, in_blocks, at / 4, 0, 0, 0, 0};
    for (int i = 0; i < in_blocks; i++)
      for (int tap = 0; tap < taps; tap++)
        for (int cell = 0; cell < inner; cell++)
          for (int lane = 0; lane < size * CV_LANES; lane++)
            for (int k = 0; k < 4; k++, at++) {
              const int channel = i * lanes + cell * 4 + k, output = o * CV_LANES + lane;
              const int own =
                  channel < t->in && output < t->out && channel / in_group == output / out_group;
              chunk[at] = own ? w[(output * in_group + channel % in_group) * taps + tap] : 0;
            }
    const ptrdiff_t first = 4 * chunks[count].weights;
    int8_t *packed = check_dot_weights(chunk + first, (at - first) / 4, size * CV_LANES);
    memcpy(panel + CV_DOT_PARTS * first, packed, (size_t)(CV_DOT_PARTS * (at - first)));
    free(packed);
  }
  const cv_conv2d conv = {.kernel_h = t->kernel,
                          .kernel_w = t->kernel,
                          .stride_h = t->stride,
                          .stride_w = t->stride,
                          .dilation_h = t->dilation,
                          .dilation_w = t->dilation,
                          .pad_top = t->pad,
                          .pad_left = t->pad,
                          .inner = inner,
                          .chunks = chunks,
                          .chunk_count = count,
                          .split_chunks = t->split_chunks,
                          .rows = t->rows,
                          .pixels = {t->pixels[0], t->pixels[1]},
                          .tiles = {t->tiles[0], t->tiles[1]},
                          .tiles_per_block = 3,
                          .tile = {{find_tile(t, t->pixels[0], t->blocks, t->rows),
                                    find_tile(t, t->pixels[0], t->tail, t->rows)},
                                   {find_tile(t, t->pixels[1], t->blocks, t->rows == 2 ? 1 : t->rows),
                                    find_tile(t, t->pixels[1], t->tail, t->rows == 2 ? 1 : t->rows)}},
                          .blocks = t->blocks,
                          .tail_blocks = t->tail,
                          .pipelined = t->pipelined};
  const int plain =
      !t->floats && t->residual != 2 && t->inner.kind == CV_IDENTITY && t->outer.kind == CV_IDENTITY;
  const float inverse = 1 / unit;
  cv_requantize r = {.scale = scale,
                     .shift = shift,
                     .low = -INFINITY,
                     .high = INFINITY,
                     .zero = Y_ZERO,
                     .floats = t->floats,
                     .residual_scale = t->residual == 1 ? residual_unit : 0.0f,
                     .residual_shift = t->residual == 1 ? -R_ZERO * residual_unit : 0.0f,
                     .inner = t->inner,
                     .outer = t->outer,
                     .unit = t->floats ? 1.0f : inverse,
                     .plain = plain};
  if (!t->floats) r.low = -Y_ZERO, r.high = 255 - Y_ZERO;
  if (plain) {
    for (int o = 0; o < padded; o++) scale[o] *= inverse, shift[o] *= inverse;
    r.residual_scale *= inverse, r.residual_shift *= inverse, r.unit = 1.0f;
  }
  const cv_map added = t->residual == 2 ? floats : cv_map_of_cells(bytes);
  const cv_epilogue e = {.bias = start, .residual = t->residual ? &added : NULL, .requantize = &r};

  cv_byte_map y = make_bytes(t->out, height, width, t->y_halo, CV_LANES);
  cv_map sums = floats;
  sums.data = check_floats(blocks * floats.plane);
  for (int id = 0; id < t->threads; id++) {
    const cv_thread thread = {id, t->threads};
    cv_byte_map_fill_halo(thread, y, CV_LANES, Y_ZERO);
    cv_conv2d_direct(thread, &conv, cv_map_of_cells(x), (const float *)(const void *)panel,
                     t->floats ? sums : cv_map_of_cells(y), &e);
  }

  for (int o = 0; o < (t->floats ? padded : t->out); o++)
    for (int v = 0; v < height; v++)
      for (int u = 0; u < width; u++) {
        int64_t sum = o < t->out ? bias[o] : 0;
        for (int i = 0; o < t->out && i < in_group; i++)
          for (int tap = 0; tap < taps; tap++) {
            const int row = v * t->stride + tap / t->kernel * t->dilation - t->pad;
            const int column = u * t->stride + tap % t->kernel * t->dilation - t->pad;
            const int inside = row >= 0 && row < t->height && column >= 0 && column < t->width;
            const int byte = inside ? *byte_at(x, o / out_group * in_group + i, row, column) : X_ZERO;
            sum += byte * w[(o * in_group + i) * taps + tap];
          }
        const ptrdiff_t place = o / CV_LANES * floats.plane + v * floats.row + u * CV_LANES + o % CV_LANES;
        double value = (double)sum * scale[o] * (plain ? unit : 1);
        value = act(t->inner, value);
        if (t->residual == 1) value += (*byte_at(bytes, o, v, u) - R_ZERO) * (double)residual_unit;
        if (t->residual == 2) value += floats.data[place];
        value = act(t->outer, value);
        if (t->floats) {
          const float got = sums.data[place];
          CHECK(check_near(got, o < t->out ? value : 0, 1, 1e-5), "%s: y[%d][%d][%d]: expected %g, got %g",
                t->name, o, v, u, value, got);
        } else { /* what the float rounds to, or its neighbour at a tie */
          const double exact = fmin(fmax(value / unit, -Y_ZERO), 255 - Y_ZERO);
          const int got = *byte_at(y, o, v, u) - Y_ZERO;
          CHECK(fabs(got - exact) <= 0.5 + 2e-4, "%s: y[%d][%d][%d]: expected %g, got %d", t->name, o, v, u,
                exact, got);
        }
      }
  for (int v = -t->y_halo; !t->floats && v < height + t->y_halo; v++)
    for (int u = -t->y_halo; u < width + t->y_halo; u++)
      if (v < 0 || v >= height || u < 0 || u >= width)
        CHECK(*byte_at(y, 0, v, u) == Y_ZERO, "%s: halo at %d,%d", t->name, v, u);

  free(x.data - x.top * x.row - x.left * x.step);
  free(y.data - y.top * y.row - y.left * y.step);
  free(bytes.data);
  free(floats.data);
  free(sums.data);
  free(w);
  free(panel);
  free(chunk);
  free(scale);
  free(shift);
  free(start);
}

#define L CV_LANES
static const trial trials[] = {
    {"1x1", 2 * L, 3 * L, 5, 7, 1, 1, 1, 0, .rows = 1, .pixels = {4, 3}, .tiles = {1, 1}, .blocks = 2,
     .tail = 1, .threads = 2, .y_halo = 1},
    {"3x3, padding, channels that fill no block, relu", 2 * L + 3, 2 * L - 1, 7, 7, 3, 1, 1, 1, .rows = 1,
     .pixels = {4, 3}, .tiles = {1, 1}, .blocks = 2, .threads = 3, .split_chunks = 1, .y_halo = 2},
    {"the largest products", 2 * L, 2 * L, 4, 4, 3, 1, 1, 1, .rows = 1, .pixels = {4}, .tiles = {1},
     .blocks = 2, .threads = 1, .largest = 1},
    {"the largest products, as floats", 2 * L, 2 * L, 4, 4, 3, 1, 1, 1, .rows = 1, .pixels = {4},
     .tiles = {1}, .blocks = 2, .threads = 1, .largest = 1, .floats = 1},
    {"stride 2, dilated, residual of bytes", L, 3 * L, 13, 13, 3, 2, 2, 2, .rows = 1, .pixels = {4, 3},
     .tiles = {1, 1}, .blocks = 2, .tail = 1, .threads = 2, .residual = 1},
    {"groups that share blocks, residual of floats", 2 * L, 2 * L, 4, 4, 3, 1, 1, 1, 4, .rows = 1,
     .pixels = {4}, .tiles = {1}, .blocks = 2, .threads = 2, .residual = 2},
    {"sigmoid, then a residual of bytes and a clamp", L, 2 * L, 4, 4, 1, 1, 1, 0, .rows = 1, .pixels = {4},
     .tiles = {1}, .blocks = 2, .threads = 2, .residual = 1, .inner = {CV_SIGMOID, 0, 0},
     .outer = {CV_CLAMP, 0.2f, 1.5f}},
    {"floats, with a residual of bytes", L, 2 * L - 3, 4, 4, 1, 1, 1, 0, .rows = 1, .pixels = {4},
     .tiles = {1}, .blocks = 2, .threads = 2, .residual = 1, .floats = 1, .outer = {CV_CLAMP, 0.3f, 1.0f}},
    {"planar cells, stride 2", 3, 2 * L, 14, 14, 3, 2, 1, 1, .planar = 1, .rows = 1, .pixels = {4, 3},
     .tiles = {1, 1}, .blocks = 2, .threads = 2},
    {"planar cells, stride 2, as floats", 3, 2 * L, 14, 14, 3, 2, 1, 1, .planar = 1, .rows = 1,
     .pixels = {4, 3}, .tiles = {1, 1}, .blocks = 2, .threads = 2, .floats = 1},
    {"pipelined", 3 * L, 3 * L, 5, 11, 1, 1, 1, 0, .rows = 1, .pixels = {4, 3}, .tiles = {2, 1},
     .blocks = 2, .tail = 1, .threads = 2, .y_halo = 1, .pipelined = 1},
    {"pipelined, a residual, more threads than rows", 2 * L, 2 * L - 1, 2, 14, 1, 1, 1, 0, .rows = 1,
     .pixels = {4, 3}, .tiles = {2, 2}, .blocks = 2, .threads = 3, .residual = 1, .pipelined = 1},
    {"pipelined, stride 2", 2 * L, 4 * L, 9, 13, 1, 2, 1, 0, .rows = 1, .pixels = {4, 3}, .tiles = {1, 1},
     .blocks = 2, .threads = 2, .split_chunks = 1, .pipelined = 1},
    {"pipelined, stride 2, a residual, all tiles of one size", L, 2 * L, 3, 15, 1, 2, 1, 0, .rows = 1,
     .pixels = {4}, .tiles = {2}, .blocks = 2, .threads = 1, .residual = 1, .largest = 1, .pipelined = 1},
#ifndef CHECK_FEW
    {"7x2", 2 * L, 2 * L, 7, 7, 3, 1, 1, 1, .rows = 1, .pixels = {7}, .tiles = {1}, .blocks = 2,
     .threads = 2, .residual = 1},
    {"two rows a tile", 2 * L, 2 * L, 5, 3, 3, 1, 1, 1, .rows = 2, .pixels = {3, 3}, .tiles = {0, 1},
     .blocks = 2, .threads = 2, .residual = 1},
    {"runs, stride 2", 2 * L, 2 * L, 9, 9, 3, 2, 1, 1, .rows = 0, .pixels = {5, 5}, .tiles = {5},
     .blocks = 2, .threads = 2, .residual = 1, .outer = {CV_SIGMOID, 0, 0}},
#endif
};

/* cv_dot of every pair of extreme bytes, in every place. */
static void check_dots(void) {
  static const uint8_t a[] = {0, 1, 127, 128, 255};
  static const int8_t b[] = {-128, -127, -1, 0, 1, 127};
  uint8_t x[4 * CV_LANES];
  int8_t w[4 * CV_LANES];
  for (int turn = 0; turn < 200; turn++) {
    for (int k = 0; k < 4 * CV_LANES; k++) x[k] = a[random_int(5)], w[k] = b[random_int(6)];
    int8_t *packed = check_dot_weights(w, CV_LANES, CV_LANES);
    cv_int xs, ws, sum = cv_int_set1(turn - 100);
    memcpy(&xs, x, sizeof xs);
    for (int part = 0; part < CV_DOT_PARTS; part++) {
      memcpy(&ws, packed + part * (int)sizeof ws, sizeof ws);
      sum = cv_dot(sum, cv_dot_part(xs, part), ws);
    }
    free(packed);
    int32_t got[CV_LANES];
    memcpy(got, &sum, sizeof got);
    for (int lane = 0; lane < CV_LANES; lane++) {
      int expected = turn - 100;
      for (int k = 0; k < 4; k++) expected += x[4 * lane + k] * w[4 * lane + k];
      CHECK(got[lane] == expected, "dot: expected %d, got %d", expected, got[lane]);
    }
  }
  for (int k = 0; k < CV_LANES; k++) x[k] = a[k % 5];
  uint8_t copy[CV_LANES];
  cv_store_bytes(copy, cv_load_bytes(x));
  CHECK(memcmp(copy, x, CV_LANES) == 0, "bytes: loaded and stored they differ");
}

int main(void) {
  check_dots();
  for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) run(&trials[i]);
  return check_done();
}
