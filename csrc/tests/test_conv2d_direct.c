/* cv_conv2d_direct against the definition of convolution, in double precision. */
#include "kernels/conv2d_direct.h"
#include "tests/check_activation.h"

/* Every (pixels, blocks): for any kernel; with a blocked x for 1x1 ones, with a planar x for two widths.
 * Pairs are of two rows, runs go on in the next row. */
/* clang-format off: it cannot lay out a macro list */
#if CV_LANES == 16
#define WIDE_TILES(X) X(7, 4) X(6, 4) X(14, 2) X(7, 2)
#define WIDE_PAIRS(X) X(7, 2)
#else
#define WIDE_TILES(X)
#define WIDE_PAIRS(X)
#endif
#define BLOCKED_TILES(X) X(1, 1) X(1, 2) X(3, 1) X(3, 2) X(4, 3) X(3, 4) X(1, 4) X(4, 1) WIDE_TILES(X)
#define PAIRS(X) X(3, 1) X(3, 2) X(1, 2) WIDE_PAIRS(X)
#define RUNS(X) X(6, 2) X(5, 2) X(6, 1) X(5, 1)
#define PLANAR_TILES(X) X(12, 2) X(11, 2) X(4, 2) X(1, 2) X(4, 1) X(1, 1)
/* clang-format on */

#define DEFINE_BLOCKED(P, B)                                                \
  CV_CONV2D_TILE(blocked1_##P##x##B, 1, P, B, CV_LANES, CV_LANES, 0, 0)     \
  CV_CONV2D_TILE(blocked2_##P##x##B, 1, P, B, CV_LANES, 2 * CV_LANES, 0, 0) \
  CV_CONV2D_TILE(point1_##P##x##B, 1, P, B, CV_LANES, CV_LANES, 1, 1)       \
  CV_CONV2D_TILE(point2_##P##x##B, 1, P, B, CV_LANES, 2 * CV_LANES, 1, 1)
#define DEFINE_PLANAR(P, B)                               \
  CV_CONV2D_TILE(planar1_##P##x##B, 1, P, B, 1, 1, 0, 0)  \
  CV_CONV2D_TILE(planar2_##P##x##B, 1, P, B, 1, 2, 0, 0)  \
  CV_CONV2D_TILE(three1_##P##x##B, 1, P, B, 1, 1, 0, 3)   \
  CV_CONV2D_TILE(seven2_##P##x##B, 1, P, B, 1, 2, 0, 7)   \
  CV_CONV2D_PLANAR_TILE(rgb1_##P##x##B, P, B, 1, 3, 3, 3) \
  CV_CONV2D_PLANAR_TILE(rgb2_##P##x##B, P, B, 2, 3, 3, 3)
#define DEFINE_PAIR(P, B)                                                  \
  CV_CONV2D_TILE(pair1_##P##x##B, 2, P, B, CV_LANES, CV_LANES, 0, 0)       \
  CV_CONV2D_TILE(pair2_##P##x##B, 2, P, B, CV_LANES, 2 * CV_LANES, 0, 0)   \
  CV_CONV2D_TILE(pair_point1_##P##x##B, 2, P, B, CV_LANES, CV_LANES, 1, 1) \
  CV_CONV2D_TILE(pair_point2_##P##x##B, 2, P, B, CV_LANES, 2 * CV_LANES, 1, 1)
#define DEFINE_RUN(P, B)                                                  \
  CV_CONV2D_TILE(run1_##P##x##B, 0, P, B, CV_LANES, CV_LANES, 0, 0)       \
  CV_CONV2D_TILE(run2_##P##x##B, 0, P, B, CV_LANES, 2 * CV_LANES, 0, 0)   \
  CV_CONV2D_TILE(run_point1_##P##x##B, 0, P, B, CV_LANES, CV_LANES, 1, 1) \
  CV_CONV2D_TILE(run_point2_##P##x##B, 0, P, B, CV_LANES, 2 * CV_LANES, 1, 1)
BLOCKED_TILES(DEFINE_BLOCKED)
PLANAR_TILES(DEFINE_PLANAR)
PAIRS(DEFINE_PAIR)
RUNS(DEFINE_RUN)

typedef struct entry {
  int rows, pixels, blocks, planar, stride;
  int kernel;   /* columns it knows, or 0 */
  int channels; /* it knows, or 0 */
  cv_conv2d_tile tile;
} entry;

#define ENTRY_BLOCKED(P, B)                                                             \
  {1, P, B, 0, 1, 0, 0, blocked1_##P##x##B}, {1, P, B, 0, 2, 0, 0, blocked2_##P##x##B}, \
      {1, P, B, 0, 1, 1, 0, point1_##P##x##B}, {1, P, B, 0, 2, 1, 0, point2_##P##x##B},
#define ENTRY_PLANAR(P, B)                                                              \
  {1, P, B, 1, 1, 0, 0, planar1_##P##x##B}, {1, P, B, 1, 2, 0, 0, planar2_##P##x##B},   \
      {1, P, B, 1, 1, 3, 0, three1_##P##x##B}, {1, P, B, 1, 2, 7, 0, seven2_##P##x##B}, \
      {1, P, B, 1, 1, 3, 3, rgb1_##P##x##B}, {1, P, B, 1, 2, 3, 3, rgb2_##P##x##B},
#define ENTRY_PAIR(P, B)                                                          \
  {2, P, B, 0, 1, 0, 0, pair1_##P##x##B}, {2, P, B, 0, 2, 0, 0, pair2_##P##x##B}, \
      {2, P, B, 0, 1, 1, 0, pair_point1_##P##x##B}, {2, P, B, 0, 2, 1, 0, pair_point2_##P##x##B},
#define ENTRY_RUN(P, B)                                                         \
  {0, P, B, 0, 1, 0, 0, run1_##P##x##B}, {0, P, B, 0, 2, 0, 0, run2_##P##x##B}, \
      {0, P, B, 0, 1, 1, 0, run_point1_##P##x##B}, {0, P, B, 0, 2, 1, 0, run_point2_##P##x##B},
static const entry entries[] = {BLOCKED_TILES(ENTRY_BLOCKED) PLANAR_TILES(ENTRY_PLANAR) PAIRS(ENTRY_PAIR)
                                    RUNS(ENTRY_RUN)};

static cv_conv2d_tile find_tile(int rows, int pixels, int blocks, int planar, int stride, int kernel,
                                int channels) {
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    const entry *e = &entries[i];
    if (e->rows == rows && e->pixels == pixels && e->blocks == blocks && e->planar == planar &&
        e->stride == stride && e->kernel == kernel && e->channels == channels)
      return e->tile;
  }
  return NULL;
}

typedef struct trial {
  const char *name;
  int in, out, height, width; /* of x */
  int kernel_h, kernel_w, stride, dilation;
  int pad_top, pad_left, pad_bottom, pad_right;
  int groups; /* 0: one */
  int planar;
  int two_rows;     /* a tile, which is `pixels` wide */
  int runs;         /* the map is one row for what follows */
  int pixels, rest; /* the row is cut into tiles of `pixels`, then of `rest` pixels */
  int blocks, tail; /* the output blocks of a group into chunks of `blocks`, then one of `tail` */
  int in_cut;       /* input blocks a chunk takes, 0: all */
  int tiles_per_block, threads, split_chunks;
  int y_step; /* in pixels */
  int y_halo;
  int residual; /* 1: a map of its own, 2: y itself */
  cv_activation inner, outer;
} trial;

/* Element (c, y, x) of a map; 0 in the halo and past the channels. */
static float *at(const cv_map *m, int planar, int c, int y, int x) {
  const int lanes = planar ? 1 : CV_LANES;
  return m->data + (c / lanes) * m->plane + y * m->row + x * m->step + c % lanes;
}

/* A map of NaN whose image is random and, if `clear`, whose halo and spare lanes are zero. */
static cv_map random_map(int channels, int height, int width, const int halo[4], int planar, int step,
                         int clear) {
  const int lanes = planar ? 1 : CV_LANES, blocks = (channels + lanes - 1) / lanes;
  cv_map m = {NULL,    channels, height,  width,   0,         0, (ptrdiff_t)step * lanes,
              halo[0], halo[1],  halo[2], halo[3], CV_FLOAT32};
  m.row = (ptrdiff_t)(halo[1] + width * step + halo[3]) * lanes;
  m.plane = (halo[0] + height + halo[2]) * m.row + 16;
  float *p = check_floats(blocks * m.plane + 64);
  if (clear)
    for (ptrdiff_t i = 0; i < blocks * m.plane; i++) p[i] = 0;
  m.data = p + halo[0] * m.row + halo[1] * lanes;
  for (int c = 0; clear && c < channels; c++)
    for (int y = 0; y < height; y++)
      for (int x = 0; x < width; x++) *at(&m, planar, c, y, x) = check_random();
  return m;
}

static void free_map(cv_map m, int lanes) { free(m.data - m.top * m.row - m.left * lanes); }

/* By the tiles that know kernels of `kernel` columns and x of `channels`, or by those for any: 0. */
static void run(const trial *t, int kernel, int channels) {
  const int groups = t->groups ? t->groups : 1;
  const int dh = t->dilation * (t->kernel_h - 1) + 1, dw = t->dilation * (t->kernel_w - 1) + 1;
  const int height = (t->height + t->pad_top + t->pad_bottom - dh) / t->stride + 1;
  const int width = (t->width + t->pad_left + t->pad_right - dw) / t->stride + 1;
  const int in_group = t->in / groups, out_group = t->out / groups;
  const int inner = t->planar ? 1 : CV_LANES;
  const int in_blocks = t->planar ? in_group : cv_blocks(in_group), out_blocks = cv_blocks(out_group);
  const int taps = t->kernel_h * t->kernel_w;

  const int x_halo[4] = {t->pad_top, t->pad_left, t->pad_bottom, t->pad_right};
  const int step = t->y_step ? t->y_step : 1;
  const int y_halo[4] = {t->y_halo, t->y_halo, t->y_halo, t->y_halo};
  cv_map x = random_map(t->in, t->height, t->width, x_halo, t->planar, 1, 1);
  cv_map y = random_map(t->out, height, width, y_halo, 0, step, 0);
  cv_map residual = random_map(t->out, height, width, y_halo, 0, 1, 1);
  if (t->residual == 2) {
    free_map(y, CV_LANES);
    y = random_map(t->out, height, width, y_halo, 0, step, 1);
    for (int c = 0; c < t->out; c++)
      for (int v = 0; v < height; v++)
        for (int u = 0; u < width; u++) *at(&residual, 0, c, v, u) = *at(&y, 0, c, v, u);
  }
  float *weights = check_floats((ptrdiff_t)t->out * in_group * taps);
  check_fill(weights, (ptrdiff_t)t->out * in_group * taps);
  float *bias = check_floats(groups * out_blocks * CV_LANES);
  for (int o = 0; o < groups * out_blocks * CV_LANES; o++) bias[o] = o < t->out ? check_random() : 0.0f;

  /* Cut into chunks, and pack the panel of each. */
  cv_conv2d_chunk chunks[256];
  int chunk_count = 0;
  ptrdiff_t at_float = 0;
  float *packed =
      check_floats((ptrdiff_t)groups * out_blocks * CV_LANES * (in_blocks * inner) * taps + 4096);
  const int cut = t->in_cut ? t->in_cut : in_blocks;
  for (int g = 0; g < groups; g++) {
    for (int o = 0; o < out_blocks; o += t->blocks) {
      for (int i = 0; i < in_blocks; i += cut) {
        const int blocks = out_blocks - o < t->blocks ? out_blocks - o : t->blocks;
        const int count = in_blocks - i < cut ? in_blocks - i : cut;
        const cv_conv2d_chunk chunk = {g * out_blocks + o,
                                       blocks,
                                       g * in_blocks + i,
                                       count,
                                       at_float,
                                       i > 0,
                                       i + count < in_blocks,
                                       0,
                                       0};
        chunks[chunk_count++] = chunk;
        for (int ib = 0; ib < count; ib++)
          for (int tap = 0; tap < taps; tap++)
            for (int c = 0; c < inner; c++)
              for (int lane = 0; lane < blocks * CV_LANES; lane++, at_float++) {
                const int channel = (i + ib) * inner + c, output = o * CV_LANES + lane;
                const int inside = channel < in_group && output < out_group;
                packed[at_float] =
                    inside
                        ? weights[((ptrdiff_t)(g * out_group + output) * in_group + channel) * taps + tap]
                        : 0.0f;
              }
      }
    }
  }

  const int rows = t->runs ? 0 : 1 + t->two_rows, rest = rows == 2 ? t->pixels : t->rest;
  const int row = t->runs ? height * width : width;
  int tiles[2] = {row / t->pixels, 0};
  if (rest && rows != 2) { /* as few as there can be */
    while ((row - tiles[0] * t->pixels) % rest) tiles[0]--;
    tiles[1] = (row - tiles[0] * t->pixels) / rest;
  }
  if (rows == 2) tiles[0] = 0, tiles[1] = 1;
  const cv_conv2d conv = {
      .kernel_h = t->kernel_h,
      .kernel_w = t->kernel_w,
      .stride_h = t->stride,
      .stride_w = t->stride,
      .dilation_h = t->dilation,
      .dilation_w = t->dilation,
      .pad_top = t->pad_top,
      .pad_left = t->pad_left,
      .chunks = chunks,
      .chunk_count = chunk_count,
      .split_chunks = t->split_chunks,
      .rows = rows,
      .pixels = {t->pixels, rest},
      .tiles = {tiles[0], tiles[1]},
      .tiles_per_block = t->tiles_per_block,
      .tile = {{find_tile(rows, t->pixels, t->blocks, t->planar, t->stride, kernel, channels),
                find_tile(rows, t->pixels, t->tail, t->planar, t->stride, kernel, channels)},
               {find_tile(rows == 0 ? 0 : 1, rest, t->blocks, t->planar, t->stride, kernel, channels),
                find_tile(rows == 0 ? 0 : 1, rest, t->tail, t->planar, t->stride, kernel, channels)}},
      .blocks = t->blocks,
      .tail_blocks = t->tail};
  CHECK(conv.tiles[0] * conv.pixels[0] + conv.tiles[1] * conv.pixels[1] == row, "%s: tiles", t->name);
  const cv_map *added = t->residual == 2 ? &y : t->residual ? &residual : NULL;
  const cv_epilogue epilogue = {.bias = bias, .inner = t->inner, .residual = added, .outer = t->outer};
  for (int id = 0; id < t->threads; id++) {
    const cv_thread thread = {id, t->threads};
    cv_conv2d_direct(thread, &conv, x, packed, y, &epilogue);
  }

  for (int o = 0; o < t->out; o++)
    for (int v = 0; v < height; v++)
      for (int u = 0; u < width; u++) {
        double sum = bias[o], scale = fabs(sum);
        for (int i = 0; i < in_group; i++)
          for (int r = 0; r < t->kernel_h; r++)
            for (int s = 0; s < t->kernel_w; s++) {
              const int row = v * t->stride + r * t->dilation - t->pad_top;
              const int column = u * t->stride + s * t->dilation - t->pad_left;
              if (row < 0 || row >= t->height || column < 0 || column >= t->width) continue;
              const double product = (double)*at(&x, t->planar, o / out_group * in_group + i, row, column) *
                                     weights[((ptrdiff_t)o * in_group + i) * taps + r * t->kernel_w + s];
              sum += product;
              scale += fabs(product);
            }
        sum = check_activate(sum, t->inner);
        if (t->residual) sum += *at(&residual, 0, o, v, u);
        sum = check_activate(sum, t->outer);
        const float got = *at(&y, 0, o, v, u);
        CHECK(check_near(got, sum, scale + 1, 1e-6), "%s: y[%d][%d][%d]: expected %g, got %g", t->name, o,
              v, u, sum, got);
      }
  for (int o = t->out; o < cv_blocks(t->out) * CV_LANES; o++)
    for (int v = 0; v < height; v++)
      for (int u = 0; u < width; u++)
        CHECK(*at(&y, 0, o, v, u) == 0.0f, "%s: spare lane %d at %d,%d: expected 0, got %g", t->name, o, v,
              u, *at(&y, 0, o, v, u));
  for (int b = 0; b < cv_blocks(t->out) && step == 1; b++)
    for (int v = -t->y_halo; v < height + t->y_halo; v++)
      for (int u = -t->y_halo; u < width + t->y_halo; u++)
        for (int lane = 0; lane < CV_LANES; lane++) {
          if (v >= 0 && v < height && u >= 0 && u < width) continue;
          const float got = *at(&y, 0, b * CV_LANES + lane, v, u);
          CHECK(got == 0.0f, "%s: halo at %d,%d: expected 0, got %g", t->name, v, u, got);
        }
  for (int v = 0; v < height && step > 1; v++)
    for (int u = 0; u + 1 < width * step; u++)
      if (u % step)
        CHECK(isnan(y.data[v * y.row + u * CV_LANES]), "%s: wrote between its pixels, at %d,%d", t->name, v,
              u);

  free_map(x, t->planar ? 1 : CV_LANES);
  free_map(y, CV_LANES);
  free_map(residual, CV_LANES);
  free(weights);
  free(bias);
  free(packed);
}

#define RELU {CV_CLAMP, 0.0f, INFINITY}
#define RELU6 {CV_CLAMP, 0.0f, 6.0f}
#define L CV_LANES
#define IMAGE(i, o, h, w) .in = i, .out = o, .height = h, .width = w
#define WINDOW(h, w, s, d) .kernel_h = h, .kernel_w = w, .stride = s, .dilation = d
#define PAD(t, l, b, r) .pad_top = t, .pad_left = l, .pad_bottom = b, .pad_right = r
#define TILES(p, r, b, t) .pixels = p, .rest = r, .blocks = b, .tail = t
#define SHARE(t, n, s) .tiles_per_block = t, .threads = n, .split_chunks = s

static const trial trials[] = {
    {.name = "two rows a tile, an odd last one, residual",
     IMAGE(2 * L, 3 * L, 5, 3),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     TILES(3, 0, 2, 1),
     SHARE(2, 2, 0),
     .two_rows = 1,
     .y_halo = 1,
     .residual = 1,
     .outer = {CV_SIGMOID, 0.0f, 0.0f}},
    {.name = "two rows a tile, stride 2, cut along the input",
     IMAGE(4 * L, 2 * L + 3, 8, 6),
     WINDOW(3, 3, 2, 1),
     PAD(1, 1, 1, 1),
     TILES(3, 0, 2, 1),
     SHARE(1, 2, 1),
     .two_rows = 1,
     .in_cut = 1,
     .outer = RELU},
    {.name = "two rows a tile, 1x1, stride 2",
     IMAGE(3 * L, 2 * L, 7, 6),
     WINDOW(1, 1, 2, 1),
     TILES(3, 0, 2, 0),
     SHARE(8, 1, 0),
     .two_rows = 1,
     .y_halo = 1},
#if CV_LANES == 16
    {.name = "two rows of 7 pixels",
     IMAGE(2 * L, 4 * L, 7, 7),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     TILES(7, 0, 2, 0),
     SHARE(3, 2, 0),
     .two_rows = 1,
     .y_halo = 1,
     .outer = RELU},
#endif
    {.name = "runs, 3x3, residual, y with a halo",
     IMAGE(2 * L, 3 * L, 7, 7),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     TILES(6, 5, 2, 1),
     SHARE(4, 2, 0),
     .runs = 1,
     .y_halo = 1,
     .residual = 1,
     .outer = RELU},
    {.name = "runs, channels that fill no block, sigmoid, then residual",
     IMAGE(L + 3, 2 * L - 3, 5, 9),
     WINDOW(3, 2, 1, 2),
     PAD(2, 0, 2, 2),
     TILES(6, 5, 2, 0),
     SHARE(3, 3, 0),
     .runs = 1,
     .y_halo = 1,
     .residual = 1,
     .inner = {CV_SIGMOID, 0.0f, 0.0f},
     .outer = RELU6},
    {.name = "more runs than are finished together, silu, then residual",
     IMAGE(2 * L, 3 * L, 11, 13),
     WINDOW(1, 1, 1, 1),
     TILES(6, 5, 2, 1),
     SHARE(100, 1, 0),
     .runs = 1,
     .y_halo = 1,
     .residual = 1,
     .inner = {CV_SILU, 0.0f, 0.0f}},
    {.name = "more rows than are finished together, strided, silu, then residual",
     IMAGE(2 * L, 3 * L - 2, 19, 13),
     WINDOW(1, 1, 2, 1),
     TILES(3, 1, 2, 1),
     SHARE(100, 1, 0),
     .y_halo = 1,
     .residual = 1,
     .inner = {CV_SILU, 0.0f, 0.0f},
     .outer = {CV_SILU, 0.0f, 0.0f}},
    {.name = "more pairs of rows than are finished together, silu",
     IMAGE(2 * L, 2 * L, 35, 3),
     WINDOW(1, 1, 1, 1),
     TILES(3, 0, 2, 0),
     SHARE(100, 1, 0),
     .two_rows = 1,
     .inner = {CV_SILU, 0.0f, 0.0f}},
    {.name = "runs longer than a row, cut along the input",
     IMAGE(4 * L, 3 * L, 8, 2),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     TILES(6, 5, 2, 1),
     SHARE(1, 2, 1),
     .runs = 1,
     .in_cut = 1,
     .y_halo = 2,
     .outer = RELU},
    {.name = "runs, 1x1, stride 2, residual added in place",
     IMAGE(3 * L, 2 * L, 9, 13),
     WINDOW(1, 1, 2, 1),
     TILES(6, 5, 2, 0),
     SHARE(2, 2, 0),
     .runs = 1,
     .residual = 2},
    {.name = "runs, 3x3, stride 2",
     IMAGE(2 * L, 2 * L, 14, 14),
     WINDOW(3, 3, 2, 1),
     PAD(1, 1, 0, 0),
     TILES(6, 5, 1, 0),
     SHARE(5, 1, 0),
     .runs = 1,
     .y_halo = 1},
    {.name = "runs, 1x1, x and y with halos",
     IMAGE(2 * L, 2 * L, 5, 5),
     WINDOW(1, 1, 1, 1),
     TILES(5, 0, 2, 0),
     SHARE(5, 1, 0),
     .runs = 1,
     .y_halo = 1,
     .outer = RELU},
    {.name = "runs, a phase of a transposed convolution",
     IMAGE(L, 2 * L, 5, 4),
     WINDOW(2, 2, 1, 1),
     PAD(1, 0, 0, 1),
     TILES(5, 0, 2, 0),
     SHARE(2, 1, 0),
     .runs = 1,
     .y_step = 2,
     .outer = RELU},
    {.name = "1x1 as one row",
     IMAGE(2 * L, 2 * L, 1, 35),
     WINDOW(1, 1, 1, 1),
     TILES(3, 1, 2, 0),
     SHARE(3, 1, 0)},
    {.name = "3x3, padding 1, relu, y with a halo",
     IMAGE(2 * L, 3 * L, 7, 9),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     TILES(3, 0, 2, 1),
     SHARE(4, 2, 0),
     .y_halo = 2,
     .outer = RELU},
    {.name = "channels that fill no block, relu6",
     IMAGE(L + 3, 2 * L + 5, 5, 7),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     TILES(3, 1, 2, 1),
     SHARE(100, 3, 1),
     .y_halo = 1,
     .inner = RELU6},
    {.name = "fewer channels than a block, sigmoid",
     IMAGE(3, 3, 4, 4),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     TILES(3, 1, 1, 0),
     SHARE(1, 1, 0),
     .outer = {CV_SIGMOID, 0, 0}},
    {.name = "stride 2, asymmetric padding, residual, relu",
     IMAGE(L, 2 * L, 9, 12),
     WINDOW(3, 3, 2, 1),
     PAD(0, 1, 2, 0),
     TILES(3, 1, 2, 0),
     SHARE(2, 2, 0),
     .residual = 1,
     .outer = RELU},
    {.name = "stride 2, 1x1, residual added in place",
     IMAGE(2 * L, L, 8, 8),
     WINDOW(1, 1, 2, 1),
     TILES(4, 0, 1, 0),
     SHARE(2, 2, 0),
     .residual = 2},
    {.name = "dilation 2, 3x2 kernel",
     IMAGE(L, 4 * L, 8, 9),
     WINDOW(3, 2, 1, 2),
     PAD(2, 0, 1, 2),
     TILES(3, 0, 4, 0),
     SHARE(5, 2, 0)},
    {.name = "four groups",
     IMAGE(4 * L, 8 * L, 6, 6),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     .groups = 4,
     TILES(3, 0, 2, 0),
     SHARE(6, 2, 1)},
    {.name = "panels cut along the input, residual, relu",
     IMAGE(5 * L, 3 * L, 5, 7),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     TILES(3, 1, 2, 1),
     SHARE(4, 3, 1),
     .in_cut = 2,
     .residual = 1,
     .outer = RELU},
    {.name = "panels cut along the input, leaky relu, then residual, then clip",
     IMAGE(3 * L, 2 * L - 1, 5, 4),
     WINDOW(1, 1, 1, 1),
     TILES(4, 0, 1, 0),
     SHARE(3, 2, 0),
     .in_cut = 1,
     .residual = 1,
     .inner = {CV_LEAKY_RELU, 0.1f, 0},
     .outer = {CV_CLAMP, -0.5f, 0.75f}},
    {.name = "clip that leaves no zero",
     IMAGE(L, L + 1, 3, 4),
     WINDOW(1, 1, 1, 1),
     TILES(4, 0, 1, 0),
     SHARE(3, 1, 0),
     .outer = {CV_CLAMP, 0.5f, 0.75f}},
    {.name = "a phase of a transposed convolution: every second pixel of y",
     IMAGE(L, 2 * L, 5, 6),
     WINDOW(2, 2, 1, 1),
     PAD(1, 0, 0, 1),
     TILES(3, 0, 2, 0),
     SHARE(2, 1, 0),
     .y_step = 2,
     .outer = RELU},
    {.name = "planar 7x7, stride 2",
     IMAGE(3, 2 * L, 16, 17),
     WINDOW(7, 7, 2, 1),
     PAD(3, 3, 3, 3),
     .planar = 1,
     TILES(4, 1, 2, 0),
     SHARE(7, 2, 0),
     .outer = RELU},
    {.name = "planar 3x3, stride 1, odd channels",
     IMAGE(5, 2 * L + 1, 6, 9),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     .planar = 1,
     TILES(4, 1, 2, 1),
     SHARE(7, 2, 0),
     .y_halo = 1},
    {.name = "planar 3x3 of 3 channels, y with a halo, spare lanes",
     IMAGE(3, 2 * L + 1, 6, 9),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     .planar = 1,
     TILES(4, 1, 2, 1),
     SHARE(7, 2, 0),
     .y_halo = 1,
     .outer = {CV_CLAMP, -0.25f, INFINITY}},
    {.name = "planar 3x3 of 3 channels, 12x2 and 11x2",
     IMAGE(3, 4 * L, 5, 35),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     .planar = 1,
     TILES(12, 11, 2, 0),
     SHARE(4, 2, 0),
     .y_halo = 1,
     .outer = RELU},
    {.name = "planar 3x3 of 3 channels, no activation",
     IMAGE(3, 2 * L, 4, 12),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     .planar = 1,
     TILES(12, 0, 2, 0),
     SHARE(4, 1, 0)},
    {.name = "planar 3x3 of 3 channels, stride 2, residual, relu6",
     IMAGE(3, 2 * L, 8, 46),
     WINDOW(3, 3, 2, 1),
     PAD(1, 1, 1, 1),
     .planar = 1,
     TILES(12, 11, 2, 0),
     SHARE(9, 3, 0),
     .residual = 1,
     .outer = RELU6},
    {.name = "planar 3x3 of 3 channels, every second pixel of y",
     IMAGE(3, 2 * L, 4, 12),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     .planar = 1,
     TILES(12, 0, 2, 0),
     SHARE(4, 1, 0),
     .y_step = 2,
     .outer = RELU},
    {.name = "planar 3x3, cut along the input every 3 channels",
     IMAGE(6, 2 * L, 4, 13),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     .planar = 1,
     TILES(12, 1, 2, 0),
     SHARE(2, 1, 0),
     .in_cut = 3,
     .outer = RELU},
    {.name = "planar 3x3, dilated",
     IMAGE(3, 2 * L, 6, 9),
     WINDOW(3, 3, 1, 2),
     PAD(2, 2, 2, 2),
     .planar = 1,
     TILES(4, 1, 2, 0),
     SHARE(7, 2, 0),
     .outer = RELU},
#if CV_LANES == 16
    {.name = "7x4: one weight stays in memory",
     IMAGE(64, 64, 7, 7),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     TILES(7, 0, 4, 0),
     SHARE(7, 2, 0),
     .residual = 1,
     .outer = RELU},
    {.name = "14x2, stride 2",
     IMAGE(32, 64, 28, 28),
     WINDOW(1, 1, 2, 1),
     TILES(14, 0, 2, 0),
     SHARE(5, 2, 0)},
    {.name = "6x4 and 1x4",
     IMAGE(48, 64, 7, 7),
     WINDOW(3, 3, 1, 1),
     PAD(1, 1, 1, 1),
     TILES(6, 1, 4, 0),
     SHARE(7, 2, 0),
     .outer = RELU},
#endif
};

int main(void) {
  for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
    const trial *t = &trials[i];
    const int by_columns = t->planar && t->dilation == 1 && t->kernel_w == (t->stride == 1 ? 3 : 7);
    const int by_channels = t->planar && t->dilation == 1 && t->kernel_h == 3 && t->kernel_w == 3 &&
                            (t->in_cut ? t->in_cut : t->in) == 3;
    run(t, 0, 0);
    if (by_columns || (t->kernel_h == 1 && t->kernel_w == 1)) run(t, t->kernel_w, 0);
    if (by_channels) run(t, t->kernel_w, 3);
  }
  return check_done();
}
