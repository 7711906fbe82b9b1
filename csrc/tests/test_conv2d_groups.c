/* cv_conv2d_direct where blocks hold channels of several groups: what is not finite stays in its group. */
#include "kernels/conv2d_direct.h"
#include "tests/check_map.h"

#define DEFINE_TILES(NAME, ROWS, PIXELS)                     \
  CV_CONV2D_GROUPED_TILE(NAME##_1, ROWS, PIXELS, 1, 1, 0, 0) \
  CV_CONV2D_GROUPED_TILE(NAME##_2, ROWS, PIXELS, 2, 1, 0, 0)
DEFINE_TILES(row_3, 1, 3)
DEFINE_TILES(pair_3, 2, 3)
DEFINE_TILES(run_5, 0, 5)
DEFINE_TILES(run_4, 0, 4)
CV_CONV2D_GROUPED_TILE(run_5_stride_2, 0, 5, 1, 2, 0, 0)
CV_CONV2D_GROUPED_TILE(run_4_stride_2, 0, 4, 1, 2, 0, 0)
CV_CONV2D_GROUPED_TILE(point_3, 1, 3, 2, 1, 1, 1)
CV_CONV2D_RANGED_TILE(ranged_point_3, 1, 3, 2, 1, 1, 1)
CV_CONV2D_RANGED_TILE(ranged_run_4, 0, 4, 1, 1, 0, 0)
CV_CONV2D_RANGED_TILE(ranged_pair_3, 2, 3, 2, 1, 0, 0)
CV_CONV2D_RANGED_TILE(ranged_row_3, 1, 3, 2, 1, 0, 0)

typedef struct trial {
  const char *name;
  int groups, in, out; /* channels of a group */
  int height, width, kernel, stride;
  int rows, pixels[2], tiles[2]; /* of cv_conv2d */
  int blocks, cut;               /* output and input blocks of a chunk; 0: all of the input */
  int y_step;                    /* pixels */
  int in_place;                  /* the residual is y */
  cv_conv2d_tile tile[2][2];
  cv_activation outer;
  int also; /* how many of the first chunks another cv_conv2d has */
} trial;

#define RELU {CV_CLAMP, 0.0f, INFINITY}
static const trial trials[] = {
    {"rows", 5, 3, 7, 4, 6, 3, 1, 1, {3, 0}, {2, 0}, 2, 0, 1, 0, {{row_3_2, row_3_1}}, RELU, 0},
    {"two rows", 6, 7, 4, 5, 3, 3, 1, 2, {3, 3}, {0, 1}, 1, 0, 1, 1, {{pair_3_1}, {row_3_1}}, RELU, 0},
    {"two rows cut along the input",
     3,
     2 * CV_LANES + 1,
     CV_LANES + 2,
     6,
     3,
     3,
     1,
     2,
     {3, 3},
     {0, 1},
     2,
     2,
     1,
     0,
     {{pair_3_2, pair_3_1}, {row_3_2, row_3_1}},
     {CV_SIGMOID, 0.0f, 0.0f},
     0},
    {"runs cut along the input",
     4,
     CV_LANES + 3,
     CV_LANES + 1,
     5,
     5,
     3,
     1,
     0,
     {5, 4},
     {5, 0},
     2,
     1,
     1,
     0,
     {{run_5_2, run_5_1}, {run_4_2, run_4_1}},
     {CV_IDENTITY, 0.0f, 0.0f},
     0},
    {"runs, stride 2, in place",
     9,
     2,
     2,
     9,
     11,
     3,
     2,
     0,
     {5, 4},
     {2, 5},
     1,
     0,
     1,
     1,
     {{run_5_stride_2}, {run_4_stride_2}},
     RELU,
     0},
    {"1x1",
     2,
     CV_LANES,
     CV_LANES - 1,
     1,
     9,
     1,
     1,
     1,
     {3, 0},
     {3, 0},
     2,
     0,
     1,
     0,
     {{point_3, point_3}},
     RELU,
     0},
    {"a phase of a transposed convolution",
     5,
     5,
     5,
     4,
     2,
     2,
     1,
     1,
     {3, 0},
     {1, 0},
     1,
     0,
     2,
     0,
     {{row_3_1}},
     RELU,
     0},
    {"one filter several times",
     2 * CV_LANES,
     1,
     2,
     3,
     3,
     3,
     1,
     1,
     {3, 0},
     {1, 0},
     1,
     0,
     1,
     0,
     {{row_3_1}},
     RELU,
     0},
    {.name = "chunks of one group, 1x1",
     .groups = 5,
     .in = 2 * CV_LANES + 1,
     .out = 2 * CV_LANES,
     .height = 1,
     .width = 9,
     .kernel = 1,
     .stride = 1,
     .rows = 1,
     .pixels = {3, 0},
     .tiles = {3, 0},
     .blocks = 2,
     .y_step = 1,
     .tile = {{ranged_point_3, ranged_point_3}},
     .outer = RELU,
     .also = 2},
    {.name = "chunks of one group within a block",
     .groups = 4,
     .in = 3,
     .out = CV_LANES,
     .height = 4,
     .width = 4,
     .kernel = 3,
     .stride = 1,
     .rows = 0,
     .pixels = {4, 4},
     .tiles = {4, 0},
     .blocks = 1,
     .y_step = 1,
     .in_place = 1,
     .tile = {{ranged_run_4}, {ranged_run_4}},
     .outer = RELU,
     .also = 3},
    {.name = "chunks of one group, cut along the input",
     .groups = 3,
     .in = 2 * CV_LANES + CV_LANES / 2,
     .out = 2 * CV_LANES,
     .height = 3,
     .width = 3,
     .kernel = 3,
     .stride = 1,
     .rows = 2,
     .pixels = {3, 3},
     .tiles = {0, 1},
     .blocks = 2,
     .cut = 1,
     .y_step = 1,
     .tile = {{ranged_pair_3, ranged_pair_3}, {ranged_row_3, ranged_row_3}},
     .outer = RELU},
};

/* Packs the weights [out][in of a group][tap] of a chunk; returns where the next one is. */
static ptrdiff_t pack(const trial *t, const cv_conv2d_chunk *chunk, const float *weights, float *packed) {
  const int taps = t->kernel * t->kernel;
  ptrdiff_t at = chunk->weights;
  for (int block = 0; block < chunk->in_count; block++)
    for (int tap = 0; tap < taps; tap++)
      for (int cell = 0; cell < CV_LANES; cell++) {
        if (block == 0 && cell < chunk->before) continue;
        if (block + 1 == chunk->in_count && cell >= CV_LANES - chunk->behind) continue;
        const int channel = (chunk->in_begin + block) * CV_LANES + cell;
        for (int lane = 0; lane < chunk->blocks * CV_LANES; lane++, at++) {
          const int output = chunk->out_block * CV_LANES + lane;
          const int own = output < t->groups * t->out && output / t->out == channel / t->in;
          packed[at] = own ? weights[(output * t->in + channel % t->in) * taps + tap] : 0.0f;
        }
      }
  return at;
}

/* Cuts the inputs of `blocks` output blocks into chunks of `cut` input blocks: exactly those channels that
 * the outputs are made of.  Returns how many chunks there are then. */
static int add_chunks(const trial *t, cv_conv2d_chunk *chunks, int count, int out_block, int blocks) {
  const int lanes = (out_block + blocks) * CV_LANES, out = t->groups * t->out;
  const int begin = out_block * CV_LANES / t->out * t->in;
  const int end = ((lanes < out ? lanes : out) - 1) / t->out * t->in + t->in;
  const int first = begin / CV_LANES, blocks_read = cv_blocks(end) - first;
  const int cut = t->cut ? t->cut : blocks_read;
  for (int i = 0; i < blocks_read; i += cut) {
    const int size = blocks_read - i < cut ? blocks_read - i : cut, last = i + size == blocks_read;
    chunks[count++] = (cv_conv2d_chunk){.out_block = out_block,
                                        .blocks = blocks,
                                        .in_begin = first + i,
                                        .in_count = size,
                                        .adds = i > 0,
                                        .partial = !last,
                                        .before = i == 0 ? begin % CV_LANES : 0,
                                        .behind = last ? cv_blocks(end) * CV_LANES - end : 0};
  }
  return count;
}

static void check_trial(const trial *t, float value, int channel, int row, int column) {
  const int pad = t->kernel / 2, taps = t->kernel * t->kernel;
  const int in = t->groups * t->in, out = t->groups * t->out;
  const int height = (t->height + 2 * pad - t->kernel) / t->stride + 1;
  const int width = (t->width + 2 * pad - t->kernel) / t->stride + 1;
  cv_map x = check_map(in, t->height, t->width, pad);
  check_map_fill(x);
  *check_at(x, channel, row, column) = value;
  cv_map_clear_halo((cv_thread){0, 1}, x);
  cv_map y = check_map(out, height, width * t->y_step, 0), before = check_map(out, height, width, 0);
  y.width = width;
  y.step *= t->y_step;
  check_map_fill(y);
  for (int i = 0; i < out * height * width; i++)
    *check_at(before, i / width / height, i / width % height, i % width) =
        *check_at(y, i / width / height, i / width % height, i % width);
  float *weights = check_floats((ptrdiff_t)out * t->in * taps), *bias = check_floats(out + 4 * CV_LANES);
  check_fill(weights, (ptrdiff_t)out * t->in * taps);
  for (int o = 0; o < out + 4 * CV_LANES; o++) bias[o] = o < out ? check_random() : 0.0f;

  cv_conv2d_chunk chunks[64];
  int count = 0, first_count = 0;
  ptrdiff_t at = 0;
  float *packed =
      check_floats((ptrdiff_t)cv_blocks(out) * CV_LANES * cv_blocks(in) * CV_LANES * taps + 4096);
  for (int o = 0; o < cv_blocks(out); o += t->blocks) {
    const int blocks = cv_blocks(out) - o < t->blocks ? cv_blocks(out) - o : t->blocks;
    if (o / t->blocks == t->also) first_count = count;
    count = add_chunks(t, chunks, count, o, blocks);
  }
  for (int i = 0; i < count; i++) {
    chunks[i].weights = at;
    at = pack(t, &chunks[i], weights, packed);
  }
  cv_conv2d conv = {.kernel_h = t->kernel,
                    .kernel_w = t->kernel,
                    .stride_h = t->stride,
                    .stride_w = t->stride,
                    .dilation_h = 1,
                    .dilation_w = 1,
                    .pad_top = pad,
                    .pad_left = pad,
                    .chunks = chunks + first_count,
                    .chunk_count = count - first_count,
                    .rows = t->rows,
                    .pixels = {t->pixels[0], t->pixels[1]},
                    .tiles = {t->tiles[0], t->tiles[1]},
                    .tiles_per_block = 2,
                    .tile = {{t->tile[0][0], t->tile[0][1]}, {t->tile[1][0], t->tile[1][1]}},
                    .blocks = t->blocks,
                    .tail_blocks = chunks[count - 1].blocks,
                    .group_in = t->in,
                    .group_out = t->out};
  cv_conv2d also = conv;
  if (first_count > 0) {
    also.chunks = chunks;
    also.chunk_count = first_count;
    also.tail_blocks = also.blocks;
    conv.also = &also;
  }
  const cv_epilogue epilogue = {.bias = bias, .residual = t->in_place ? &y : NULL, .outer = t->outer};
  for (int id = 0; id < 2; id++) cv_conv2d_direct((cv_thread){id, 2}, &conv, x, packed, y, &epilogue);

  int reached = 0;
  for (int o = 0; o < out; o++)
    for (int v = 0; v < height; v++)
      for (int u = 0; u < width; u++) {
        double sum = bias[o], size = fabs(sum); /* of what is added */
        for (int i = 0; i < t->in; i++)
          for (int tap = 0; tap < taps; tap++) {
            const int r = v * t->stride + tap / t->kernel - pad, s = u * t->stride + tap % t->kernel - pad;
            if (r < 0 || r >= t->height || s < 0 || s >= t->width) continue;
            const float weight = weights[(o * t->in + i) * taps + tap];
            const double product = (double)*check_at(x, o / t->out * t->in + i, r, s) * weight;
            sum += product;
            size += fabs(product);
          }
        if (t->in_place) {
          sum += *check_at(before, o, v, u);
          size += fabs(*check_at(before, o, v, u));
        }
        reached += !isfinite(sum);
        if (t->outer.kind == CV_SIGMOID) sum = 1 / (1 + exp(-sum));
        if (t->outer.kind == CV_CLAMP) sum = sum < 0 ? 0 : sum;
        const float got = *check_at(y, o, v, u);
        CHECK(check_near(got, sum, size, 4e-7),
              "%s, x[%d][%d][%d] = %g: y[%d][%d][%d]: expected %g, got %g", t->name, channel, row, column,
              value, o, v, u, sum, got);
      }
  CHECK(isfinite(value) == (reached == 0), "%s: %d outputs not finite by definition", t->name, reached);
  for (int o = out; o < cv_blocks(out) * CV_LANES; o++)
    CHECK(*check_at(y, o, row / t->stride, 0) == 0, "%s: spare lane %d", t->name, o);
  check_map_free(x);
  check_map_free(y);
  check_map_free(before);
  free(weights);
  free(bias);
  free(packed);
}

int main(void) {
  const float values[] = {1.0f, NAN, INFINITY, -INFINITY};
  for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
    for (int k = 0; k < 4; k++) {
      const trial *t = &trials[i];
      check_trial(t, values[k], 0, 0, 0);
      check_trial(t, values[k], t->groups * t->in - 1, t->height - 1, t->width - 1);
      check_trial(t, values[k], t->groups * t->in / 2, t->height / 2, t->width / 2);
    }
  return check_done();
}
