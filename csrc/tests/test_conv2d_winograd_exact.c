/* cv_conv2d_winograd in integers against the definition of convolution: every form of a last tile, each
 * schedule, dilation, odd blocks, zero points at either end, residuals, and sums as large as may be. */
#include <pthread.h>

#include "kernels/conv2d_winograd.h"
#include "tests/check_bytes.h"

enum { OUT = 4, POINTS = 6, THREADS = 3 };
static pthread_barrier_t all_threads;

void convoy_barrier(cv_thread thread) {
  if (thread.count > 1) pthread_barrier_wait(&all_threads);
}

/* Forms of the last tile; of a dilation whole ones where the list has not all. */
/* clang-format off */
#define FORMS(X) \
  X(4, 4, 1, 1) X(2, 3, 1, 1) X(4, 4, 2, 3) CHECK_MORE(MORE_FORMS(X))
#define MORE_FORMS(X) \
  X(2, 2, 1, 1) X(2, 4, 1, 1) X(3, 2, 1, 1) X(3, 3, 1, 1) X(3, 4, 1, 1) X(4, 2, 1, 1) X(4, 3, 1, 1) \
  X(2, 3, 2, 3)
/* clang-format on */
#define NAME(HEIGHT, WIDTH, DILATION_H, DILATION_W) exact_##HEIGHT##x##WIDTH##_##DILATION_H##x##DILATION_W
#define DEFINE(HEIGHT, WIDTH, DILATION_H, DILATION_W)                                            \
  CV_WINOGRAD_EXACT(NAME(HEIGHT, WIDTH, DILATION_H, DILATION_W), OUT, HEIGHT, WIDTH, DILATION_H, \
                    DILATION_W, 0)
#define ENTRY(HEIGHT, WIDTH, DILATION_H, DILATION_W) \
  {HEIGHT, WIDTH, DILATION_H, DILATION_W, NAME(HEIGHT, WIDTH, DILATION_H, DILATION_W)},
FORMS(DEFINE)
static const struct {
  int height, width, dilation_h, dilation_w;
  cv_winograd_function run;
} forms[] = {FORMS(ENTRY)};

#define TILES(PIXELS)                                                    \
  CV_CONV2D_SHORTS_TILE(tile_##PIXELS##x1, 1, PIXELS, 1, CV_LANES, 1, 1) \
  CV_CONV2D_SHORTS_TILE(tile_##PIXELS##x2, 1, PIXELS, 2, CV_LANES, 1, 1) \
  CV_CONV2D_SHORTS_TILE(tile_##PIXELS##x3, 1, PIXELS, 3, CV_LANES, 1, 1)
TILES(1)
TILES(2)
TILES(3)
TILES(4)
static const cv_conv2d_tile tiles[5][4] = {{NULL},
                                           {NULL, tile_1x1, tile_1x2, tile_1x3},
                                           {NULL, tile_2x1, tile_2x2, tile_2x3},
                                           {NULL, tile_3x1, tile_3x2, tile_3x3},
                                           {NULL, tile_4x1, tile_4x2, tile_4x3}}; /* [pixels][blocks] */

/* Threads share portions, with slabs of U or one U; or chunks. */
typedef enum schedule { PORTIONS, RESIDENT, CHUNKS } schedule;

/* What becomes of sums: a byte; beside a residual; of what is a byte before; an activation. */
typedef enum ending { PLAIN, ADDED, HELD, ACTIVATED, ENDINGS } ending;

typedef struct shape {
  int in_channels, out_channels, height, width, pad, portions, pixels, blocks, slab;
  schedule schedule;
  int threads, dilation_h, dilation_w;
} shape;

typedef struct call {
  cv_thread thread;
  cv_winograd_function run;
  const cv_winograd_slabs *c;
  cv_map x, y;
  const float *w;
  const cv_epilogue *e;
  float *v, *u, *m;
} call;

static void *run_thread(void *argument) {
  const call *c = argument;
  c->run(c->thread, c->c, c->x, c->w, c->y, c->e, NULL, c->v, c->u, c->m);
  return NULL;
}

/* V, U and M of each thread, or V or U of all of them. */
static void run_threads(call c, int threads) {
  const int in_blocks = (cv_blocks(c.x.channels) + 1) / 2;
  const int shares_v = c.c->base.split_chunks, shares_u = c.c->resident;
  pthread_t handles[THREADS];
  call calls[THREADS];
  pthread_barrier_init(&all_threads, NULL, (unsigned)threads);
  for (int id = 0; id < threads; id++) {
    calls[id] = c;
    calls[id].thread = (cv_thread){id, threads};
    calls[id].v =
        id && shares_v ? calls[0].v : check_floats(cv_winograd_v_size(OUT, CV_LANES, c.c, in_blocks));
    calls[id].u = id && shares_u ? calls[0].u : check_floats(cv_winograd_u_size(OUT, CV_LANES, c.c));
    calls[id].m = check_floats(cv_winograd_m_size(OUT, c.c));
  }
  for (int id = 1; id < threads; id++) pthread_create(&handles[id], NULL, run_thread, &calls[id]);
  run_thread(&calls[0]);
  for (int id = 1; id < threads; id++) pthread_join(handles[id], NULL);
  pthread_barrier_destroy(&all_threads);
  for (int id = 0; id < threads; id++) {
    if (!id || !shares_v) free(calls[id].v);
    if (!id || !shares_u) free(calls[id].u);
    free(calls[id].m);
  }
}

/* Outputs of the largest phase, and how many of them are left for the last tile: at least 2. */
static int phase_of(int size, int dilation) { return (size + dilation - 1) / dilation; }
static int last_of(int size, int dilation) {
  const int rest = (phase_of(size, dilation) - 1) % OUT + 1;
  return rest < 2 ? 2 : rest;
}

static cv_winograd_function find_form(int height, int width, int dilation_h, int dilation_w) {
  cv_winograd_function whole = NULL;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (forms[i].dilation_h != dilation_h || forms[i].dilation_w != dilation_w) continue;
    if (forms[i].height == last_of(height, dilation_h) && forms[i].width == last_of(width, dilation_w))
      return forms[i].run;
    if (forms[i].height == OUT && forms[i].width == OUT) whole = forms[i].run;
  }
  return whole;
}

/* [pair of in blocks][3][3][cells][blocks][lanes][2], chunk after chunk. */
static int8_t *pack(const shape *s, const int8_t *dense) {
  const int pairs = (cv_blocks(s->in_channels) + 1) / 2, out_blocks = cv_blocks(s->out_channels);
  int8_t *packed = (int8_t *)check_bytes((ptrdiff_t)pairs * 2 * CV_LANES * 9 * out_blocks * CV_LANES, 0);
  int8_t *to = packed;
  for (int first = 0; first < out_blocks; first += s->blocks) {
    const int end = first + s->blocks < out_blocks ? first + s->blocks : out_blocks;
    for (int i = 0; i < pairs * 9 * CV_LANES; i++) {
      const int channel = (i / (9 * CV_LANES) * CV_LANES + i % CV_LANES) * 2, tap = i / CV_LANES % 9;
      for (int k = 0; k < (end - first) * CV_LANES * 2; k++, to++) {
        const int o = first * CV_LANES + k / 2, in = channel + k % 2;
        if (o < s->out_channels && in < s->in_channels)
          *to = dense[((ptrdiff_t)o * s->in_channels + in) * 9 + tap];
      }
    }
  }
  return packed;
}

static double clamp(double v, double low, double high) { return v < low ? low : v > high ? high : v; }

/* x_zero is also what the halo of x holds; extreme: bytes and weights are the least or the largest. */
static void run(shape s, ending end, int x_zero, int extreme) {
  const int dilation_h = s.dilation_h, dilation_w = s.dilation_w;
  const int out_height = s.height + 2 * s.pad - 2 * dilation_h;
  const int out_width = s.width + 2 * s.pad - 2 * dilation_w;
  const int out_blocks = cv_blocks(s.out_channels), pairs = (cv_blocks(s.in_channels) + 1) / 2;
  const int chunk_count = (out_blocks + s.blocks - 1) / s.blocks;
  cv_conv2d_tile table[5][2];
  cv_winograd_slabs conv = {.base = {.pad_top = s.pad,
                                     .pad_left = s.pad,
                                     .chunk_count = chunk_count,
                                     .blocks = s.blocks,
                                     .tail_blocks = out_blocks - (chunk_count - 1) * s.blocks,
                                     .tile_rows = phase_of(phase_of(out_height, dilation_h), OUT),
                                     .tile_columns = phase_of(phase_of(out_width, dilation_w), OUT),
                                     .portions = s.portions,
                                     .split_chunks = s.schedule == CHUNKS,
                                     .x_zero = x_zero},
                            .slab = s.schedule == RESIDENT ? pairs : s.slab,
                            .resident = s.schedule == RESIDENT,
                            .pixels = s.pixels,
                            .tile = table};
  const int whole = conv.base.tile_rows * conv.base.tile_columns * dilation_h * dilation_w;
  conv.base.room = (whole + s.portions - 1) / s.portions;
  for (int pixels = 1; pixels <= s.pixels; pixels++) {
    table[pixels][0] = tiles[pixels][s.blocks];
    table[pixels][1] = tiles[pixels][conv.base.tail_blocks];
  }
  const int rows = dilation_h * (OUT * conv.base.tile_rows + 2) - s.pad - s.height;
  const int columns = dilation_w * (OUT * conv.base.tile_columns + 2) - s.pad - s.width;
  const int halo = rows > columns ? rows : columns;
  cv_byte_map x = check_bytes_map(s.in_channels, s.height, s.width, halo > s.pad ? halo : s.pad, CV_LANES);
  cv_byte_map y = check_bytes_map(s.out_channels, out_height, out_width, 1, CV_LANES);
  cv_byte_map added = check_bytes_map(s.out_channels, out_height, out_width, 0, CV_LANES);
  check_bytes_map_fill(x, CV_LANES);
  check_bytes_map_fill(added, CV_LANES);
  cv_byte_map_fill_halo((cv_thread){0, 1}, x, CV_LANES, x_zero);
  const ptrdiff_t weights = (ptrdiff_t)s.out_channels * s.in_channels * 9;
  int8_t *dense = (int8_t *)check_bytes(weights, 0);
  for (ptrdiff_t i = 0; i < weights; i++) {
    dense[i] = (int8_t)check_byte();
    if (extreme) dense[i] = extreme == 1 || dense[i] < 0 ? -128 : 127;
  }
  for (int i = 0; extreme && i < s.in_channels * s.height * s.width; i++) {
    uint8_t *byte = check_byte_at(x, CV_LANES, i % s.in_channels, i / s.in_channels / s.width,
                                  i / s.in_channels % s.width);
    *byte = extreme == 1 || *byte > 127 ? 255 : 0;
  }
  int8_t *packed = pack(&s, dense);
  float *scale = check_floats(out_blocks * CV_LANES), *shift = check_floats(out_blocks * CV_LANES);
  const double spread = extreme == 1 ? 1.2e5 * s.in_channels : 2.2e4 * sqrt(s.in_channels);
  for (int o = 0; o < out_blocks * CV_LANES; o++) {
    scale[o] = (float)((1.5 + check_random()) * 60 / spread);
    shift[o] = extreme == 1 ? 90 : 30 * check_random();
  }
  const cv_activation none = {CV_IDENTITY, 0, 0}, leaky = {CV_LEAKY_RELU, 0.125f, 0};
  const int with_residual = end == ADDED || end == HELD;
  const cv_requantize r = {.scale = scale,
                           .shift = shift,
                           .low = -100,
                           .high = 140,
                           .zero = 105,
                           .residual_scale = with_residual ? 0.375f : 0,
                           .residual_shift = with_residual ? -0.375f * 120 : 0,
                           .inner = end == ACTIVATED ? leaky : none,
                           .outer = none,
                           .unit = 1,
                           .plain = end != ACTIVATED,
                           .held = end == HELD,
                           .held_low = -90,
                           .held_high = 80,
                           .held_unit = 0.75f};
  const cv_map residual = cv_map_of_cells(added);
  const cv_epilogue e = {.residual = with_residual ? &residual : NULL, .requantize = &r};
  call c = {.run = find_form(out_height, out_width, dilation_h, dilation_w),
            .c = &conv,
            .x = cv_map_of_cells(x),
            .y = cv_map_of_cells(y),
            .w = (const float *)(const void *)packed,
            .e = &e};
  run_threads(c, s.threads);

  const cv_scale bytes = {
      .scale = 1, .zero = r.zero, .low = (int)r.low + r.zero, .high = (int)r.high + r.zero};
  int wrong = 0, distinct[256] = {0}, kinds = 0;
  for (int o = 0; o < s.out_channels; o++) {
    for (int i = 0; i < out_height * out_width; i++) {
      const int row = i / out_width, column = i % out_width;
      int64_t sum = 0;
      for (int channel = 0; channel < s.in_channels; channel++) {
        for (int tap = 0; tap < 9; tap++) {
          const int at_row = row + tap / 3 * dilation_h - s.pad;
          const int at_column = column + tap % 3 * dilation_w - s.pad;
          if (at_row < 0 || at_row >= s.height || at_column < 0 || at_column >= s.width) continue;
          sum += dense[((ptrdiff_t)o * s.in_channels + channel) * 9 + tap] *
                 (*check_byte_at(x, CV_LANES, channel, at_row, at_column) - x_zero);
        }
      }
      double v = (double)sum * scale[o] + shift[o];
      if (end == ACTIVATED && v < 0) v *= 0.125;
      int least = 0, most = 0;
      if (end == HELD) { /* either neighbour of a tie */
        least = -1;
        most = 1;
      }
      const int got = *check_byte_at(y, CV_LANES, o, row, column);
      const int other = *check_byte_at(added, CV_LANES, o, row, column);
      int right = 0;
      for (int k = least; k <= most; k++) {
        double w = v;
        if (end == HELD) {
          const double held = clamp(v, r.held_low, r.held_high), near = nearbyint(held) + k;
          if (fabs(near - held) > 0.5 + 1e-4) continue;
          w = near * 0.75;
        }
        if (with_residual) w += 0.375 * (other - 120);
        right |= check_quantised(got, w, bytes);
      }
      wrong += !right;
      kinds += !distinct[got]++;
    }
  }
  CHECK(
      wrong == 0 && (kinds > 4 || out_height * out_width < 9),
      "%d -> %d channels, %dx%d, dilation %dx%d, ending %d, zero %d, extreme %d: %d bytes wrong, %d kinds",
      s.in_channels, s.out_channels, s.height, s.width, dilation_h, dilation_w, end, x_zero, extreme, wrong,
      kinds);
  check_bytes_free(x), check_bytes_free(y), check_bytes_free(added);
  free(dense), free(packed), free(scale), free(shift);
}

int main(void) {
  const shape shapes[] = {
      /* whole tiles; tiles over the edge; no padding; one tile; more threads than portions */
      {16, 16, 8, 8, 1, 1, 4, 1, 1, PORTIONS, 1, 1, 1},
      {19, 37, 7, 9, 1, 2, 3, 3, 1, PORTIONS, 2, 1, 1},
      {16, 48, 14, 11, 0, 2, 4, 2, 1, PORTIONS, 2, 1, 1},
      {33, 20, 5, 5, 1, 1, 4, 1, 2, PORTIONS, 3, 1, 1},
      /* U made once; chunks, slabs that leave a rest */
      {33, 48, 9, 11, 1, 3, 4, 2, 0, RESIDENT, 2, 1, 1},
      {8, 16, 6, 6, 1, 1, 3, 3, 0, RESIDENT, 3, 1, 1},
      {72, 50, 14, 14, 1, 3, 4, 2, 2, CHUNKS, 3, 1, 1},
      {1, 3, 7, 7, 2, 1, 4, 2, 1, CHUNKS, 2, 1, 1},
      /* last tiles lower, narrower, or both */
      {16, 20, 8, 11, 1, 2, 4, 2, 1, PORTIONS, 1, 1, 1},
      {20, 16, 10, 8, 1, 2, 3, 1, 1, CHUNKS, 2, 1, 1},
      {16, 33, 10, 10, 1, 1, 4, 2, 0, RESIDENT, 2, 1, 1},
      {16, 20, 7, 12, 1, 2, 4, 2, 1, PORTIONS, 2, 1, 1},
      {20, 16, 11, 9, 1, 1, 4, 1, 1, CHUNKS, 1, 1, 1},
      {16, 20, 7, 7, 1, 1, 4, 3, 0, RESIDENT, 1, 1, 1},
      {16, 16, 8, 10, 1, 3, 4, 1, 1, PORTIONS, 1, 1, 1},
      {16, 16, 6, 7, 1, 2, 4, 1, 1, CHUNKS, 1, 1, 1},
      /* phases that have a row or a column less than others, and last tiles that only some phases have */
      {33, 20, 13, 15, 2, 2, 4, 1, 1, PORTIONS, 2, 2, 3},
      {20, 40, 9, 9, 3, 1, 4, 2, 0, RESIDENT, 2, 2, 3},
      {16, 35, 14, 14, 2, 3, 3, 3, 1, CHUNKS, 3, 2, 3},
  };
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
    for (int end = 0; end < ENDINGS; end++)
      run(shapes[i], (ending)end, i % 3 == 0 ? 0 : i % 3 == 1 ? 255 : 117, 0);
  /* the largest sums that there may be, 9 * 114 * 128 * 255 < 2^25, and V and U that wrap their sums around
   */
  const shape large = {114, 20, 10, 11, 1, 2, 4, 2, 3, PORTIONS, 2, 1, 1};
  run(large, PLAIN, 0, 1);
  run(large, PLAIN, 0, 2);
  run(large, ADDED, 255, 2);
  run((shape){448, 16, 6, 6, 1, 1, 4, 2, 9, PORTIONS, 1, 1, 1}, PLAIN, 128, 2);
  return check_done();
}
