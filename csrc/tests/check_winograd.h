/* What both tests of Winograd convolutions share: a convolution of a shape under a schedule against the
 * definition, in double precision, and the pool that follows against the pool by itself.
 *
 * The test gives run_form and has_pool.
 */
#ifndef CONVOY_TESTS_CHECK_WINOGRAD_H_
#define CONVOY_TESTS_CHECK_WINOGRAD_H_

#include <float.h>
#include <pthread.h>

#include "kernels/conv2d_winograd.h"
#include "kernels/conv2d_winograd_streamed.h"
#include "tests/check_activation.h"
#include "tests/check_map.h"

/* The bound the kernel documents: largest error over largest output. */
static double bound(int out) { return out == 2 ? 2e-6 : out == 4 ? 1e-5 : 5e-5; }

enum { THREADS = 3 };
static pthread_barrier_t all_threads;

void convoy_barrier(cv_thread thread) {
  if (thread.count > 1) pthread_barrier_wait(&all_threads);
}

typedef struct call {
  cv_thread thread;
  int out, dilation_h, dilation_w;
  const cv_winograd_slabs *slabs;
  const cv_winograd *streamed; /* or NULL */
  cv_map x, y;
  const float *w;
  float *v, *u, *m;
  const cv_epilogue *epilogue;
  const cv_winograd_pool *pool;
} call;

/* By the form of y's last tile; whole tiles where that form is not compiled, or not possible. */
static void run_form(const call *c);
/* That form has a pool. */
static int has_pool(const call *c);

/* Outputs of the largest phase, and how many of them are left for the last tile: at least 2. */
static int phase_of(int size, int dilation) { return (size + dilation - 1) / dilation; }
static int last_of(int size, int dilation, int out) {
  const int rest = (phase_of(size, dilation) - 1) % out + 1;
  return rest < 2 ? 2 : rest;
}

#define TILES(PIXELS)                                                       \
  CV_CONV2D_TILE(tile_##PIXELS##x1, 1, PIXELS, 1, CV_LANES, CV_LANES, 1, 1) \
  CV_CONV2D_TILE(tile_##PIXELS##x2, 1, PIXELS, 2, CV_LANES, CV_LANES, 1, 1)
TILES(1)
TILES(2)
TILES(3)
TILES(4)

static const cv_conv2d_tile tiles[5][3] = {{NULL},
                                           {NULL, tile_1x1, tile_1x2},
                                           {NULL, tile_2x1, tile_2x2},
                                           {NULL, tile_3x1, tile_3x2},
                                           {NULL, tile_4x1, tile_4x2}}; /* [pixels][blocks] */

static void *run_thread(void *argument) {
  run_form(argument);
  return NULL;
}

/* V, U and M of each thread, or V or U of all of them. */
static void run_threads(call c, int threads) {
  pthread_t handles[THREADS];
  call calls[THREADS];
  const int in_blocks = cv_blocks(c.x.channels);
  const int split_chunks = c.streamed || c.slabs->base.split_chunks;
  const int resident = !c.streamed && c.slabs->resident;
  for (int id = 0; id < threads; id++) {
    calls[id] = c;
    calls[id].thread = (cv_thread){id, threads};
    if (c.streamed) {
      calls[id].v = check_floats(cv_winograd_streamed_v_size(c.streamed->room, in_blocks));
      calls[id].u = NULL;
      calls[id].m = check_floats(cv_winograd_streamed_m_size(c.streamed->room));
    } else {
      calls[id].v = check_floats(cv_winograd_v_size(c.out, CV_LANES, c.slabs, in_blocks));
      calls[id].u = check_floats(cv_winograd_u_size(c.out, CV_LANES, c.slabs));
      calls[id].m = check_floats(cv_winograd_m_size(c.out, c.slabs));
    }
    if (id && split_chunks) free(calls[id].v), calls[id].v = calls[0].v;
    if (id && resident) free(calls[id].u), calls[id].u = calls[0].u;
  }
  pthread_barrier_init(&all_threads, NULL, (unsigned)threads);
  for (int id = 1; id < threads; id++) pthread_create(&handles[id], NULL, run_thread, &calls[id]);
  run_thread(&calls[0]);
  for (int id = 1; id < threads; id++) pthread_join(handles[id], NULL);
  pthread_barrier_destroy(&all_threads);
  for (int id = 0; id < threads; id++) {
    if (!id || !split_chunks) free(calls[id].v);
    if (!id || !resident) free(calls[id].u);
    free(calls[id].m);
  }
}

/* Threads share portions, with slabs of U or one U; or chunks, with slabs of U or without any. */
typedef enum schedule { GROUPS, RESIDENT, CHUNKS, STREAMED } schedule;

typedef struct shape {
  int in_channels, out_channels, height, width, pad, portions, pixels, blocks, slab;
  schedule schedule;
  int threads;
  int dilation_h, dilation_w;
} shape;

/* What the input and the weights hold beside random numbers. */
typedef struct values {
  float scale;         /* the input is uniform in [-scale, scale) */
  float pixel, weight; /* stands at corners and in the middle of one channel; is one of the weights */
} values;

static const values numbers = {1, 0.5f, 0.5f};

/* Of an output; 0 for the infinity or NaN that is expected. */
static double error_of(float got, double expected) {
  if (isnan(expected)) return isnan(got) ? 0 : INFINITY;
  if (fabs(expected) > FLT_MAX) return isinf(got) && (got > 0) == (expected > 0) ? 0 : INFINITY;
  return isfinite(got) ? fabs(got - expected) : INFINITY;
}

/* Elements in which two maps differ. */
static int differences(cv_map a, cv_map b) {
  int count = 0;
  for (int c = 0; c < a.channels; c++) {
    for (int i = 0; i < a.height * a.width; i++) {
      const float p = *check_at(a, c, i / a.width, i % a.width);
      const float q = *check_at(b, c, i / a.width, i % a.width);
      count += !(p == q || (isnan(p) && isnan(q)));
    }
  }
  return count;
}

/* The call again with pools: they are those of c.y as it has been computed, which is written only where it
 * is kept. */
static void run_pools(call c, int threads) {
  const struct {
    cv_pool_kind kind;
    int ceil_mode, keeps;
    cv_activation outer;
  } cases[] = {
      {CV_POOL_MAX, 0, 1, {CV_IDENTITY, 0, 0}},
      {CV_POOL_MAX, 1, 0, {CV_IDENTITY, 0, 0}},
      {CV_POOL_MEAN, 0, 0, {CV_SIGMOID, 0, 0}},
      {CV_POOL_MEAN, 1, 1, {CV_IDENTITY, 0, 0}},
  };
  const cv_map y = c.y;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int up = cases[i].ceil_mode;
    const cv_pool windows = {2, 2, 2, 2, 1, 1, 0, 0, 0, 0, 0, cases[i].outer};
    const cv_map expected = check_map(y.channels, (y.height + up) / 2, (y.width + up) / 2, 0);
    const cv_map got = check_map(y.channels, expected.height, expected.width, 1);
    const cv_winograd_pool pool = {cases[i].kind, cases[i].outer, got};
    (pool.kind == CV_POOL_MAX ? cv_max_pool : cv_avg_pool)((cv_thread){0, 1}, &windows, y, expected);
    c.pool = &pool;
    c.y = check_map(y.channels, y.height, y.width, cases[i].keeps);
    const cv_map kept = c.y;
    if (!cases[i].keeps) c.y.data = NULL;
    run_threads(c, threads);
    CHECK(differences(got, expected) == 0, "F(%d, 3), pool %zu of %dx%dx%d: %d elements differ", c.out, i,
          y.channels, y.height, y.width, differences(got, expected));
    check_map_zeros(got, "pool");
    if (cases[i].keeps) {
      CHECK(differences(kept, y) == 0, "F(%d, 3), kept beside pool %zu: %d elements differ", c.out, i,
            differences(kept, y));
      check_map_zeros(kept, "kept beside a pool");
    }
    check_map_free(expected), check_map_free(got), check_map_free(kept);
  }
}

/* slab_rows: of points of a slab of U, or 0 */
static void run_rows(int out, int slab_rows, shape s, values special, cv_activation inner,
                     int with_residual, cv_activation outer) {
  const int dilation_h = s.dilation_h, dilation_w = s.dilation_w;
  const int out_height = s.height + 2 * s.pad - 2 * dilation_h;
  const int out_width = s.width + 2 * s.pad - 2 * dilation_w;
  const int in_blocks = cv_blocks(s.in_channels), out_blocks = cv_blocks(s.out_channels);
  const int chunk_count = (out_blocks + s.blocks - 1) / s.blocks;
  cv_conv2d_tile table[5][2];
  cv_winograd_slabs conv = {.base = {.pad_top = s.pad,
                                     .pad_left = s.pad,
                                     .chunk_count = chunk_count,
                                     .blocks = s.blocks,
                                     .tail_blocks = out_blocks - (chunk_count - 1) * s.blocks,
                                     .tile_rows = phase_of(phase_of(out_height, dilation_h), out),
                                     .tile_columns = phase_of(phase_of(out_width, dilation_w), out),
                                     .portions = s.portions,
                                     .split_chunks = s.schedule >= CHUNKS},
                            .slab = s.schedule == RESIDENT ? in_blocks : s.slab,
                            .rows = slab_rows,
                            .resident = s.schedule == RESIDENT,
                            .pixels = s.pixels,
                            .tile = table};
  const int whole = conv.base.tile_rows * conv.base.tile_columns * dilation_h * dilation_w;
  const int largest = (whole + s.portions - 1) / s.portions;
  conv.base.room = s.schedule == STREAMED ? (largest + 3) / 4 * 4 : largest;
  for (int pixels = 1; pixels <= s.pixels; pixels++) {
    table[pixels][0] = tiles[pixels][s.blocks];
    table[pixels][1] = tiles[pixels][conv.base.tail_blocks];
  }

  /* The halo of x is read up to whole tiles, or up to the last one. */
  const int rows = dilation_h * (out * conv.base.tile_rows + 2) - s.pad - s.height;
  const int columns = dilation_w * (out * conv.base.tile_columns + 2) - s.pad - s.width;
  const int halo = rows > columns ? rows : columns;
  cv_map x = check_map(s.in_channels, s.height, s.width, halo > s.pad ? halo : s.pad);
  check_map_fill(x);
  cv_map_clear_halo((cv_thread){0, 1}, x);
  for (int i = 0; i < s.in_channels * s.height * s.width; i++)
    *check_at(x, i % s.in_channels, i / s.in_channels / s.width, i / s.in_channels % s.width) *=
        special.scale;
  *check_at(x, 3, 0, 0) = *check_at(x, 3, s.height / 2, s.width / 2) = special.pixel;
  *check_at(x, 3, s.height - 1, s.width - 1) = special.pixel;
  cv_map y = check_map(s.out_channels, out_height, out_width, 1);
  cv_map residual = check_map(s.out_channels, out_height, out_width, 0);
  check_map_fill(residual);
  const ptrdiff_t floats = (ptrdiff_t)in_blocks * out_blocks * CV_LANES * CV_LANES;
  float *w = check_floats(9 * floats);
  float *bias = check_floats(out_blocks * CV_LANES);
  float *dense = check_floats((ptrdiff_t)s.out_channels * s.in_channels * 9);
  check_fill(dense, (ptrdiff_t)s.out_channels * s.in_channels * 9);
  dense[(5 * s.in_channels + 7) * 9 + 2] = special.weight;
  float *to = w;
  for (int chunk = 0; chunk < chunk_count; chunk++) {
    const int blocks = chunk == chunk_count - 1 ? conv.base.tail_blocks : conv.base.blocks;
    for (int i = 0; i < in_blocks * 9 * CV_LANES; i++) {
      const int channel = i / (9 * CV_LANES) * CV_LANES + i % CV_LANES, tap = i / CV_LANES % 9;
      for (int o = chunk * conv.base.blocks * CV_LANES; o < (chunk * conv.base.blocks + blocks) * CV_LANES;
           o++) {
        const int real = o < s.out_channels && channel < s.in_channels;
        *to++ = real ? dense[((ptrdiff_t)o * s.in_channels + channel) * 9 + tap] : 0;
      }
    }
  }
  for (int o = 0; o < out_blocks * CV_LANES; o++) bias[o] = o < s.out_channels ? check_random() : 0;

  const cv_epilogue epilogue = {
      .bias = bias, .inner = inner, .residual = with_residual ? &residual : NULL, .outer = outer};
  const call alone = {.out = out,
                      .dilation_h = dilation_h,
                      .dilation_w = dilation_w,
                      .slabs = &conv,
                      .streamed = s.schedule == STREAMED ? &conv.base : NULL,
                      .x = x,
                      .y = y,
                      .w = w,
                      .epilogue = &epilogue};
  run_threads(alone, s.threads);

  double highest = 0, error = 0;
  for (int o = 0; o < s.out_channels; o++) {
    for (int i = 0; i < out_height * out_width; i++) {
      const int row = i / out_width, column = i % out_width;
      double sum = bias[o];
      for (int channel = 0; channel < s.in_channels; channel++) {
        for (int tap = 0; tap < 9; tap++) {
          sum += (double)dense[((ptrdiff_t)o * s.in_channels + channel) * 9 + tap] *
                 *check_at(x, channel, row + tap / 3 * dilation_h - s.pad,
                           column + tap % 3 * dilation_w - s.pad);
        }
      }
      sum = check_activate(sum, inner);
      if (with_residual) sum += *check_at(residual, o, row, column);
      sum = check_activate(sum, outer);
      if (fabs(sum) <= FLT_MAX) highest = fmax(highest, fabs(sum));
      error = fmax(error, error_of(*check_at(y, o, row, column), sum));
    }
  }
  CHECK(
      error <= bound(out) * highest,
      "F(%d, 3), %d -> %d channels, %dx%d, dilation %dx%d, %d portions, %g among %g and %g: error %g of %g",
      out, s.in_channels, s.out_channels, s.height, s.width, dilation_h, dilation_w, s.portions,
      special.pixel, special.scale, special.weight, error, highest);
  check_map_zeros(y, "winograd");
  if (has_pool(&alone)) run_pools(alone, s.threads);
  check_map_free(x);
  check_map_free(y);
  check_map_free(residual);
  free(w), free(bias), free(dense);
}

/* Of F(4x4) also with slabs of two rows of points. */
static void run(int out, shape s, values special, cv_activation inner, int with_residual,
                cv_activation outer) {
  run_rows(out, 0, s, special, inner, with_residual, outer);
  if (out == 4 && (s.schedule == GROUPS || s.schedule == CHUNKS))
    run_rows(out, 2, s, special, inner, with_residual, outer);
}

/* Each shape with numbers under several epilogues, and with what is not finite or nearly overflows. */
static void run_shapes(int out, const shape *shapes, size_t count) {
  const cv_activation none = {CV_IDENTITY, 0, 0}, relu = {CV_CLAMP, 0, INFINITY}, silu = {CV_SILU, 0, 0};
  /* the last: its sums are finite, what Winograd makes of them is not */
  const values specials[] = {{1, NAN, 0.5f}, {1, INFINITY, 0.5f}, {1, -INFINITY, 0.5f},
                             {1, 0.5f, NAN}, {1, 0.5f, INFINITY}, {3.3e36f, 1e36f, 0.5f}};
  for (size_t i = 0; i < count; i++) {
    run(out, shapes[i], numbers, relu, 0, none);
    run(out, shapes[i], numbers, none, 1, relu);
    run(out, shapes[i], numbers, silu, 1, none);
    for (size_t k = 0; k < sizeof specials / sizeof *specials; k++) {
      run(out, shapes[i], specials[k], none, 0, none);
      run(out, shapes[i], specials[k], none, 1, relu);
    }
  }
}

#endif
