/* kernels/group_norm.h: maps and plain tensors against double; groups beside blocks, far from zero,
 * poisoned. */
#include "kernels/group_norm.h"
#include "tests/check_map.h"

#define EPSILON 1e-5f

typedef struct image {
  int groups, size, height, width;
  float mean, spread; /* x = mean + spread * random, but for group 0: there the mean is 0 */
  float poison;       /* one pixel of a group in the middle, unless 0 */
  int has_gamma, has_beta, threads;
  cv_activation outer;
} image;

static double activated(double v, cv_activation outer) {
  if (outer.kind == CV_CLAMP) return v < outer.a ? outer.a : v > outer.b ? outer.b : v;
  return outer.kind == CV_SIGMOID ? 1 / (1 + exp(-v)) : v;
}

/* x, y [groups * size][height * width], plain. */
static void check_answer(const image *m, const char *what, const float *x, const float *gamma,
                         const float *beta, const float *y) {
  const int pixels = m->height * m->width, count = m->size * pixels;
  for (int group = 0; group < m->groups; group++) {
    const float *from = x + (ptrdiff_t)group * count, *to = y + (ptrdiff_t)group * count;
    double mean = 0, variance = 0;
    for (int i = 0; i < count; i++) mean += (double)from[i] / count;
    for (int i = 0; i < count; i++) variance += (from[i] - mean) * (from[i] - mean) / count;
    for (int i = 0; i < count; i++) {
      const int c = group * m->size + i / pixels;
      const double normal = (from[i] - mean) / sqrt(variance + EPSILON);
      const double sum = normal * (gamma ? gamma[c] : 1) + (beta ? beta[c] : 0);
      CHECK(check_near(to[i], activated(sum, m->outer), fabs(normal) + 1, 2e-6),
            "%s %d groups of %dx%dx%d, mean %g +- %g, poison %g: y[%d][%d] = %g, expected %g", what,
            m->groups, m->size, m->height, m->width, m->mean, m->spread, m->poison, c, i % pixels, to[i],
            activated(sum, m->outer));
    }
  }
}

static void run_map(const image *m, const float *x, const float *gamma, const float *beta, float *y,
                    int x_halo, int y_halo, int pieces) {
  const int channels = m->groups * m->size, pixels = m->height * m->width;
  cv_map from = check_map(channels, m->height, m->width, x_halo);
  cv_map to = check_map(channels, m->height, m->width, y_halo);
  check_map_fill(from);
  for (int c = 0; c < channels; c++)
    for (int i = 0; i < pixels; i++) *check_at(from, c, i / m->width, i % m->width) = x[c * pixels + i];
  const int most = cv_is_flat(from) ? pixels : m->height;
  pieces = pieces < most ? pieces : most;
  float *sums = check_floats((ptrdiff_t)pieces * cv_blocks(channels) * CV_GROUP_SUMS * CV_LANES);
  for (int id = m->threads - 1; id >= 0; id--) {
    cv_group_sums((cv_thread){id, m->threads}, sums, from, pieces);
  }
  for (int id = m->threads - 1; id >= 0; id--) {
    cv_group_norm_map((cv_thread){id, m->threads}, to, from, sums, pieces, gamma, beta, m->size, EPSILON,
                      m->outer);
  }
  for (int c = 0; c < channels; c++)
    for (int i = 0; i < pixels; i++) y[c * pixels + i] = *check_at(to, c, i / m->width, i % m->width);
  check_map_zeros(to, "group norm");
  check_map_free(from), check_map_free(to), free(sums);
}

static void check_group_norm(image m) {
  const int channels = m.groups * m.size, pixels = m.height * m.width;
  const ptrdiff_t size = (ptrdiff_t)channels * pixels, group = size / m.groups;
  float *x = check_floats(size + 1), *y = check_floats(size + 2), *gamma = check_floats(channels),
        *beta = check_floats(channels);
  for (ptrdiff_t i = 0; i < size; i++) x[1 + i] = (i < group ? 0 : m.mean) + m.spread * check_random();
  if (m.poison != 0) x[1 + m.groups / 2 * group + group / 2] = m.poison;
  check_fill(gamma, channels);
  check_fill(beta, channels);
  const float *g = m.has_gamma ? gamma : NULL, *b = m.has_beta ? beta : NULL;
  y[0] = y[size + 1] = 7;
  for (int id = m.threads - 1; id >= 0; id--) {
    cv_group_norm_plain((cv_thread){id, m.threads}, y + 1, x + 1, g, b, m.groups, m.size, pixels, EPSILON,
                        m.outer);
  }
  CHECK(y[0] == 7 && y[size + 1] == 7, "wrote beside y");
  check_answer(&m, "plain", x + 1, g, b, y + 1);
  for (int halos = 0; halos < 4; halos++) {
    run_map(&m, x + 1, g, b, y + 1, halos % 2, halos / 2, 1 + 2 * halos);
    check_answer(&m, "map", x + 1, g, b, y + 1);
  }
  free(x), free(y), free(gamma), free(beta);
}

int main(void) {
  const int shapes[][4] = {{1, 1, 1, 1},  {1, 3, 2, 5}, {4, 1, 7, 6},  {32, 1, 4, 4}, {8, 2, 5, 3},
                           {6, 10, 4, 9}, {3, 7, 1, 8}, {2, 16, 3, 3}, {1, 40, 6, 5}, {2, 33, 9, 1}};
  const cv_activation identity = {CV_IDENTITY, 0, 0}, relu = {CV_CLAMP, 0, INFINITY},
                      sigmoid = {CV_SIGMOID, 0, 0};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const int *s = shapes[i], threads = 1 + (int)i % 4;
    check_group_norm((image){s[0], s[1], s[2], s[3], 0, 1, 0, 1, 1, threads, identity});
    check_group_norm((image){s[0], s[1], s[2], s[3], 2, 0.1f, 0, 1, 0, threads, relu});
    check_group_norm((image){s[0], s[1], s[2], s[3], 0, 1, 0, 0, 1, 3, sigmoid});
    check_group_norm((image){s[0], s[1], s[2], s[3], 1e4f, 0.01f, 0, 1, 1, threads, identity});
    check_group_norm((image){s[0], s[1], s[2], s[3], 0, 1e-12f, 0, 1, 1, threads, identity});
    check_group_norm((image){s[0], s[1], s[2], s[3], 0, 1e15f, 0, 1, 1, threads, identity});
    check_group_norm((image){s[0], s[1], s[2], s[3], 7, 0, 0, 1, 1, threads, identity});
    check_group_norm((image){s[0], s[1], s[2], s[3], 0, 1, 1000, 1, 1, threads, identity});
    const float poisons[] = {NAN, INFINITY, -INFINITY};
    for (int p = 0; p < 3; p++) {
      check_group_norm((image){s[0], s[1], s[2], s[3], 0, 1, poisons[p], 1, 1, threads, identity});
      check_group_norm((image){s[0], s[1], s[2], s[3], 0, 1, poisons[p], 1, 1, threads, sigmoid});
    }
  }
  check_group_norm((image){2, 5, 130, 140, 5, 1, 0, 1, 1, 2, identity});
  return check_done();
}
