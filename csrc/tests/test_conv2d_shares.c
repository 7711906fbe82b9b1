/* The threads' shares of cv_conv2d_direct: every tile of every chunk is run once, by threads that run as
 * many. */
#include "kernels/conv2d_direct.h"
#include "tests/check_map.h"

static int tiles_run;

/* In place of a tile: counts itself, and that it was here. */
static void count_tile(const cv_conv2d_window *window, const float *x, const float *panel,
                       const float *start, float *y, const float *residual) {
  (void)window, (void)x, (void)panel, (void)start, (void)residual;
  tiles_run++;
  y[0]++;
}

/* 15 tiles of 4, 4 and 2 pixels and 7 output blocks in chunks of 2, each cut in `parts`: all of them are
 * run once, by threads that run as many, give or take one. */
static void check_shares(int threads, int split_chunks, int tiles_per_block, int parts) {
  enum { HEIGHT = 5, WIDTH = 10, TILES = 3, OUT_BLOCKS = 7, WHOLES = 4, IN_BLOCKS = 2 };
  cv_map x = check_map(IN_BLOCKS * CV_LANES, HEIGHT, WIDTH, 0);
  cv_map y = check_map(OUT_BLOCKS * CV_LANES, HEIGHT, WIDTH, 0);
  float *bias = check_floats(OUT_BLOCKS * CV_LANES);
  cv_conv2d_chunk chunks[WHOLES * IN_BLOCKS];
  for (int i = 0; i < WHOLES * parts; i++) {
    const int whole = i / parts, part = i % parts;
    chunks[i] = (cv_conv2d_chunk){
        2 * whole, whole < WHOLES - 1 ? 2 : 1, part, IN_BLOCKS / parts, 0, part > 0, part < parts - 1, 0,
        0};
  }
  const cv_conv2d conv = {.kernel_h = 1,
                          .kernel_w = 1,
                          .stride_h = 1,
                          .stride_w = 1,
                          .dilation_h = 1,
                          .dilation_w = 1,
                          .chunks = chunks,
                          .chunk_count = WHOLES * parts,
                          .split_chunks = split_chunks,
                          .rows = 1,
                          .pixels = {4, 2},
                          .tiles = {2, 1},
                          .tiles_per_block = tiles_per_block,
                          .tile = {{count_tile, count_tile}, {count_tile, count_tile}},
                          .blocks = 2,
                          .tail_blocks = 1};
  const cv_epilogue epilogue = {.bias = bias};
  for (int block = 0; block < OUT_BLOCKS; block += 2)
    for (int i = 0; i < HEIGHT * TILES; i++) *check_at(y, block * CV_LANES, i / TILES, i % TILES * 4) = 0;
  const int all = HEIGHT * TILES * WHOLES;
  for (int id = 0; id < threads; id++) {
    tiles_run = 0;
    cv_conv2d_direct((cv_thread){id, threads}, &conv, x, bias, y, &epilogue);
    CHECK(tiles_run >= all / threads * parts && tiles_run <= (all + threads - 1) / threads * parts,
          "thread %d of %d, split_chunks %d, groups of %d, %d parts: ran %d tiles of %d", id, threads,
          split_chunks, tiles_per_block, parts, tiles_run, all * parts);
  }
  for (int block = 0; block < OUT_BLOCKS; block += 2)
    for (int i = 0; i < HEIGHT * TILES; i++) {
      const float runs = *check_at(y, block * CV_LANES, i / TILES, i % TILES * 4);
      CHECK(runs == (float)parts, "%d threads, split_chunks %d, groups of %d: tile %d of block %d ran %g x",
            threads, split_chunks, tiles_per_block, i, block, runs);
    }
  check_map_free(x), check_map_free(y), free(bias);
}

int main(void) {
  for (int threads = 1; threads <= 17; threads++)
    for (int split_chunks = 0; split_chunks < 2; split_chunks++)
      for (int parts = 1; parts <= 2; parts++) {
        const int groups[] = {1, 2, 4, 7, 15, 100};
        for (int i = 0; i < 6; i++) check_shares(threads, split_chunks, groups[i], parts);
      }
  return check_done();
}
