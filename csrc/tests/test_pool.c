/* kernels/pool.h: every kind of window, clipped or overhanging, against the definition in double. */
#include "kernels/pool.h"
#include "tests/check_map.h"

typedef struct shape {
  int channels, height, width;
} shape;

static double mean_divisor(const cv_pool *p, shape s, int top, int left, int taps) {
  if (!p->count_include_pad) return taps;
  int count = 0;
  for (int i = 0; i < p->kernel_h; i++) {
    for (int j = 0; j < p->kernel_w; j++) {
      count += top + i * p->dilation_h < s.height + p->pad_bottom &&
               left + j * p->dilation_w < s.width + p->pad_right;
    }
  }
  return count;
}

static double pooled(const cv_pool *p, int is_max, cv_map x, int c, int oy, int ox) {
  const int top = oy * p->stride_h - p->pad_top, left = ox * p->stride_w - p->pad_left;
  double max = -INFINITY, sum = 0;
  int taps = 0;
  for (int i = 0; i < p->kernel_h; i++) {
    for (int j = 0; j < p->kernel_w; j++) {
      const int iy = top + i * p->dilation_h, ix = left + j * p->dilation_w;
      if (iy < 0 || iy >= x.height || ix < 0 || ix >= x.width) continue;
      const double v = *check_at(x, c, iy, ix);
      max = v < max ? max : v; /* NaN: forgets what was before it */
      sum += v;
      taps++;
    }
  }
  const double divisor = mean_divisor(p, (shape){x.channels, x.height, x.width}, top, left, taps);
  const double v = is_max ? max : divisor > 0 ? sum / divisor : 0;
  return p->outer.kind == CV_SIGMOID ? 1 / (1 + exp(-v)) : v;
}

static int windows(int size, int kernel, int stride, int dilation, int pads, int ceil_mode) {
  const int rest = size + pads - (kernel - 1) * dilation - 1;
  return (rest + (ceil_mode ? stride - 1 : 0)) / stride + 1;
}

static void check_pool(const cv_pool *p, shape s, int ceil_mode, int threads, const float *poison) {
  const int height =
      windows(s.height, p->kernel_h, p->stride_h, p->dilation_h, p->pad_top + p->pad_bottom, ceil_mode);
  const int width =
      windows(s.width, p->kernel_w, p->stride_w, p->dilation_w, p->pad_left + p->pad_right, ceil_mode);
  cv_map x = check_map(s.channels, s.height, s.width, 1);
  check_map_fill(x);
  if (poison) {
    for (int c = 0; c < s.channels; c++) *check_at(x, c, s.height / 2, (s.width + c) / 3) = *poison;
  }
  for (int is_max = 0; is_max < 2; is_max++) {
    cv_map y = check_map(s.channels, height, width, is_max);
    for (int id = threads - 1; id >= 0; id--) {
      (is_max ? cv_max_pool : cv_avg_pool)((cv_thread){id, threads}, p, x, y);
    }
    for (int c = 0; c < s.channels; c++) {
      for (int i = 0; i < height * width; i++) {
        const double expected = pooled(p, is_max, x, c, i / width, i % width);
        const float got = *check_at(y, c, i / width, i % width);
        CHECK(check_near(got, expected, 1, 4e-7),
              "%s %dx%d of %dx%dx%d stride %d pad %d ceil %d: y[%d][%d][%d] = %g, expected %g",
              is_max ? "max" : "mean", p->kernel_h, p->kernel_w, s.channels, s.height, s.width, p->stride_h,
              p->pad_top, ceil_mode, c, i / width, i % width, got, expected);
      }
    }
    check_map_zeros(y, is_max ? "max" : "mean");
    check_map_free(y);
  }
  check_map_free(x);
}

int main(void) {
  const cv_activation none = {CV_IDENTITY, 0, 0}, sigmoid = {CV_SIGMOID, 0, 0};
  const cv_pool pools[] = {
      {2, 2, 2, 2, 1, 1, 0, 0, 0, 0, 0, none},    {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 0, none},
      {3, 3, 2, 2, 1, 1, 0, 0, 0, 0, 1, none},    {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, none},
      {3, 3, 2, 2, 1, 1, 0, 1, 1, 0, 1, sigmoid}, {2, 3, 3, 2, 1, 1, 1, 2, 0, 1, 1, none},
      {3, 2, 1, 2, 2, 3, 2, 1, 1, 2, 0, none},    {1, 1, 2, 2, 1, 1, 0, 0, 0, 0, 0, none},
      {5, 4, 3, 3, 1, 1, 2, 2, 2, 1, 1, none},    {7, 7, 7, 7, 1, 1, 0, 0, 0, 0, 0, sigmoid},
      {3, 3, 4, 5, 1, 1, 0, 0, 0, 0, 0, none},    {4, 4, 1, 1, 2, 2, 3, 3, 3, 3, 1, none},
  };
  const shape shapes[] = {{1, 8, 9}, {CV_LANES, 7, 7}, {CV_LANES + 3, 13, 10}, {2 * CV_LANES - 1, 9, 23}};
  for (size_t i = 0; i < sizeof pools / sizeof *pools; i++) {
    for (size_t j = 0; j < sizeof shapes / sizeof *shapes; j++) {
      for (int ceil_mode = 0; ceil_mode < 2; ceil_mode++) {
        check_pool(&pools[i], shapes[j], ceil_mode, 1 + (int)(i + j) % 4, NULL);
      }
    }
    const float poisons[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) check_pool(&pools[i], shapes[2], 0, 2, &poisons[k]);
    /* Of one row, the windows that see nothing but the poison are -inf, too. */
    if (pools[i].kernel_w == 1) check_pool(&pools[i], (shape){3, 1, 1}, 0, 1, &poisons[2]);
  }
  /* A window wholly in the padding, and more threads than rows. */
  const cv_pool beyond = {2, 2, 2, 2, 1, 1, 2, 2, 2, 2, 0, none};
  check_pool(&beyond, (shape){3, 4, 4}, 0, 9, NULL);
  return check_done();
}
