/* cv_pack, cv_unpack, cv_pack_planar: every element in its place, zeros around, nothing else touched. */
#include "kernels/layout.h"
#include "tests/check.h"

typedef struct layout {
  const char *name;
  ptrdiff_t channel, row, column;
} layout;

static ptrdiff_t extent(const layout *l, int channels, int height, int width) {
  return (channels - 1) * l->channel + (height - 1) * l->row + (width - 1) * l->column + 1;
}

static void run(int channels, int height, int width, int halo, int threads, const layout *l) {
  const ptrdiff_t count = extent(l, channels, height, width);
  float *x = check_floats(count + 1), *back = check_floats(count + 2);
  check_fill(x + 1, count); /* not aligned to a vector */

  const int blocks = cv_blocks(channels);
  cv_map y = {NULL, channels, height, width, 0, 0, CV_LANES, halo, halo, halo, halo, CV_FLOAT32};
  y.row = (ptrdiff_t)(width + 2 * halo) * CV_LANES;
  y.plane = (height + 2 * halo) * y.row + CV_LANES;
  float *packed = check_floats(blocks * y.plane);
  y.data = packed + halo * y.row + halo * CV_LANES;
  for (int id = 0; id < threads; id++)
    cv_pack((cv_thread){id, threads}, y, x + 1, l->channel, l->row, l->column);
  for (int c = 0; c < blocks * CV_LANES; c++)
    for (int h = -halo; h < height + halo; h++)
      for (int w = -halo; w < width + halo; w++) {
        const int inside = c < channels && h >= 0 && h < height && w >= 0 && w < width;
        const float expected = inside ? x[1 + c * l->channel + h * l->row + w * l->column] : 0.0f;
        const float got = y.data[(c / CV_LANES) * y.plane + h * y.row + w * y.step + c % CV_LANES];
        CHECK(got == expected, "pack %s %dx%dx%d: (%d, %d, %d): expected %g, got %g", l->name, channels,
              height, width, c, h, w, expected, got);
      }
  for (int b = 0; b < blocks; b++)
    for (int lane = 0; lane < CV_LANES; lane++)
      CHECK(isnan(packed[(b + 1) * y.plane - CV_LANES + lane]), "pack %s: wrote past the halo", l->name);

  for (int id = 0; id < threads; id++)
    cv_unpack((cv_thread){id, threads}, back + 1, l->channel, l->row, l->column, y);
  CHECK(isnan(back[0]) && isnan(back[count + 1]), "unpack %s: wrote outside of the tensor", l->name);
  for (int c = 0; c < channels; c++)
    for (int h = 0; h < height; h++)
      for (int w = 0; w < width; w++) {
        const ptrdiff_t i = 1 + c * l->channel + h * l->row + w * l->column;
        CHECK(back[i] == x[i], "unpack %s %dx%dx%d: (%d, %d, %d): expected %g, got %g", l->name, channels,
              height, width, c, h, w, x[i], back[i]);
      }

  cv_map z = {NULL, channels, height, width, 0, width + 2 * halo, 1, halo, halo, halo, halo, CV_FLOAT32};
  z.plane = (height + 2 * halo) * z.row;
  float *planar = check_floats(channels * z.plane);
  z.data = planar + halo * z.row + halo;
  for (int id = 0; id < threads; id++)
    cv_pack_planar((cv_thread){id, threads}, z, x + 1, l->channel, l->row, l->column);
  for (int c = 0; c < channels; c++)
    for (int h = -halo; h < height + halo; h++)
      for (int w = -halo; w < width + halo; w++) {
        const int inside = h >= 0 && h < height && w >= 0 && w < width;
        const float expected = inside ? x[1 + c * l->channel + h * l->row + w * l->column] : 0.0f;
        const float got = z.data[c * z.plane + h * z.row + w];
        CHECK(got == expected, "planar %s: (%d, %d, %d): expected %g, got %g", l->name, c, h, w, expected,
              got);
      }
  free(x);
  free(back);
  free(packed);
  free(planar);
}

int main(void) {
  const int channels[] = {1, 3, CV_LANES, 2 * CV_LANES + 5},
            widths[] = {1, 7, CV_LANES, 3 * CV_LANES + 2, 600};
  for (int c = 0; c < 4; c++)
    for (int w = 0; w < 5; w++)
      for (int halo = 0; halo < 3; halo++) {
        const int height = w == 4 ? 1 : 3;
        const layout layouts[] = {
            {"NCHW", (ptrdiff_t)height * widths[w], widths[w], 1},
            {"NHWC", 1, (ptrdiff_t)widths[w] * channels[c], channels[c]},
            {"CWHN with gaps", (ptrdiff_t)height * widths[w] * 2 + 3, 2, (ptrdiff_t)height * 2},
        };
        for (int l = 0; l < 3; l++) run(channels[c], height, widths[w], halo, 1 + halo, &layouts[l]);
      }
  return check_done();
}
