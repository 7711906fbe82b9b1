/* kernels/table.h: every byte, runs of any length, maps with halos. */
#include <math.h>

#include "kernels/table.h"
#include "tests/check_bytes.h"

static void check_table(const cv_table *table) {
  const uint8_t *entries = table->entries;
  for (ptrdiff_t count = 0; count < 400; count += count < 70 ? 1 : 37)
    for (int threads = 1; threads < 4; threads++) {
      uint8_t *x = check_bytes(count + 1, 0), *y = check_bytes(count + 2, 99);
      for (ptrdiff_t i = 0; i <= count; i++) x[i] = (uint8_t)(i * 7 + count);
      for (int id = 0; id < threads; id++)
        cv_table_bytes((cv_thread){id, threads}, y + 1, x + 1, table, count);
      int wrong = y[0] != 99 || y[count + 1] != 99;
      for (ptrdiff_t i = 0; i < count; i++) wrong += y[i + 1] != entries[x[i + 1]];
      CHECK(wrong == 0, "run of %td, %d threads: %d wrong", count, threads, wrong);
      for (int id = 0; id < threads; id++)
        cv_table_bytes((cv_thread){id, threads}, x + 1, x + 1, table, count);
      CHECK(memcmp(x + 1, y + 1, (size_t)count) == 0, "run of %td in its own place", count);
      free(x), free(y);
    }
  const int channels[] = {1, CV_LANES, 2 * CV_LANES + 3};
  for (int c = 0; c < 3; c++)
    for (int halo = 0; halo < 2; halo++) {
      cv_byte_map x = check_bytes_map(channels[c], 3, 11, halo, CV_LANES);
      cv_byte_map y = check_bytes_map(channels[c], 3, 11, 1 - halo, CV_LANES);
      check_bytes_map_fill(x, CV_LANES);
      for (int id = 0; id < 2; id++) {
        cv_table_map((cv_thread){id, 2}, y, x, table);
        cv_byte_map_fill_halo((cv_thread){id, 2}, y, CV_LANES, CHECK_ZERO);
      }
      check_bytes_halo(y, CV_LANES, "table");
      int wrong = 0;
      for (int k = 0; k < channels[c]; k++)
        for (int i = 0; i < 33; i++)
          wrong += *check_byte_at(y, CV_LANES, k, i / 11, i % 11) !=
                   entries[*check_byte_at(x, CV_LANES, k, i / 11, i % 11)];
      CHECK(wrong == 0, "map of %d channels: %d wrong", channels[c], wrong);
      check_bytes_free(x), check_bytes_free(y);
    }
}

int main(void) {
  uint8_t *entries = check_bytes(256, 0);
  check_fill_bytes(entries, 256);
  check_table(&(cv_table){.entries = entries});
  const cv_table lines[] = {
      {entries, 1, 0.7f, -0.7f * 131, -100, 80, 100}, /* held on both sides */
      {entries, 1, 0.5f, -0.5f * 3, -17, 238, 17},    /* ties */
      {entries, 1, -4.0f, 400, -3, 252, 3},           /* downwards */
      {entries, 1, 0.25f, 0, 20, 30, 0},
  };
  for (int i = 0; i < 4; i++) {
    const cv_table *t = &lines[i];
    for (int x = 0; x < 256; x++) {
      const volatile float product = (float)x * t->scale; /* rounded by itself */
      const double steps = fmin(fmax(rintf(product + t->shift), t->low), t->high) + t->zero;
      entries[x] = (uint8_t)steps;
    }
    check_table(t);
  }
  free(entries);
  return check_done();
}
