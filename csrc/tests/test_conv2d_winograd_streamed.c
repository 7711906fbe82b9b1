/* cv_conv2d_winograd_streamed against the definition of convolution, in double precision, with and without
 * dilation; with numbers, with values that are not finite, and with sums that nearly overflow.  A pool that
 * follows against the pool by itself. */
#include "tests/check_winograd.h"

/* Forms of the last tile, those that pools are tested with, and dilations. */
/* clang-format off */
#define PLAIN(X) X(2, 4) X(4, 3) CHECK_MORE(X(2, 2) X(3, 2) X(3, 4))
#define POOLED(X) X(3, 3) X(4, 4)
#define DILATED(X) X(1, 3) X(2, 2)
/* clang-format on */

#define DEFINE(HEIGHT, WIDTH) CV_WINOGRAD_STREAMED(streamed_##HEIGHT##x##WIDTH, HEIGHT, WIDTH, 1, 1, 0)
#define DEFINE_POOLED(HEIGHT, WIDTH) \
  DEFINE(HEIGHT, WIDTH)              \
  CV_WINOGRAD_STREAMED(streamed_##HEIGHT##x##WIDTH##_pooled, HEIGHT, WIDTH, 1, 1, 1)
#define DEFINE_DILATED(HEIGHT, WIDTH) \
  CV_WINOGRAD_STREAMED(dilated_##HEIGHT##x##WIDTH, 4, 4, HEIGHT, WIDTH, 0)
PLAIN(DEFINE)
POOLED(DEFINE_POOLED)
DILATED(DEFINE_DILATED)

typedef void (*winograd_streamed)(cv_thread t, const cv_winograd *c, cv_map x, const float *w, cv_map y,
                                  const cv_epilogue *e, const cv_winograd_pool *pool, float *v, float *m);

#define ENTRY(HEIGHT, WIDTH) {HEIGHT, WIDTH, 1, 1, {streamed_##HEIGHT##x##WIDTH, NULL}},
#define ENTRY_POOLED(HEIGHT, WIDTH) \
  {HEIGHT, WIDTH, 1, 1, {streamed_##HEIGHT##x##WIDTH, streamed_##HEIGHT##x##WIDTH##_pooled}},
#define ENTRY_DILATED(HEIGHT, WIDTH) {4, 4, HEIGHT, WIDTH, {dilated_##HEIGHT##x##WIDTH, NULL}},
static const struct {
  int height, width, dilation_h, dilation_w;
  winograd_streamed run[2]; /* [pooled], or NULL */
} forms[] = {PLAIN(ENTRY) POOLED(ENTRY_POOLED) DILATED(ENTRY_DILATED)};

static const winograd_streamed *find_form(const call *c) {
  const int four = c->streamed->tile_rows == 2 && c->streamed->tile_columns == 2;
  const winograd_streamed *whole = NULL;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (forms[i].dilation_h != c->dilation_h || forms[i].dilation_w != c->dilation_w) continue;
    if (four && forms[i].height == last_of(c->y.height, 1, c->out) &&
        forms[i].width == last_of(c->y.width, 1, c->out))
      return forms[i].run;
    if (forms[i].height == c->out && forms[i].width == c->out) whole = forms[i].run;
  }
  return whole;
}

static void run_form(const call *c) {
  find_form(c)[c->pool != NULL](c->thread, c->streamed, c->x, c->w, c->y, c->epilogue, c->pool, c->v, c->m);
}

static int has_pool(const call *c) { return find_form(c)[1] != NULL; }

int main(void) {
  const shape shapes[] = {/* fewer tiles than four, whole fours, and a rest; more threads than blocks */
                          {19, 37, 4, 8, 1, 1, 4, 1, 0, STREAMED, 2, 1, 1},
                          {40, 50, 8, 15, 1, 1, 4, 1, 0, STREAMED, 2, 1, 1},
                          {35, 20, 11, 12, 0, 1, 4, 1, 0, STREAMED, 3, 1, 1},
                          /* two rows and columns of tiles, the last ones lower, narrower, or both */
                          {35, 20, 7, 7, 1, 1, 4, 1, 0, STREAMED, 2, 1, 1},
                          {20, 35, 5, 6, 1, 1, 4, 1, 0, STREAMED, 2, 1, 1},
                          {16, 20, 6, 8, 1, 1, 4, 1, 0, STREAMED, 1, 1, 1},
                          {20, 16, 7, 5, 1, 1, 4, 1, 0, STREAMED, 1, 1, 1},
                          {20, 16, 7, 8, 1, 1, 4, 1, 0, STREAMED, 2, 1, 1},
                          {16, 20, 8, 7, 1, 1, 4, 1, 0, STREAMED, 2, 1, 1},
                          /* dilated: phases of equal and of other sizes */
                          {35, 20, 10, 11, 2, 1, 4, 1, 0, STREAMED, 2, 2, 2},
                          {20, 16, 5, 9, 3, 1, 4, 1, 0, STREAMED, 2, 1, 3},
                          /* where the error is largest */
                          CHECK_LONG({512, 17, 7, 7, 1, 1, 4, 1, 0, STREAMED, 1, 1, 1})};
  run_shapes(CV_WINOGRAD_OUT, shapes, sizeof shapes / sizeof *shapes);
  return check_done();
}
