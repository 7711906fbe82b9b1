/* kernels/table.h: every byte, runs of any length, maps with halos. */
#include "kernels/table.h"
#include "tests/check_bytes.h"

int main(void) {
  uint8_t *table = check_bytes(256, 0);
  check_fill_bytes(table, 256);
  for (ptrdiff_t count = 0; count < 400; count += count < 70 ? 1 : 37)
    for (int threads = 1; threads < 4; threads++) {
      uint8_t *x = check_bytes(count + 1, 0), *y = check_bytes(count + 2, 99);
      for (ptrdiff_t i = 0; i <= count; i++) x[i] = (uint8_t)(i * 7 + count);
      for (int id = 0; id < threads; id++)
        cv_table_bytes((cv_thread){id, threads}, y + 1, x + 1, table, count);
      int wrong = y[0] != 99 || y[count + 1] != 99;
      for (ptrdiff_t i = 0; i < count; i++) wrong += y[i + 1] != table[x[i + 1]];
      CHECK(wrong == 0, "run of %td, %d threads: %d wrong", count, threads, wrong);
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
                   table[*check_byte_at(x, CV_LANES, k, i / 11, i % 11)];
      CHECK(wrong == 0, "map of %d channels: %d wrong", channels[c], wrong);
      check_bytes_free(x), check_bytes_free(y);
    }
  free(table);
  return check_done();
}
