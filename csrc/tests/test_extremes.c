/* kernels/extremes.h: the greatest and the least of maps and of plain tensors, as they are found one by
 * one. */
#include "kernels/extremes.h"
#include "tests/check_map.h"

/* The greater, or the lesser, of what was found and v; NaN where either is. */
static float fold(float found, float v, int most) {
  if (isnan(found) || isnan(v)) return NAN;
  return (most ? v > found : v < found) ? v : found;
}

static void check_of_map(int channels, int height, int width, int threads, float poison) {
  cv_map x = check_map(channels, height, width, threads % 2);
  cv_map most = check_map(channels, 1, 1, 0), least = check_map(channels, 1, 1, 0);
  check_map_fill(x);
  if (poison != 0) *check_at(x, channels - 1, height / 2, width / 2) = poison;
  for (int id = threads - 1; id >= 0; id--) cv_extremes_map((cv_thread){id, threads}, most, least, x);
  for (int c = 0; c < channels; c++) {
    float high = -INFINITY, low = INFINITY;
    for (int i = 0; i < height * width; i++) {
      high = fold(high, *check_at(x, c, i / width, i % width), 1);
      low = fold(low, *check_at(x, c, i / width, i % width), 0);
    }
    CHECK(check_near(*check_at(most, c, 0, 0), high, 1, 0), "%dx%dx%d: most of %d is %g, expected %g",
          channels, height, width, c, *check_at(most, c, 0, 0), high);
    CHECK(check_near(*check_at(least, c, 0, 0), low, 1, 0), "%dx%dx%d: least of %d is %g, expected %g",
          channels, height, width, c, *check_at(least, c, 0, 0), low);
  }
  check_map_free(x), check_map_free(most), check_map_free(least);
}

static void check_of_pieces(int count, int pieces, int threads, int poisoned, float poison) {
  float *x = check_floats(count + 2), *most = check_floats(pieces + 1), *least = check_floats(pieces + 1);
  check_fill(x, count + 2);
  x[0] = NAN, x[count + 1] = NAN; /* beside the tensor */
  if (poison != 0) x[1 + poisoned] = poison;
  most[pieces] = least[pieces] = 7;
  for (int id = 0; id < threads; id++)
    cv_extremes_pieces((cv_thread){id, threads}, most, least, x + 1, count, pieces);
  float high = -INFINITY, low = INFINITY, highest = -INFINITY, lowest = INFINITY;
  for (int i = 1; i <= count; i++) high = fold(high, x[i], 1), low = fold(low, x[i], 0);
  for (int i = 0; i < pieces; i++) highest = fold(highest, most[i], 1), lowest = fold(lowest, least[i], 0);
  CHECK(check_near(highest, high, 1, 0), "most of %d in %d is %g, expected %g", count, pieces, highest,
        high);
  CHECK(check_near(lowest, low, 1, 0), "least of %d in %d is %g, expected %g", count, pieces, lowest, low);
  CHECK(most[pieces] == 7 && least[pieces] == 7, "%d in %d: wrote past the parts", count, pieces);
  free(x), free(most), free(least);
}

int main(void) {
  const int channels[] = {1, CV_LANES - 1, CV_LANES, 2 * CV_LANES + 5};
  const float poisons[] = {0, NAN, INFINITY, -INFINITY};
  for (int c = 0; c < 4; c++)
    for (int p = 0; p < 4; p++) {
      check_of_map(channels[c], 1, 1, 1, poisons[p]);
      check_of_map(channels[c], 5, 7, 2, poisons[p]);
      check_of_map(channels[c], 6, 4, 3, poisons[p]);
    }
  const int counts[] = {0, 1, 3, CV_LANES, 2 * CV_LANES + 3, 31 * CV_LANES, 1000, 4099};
  for (int i = 0; i < 8; i++)
    for (int p = 0; p < 4; p++) {
      if (counts[i] == 0 && p > 0) continue;
      check_of_pieces(counts[i], 1, 1, counts[i] / 2, poisons[p]);
      check_of_pieces(counts[i], 32, 1, counts[i] - 1, poisons[p]);
      check_of_pieces(counts[i], 32, 3, counts[i] / 3, poisons[p]);
      check_of_pieces(counts[i], 7, 2, 0, poisons[p]);
    }
  return check_done();
}
