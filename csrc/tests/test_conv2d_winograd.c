/* cv_conv2d_winograd against the definition of convolution, in double precision: F(2,3), F(4,3) and F(6,3),
 * each schedule, with and without dilation; with numbers, with values that are not finite, and with sums
 * that nearly overflow.  A pool that follows against the pool by itself. */
#include "tests/check_winograd.h"

/* Forms of the last tile: all of F(4, 3), and some of F(6, 3); those that pools are tested with; and those
 * of dilated convolutions.  Of each size of tiles, and each dilation, whole ones where the list has not
 * all. */
/* clang-format off */
#define PLAIN(X) \
  X(4, 2, 4, 1, 1) X(4, 4, 3, 1, 1) X(6, 3, 4, 1, 1) CHECK_MORE(MORE_PLAIN(X))
#define MORE_PLAIN(X) \
  X(4, 2, 2, 1, 1) X(4, 3, 2, 1, 1) X(4, 3, 4, 1, 1) X(4, 4, 2, 1, 1) X(6, 2, 2, 1, 1) X(6, 2, 5, 1, 1)
#define POOLED(X) \
  X(2, 2, 2, 1, 1) X(4, 3, 3, 1, 1) X(4, 4, 4, 1, 1) X(6, 6, 6, 1, 1) CHECK_MORE(MORE_POOLED(X))
#define MORE_POOLED(X) X(4, 2, 3, 1, 1) X(6, 5, 3, 1, 1)
#define DILATED(X) \
  X(2, 2, 2, 1, 3) X(4, 4, 4, 2, 2) X(4, 3, 2, 3, 2) X(4, 2, 3, 4, 4) X(6, 2, 2, 2, 2) \
  CHECK_MORE(MORE_DILATED(X))
#define MORE_DILATED(X) X(4, 2, 2, 2, 2) X(4, 4, 3, 2, 2)
/* clang-format on */

#define NAME(OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W) \
  winograd_##OUT##_##HEIGHT##x##WIDTH##_##DILATION_H##x##DILATION_W
#define POOLED_NAME(OUT, HEIGHT, WIDTH) winograd_##OUT##_##HEIGHT##x##WIDTH##_pooled
#define DEFINE(OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W)                                      \
  CV_WINOGRAD(NAME(OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W), OUT, HEIGHT, WIDTH, DILATION_H, \
              DILATION_W, 0)
#define DEFINE_POOLED(OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W) \
  DEFINE(OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W)              \
  CV_WINOGRAD(POOLED_NAME(OUT, HEIGHT, WIDTH), OUT, HEIGHT, WIDTH, 1, 1, 1)
PLAIN(DEFINE)
POOLED(DEFINE_POOLED)
DILATED(DEFINE)

typedef void (*winograd)(cv_thread t, const cv_winograd_slabs *c, cv_map x, const float *w, cv_map y,
                         const cv_epilogue *e, const cv_winograd_pool *pool, float *v, float *u, float *m);

#define ENTRY(OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W) \
  {OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W, {NAME(OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W), NULL}},
#define ENTRY_POOLED(OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W) \
  {OUT,        HEIGHT,                                           \
   WIDTH,      DILATION_H,                                       \
   DILATION_W, {NAME(OUT, HEIGHT, WIDTH, DILATION_H, DILATION_W), POOLED_NAME(OUT, HEIGHT, WIDTH)}},
static const struct {
  int out, height, width, dilation_h, dilation_w;
  winograd run[2]; /* [pooled], or NULL */
} forms[] = {PLAIN(ENTRY) POOLED(ENTRY_POOLED) DILATED(ENTRY)};

static const winograd *find_form(const call *c) {
  const winograd *whole = NULL;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    const int height = forms[i].height, width = forms[i].width;
    if (forms[i].out != c->out || forms[i].dilation_h != c->dilation_h ||
        forms[i].dilation_w != c->dilation_w)
      continue;
    if (height == last_of(c->y.height, c->dilation_h, c->out) &&
        width == last_of(c->y.width, c->dilation_w, c->out))
      return forms[i].run;
    if (height == c->out && width == c->out) whole = forms[i].run;
  }
  return whole;
}

static void run_form(const call *c) {
  find_form(c)[c->pool != NULL](c->thread, c->slabs, c->x, c->w, c->y, c->epilogue, c->pool, c->v, c->u,
                                c->m);
}

static int has_pool(const call *c) { return find_form(c)[1] != NULL; }

#define RUN_SHAPES(out, shapes) run_shapes(out, shapes, sizeof shapes / sizeof *shapes)

int main(void) {
  const shape shapes[] = {
      /* whole tiles; tiles over the edge; no padding; one tile; more threads than portions */
      {16, 16, 8, 8, 1, 1, 4, 1, 1, GROUPS, 1, 1, 1},
      {19, 37, 7, 9, 1, 2, 3, 1, 1, GROUPS, 2, 1, 1},
      {16, 48, 14, 11, 0, 2, 4, 2, 1, GROUPS, 2, 1, 1},
      {33, 20, 5, 5, 1, 1, 4, 1, 9, GROUPS, 3, 1, 1},
      /* U made once, by threads with and without portions; chunks of one and of two blocks */
      {33, 48, 9, 11, 1, 3, 4, 2, 0, RESIDENT, 2, 1, 1},
      {16, 16, 6, 6, 1, 1, 3, 1, 0, RESIDENT, 3, 1, 1},
      /* threads share chunks; more portions than one; slabs that leave a rest, and of one block */
      {16, 48, 9, 11, 1, 1, 4, 2, 9, CHUNKS, 2, 1, 1},
      {35, 50, 14, 14, 1, 3, 4, 2, 2, CHUNKS, 3, 1, 1},
      {70, 50, 14, 14, 1, 3, 3, 1, 1, CHUNKS, 3, 1, 1},
      /* last tiles of F(4, 3) and F(6, 3) lower, narrower, or both */
      {16, 20, 8, 11, 1, 2, 4, 2, 1, GROUPS, 1, 1, 1},
      {20, 16, 10, 8, 1, 2, 3, 1, 1, CHUNKS, 2, 1, 1},
      {16, 33, 10, 10, 1, 1, 4, 2, 0, RESIDENT, 2, 1, 1},
      {33, 16, 12, 8, 1, 3, 4, 1, 1, GROUPS, 2, 1, 1},
      {16, 16, 4, 3, 0, 1, 4, 1, 1, GROUPS, 1, 1, 1},
      {16, 20, 7, 11, 1, 2, 4, 2, 1, GROUPS, 2, 1, 1},
      {20, 16, 11, 9, 1, 1, 4, 1, 1, CHUNKS, 2, 1, 1},
      {16, 20, 6, 7, 1, 1, 4, 2, 0, RESIDENT, 1, 1, 1},
      {16, 16, 8, 15, 1, 3, 4, 1, 1, GROUPS, 1, 1, 1},
      {16, 16, 15, 10, 1, 2, 4, 1, 1, CHUNKS, 1, 1, 1},
      /* where the error is largest */
      CHECK_LONG({512, 17, 7, 7, 1, 1, 4, 1, 99, GROUPS, 1, 1, 1},
                 {512, 17, 7, 7, 1, 1, 4, 1, 8, GROUPS, 1, 1, 1})};
  const shape dilated_2[] = {{19, 20, 6, 11, 3, 2, 4, 1, 1, GROUPS, 2, 1, 3}};
  const shape dilated_4[] = {
      /* phases that have a row or a column less than others; last tiles that only some phases have */
      {33, 20, 15, 13, 2, 2, 4, 1, 1, GROUPS, 2, 2, 2},
      {20, 40, 9, 9, 2, 1, 4, 2, 0, RESIDENT, 2, 2, 2},
      {16, 35, 14, 14, 2, 3, 3, 1, 1, CHUNKS, 3, 2, 2},
      /* no padding; another dilation of rows than of columns; phases without a pixel */
      {16, 20, 12, 13, 0, 2, 4, 1, 1, GROUPS, 1, 2, 2},
      {18, 20, 9, 8, 3, 2, 4, 1, 1, GROUPS, 2, 3, 2},
      {16, 16, 3, 9, 4, 2, 4, 1, 0, RESIDENT, 2, 4, 4},
      {16, 33, 3, 9, 4, 1, 4, 2, 1, CHUNKS, 2, 4, 4},
  };
  const shape dilated_6[] = {{16, 20, 13, 13, 2, 2, 4, 1, 1, CHUNKS, 2, 2, 2}};
  for (int out = 2; out <= 6; out += 2) RUN_SHAPES(out, shapes);
  RUN_SHAPES(2, dilated_2);
  RUN_SHAPES(4, dilated_4);
  RUN_SHAPES(6, dilated_6);
  return check_done();
}
