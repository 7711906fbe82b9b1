/* How close does the direct convolution come to the multiply-add peak of this machine?
 *
 *   bench_conv2d_direct [--quick | --sweep] [part of a layer's name]
 *
 * One thread, warm, on the distinct convolutions of ResNet-50 and VGG-19.  --sweep tries every tiling on
 * every layer; it wants a build with -DCONVOY_SWEEP=ON, as these tiles take the compiler half a minute.
 *
 * The clock follows the power a kernel takes, and what neighbours do: a convolution runs at a lower clock
 * than the peak's loop, which touches no memory, and the clock stays there for a short while.  So a sample
 * is a layer's time, after a millisecond of the same that lets the clock settle, and the best peak in the
 * tenth of one after it.
 *
 * A virtual machine stops a process several times a millisecond.  A run of a layer does not escape that,
 * the peak's loop is short enough to.  So a layer is timed in laps as short as that loop, and its time is
 * the sum of the laps' medians over all samples.
 */
#include "bench/measure.h"
#include "kernels/conv2d_direct.h"

typedef struct layer {
  const char *name;
  int in, size, out, kernel, stride;
} layer;

static const layer layers[] = {
    {"resnet conv1 7x7/2", 3, 224, 64, 7, 2},
    {"resnet 56 64-64 1x1", 64, 56, 64, 1, 1},
    {"resnet 56 64-64 3x3", 64, 56, 64, 3, 1},
    {"resnet 56 64-256 1x1", 64, 56, 256, 1, 1},
    {"resnet 56 256-64 1x1", 256, 56, 64, 1, 1},
    {"resnet 56 256-128 1x1/2", 256, 56, 128, 1, 2},
    {"resnet 56 256-512 1x1/2", 256, 56, 512, 1, 2},
    {"resnet 56 128-128 3x3/2", 128, 56, 128, 3, 2},
    {"resnet 28 128-128 3x3", 128, 28, 128, 3, 1},
    {"resnet 28 128-512 1x1", 128, 28, 512, 1, 1},
    {"resnet 28 512-128 1x1", 512, 28, 128, 1, 1},
    {"resnet 28 512-256 1x1/2", 512, 28, 256, 1, 2},
    {"resnet 28 512-1024 1x1/2", 512, 28, 1024, 1, 2},
    {"resnet 28 256-256 3x3/2", 256, 28, 256, 3, 2},
    {"resnet 14 256-256 3x3", 256, 14, 256, 3, 1},
    {"resnet 14 256-1024 1x1", 256, 14, 1024, 1, 1},
    {"resnet 14 1024-256 1x1", 1024, 14, 256, 1, 1},
    {"resnet 14 1024-512 1x1/2", 1024, 14, 512, 1, 2},
    {"resnet 14 1024-2048 1x1/2", 1024, 14, 2048, 1, 2},
    {"resnet 14 512-512 3x3/2", 512, 14, 512, 3, 2},
    {"resnet 7 512-512 3x3", 512, 7, 512, 3, 1},
    {"resnet 7 512-2048 1x1", 512, 7, 2048, 1, 1},
    {"resnet 7 2048-512 1x1", 2048, 7, 512, 1, 1},
    {"vgg 224 3-64 3x3", 3, 224, 64, 3, 1},
    {"vgg 224 64-64 3x3", 64, 224, 64, 3, 1},
    {"vgg 112 64-128 3x3", 64, 112, 128, 3, 1},
    {"vgg 112 128-128 3x3", 128, 112, 128, 3, 1},
    {"vgg 56 128-256 3x3", 128, 56, 256, 3, 1},
    {"vgg 56 256-256 3x3", 256, 56, 256, 3, 1},
    {"vgg 28 256-512 3x3", 256, 28, 512, 3, 1},
    {"vgg 28 512-512 3x3", 512, 28, 512, 3, 1},
    {"vgg 14 512-512 3x3", 512, 14, 512, 3, 1},
};

/* Every (pixels, blocks) that is compiled: for blocked and planar inputs, stride 1 and 2.  First those of
 * the layers' own tilings, then what --sweep tries beside them. */
/* clang-format off: it cannot lay out a macro list */
#if CV_LANES == 16
#ifdef SWEEP
#define MORE_TILES(X) \
  X(10, 2) X(9, 2) X(9, 3) X(8, 3) X(7, 3) X(7, 1) X(7, 4) X(6, 4) X(5, 4) X(4, 4) X(28, 1) X(16, 1)
#else
#define MORE_TILES(X)
#endif
#define TILES(X) X(14, 2) X(13, 2) X(12, 2) X(11, 2) X(8, 2) X(7, 2) MORE_TILES(X)
#else
#define TILES(X) \
  X(6, 2)        \
  X(5, 2) X(4, 2) X(3, 2) X(12, 1) X(8, 1) X(7, 1) X(4, 3) X(3, 3) X(2, 3) X(3, 4) X(2, 4) X(4, 1) X(3, 1)
#endif

/* clang-format on */

/* As bench_conv2d_bytes.c includes this file, of bytes. */
#ifdef OF_BYTES
#define CELL CV_BYTES
#define TILE CV_CONV2D_BYTES_TILE
#define PLANAR_3X3(name, P, B) CV_CONV2D_PLANAR_BYTES_TILE(name, P, B, 1, 3, 3, 1)
#define PLANAR_7X7(name, P, B) CV_CONV2D_PLANAR_BYTES_TILE(name, P, B, 2, 7, 7, 1)
#elif defined(OF_BF16) /* as bench_conv2d_bf16.c does, of bfloat16 */
#define CELL CV_BFLOATS
#define TILE CV_CONV2D_BF16_TILE
#define PLANAR_3X3(name, P, B) CV_CONV2D_PLANAR_TILE(name, P, B, 1, 3, 3, 3)
#define PLANAR_7X7(name, P, B) CV_CONV2D_TILE(name, 1, P, B, 1, 2, 0, 7)
#else
#define CELL CV_FLOATS
#define TILE(name, ROWS, P, B, STRIDE, H, W) \
  CV_CONV2D_TILE(name, ROWS, P, B, CV_LANES, STRIDE *CV_LANES, H, W)
#define PLANAR_3X3(name, P, B) CV_CONV2D_PLANAR_TILE(name, P, B, 1, 3, 3, 3)
#define PLANAR_7X7(name, P, B) CV_CONV2D_TILE(name, 1, P, B, 1, 2, 0, 7)
#endif
#define INNER (CV_LANES / CELL)
#define PARTS (CELL == CV_BYTES ? CV_DOT_PARTS : 1)

#define DEFINE(P, B)                          \
  TILE(blocked_1_##P##x##B, 1, P, B, 1, 0, 0) \
  TILE(blocked_2_##P##x##B, 1, P, B, 2, 0, 0) \
  TILE(point_1_##P##x##B, 1, P, B, 1, 1, 1)   \
  TILE(point_2_##P##x##B, 1, P, B, 2, 1, 1)   \
  PLANAR_3X3(planar_1_##P##x##B, P, B)        \
  PLANAR_7X7(planar_2_##P##x##B, P, B)
TILES(DEFINE)

/* Two rows a tile, for maps 7 pixels wide; with fewer lanes runs, for all of more than one row. */
#if CV_LANES == 16
TILE(pair_1, 2, 7, 2, 1, 0, 0)
TILE(pair_2, 2, 7, 2, 2, 0, 0)
TILE(pair_point_1, 2, 7, 2, 1, 1, 1)
TILE(pair_point_2, 2, 7, 2, 2, 1, 1)
#define PAIRS {2, 7, 2, {{pair_1, pair_2}, {pair_point_1, pair_point_2}}},
#define RUNS(X)
#else
#define PAIRS
#define RUNS(X) X(6, 2) X(5, 2) X(4, 2) X(4, 3) X(3, 3) X(3, 4) X(2, 4)
#endif
#define DEFINE_RUN(P, B)                        \
  TILE(run_1_##P##x##B, 0, P, B, 1, 0, 0)       \
  TILE(run_2_##P##x##B, 0, P, B, 2, 0, 0)       \
  TILE(run_point_1_##P##x##B, 0, P, B, 1, 1, 1) \
  TILE(run_point_2_##P##x##B, 0, P, B, 2, 1, 1)
RUNS(DEFINE_RUN)

/* Pipelined tiles, of a 1x1 kernel on bytes: this stands in the place of their rows. */
enum { IN_PIPELINE = 3 };
#if defined(OF_BYTES) && CV_LANES == 16
#define PIPELINED(X) X(8, 2) X(7, 2)
#else
#define PIPELINED(X)
#endif
#define DEFINE_PIPELINED(P, B)                                               \
  CV_CONV2D_PIPELINED_TILE(pipelined_1_##P##x##B, P, B, 1, 4, CV_ENDS_ALONE) \
  CV_CONV2D_PIPELINED_TILE(pipelined_2_##P##x##B, P, B, 2, 4, CV_ENDS_ALONE)
PIPELINED(DEFINE_PIPELINED)

enum { BLOCKED, POINT, PLANAR };

typedef struct tile_entry {
  int rows, pixels, blocks;
  cv_conv2d_tile tile[3][2]; /* [BLOCKED, POINT (1x1) or PLANAR (3x3, 7x7/2)][stride - 1] */
} tile_entry;

#define ENTRY(P, B)                             \
  {1,                                           \
   P,                                           \
   B,                                           \
   {{blocked_1_##P##x##B, blocked_2_##P##x##B}, \
    {point_1_##P##x##B, point_2_##P##x##B},     \
    {planar_1_##P##x##B, planar_2_##P##x##B}}},
#define RUN_ENTRY(P, B) \
  {0, P, B, {{run_1_##P##x##B, run_2_##P##x##B}, {run_point_1_##P##x##B, run_point_2_##P##x##B}}},
#define PIPELINED_ENTRY(P, B) \
  {IN_PIPELINE, P, B, {{NULL, NULL}, {pipelined_1_##P##x##B, pipelined_2_##P##x##B}}},
static const tile_entry tiles[] = {TILES(ENTRY) RUNS(RUN_ENTRY) PIPELINED(PIPELINED_ENTRY) PAIRS};
enum { TILE_COUNT = sizeof tiles / sizeof *tiles, LAYER_COUNT = sizeof layers / sizeof *layers };

static const tile_entry *find_tile(int rows, int pixels, int blocks) {
  for (int i = 0; i < TILE_COUNT; i++)
    if (tiles[i].rows == rows && tiles[i].pixels == pixels && tiles[i].blocks == blocks) return &tiles[i];
  return NULL;
}

/* A layer's maps, weights and convolution. */
typedef struct setup {
  cv_map x, y;
  float *weights, *bias, *scale;
  cv_conv2d conv;
  cv_conv2d_chunk *chunks;
  double flops;
} setup;

static setup make_setup(const layer *l) {
  setup s = {0};
  const int planar = l->in < CV_LANES, pad = l->kernel / 2, out = l->size / l->stride;
  const int flat = l->kernel == 1 && l->stride == 1;
  const int in = (l->in + CELL - 1) / CELL, of_y = l->out / CELL; /* cells of a pixel */
  s.x = flat ? make_map(in, 1, l->size * l->size, 0, INNER)
             : make_map(in, l->size, l->size, pad, planar ? 1 : INNER);
  s.y = flat ? make_map(of_y, 1, out * out, 0, INNER) : make_map(of_y, out, out, 0, INNER);
  s.y.channels = l->out;
  s.x.dtype = s.y.dtype = CELL == CV_BFLOATS ? CV_BFLOAT16 : CV_FLOAT32;
  const ptrdiff_t inputs = planar ? in : cv_blocks(l->in) * INNER;
  const ptrdiff_t count = inputs * l->kernel * l->kernel * cv_blocks(l->out) * CV_LANES * PARTS;
  s.weights = huge_floats(count + 4096);
  for (ptrdiff_t i = 0; i < count; i++) s.weights[i] = (float)(i % 7) * 0.01f;
  s.bias = huge_floats(cv_blocks(l->out) * CV_LANES);
  s.scale = huge_floats(cv_blocks(l->out) * CV_LANES);
  s.chunks = calloc((size_t)cv_blocks(l->out) * (size_t)cv_blocks(l->in), sizeof *s.chunks);
  const cv_conv2d conv = {.rows = 1,
                          .kernel_h = l->kernel,
                          .kernel_w = l->kernel,
                          .stride_h = l->stride,
                          .stride_w = l->stride,
                          .dilation_h = 1,
                          .dilation_w = 1,
                          .pad_top = pad,
                          .pad_left = pad,
                          .inner = INNER,
                          .chunks = s.chunks};
  s.conv = conv;
  s.flops = 2.0 * l->in * l->out * l->kernel * l->kernel * out * out;
  return s;
}

static void free_setup(setup *s) {
  free_map(s->x);
  free_map(s->y);
  free(s->weights);
  free(s->bias);
  free(s->scale);
  free(s->chunks);
}

/* How a layer is cut: tiles of at most `pixels` x `blocks` (`rows` = 2: all of two rows, 0: runs), chunks
 * of `in_cut` input blocks (channels of a planar x), groups of tiles_per_block tiles. */
typedef struct tiling {
  int rows, pixels, blocks, in_cut, tiles_per_block;
} tiling;

/* Applies a tiling; 0 if it does not fit the layer or a tile it needs is not compiled.
 * The tiles of a row differ by one pixel at most, chunks by one output block. */
static int tile_setup(setup *s, const layer *l, tiling t) {
  cv_conv2d *c = &s->conv;
  const int planar = l->in < CV_LANES, total = cv_blocks(l->out);
  const int kind = planar ? PLANAR : l->kernel == 1 ? POINT : BLOCKED;
  const int inner = planar ? 1 : INNER, in_count = planar ? (l->in + CELL - 1) / CELL : cv_blocks(l->in);
  const int width = t.rows ? s->y.width : s->y.height * s->y.width;
  if (t.pixels > width || t.blocks > total) return 0;
  const int a_row = (width + t.pixels - 1) / t.pixels;
  c->pixels[0] = (width + a_row - 1) / a_row;
  c->pixels[1] = c->pixels[0] - 1;
  c->tiles[0] = width - a_row * c->pixels[1];
  c->tiles[1] = a_row - c->tiles[0];
  c->pipelined = t.rows == IN_PIPELINE;
  if (c->pipelined && kind != POINT) return 0;
  c->rows = c->pipelined ? 1 : t.rows;
  if (t.rows == 2) {
    if (c->tiles[0] != 1) return 0;
    c->pixels[1] = c->pixels[0];
    c->tiles[0] = 0;
    c->tiles[1] = 1;
  }
  const int cuts = (total + t.blocks - 1) / t.blocks;
  const int full = total - cuts * (t.blocks - 1); /* cuts of t.blocks; the others have one fewer */
  if (full <= 0) return 0;
  c->blocks = t.blocks;
  c->tail_blocks = full < cuts ? t.blocks - 1 : 0;
  for (int k = 0; k < 1 + (c->tiles[1] != 0); k++) {
    for (int b = 0; b < 1 + (full < cuts); b++) {
      const tile_entry *e =
          find_tile(k && t.rows == 2 ? 1 : t.rows, c->pixels[k], b ? c->tail_blocks : c->blocks);
      if (!e) return 0;
      c->tile[k][b] = e->tile[kind][l->stride - 1];
    }
  }
  c->chunk_count = 0;
  const ptrdiff_t panel = (ptrdiff_t)l->kernel * l->kernel * inner * CV_LANES;
  for (int cut = 0, o = 0; cut < cuts; cut++) {
    const int blocks = cut < full ? t.blocks : t.blocks - 1;
    for (int i = 0; i < in_count; i += t.in_cut) {
      const int count = in_count - i < t.in_cut ? in_count - i : t.in_cut;
      const cv_conv2d_chunk chunk = {
          o, blocks, i, count, (o * in_count + i * blocks) * panel, i > 0, i + count < in_count, 0, 0};
      s->chunks[c->chunk_count++] = chunk;
    }
    o += blocks;
  }
  c->tiles_per_block = t.tiles_per_block;
  return 1;
}

static void run(const setup *s) {
  const cv_thread alone = {0, 1};
#ifdef OF_BYTES
  const cv_requantize r = {.scale = s->scale, .shift = s->scale, .low = 0.0f, .high = 255.0f, .plain = 1};
  const cv_epilogue e = {.bias = s->bias, .requantize = &r};
#else
  const cv_epilogue e = {.bias = s->bias, .outer = {CV_CLAMP, 0.0f, INFINITY}};
#endif
  cv_conv2d_direct(alone, &s->conv, s->x, s->weights, s->y, &e);
}

/* The part of the peak a layer reaches, and its FLOP/s. */
typedef struct speed {
  double part, flops;
} speed;

enum { MAX_SAMPLES = 25, MAX_LAPS = 1024 };

/* A stopwatch in the place of a layer's tiles: calls them, and ends a lap after every `lap_tiles`. */
static struct {
  cv_conv2d_tile tile[2][2];
  int lap_tiles, left, laps;
  double start, best[MAX_LAPS]; /* seconds */
} watch;

static __attribute__((noinline)) void end_lap(void) {
  const double now = wall_seconds();
  watch.best[watch.laps] = fmin(watch.best[watch.laps], now - watch.start);
  watch.laps++;
  watch.start = now;
  watch.left = watch.lap_tiles;
}

/* Pipelined tiles are computed in parts, each of one lap. */
static void watch_tiles(cv_conv2d_tile tile, const cv_conv2d_window *g, const float *x, const float *w,
                        const float *start, float *y, const float *residual) {
  cv_conv2d_window part = *g;
  for (int left = g->count > 1 ? g->count : 1; left > 0; left -= part.count) {
    if (watch.left == 0) end_lap();
    part.count = left < watch.left ? left : watch.left;
    watch.left -= part.count;
    tile(&part, x, w, start, y, residual);
    x += part.count * g->next_x;
    y += part.count * g->y_tile;
  }
}

#define WATCHED(KIND, TAIL)                                                                   \
  static void watched_##KIND##TAIL(const cv_conv2d_window *g, const float *x, const float *w, \
                                   const float *start, float *y, const float *residual) {     \
    watch_tiles(watch.tile[KIND][TAIL], g, x, w, start, y, residual);                         \
  }
WATCHED(0, 0)
WATCHED(0, 1)
WATCHED(1, 0)
WATCHED(1, 1)

/* Leaves in watch.best each lap's best of the runs within `length` seconds. */
static void time_laps(const setup *s, double length) {
  static const cv_conv2d_tile watched[2][2] = {{watched_00, watched_01}, {watched_10, watched_11}};
  const double lap_seconds = 30e-6, typical_rate = 10e9 * CV_LANES * CELL;
  const cv_conv2d *c = &s->conv;
  const int rows = c->rows ? (s->y.height + c->rows - 1) / c->rows : 1;
  const int tiles = c->chunk_count * rows * (c->tiles[0] + c->tiles[1]);
  const double laps = fmin(ceil(s->flops / typical_rate / lap_seconds), MAX_LAPS);
  watch.lap_tiles = (int)ceil(tiles / laps);
  setup timed = *s;
  memcpy(watch.tile, c->tile, sizeof watch.tile);
  memcpy(timed.conv.tile, watched, sizeof watched);
  for (int i = 0; i < MAX_LAPS; i++) watch.best[i] = INFINITY;
  const double begin = wall_seconds();
  do {
    watch.laps = 0;
    watch.left = watch.lap_tiles;
    watch.start = wall_seconds();
    run(&timed);
    end_lap();
  } while (watch.start - begin < length);
}

/* Sums of the laps' medians of `samples`. */
static speed measure(const setup *s, int samples, double length) {
  static double times[MAX_LAPS][MAX_SAMPLES], peaks[MAX_LAPS][MAX_SAMPLES]; /* FLOPs at the peak */
  for (int i = 0; i < samples; i++) {
    time_laps(s, length);
    time_laps(s, length);
    const double peak = CELL == CV_BYTES     ? measure_dots_peak(3)
                        : CELL == CV_BFLOATS ? measure_bf16_peak(3)
                                             : measure_peak(3);
    for (int lap = 0; lap < watch.laps; lap++) {
      times[lap][i] = watch.best[lap];
      peaks[lap][i] = watch.best[lap] * peak;
    }
  }
  double time = 0, at_peak = 0;
  for (int lap = 0; lap < watch.laps; lap++) {
    time += median(times[lap], samples);
    at_peak += median(peaks[lap], samples);
  }
  return (speed){s->flops / at_peak, s->flops / time};
}

/* The tiling the planner chooses for a core with 1 MB of L2: the largest tile; panels of at most an eighth
 * of L2; groups of tiles whose input fills half of it. */
static tiling default_tiling(const layer *l, const cv_map *y) {
  const int planar = l->in < CV_LANES;
#if CV_LANES == 16
  tiling t = {1, 14, 2, 0, 0};
  if (planar) t.pixels = (CV_REGISTERS - 1) / t.blocks - l->kernel;
  if (y->width == 7) t = (tiling){2, 7, 2, 0, 0};
  if (CELL == CV_BYTES && l->kernel == 1 && y->width > 7) t = (tiling){IN_PIPELINE, 8, 2, 0, 0};
#else
  tiling t = {planar || y->height == 1, 6, 2, 0, 0};
  if (PARTS > 1) t.pixels = 3, t.blocks = 4; /* bytes are put apart for each pixel */
#endif
  const int lanes = planar ? 1 : INNER, panel_bytes = 128 << 10;
  const int tap_bytes = lanes * CV_LANES * t.blocks * (int)sizeof(float);
  const int in_count = planar ? (l->in + CELL - 1) / CELL : cv_blocks(l->in);
  const int whole = (in_count * l->kernel * l->kernel * tap_bytes + panel_bytes - 1) / panel_bytes;
  const int pieces = CELL == CV_FLOATS ? whole : 1;
  const int half_l2 = 512 << 10;
  t.in_cut = (in_count + pieces - 1) / pieces;
  const int reach = l->kernel < l->stride ? l->kernel : l->stride; /* 1x1/2 reads every second row */
  const int tile_bytes =
      in_count * reach * l->stride * (t.rows == 2 ? 2 : 1) * t.pixels * lanes * (int)sizeof(float);
  t.tiles_per_block = half_l2 / tile_bytes > 1 ? half_l2 / tile_bytes : 1;
  return t;
}

/* Prints every tiling of a layer. */
static void sweep(setup *s, const layer *l) {
  for (int i = 0; i < TILE_COUNT; i++) {
    const int least = CELL == CV_FLOATS ? 4 : cv_blocks(l->in); /* others have no sums to add to */
    for (int in_cut = least; in_cut < 8 * l->in / CV_LANES; in_cut *= 2) {
      if (in_cut > l->in / CV_LANES && in_cut / 2 >= l->in / CV_LANES && in_cut > least) continue;
      for (int group = 1; group <= 64; group *= 4) {
        const tiling t = {tiles[i].rows, tiles[i].pixels, tiles[i].blocks, in_cut, group};
        if (tile_setup(s, l, t))
          printf("  %5.1f %% %2dx%d, %4d input blocks, %3d tiles\n", 100 * measure(s, 5, 1e-3).part,
                 t.pixels, t.blocks, in_cut, group);
      }
    }
  }
}

int main(int argc, char **argv) {
  int quick = 0, all = 0;
  const char *filter = "";
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--quick")) {
      quick = 1;
    } else if (!strcmp(argv[i], "--sweep")) {
      all = 1;
#ifndef SWEEP
      fprintf(stderr, "--sweep tries a few tilings only: build with cmake -DCONVOY_SWEEP=ON for all\n");
#endif
    } else {
      filter = argv[i];
    }
  }
  printf("%s, one thread\n", CV_ISA);
  for (int i = 0; i < LAYER_COUNT; i++) {
    const layer *l = &layers[i];
    if (!strstr(l->name, filter) || (CELL == CV_BFLOATS && l->in < CV_LANES)) continue;
    setup s = make_setup(l);
    const tiling t = default_tiling(l, &s.y);
    if (!tile_setup(&s, l, t)) {
      fprintf(stderr, "%s: tile %dx%d is not compiled\n", l->name, t.pixels, t.blocks);
      return 1;
    }
    const speed v = quick ? measure(&s, 1, 0.0) : measure(&s, MAX_SAMPLES, 1e-3);
    printf("%-28s %2dx%d, %4d input blocks, %4d tiles  %5.1f %% of the peak, %.1f GFLOP/s\n", l->name,
           t.pixels, t.blocks, t.in_cut, t.tiles_per_block, 100 * v.part, v.flops * 1e-9);
    fflush(stdout);
    if (all) sweep(&s, l);
    free_setup(&s);
  }
  return 0;
}
