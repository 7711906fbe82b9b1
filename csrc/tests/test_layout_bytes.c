/* cv_pack_bytes, cv_unpack_bytes and their forms of floats: every element in its place, the zero point
 * around, nothing else touched. */
#include "kernels/layout_bytes.h"
#include "tests/check_bytes.h"

typedef struct layout {
  const char *name;
  ptrdiff_t channel, row, column;
} layout;

static const cv_scale unsigned_scale = {0.0625f, 101, 0, 255}, signed_scale = {0.0078125f, -3, -128, 127};

static void run(int channels, int height, int width, int halo, int lanes, int threads, const layout *l) {
  const ptrdiff_t count = (channels - 1) * l->channel + (height - 1) * l->row + (width - 1) * l->column + 1;
  uint8_t *x = check_bytes(count + 1, 0), *back = check_bytes(count + 2, 99);
  float *floats = check_floats(count + 1), *floats_back = check_floats(count + 2);
  check_fill_bytes(x + 1, count);
  check_fill(floats + 1, count);
  floats[1] = NAN;
  const cv_scale s = halo % 2 ? signed_scale : unsigned_scale;
  cv_byte_map y = check_bytes_map(channels, height, width, halo, lanes);
  cv_byte_map z = check_bytes_map(channels, height, width, halo, lanes);
  for (int id = 0; id < threads; id++) {
    const cv_thread t = {id, threads};
    cv_pack_bytes(t, y, lanes, CHECK_ZERO, x + 1, l->channel, l->row, l->column);
    cv_pack_floats(t, z, lanes, CHECK_ZERO, floats + 1, l->channel, l->row, l->column, s);
  }
  check_bytes_halo(y, lanes, l->name);
  check_bytes_halo(z, lanes, l->name);
  for (int id = 0; id < threads; id++) {
    const cv_thread t = {id, threads};
    cv_unpack_bytes(t, back + 1, l->channel, l->row, l->column, y, lanes);
    cv_unpack_floats(t, floats_back + 1, l->channel, l->row, l->column, z, lanes, s);
  }
  CHECK(back[0] == 99 && back[count + 1] == 99, "unpack %s: wrote outside of the tensor", l->name);
  CHECK(isnan(floats_back[0]) && isnan(floats_back[count + 1]), "unpack %s: wrote outside", l->name);
  for (int c = 0; c < (channels + lanes - 1) / lanes * lanes; c++)
    for (int h = 0; h < height; h++)
      for (int w = 0; w < width; w++) {
        const ptrdiff_t i = 1 + c * l->channel + h * l->row + w * l->column;
        const int got = *check_byte_at(y, lanes, c, h, w), q = *check_byte_at(z, lanes, c, h, w);
        if (c >= channels) {
          CHECK(got == 0 && q == 0, "pack %s: spare lane %d is %d and %d", l->name, c, got, q);
          continue;
        }
        CHECK(got == x[i] && back[i] == x[i], "%s %dx%dx%d: (%d, %d, %d): expected %d, got %d, then %d",
              l->name, channels, height, width, c, h, w, x[i], got, back[i]);
        const int value = s.low < 0 ? (int8_t)q : q;
        const int right = isnan(floats[i]) ? value == s.low : check_quantised(value, floats[i], s);
        CHECK(right, "%s (%d, %d, %d): %g became %d", l->name, c, h, w, floats[i], value);
        CHECK(floats_back[i] == (float)(value - s.zero) * s.scale, "%s (%d, %d, %d): %d became %g", l->name,
              c, h, w, value, floats_back[i]);
      }
  free(x);
  free(back);
  free(floats);
  free(floats_back);
  check_bytes_free(y);
  check_bytes_free(z);
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
        for (int l = 0; l < 3; l++) {
          run(channels[c], height, widths[w], halo, CV_LANES, 1 + halo, &layouts[l]);
          if (c < 2) run(channels[c], height, widths[w], halo, 4, 1 + halo, &layouts[l]);
        }
      }
  return check_done();
}
