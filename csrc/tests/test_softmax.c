/* kernels/softmax.h: softmax and log-softmax against double, also shifted far out, in place, with NaN. */
#include "kernels/softmax.h"
#include "tests/check.h"

static void check_softmax(int outer, int axis, int inner, int threads, float shift, float poison,
                          int in_place) {
  const ptrdiff_t size = (ptrdiff_t)outer * axis * inner;
  float *x = check_floats(size + 1), *y = check_floats(size + 2), *source = check_floats(size);
  for (ptrdiff_t i = 0; i < size; i++) source[i] = 5 * check_random() + shift;
  if (poison != 0) source[(ptrdiff_t)(outer / 2) * axis * inner] = poison;
  for (int log = 0; log < 2; log++) {
    memcpy(x + 1, source, (size_t)size * sizeof *x);
    float *out = in_place ? x + 1 : y + 1;
    y[size + 1] = 7;
    for (int id = threads - 1; id >= 0; id--) {
      cv_softmax((cv_thread){id, threads}, out, x + 1, outer, axis, inner, log);
    }
    for (int o = 0; o < outer; o++) {
      for (int i = 0; i < inner; i++) {
        const float *row = source + (ptrdiff_t)o * axis * inner + i;
        double max = -INFINITY, sum = 0;
        for (int a = 0; a < axis; a++)
          max = row[(ptrdiff_t)a * inner] > max ? row[(ptrdiff_t)a * inner] : max;
        for (int a = 0; a < axis; a++) sum += exp(row[(ptrdiff_t)a * inner] - max);
        for (int a = 0; a < axis; a++) {
          const double v = row[(ptrdiff_t)a * inner] - max;
          const double expected = log ? v - (double)logl(sum) : exp(v) / sum;
          const float got = out[((ptrdiff_t)o * axis + a) * inner + i];
          CHECK(check_near(got, expected, log ? fabs(expected) + 1 : expected, 2e-6),
                "[%d][%d][%d] log %d shift %g: y[%d][%d][%d] = %g, expected %g", outer, axis, inner, log,
                shift, o, a, i, got, expected);
        }
      }
    }
    CHECK(y[size + 1] == 7, "wrote past y");
  }
  free(x), free(y), free(source);
}

int main(void) {
  const int axes[] = {1, 2, 3, 7, 15, 16, 17, 100, 1000}, inners[] = {1, 2, 5, 16, 37};
  for (size_t i = 0; i < 9; i++) {
    for (size_t j = 0; j < 5; j++) {
      check_softmax(3, axes[i], inners[j], 1 + (int)(i + j) % 4, 0, 0, (int)j % 2);
      check_softmax(2, axes[i], inners[j], 2, -500, 0, 0);
      check_softmax(2, axes[i], inners[j], 3, 1e4f, 0, 1);
      check_softmax(3, axes[i], inners[j], 2, 0, NAN, 0);
      check_softmax(3, axes[i], inners[j], 2, 0, -INFINITY, 0);
      check_softmax(3, axes[i], inners[j], 1, 0, INFINITY, 0);
    }
  }
  check_softmax(1, 50257, 1, 1, 0, 0, 0);
  return check_done();
}
