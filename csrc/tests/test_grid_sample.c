/* kernels/grid_sample.h: every padding, from edge to edge and from middle to middle, nearest and between
 * pixels, of maps and of planes, against the formula in double; places far outside, infinite, and no
 * number. */
#include "kernels/grid_sample.h"
#include "tests/check_map.h"

static double mirrored(double at, double low, double span) {
  if (span <= 0) return low;
  const double from = fabs(at - low), turns = floor(from / span), rest = from - turns * span;
  return low + (fmod(turns, 2) == 0 ? rest : span - rest);
}

/* Between the pixels along an axis, before what lies outside is looked for inside. */
static double found(float v, int size, cv_grid_form f) {
  const double at = f.corners ? (v + 1.0) / 2 * (size - 1) : ((v + 1.0) * size - 1) / 2;
  return fabs(at) <= FLT_MAX ? at : f.corners ? 0 : -0.5;
}

static double place(float v, int size, cv_grid_form f, int nearest) {
  double at = found(v, size, f);
  if (nearest) at = nearbyint(at);
  if (f.padding == CV_GRID_REFLECTION) at = mirrored(at, f.corners ? 0 : -0.5, size - f.corners);
  return f.padding == CV_GRID_ZEROS ? at : fmin(fmax(at, 0), size - 1);
}

static double pixel(cv_map x, int channel, double row, double column) {
  const int inside = row >= 0 && row < x.height && column >= 0 && column < x.width;
  return inside ? *check_at(x, channel, (int)row, (int)column) : 0;
}

static double sample(cv_map x, int channel, double row, double column, int nearest) {
  if (nearest) return pixel(x, channel, row, column);
  const double top = floor(row), left = floor(column), down = row - top, right = column - left;
  double at[2];
  for (int i = 0; i < 2; i++)
    at[i] = (1 - right) * pixel(x, channel, top + i, left) + right * pixel(x, channel, top + i, left + 1);
  return (1 - down) * at[0] + down * at[1];
}

/* Whether float32 may take another pixel than double: at a tie. */
static int near_tie(double at) { return fabs(fabs(at - floor(at)) - 0.5) < 1e-4; }

static void check_sample(int channels, int x_height, int x_width, int height, int width, int threads,
                         cv_grid_form f, int nearest) {
  const int points = height * width;
  const ptrdiff_t plane = (ptrdiff_t)x_height * x_width;
  cv_map x = check_map(channels, x_height, x_width, threads % 2), y = check_map(channels, height, width, 1);
  check_map_fill(x);
  float *grid = check_floats(2 * points), *flat = check_floats(channels * plane);
  float *rows = check_floats((ptrdiff_t)channels * points + 1);
  for (int i = 0; i < 2 * points; i++) grid[i] = 2.5f * check_random();
  const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -1, 1};
  for (int i = 0; i < 6 && i < points; i++) grid[i] = odd[i];
  for (int c = 0; c < channels; c++)
    for (int i = 0; i < plane; i++) flat[c * plane + i] = *check_at(x, c, i / x_width, i % x_width);
  for (int id = threads - 1; id >= 0; id--) {
    const cv_thread t = {id, threads};
    if (nearest) {
      cv_grid_sample_map_nearest(t, y, x, grid, f);
      cv_grid_sample_nearest(t, rows, flat, channels, x_height, x_width, grid, points, f);
    } else {
      cv_grid_sample_map_bilinear(t, y, x, grid, f);
      cv_grid_sample_bilinear(t, rows, flat, channels, x_height, x_width, grid, points, f);
    }
  }
  for (int p = 0; p < points; p++) {
    const float down = grid[points + p], right = grid[p];
    const int tie = near_tie(found(down, x_height, f)) || near_tie(found(right, x_width, f));
    if (nearest && tie && p >= 6) continue;
    const double row = place(down, x_height, f, nearest), column = place(right, x_width, f, nearest);
    for (int c = 0; c < channels; c++) {
      const double expected = sample(x, c, row, column, nearest);
      const float got[] = {*check_at(y, c, p / width, p % width), rows[(ptrdiff_t)c * points + p]};
      for (int i = 0; i < 2; i++)
        CHECK(check_near(got[i], expected, 1, 2e-5),
              "%s, padding %d, corners %d, %dx%dx%d: %s[%d][%d] = %g, expected %g",
              nearest ? "nearest" : "bilinear", f.padding, f.corners, channels, x_height, x_width,
              i ? "rows" : "y", c, p, got[i], expected);
    }
  }
  check_map_zeros(y, "grid_sample");
  check_map_free(x), check_map_free(y), free(grid), free(flat), free(rows);
}

int main(void) {
  for (int padding = CV_GRID_ZEROS; padding <= CV_GRID_REFLECTION; padding++)
    for (int corners = 0; corners < 2; corners++)
      for (int nearest = 0; nearest < 2; nearest++) {
        const cv_grid_form f = {padding, corners};
        check_sample(2 * CV_LANES + 3, 9, 13, 7, 11, 3, f, nearest);
        check_sample(1, 1, 5, 1, 3, 1, f, nearest);
        check_sample(CV_LANES, 6, 1, 13, 15, 4, f, nearest);
      }
  return check_done();
}
