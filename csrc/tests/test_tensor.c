/* kernels/tensor.h: transposes, slices, broadcasts, padding, row copies, element by element. */
#include "kernels/tensor.h"
#include "tests/check_bytes.h"

enum { LIMIT = 4 };

static ptrdiff_t product(int rank, const ptrdiff_t *shape) {
  ptrdiff_t n = 1;
  for (int a = 0; a < rank; a++) n *= shape[a];
  return n;
}

/* Reads y's element `at` through the strides of x. */
static ptrdiff_t source_of(ptrdiff_t at, int rank, const ptrdiff_t *y_shape, const ptrdiff_t *x_strides) {
  ptrdiff_t offset = 0;
  for (int a = rank - 1; a >= 0; a--) {
    offset += at % y_shape[a] * x_strides[a];
    at /= y_shape[a];
  }
  return offset;
}

static void check_strided(const char *what, int rank, const ptrdiff_t *y_shape, const ptrdiff_t *x_strides,
                          int threads) {
  const ptrdiff_t size = product(rank, y_shape);
  ptrdiff_t reach = 1;
  for (int a = 0; a < rank; a++) reach += (y_shape[a] - 1) * x_strides[a];
  float *x = check_floats(reach + 1), *y = check_floats(size + 2);
  check_fill(x, reach + 1);
  y[size + 1] = 7;
  for (int id = threads - 1; id >= 0; id--) {
    cv_transpose_plain((cv_thread){id, threads}, y + 1, x + 1, rank, y_shape, x_strides);
  }
  uint8_t *bytes = check_bytes(reach, 0), *moved = check_bytes(size + 1, 99);
  check_fill_bytes(bytes, reach);
  for (int id = threads - 1; id >= 0; id--) {
    cv_transpose_bytes((cv_thread){id, threads}, moved, bytes, rank, y_shape, x_strides);
  }
  ptrdiff_t wrong = moved[size] != 99;
  for (ptrdiff_t i = 0; i < size; i++) wrong += moved[i] != bytes[source_of(i, rank, y_shape, x_strides)];
  CHECK(wrong == 0, "bytes: %s, rank %d: %td of %td elements wrong", what, rank, wrong, size);
  free(bytes), free(moved);
  wrong = 0;
  for (ptrdiff_t i = 0; i < size; i++) wrong += y[1 + i] != x[1 + source_of(i, rank, y_shape, x_strides)];
  CHECK(wrong == 0 && y[size + 1] == 7, "%s, rank %d: %td of %td elements wrong", what, rank, wrong, size);
  free(x), free(y);
}

/* Every permutation of the axes of a tensor. */
static void check_permutations(int rank, const ptrdiff_t *x_shape) {
  int count = 1;
  for (int i = 2; i <= rank; i++) count *= i;
  for (int n = 0; n < count; n++) {
    int left[LIMIT] = {0, 1, 2, 3};
    ptrdiff_t y_shape[LIMIT], strides[LIMIT];
    for (int a = 0, code = n; a < rank; a++) {
      const int pick = code % (rank - a), axis = left[pick];
      code /= rank - a;
      for (int i = pick; i + 1 < rank - a; i++) left[i] = left[i + 1];
      y_shape[a] = x_shape[axis];
      strides[a] = product(rank - axis - 1, x_shape + axis + 1);
    }
    check_strided("permutation", rank, y_shape, strides, 1 + n % 4);
  }
}

/* What NumPy says in place of index i outside an axis of n, walking there from inside; -1: the constant. */
static ptrdiff_t walk_outside(ptrdiff_t i, ptrdiff_t n, cv_pad_mode mode) {
  ptrdiff_t at = i < 0 ? 0 : n - 1, step = i < 0 ? -1 : 1;
  const ptrdiff_t far = i < 0 ? n - 1 : 0, steps = i < 0 ? -i : i - n + 1;
  for (ptrdiff_t k = 0; k < steps; k++) {
    if (mode == CV_PAD_CONSTANT) return -1;
    if (mode == CV_PAD_WRAP) at = k == 0 ? far : at + step;
    if (mode == CV_PAD_REFLECT) at -= step;
    if (mode == CV_PAD_SYMMETRIC && k > 0) at -= step;
  }
  return at;
}

static void check_pad(int rank, const ptrdiff_t *x_shape, const ptrdiff_t *before, const ptrdiff_t *after,
                      cv_pad_mode mode, int threads) {
  ptrdiff_t y_shape[LIMIT], x_strides[LIMIT];
  for (int a = 0; a < rank; a++) {
    y_shape[a] = before[a] + x_shape[a] + after[a];
    x_strides[a] = product(rank - a - 1, x_shape + a + 1);
  }
  const ptrdiff_t size = product(rank, y_shape);
  float *x = check_floats(product(rank, x_shape)), *y = check_floats(size + 1);
  check_fill(x, product(rank, x_shape));
  y[size] = 7;
  for (int id = threads - 1; id >= 0; id--) {
    cv_pad_plain((cv_thread){id, threads}, y, x, rank, x_shape, before, y_shape, mode, -2.5f);
  }
  const ptrdiff_t count = product(rank, x_shape);
  uint8_t *bytes = check_bytes(count, 0), *padded = check_bytes(size + 1, 99);
  check_fill_bytes(bytes, count);
  for (int id = threads - 1; id >= 0; id--) {
    cv_pad_bytes((cv_thread){id, threads}, padded, bytes, rank, x_shape, before, y_shape, mode, 200);
  }
  ptrdiff_t wrong = padded[size] != 99;
  for (ptrdiff_t i = 0; i < size; i++) {
    ptrdiff_t rest = i, offset = 0;
    int inside = 1;
    for (int a = rank - 1; a >= 0; a--) {
      ptrdiff_t index = rest % y_shape[a] - before[a];
      if (index < 0 || index >= x_shape[a]) index = walk_outside(index, x_shape[a], mode);
      inside &= index >= 0;
      offset += index * x_strides[a];
      rest /= y_shape[a];
    }
    wrong += y[i] != (inside ? x[offset] : -2.5f) || padded[i] != (inside ? bytes[offset] : 200);
  }
  free(bytes), free(padded);
  CHECK(wrong == 0 && y[size] == 7, "pad, mode %d, rank %d, threads %d: %td of %td elements wrong", mode,
        rank, threads, wrong, size);
  free(x), free(y);
}

static void check_rows(ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t y_gap, ptrdiff_t x_gap, int threads) {
  const ptrdiff_t y_stride = columns + y_gap, x_stride = columns + x_gap;
  float *x = check_floats(rows * x_stride), *y = check_floats(rows * y_stride);
  check_fill(x, rows * x_stride);
  for (int id = threads - 1; id >= 0; id--) {
    cv_copy_rows((cv_thread){id, threads}, y, y_stride, x, x_stride, rows, columns);
  }
  uint8_t *bytes = check_bytes(rows * x_stride, 0), *copied = check_bytes(rows * y_stride, 99);
  check_fill_bytes(bytes, rows * x_stride);
  for (int id = threads - 1; id >= 0; id--) {
    cv_copy_byte_rows((cv_thread){id, threads}, copied, y_stride, bytes, x_stride, rows, columns);
  }
  ptrdiff_t wrong = 0;
  for (ptrdiff_t i = 0; i < rows * y_stride; i++) {
    const ptrdiff_t r = i / y_stride, c = i % y_stride;
    wrong += c < columns ? y[i] != x[r * x_stride + c] : !isnan(y[i]);
    wrong += copied[i] != (c < columns ? bytes[r * x_stride + c] : 99);
  }
  free(bytes), free(copied);
  CHECK(wrong == 0, "%td rows of %td: %td elements wrong", rows, columns, wrong);
  free(x), free(y);
}

int main(void) {
  const ptrdiff_t shapes[][LIMIT] = {
      {2, 3, 4, 5},  {3, 17, 33, 2}, {1, 16, 32, 48}, {2, 1, 35, 19},
      {7, 1, 1, 64}, {1, 1, 1, 1},   {1, 5, 64, 16},
  };
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    for (int rank = 1; rank <= LIMIT; rank++) check_permutations(rank, shapes[i] + LIMIT - rank);
  }
  check_permutations(2, (const ptrdiff_t[]){20000, 3});
  check_permutations(1, (const ptrdiff_t[]){3 * CV_TENSOR_PIECE + 5});
  /* A scalar; every other row and column; a broadcast row, column and plane. */
  check_strided("scalar", 0, NULL, NULL, 2);
  check_strided("slice", 3, (const ptrdiff_t[]){3, 7, 9}, (const ptrdiff_t[]){400, 40, 2}, 2);
  check_strided("slice", 2, (const ptrdiff_t[]){33, 40}, (const ptrdiff_t[]){1, 70}, 3);
  check_strided("broadcast", 2, (const ptrdiff_t[]){9, 33}, (const ptrdiff_t[]){0, 1}, 2);
  check_strided("broadcast", 2, (const ptrdiff_t[]){9, 33}, (const ptrdiff_t[]){1, 0}, 2);
  check_strided("broadcast", 4, (const ptrdiff_t[]){2, 3, 5, 7}, (const ptrdiff_t[]){3, 1, 0, 0}, 4);

  /* Elements that lie side by side in the one and few apart in the other, of vectors and pieces and a rest.
   */
  for (ptrdiff_t apart = 2; apart <= CV_MOST_APART + 1; apart++) {
    for (ptrdiff_t n = CV_LANES - 1; n < 2 * CV_TENSOR_PIECE; n = 3 * n + 1) {
      const int threads = 1 + (int)(n % 3);
      check_strided("every other", 2, (const ptrdiff_t[]){3, n}, (const ptrdiff_t[]){n * apart, apart},
                    threads);
      check_strided("taken apart", 3, (const ptrdiff_t[]){2, apart, n},
                    (const ptrdiff_t[]){n * apart, 1, apart}, threads);
      check_strided("put between", 3, (const ptrdiff_t[]){2, n, apart},
                    (const ptrdiff_t[]){n * apart, 1, n}, threads);
      check_strided("two of them", 2, (const ptrdiff_t[]){2, n}, (const ptrdiff_t[]){1, apart}, threads);
    }
  }

  const ptrdiff_t none[LIMIT] = {0}, some[LIMIT] = {0, 1, 2, 3}, last[LIMIT] = {0, 0, 0, 4},
                  channels[LIMIT] = {0, 2, 0, 0};
  const ptrdiff_t *const widths[] = {none, some, last, channels};
  for (int i = 0; i < 4; i++) {
    for (int j = 0; j < 4; j++) {
      for (int threads = 1; threads < 4; threads++) {
        for (int mode = CV_PAD_CONSTANT; mode <= CV_PAD_WRAP; mode++) {
          check_pad(4, shapes[0], widths[i], widths[j], (cv_pad_mode)mode, threads);
          check_pad(2, shapes[3] + 2, widths[i] + 2, widths[j] + 2, (cv_pad_mode)mode, threads);
          check_pad(1, shapes[4] + 3, widths[i] + 3, widths[j] + 3, (cv_pad_mode)mode, threads);
        }
      }
    }
  }
  for (int threads = 1; threads < 5; threads++) {
    check_rows(1, 1, 0, 0, threads);
    check_rows(5, 33, 2, 0, threads);
    check_rows(3, 2 * CV_TENSOR_PIECE + 7, 0, 5, threads);
  }
  return check_done();
}
