/* kernels/channels.h: channels copied at any offset, and shuffles, element by element. */
#include "kernels/channels.h"
#include "tests/check_bytes.h"
#include "tests/check_map.h"

/* y holds NaN before: only the channels asked for may change. */
static void check_copy(int y_channels, int y_channel, int x_channels, int x_channel, int count,
                       int threads) {
  const int height = 3, width = 5;
  cv_map x = check_map(x_channels, height, width, 0), y = check_map(y_channels, height, width, 1);
  check_map_fill(x);
  for (int id = threads - 1; id >= 0; id--) {
    cv_copy_channels((cv_thread){id, threads}, y, y_channel, x, x_channel, count);
  }
  for (int c = 0; c < cv_blocks(y_channels) * CV_LANES; c++) {
    const int copied = c >= y_channel && c < y_channel + count;
    const int zeroed = c >= y_channels && y_channel + count == y_channels;
    for (int i = -1; i < height * width; i++) {
      const float got = i < 0 ? *check_at(y, c, -1, 0) : *check_at(y, c, i / width, i % width);
      const double expected = i < 0    ? NAN
                              : copied ? *check_at(x, x_channel + c - y_channel, i / width, i % width)
                              : zeroed ? 0
                                       : NAN;
      CHECK(check_near(got, expected, 1, 0),
            "y[%d..%d of %d] = x[%d.. of %d]: y[%d] pixel %d = %g, expected %g", y_channel,
            y_channel + count, y_channels, x_channel, x_channels, c, i, got, expected);
    }
  }
  check_map_free(x), check_map_free(y);
}

static void check_shuffle(int groups, int size, int threads) {
  const int height = 4, width = 3, channels = groups * size;
  cv_map x = check_map(channels, height, width, 0), y = check_map(channels, height, width, 1);
  check_map_fill(x);
  for (int id = threads - 1; id >= 0; id--) cv_channel_shuffle((cv_thread){id, threads}, y, x, groups);
  for (int g = 0; g < groups; g++) {
    for (int k = 0; k < size; k++) {
      for (int i = 0; i < height * width; i++) {
        const float got = *check_at(y, k * groups + g, i / width, i % width);
        CHECK(got == *check_at(x, g * size + k, i / width, i % width), "groups %d size %d: y[%d]", groups,
              size, k * groups + g);
      }
    }
  }
  check_map_zeros(y, "shuffle");
  check_map_free(x), check_map_free(y);
}

/* The same of bytes. */
static void check_copy_bytes(int y_channels, int y_channel, int x_channels, int x_channel, int count,
                             int threads) {
  const int height = 3, width = 5;
  cv_byte_map x = check_bytes_map(x_channels, height, width, 0, CV_LANES);
  cv_byte_map y = check_bytes_map(y_channels, height, width, 1, CV_LANES);
  check_bytes_map_fill(x, CV_LANES);
  for (int id = threads - 1; id >= 0; id--) {
    cv_copy_byte_channels((cv_thread){id, threads}, y, y_channel, x, x_channel, count);
  }
  int wrong = 0;
  for (int c = 0; c < y_channels; c++)
    for (int i = -1; i < height * width; i++) {
      const int copied = i >= 0 && c >= y_channel && c < y_channel + count;
      const int got = i < 0 ? *check_byte_at(y, CV_LANES, c, -1, 0)
                            : *check_byte_at(y, CV_LANES, c, i / width, i % width);
      wrong += got !=
               (copied ? *check_byte_at(x, CV_LANES, x_channel + c - y_channel, i / width, i % width) : 99);
    }
  CHECK(wrong == 0, "bytes: y[%d..%d of %d] = x[%d.. of %d]: %d wrong", y_channel, y_channel + count,
        y_channels, x_channel, x_channels, wrong);
  check_bytes_free(x), check_bytes_free(y);
}

static void check_shuffle_bytes(int groups, int size, int threads) {
  const int height = 4, width = 3 + 3 * (size % 3), channels = groups * size;
  cv_byte_map x = check_bytes_map(channels, height, width, 0, CV_LANES);
  cv_byte_map y = check_bytes_map(channels, height, width, 1, CV_LANES);
  check_bytes_map_fill(x, CV_LANES);
  for (int id = threads - 1; id >= 0; id--)
    cv_shuffle_byte_channels((cv_thread){id, threads}, y, x, groups);
  int wrong = *check_byte_at(y, CV_LANES, 0, -1, 0) != 99;
  for (int c = 0; c < channels; c++)
    for (int i = 0; i < height * width; i++)
      wrong += *check_byte_at(y, CV_LANES, c % size * groups + c / size, i / width, i % width) !=
               *check_byte_at(x, CV_LANES, c, i / width, i % width);
  CHECK(wrong == 0, "bytes: groups %d size %d: %d wrong", groups, size, wrong);
  check_bytes_free(x), check_bytes_free(y);
}

int main(void) {
  const int offsets[] = {0, 1, 3, CV_LANES - 1, CV_LANES, CV_LANES + 2, 2 * CV_LANES};
  const int counts[] = {1, 2, CV_LANES - 1, CV_LANES, CV_LANES + 1, 2 * CV_LANES, 2 * CV_LANES + 3};
  for (size_t i = 0; i < 7; i++) {
    for (size_t j = 0; j < 7; j++) {
      for (size_t k = 0; k < 7; k++) {
        const int y_end = offsets[i] + counts[k], x_end = offsets[j] + counts[k];
        check_copy(y_end + (int)(i + k) % 3, offsets[i], x_end + (int)(j + k) % 4, offsets[j], counts[k],
                   1 + (int)(i + j + k) % 4);
        check_copy_bytes(y_end + (int)(i + k) % 3, offsets[i], x_end + (int)(j + k) % 4, offsets[j],
                         counts[k], 1 + (int)(i + j + k) % 4);
      }
    }
  }
  const int groups[] = {1, 2, 3, 4, 8}, sizes[] = {1, 3, 8, 15, 17, 34};
  for (size_t i = 0; i < 5; i++) {
    for (size_t j = 0; j < 6; j++) {
      check_shuffle(groups[i], sizes[j], 1 + (int)(i + j) % 3);
      check_shuffle_bytes(groups[i], sizes[j], 1 + (int)(i + j) % 3);
    }
  }
  return check_done();
}
