/* kernels/pool_bytes.h: every kind of window, clipped or overhanging, against the definition in double. */
#include "kernels/pool_bytes.h"
#include "tests/check_bytes.h"

static int windows(int size, int kernel, int stride, int dilation, int pads, int ceil_mode) {
  const int rest = size + pads - (kernel - 1) * dilation - 1;
  return (rest + (ceil_mode ? stride - 1 : 0)) / stride + 1;
}

/* The maximum, or the mean of what the bytes stand for. */
static double pooled(const cv_pool *p, int is_max, cv_byte_map x, cv_scale s, int c, int oy, int ox) {
  const int top = oy * p->stride_h - p->pad_top, left = ox * p->stride_w - p->pad_left;
  int max = 0, sum = 0, taps = 0, counted = 0;
  for (int i = 0; i < p->kernel_h; i++)
    for (int j = 0; j < p->kernel_w; j++) {
      const int iy = top + i * p->dilation_h, ix = left + j * p->dilation_w;
      counted += iy < x.height + p->pad_bottom && ix < x.width + p->pad_right;
      if (iy < 0 || iy >= x.height || ix < 0 || ix >= x.width) continue;
      const uint8_t byte = *check_byte_at(x, CV_LANES, c, iy, ix);
      max = byte > max ? byte : max;
      sum += (s.low < 0 ? (int8_t)byte : byte) - s.zero;
      taps++;
    }
  const int divisor = p->count_include_pad ? counted : taps;
  const double mean = divisor > 0 ? (double)sum * s.scale / divisor : 0;
  return is_max ? max : p->outer.kind == CV_CLAMP && mean < 0 ? 0 : mean;
}

static void check_pool(const cv_pool *p, int channels, int size, int ceil_mode, int threads, cv_scale xs,
                       cv_scale ys) {
  const int height =
      windows(size, p->kernel_h, p->stride_h, p->dilation_h, p->pad_top + p->pad_bottom, ceil_mode);
  const int width =
      windows(size + 3, p->kernel_w, p->stride_w, p->dilation_w, p->pad_left + p->pad_right, ceil_mode);
  cv_byte_map x = check_bytes_map(channels, size, size + 3, 1, CV_LANES);
  check_bytes_map_fill(x, CV_LANES);
  for (int is_max = 0; is_max < 2; is_max++) {
    cv_byte_map y = check_bytes_map(channels, height, width, is_max, CV_LANES);
    for (int id = threads - 1; id >= 0; id--) {
      const cv_thread t = {id, threads};
      if (is_max) {
        cv_max_pool_bytes(t, p, x, y);
      } else {
        cv_avg_pool_bytes(t, p, x, y, xs, ys);
      }
      cv_byte_map_fill_halo(t, y, CV_LANES, CHECK_ZERO);
    }
    check_bytes_halo(y, CV_LANES, "pool");
    for (int c = 0; c < channels; c++)
      for (int i = 0; i < height * width; i++) {
        const double v = pooled(p, is_max, x, xs, c, i / width, i % width);
        const int byte = *check_byte_at(y, CV_LANES, c, i / width, i % width);
        const int right = is_max ? byte == v : check_quantised(ys.low < 0 ? (int8_t)byte : byte, v, ys);
        CHECK(right, "%s %dx%d of %dx%d stride %d pad %d ceil %d: y[%d][%d][%d] = %d, expected %g",
              is_max ? "max" : "mean", p->kernel_h, p->kernel_w, channels, size, p->stride_h, p->pad_top,
              ceil_mode, c, i / width, i % width, byte, v);
      }
    check_bytes_free(y);
  }
  check_bytes_free(x);
}

/* A window whose sum int32 does not hold. */
static void check_large_window(void) {
  const int height = 2904, width = 2907;
  const cv_pool p = {height, width, 1, 1, 1, 1, 0, 0, 0, 0, 0, {CV_IDENTITY, 0, 0}};
  const cv_scale xs = {0.05f, 0, 0, 255}, ys = {0.07f, 0, 0, 255};
  const cv_byte_map x = check_bytes_map(1, height, width, 0, CV_LANES);
  const cv_byte_map y = check_bytes_map(1, 1, 1, 0, CV_LANES);
  for (int i = 0; i < height; i++) memset(x.data + i * x.row, 255, (size_t)width * CV_LANES);
  cv_avg_pool_bytes((cv_thread){0, 1}, &p, x, y, xs, ys);
  CHECK(*check_byte_at(y, CV_LANES, 0, 0, 0) == 182, "the mean of a large window is %d, expected 182",
        *check_byte_at(y, CV_LANES, 0, 0, 0));
  check_bytes_free(x), check_bytes_free(y);
}

int main(void) {
  const cv_activation none = {CV_IDENTITY, 0, 0}, relu = {CV_CLAMP, 0, INFINITY};
  const cv_pool pools[] = {
      {2, 2, 2, 2, 1, 1, 0, 0, 0, 0, 0, none}, {3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 0, none},
      {3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, none}, {3, 3, 2, 2, 1, 1, 0, 1, 1, 0, 1, relu},
      {3, 2, 1, 2, 2, 3, 2, 1, 1, 2, 0, none}, {1, 1, 2, 2, 1, 1, 0, 0, 0, 0, 0, none},
      {5, 4, 3, 3, 1, 1, 2, 2, 2, 1, 1, none}, {7, 7, 7, 7, 1, 1, 0, 0, 0, 0, 0, relu},
      {2, 2, 2, 2, 1, 1, 2, 2, 2, 2, 0, none},
  };
  const cv_scale bytes = {0.05f, 131, 0, 255}, fine = {0.031f, 120, 0, 255},
                 with_sign = {0.05f, 3, -128, 127};
  const int channels[] = {1, CV_LANES, 2 * CV_LANES + 3};
  for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
    for (int c = 0; c < 3; c++)
      for (int ceil_mode = 0; ceil_mode < 2; ceil_mode++) {
        const int threads = 1 + (int)(i + (size_t)c) % 4;
        check_pool(&pools[i], channels[c], 7 + 3 * c, ceil_mode, threads, bytes, fine);
        check_pool(&pools[i], channels[c], 9, ceil_mode, threads, with_sign, with_sign);
      }
  for (int i = 0; i < 4; i++) /* rows that are reduced part by part */
    check_pool(&pools[i], CV_LANES, 3 * CV_POOL_COLUMNS, 0, 2, bytes, fine);
  check_large_window();
  return check_done();
}
