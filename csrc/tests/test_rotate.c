/* kernels/rotate.h against double: every order of x and y in memory, halves and neighbours, numbers of
 * pairs around a vector, angles that rows have in common, NaN and infinities. */
#include "kernels/rotate.h"
#include "tests/check.h"
#include "tests/check_strides.h"

enum { GUARD = 3 };

/* The axes from the slowest: two of the stack, the two of a pair, pairs. */
static const char *const orders[] = {"oirc", "oicr", "roic", "rcoi", "orci", "iocr"};

typedef struct rotation_case {
  int outer, inner, pairs, threads;
  const char *x, *y, *angles;
  int common; /* the outer axis has one cos and one sin, and so have both of a pair */
  float poison;
} rotation_case;

static float at(const float *data, const cv_strides *s, int o, int i, int r, int c) {
  return *check_element(data, s, 0, o, i, r, c);
}

static void check_rotation(const rotation_case *c) {
  cv_rotation r = {.stack = {c->outer, 1, c->inner, 1}, .pairs = c->pairs};
  const int sizes[] = {c->outer, c->inner, 2, c->pairs};
  const int few[] = {c->common ? 1 : c->outer, c->inner, c->common ? 1 : 2, c->pairs};
  cv_strides *const strides[] = {&r.x_strides, &r.cos_strides, &r.sin_strides, &r.y_strides};
  float *data[4];
  for (int i = 0; i < 4; i++) {
    const int angles = i == 1 || i == 2;
    const char *order = angles ? c->angles : i == 0 ? c->x : c->y;
    const ptrdiff_t size = check_lay_out(order, angles ? few : sizes, 0, strides[i]);
    if (angles && c->common) strides[i]->stack[0] = strides[i]->row = 0;
    data[i] = check_floats(1 + size + GUARD);
    if (i < 3) check_fill(data[i], 1 + size);
    for (int g = 0; g < GUARD; g++) data[i][1 + size + g] = 7;
    if (i == 0 && c->poison != 0) data[0][1 + size / 2] = c->poison;
  }
  r.x = data[0] + 1, r.cos = data[1] + 1, r.sin = data[2] + 1, r.y = data[3] + 1;
  for (int id = c->threads - 1; id >= 0; id--) cv_rotate((cv_thread){id, c->threads}, &r);
  for (int o = 0; o < c->outer; o++) {
    for (int i = 0; i < c->inner; i++) {
      for (int p = 0; p < c->pairs; p++) {
        const double a = at(r.x, strides[0], o, i, 0, p), b = at(r.x, strides[0], o, i, 1, p);
        const double want[] = {
            a * at(r.cos, strides[1], o, i, 0, p) - b * at(r.sin, strides[2], o, i, 0, p),
            b * at(r.cos, strides[1], o, i, 1, p) + a * at(r.sin, strides[2], o, i, 1, p)};
        for (int side = 0; side < 2; side++) {
          const float got = at(r.y, strides[3], o, i, side, p);
          CHECK(check_near(got, want[side], 1, 1e-6),
                "%d x %d, %d pairs, x %s, y %s, angles %s: %g, not %g", c->outer, c->inner, c->pairs, c->x,
                c->y, c->angles, got, want[side]);
        }
      }
    }
  }
  const ptrdiff_t size = (ptrdiff_t)c->outer * c->inner * 2 * c->pairs;
  for (int g = 0; g < GUARD; g++) CHECK(data[3][1 + size + g] == 7, "wrote behind y");
  for (int i = 0; i < 4; i++) free(data[i]);
}

int main(void) {
  const int pairs[] = {1, 3, 8, 16, 17, 40};
  const float poisons[] = {0, NAN, INFINITY, -INFINITY};
  int turn = 0;
  for (int x = 0; x < 6; x++) {
    for (int y = 0; y < 6; y++) {
      for (int n = 0; n < 6; n++, turn++) {
        const rotation_case c = {1 + turn % 3,         1 + turn % 4,  pairs[n],
                                 1 + turn % 3,         orders[x],     orders[y],
                                 orders[turn / 5 % 6], turn % 2 == 0, poisons[turn % 7 < 4 ? turn % 7 : 0]};
        check_rotation(&c);
      }
    }
  }
  return check_done();
}
