/* kernels/attention.h against double: every order of operands in memory, masks, what a row sees, groups of
 * heads, more keys than are packed at a time, what is not finite. */
#include "kernels/attention.h"
#include "tests/check.h"
#include "tests/check_strides.h"

/* As test_attention_bf16.c includes this file, of bfloat16: operands and the scale are such, so that it is
 * the weights alone that are rounded. */
#ifdef OF_BF16
#define ATTEND cv_attend_bf16
static const double bound = 6e-3;
#define BF16 1
#else
#define ATTEND cv_attend
static const double bound = 1e-5;
#define BF16 0
#endif
enum { GUARD = 3 };

/* How the elements of a tensor [outer][inner][row][column] lie in memory, from the slowest axis: "oirc". */
typedef struct layout {
  const char *q, *k, *v, *y;
} layout;

static const layout layouts[] = {
    {"oirc", "oirc", "oirc", "oirc"}, {"roic", "roic", "roic", "roic"}, {"oicr", "oicr", "oicr", "oicr"},
    {"rcoi", "rcoi", "rcoi", "oirc"}, {"oirc", "oicr", "roic", "oicr"}, {"oirc", "oirc", "oirc", "rcoi"},
};

typedef enum { NO_MASK, ROWS_AND_KEYS, KEYS_ONLY, SCATTERED, OF_A_ROW } mask_kind;

typedef struct attention_case {
  int outer, inner, rows, keys, depth, width;
  const layout *order;
  mask_kind mask;
  int reach;       /* INT32_MAX: of all keys */
  int shares_keys; /* the inner heads do */
  float poison;
  char poisoned; /* 'q', 'k', 'v', or 'm': one element, 'h': the mask hides half of the keys, 'a': all of a
                    row's */
} attention_case;

static const float *at(const float *data, cv_strides s, int o, int i, int r, int c) {
  return check_element(data, &s, 1, o, i, r, c);
}

static void check_row(const attention_case *c, const cv_attention *a, int o, int i, int r) {
  double *s = malloc((size_t)c->keys * sizeof *s), max = -INFINITY, total = 0;
  for (int j = 0; j < c->keys; j++) {
    double sum = 0;
    for (int d = 0; d < c->depth; d++) {
      sum += (double)*at(a->q, a->q_strides, o, i, r, d) * *at(a->k, a->k_strides, o, i, j, d);
    }
    s[j] = sum * a->scale;
    if (a->mask) s[j] += *at(a->mask, a->mask_strides, o, i, r, j);
    if (j > (int64_t)r + c->reach) s[j] = -INFINITY;
    max = isnan(s[j]) || s[j] > max ? s[j] : max;
  }
  for (int j = 0; j < c->keys; j++) total += s[j] = exp(s[j] - max);
  for (int e = 0; e < c->width; e++) {
    double expected = 0, scale = 0;
    for (int j = 0; j < c->keys; j++) {
      const double value = *at(a->v, a->v_strides, o, i, j, e);
      expected += s[j] / total * value;
      scale += s[j] / total * fabs(value);
    }
    const float got = *at(a->y, a->y_strides, o, i, r, e);
    /* A weight of 0 in one precision and not in the other makes inf or NaN of an infinity. */
    if (c->poisoned == 'v' && isinf(expected) && !isfinite(got)) continue;
    CHECK(check_near(got, expected, scale, bound),
          "heads %dx%d rows %d keys %d depth %d width %d %s mask %d reach %d poison %c %g: "
          "y[%d][%d][%d][%d] = %g, expected %g",
          c->outer, c->inner, c->rows, c->keys, c->depth, c->width, c->order->k, c->mask, c->reach,
          c->poisoned ? c->poisoned : '-', c->poison, o, i, r, e, got, expected);
  }
  free(s);
}

/* Operands start one float past an aligned address. */
static void check_attention(const attention_case *c, int threads) {
  cv_attention a = {.stack = {1, c->outer, 1, c->inner},
                    .rows = c->rows,
                    .keys = c->keys,
                    .depth = c->depth,
                    .width = c->width,
                    .scale = BF16 ? 0.5f : 0.7f,
                    .reach = c->reach};
  const int key_heads = c->shares_keys ? 1 : c->inner;
  const ptrdiff_t sizes[] = {
      check_lay_out(c->order->q, (const int[]){c->outer, c->inner, c->rows, c->depth}, 1, &a.q_strides),
      check_lay_out(c->order->k, (const int[]){c->outer, key_heads, c->keys, c->depth}, 1, &a.k_strides),
      check_lay_out(c->order->v, (const int[]){c->outer, key_heads, c->keys, c->width}, 1, &a.v_strides),
      check_lay_out(c->order->y, (const int[]){c->outer, c->inner, c->rows, c->width}, 1, &a.y_strides),
      (ptrdiff_t)c->outer * c->inner * c->rows * c->keys * 2};
  if (c->shares_keys) a.k_strides.stack[3] = a.v_strides.stack[3] = 0;
  float *data[5];
  for (int i = 0; i < 5; i++) {
    data[i] = check_floats(sizes[i] + 1 + GUARD);
    if (i != 3) check_fill(data[i], sizes[i] + 1);
    if (BF16) check_cut(data[i], sizes[i] + 1);
    for (int g = 0; g < GUARD; g++) data[i][1 + sizes[i] + g] = 7;
  }
  a.q = data[0] + 1, a.k = data[1] + 1, a.v = data[2] + 1, a.y = data[3] + 1;
  const ptrdiff_t head = (ptrdiff_t)c->rows * c->keys;
  if (c->mask != NO_MASK) a.mask = data[4] + 1;
  if (c->mask == ROWS_AND_KEYS) a.mask_strides = (cv_strides){{0, c->inner * head, 0, head}, c->keys, 1};
  if (c->mask == KEYS_ONLY) a.mask_strides = (cv_strides){{0}, 0, 1};
  if (c->mask == SCATTERED) a.mask_strides = (cv_strides){{0, 0, 0, head}, 1, c->rows};
  if (c->mask == OF_A_ROW) a.mask_strides = (cv_strides){{0, c->inner * head, 0, head}, 1, 0};
  switch (c->poisoned) {
    case 'q':
      data[0][1 + sizes[0] / 2] = c->poison;
      break;
    case 'k':
      data[1][1 + sizes[1] / 2] = c->poison;
      break;
    case 'v':
      data[2][1 + sizes[2] / 2] = c->poison;
      break;
    case 'm':
      data[4][1 + c->keys / 2] = c->poison;
      break;
    case 'h':
      for (int j = 0; j < c->keys / 2; j++) data[4][1 + j] = c->poison;
      break;
    case 'a':
      for (int j = 0; j < c->keys; j++) data[4][1 + j] = c->poison;
      break;
    default:
      break;
  }
  const ptrdiff_t floats = CV_ATTENTION_SCRATCH((ptrdiff_t)c->rows, c->keys, c->depth, c->width);
  for (int id = threads - 1; id >= 0; id--) {
    float *scratch = check_floats(floats + GUARD);
    for (int g = 0; g < GUARD; g++) scratch[floats + g] = 7;
    ATTEND((cv_thread){id, threads}, &a, scratch);
    for (int g = 0; g < GUARD; g++) CHECK(scratch[floats + g] == 7, "wrote past the scratch");
    free(scratch);
  }
  for (int o = 0; o < c->outer; o++) {
    for (int i = 0; i < c->inner; i++) {
      for (int r = 0; r < c->rows; r++) check_row(c, &a, o, i, r);
    }
  }
  for (int g = 0; g < GUARD; g++) CHECK(data[3][1 + sizes[3] + g] == 7, "wrote past y");
  for (int i = 0; i < 5; i++) free(data[i]);
}

int main(void) {
  const int rows[] = {1, 2, 7, 14, 15, 33}, keys[] = {1, 4, 16, 17, 33, 49}, depths[] = {1, 8, 19, 64};
  const int widths[] = {1, 5, 16, 20, 33, 64};
  int turn = 0;
  for (int r = 0; r < 6; r++) {
    for (int k = 0; k < 6; k++) {
      for (int d = 0; d < 4; d++, turn++) {
        const attention_case c = {.outer = 1 + turn % 2,
                                  .inner = 1 + turn % 3,
                                  .rows = rows[r],
                                  .keys = keys[k],
                                  .depth = depths[d],
                                  .width = widths[turn % 6],
                                  .order = &layouts[turn / 3 % 6],
                                  .mask = (mask_kind)(turn % 5),
                                  .shares_keys = turn % 4 == 1,
                                  .reach = turn % 3       ? INT32_MAX
                                           : turn / 3 % 2 ? 0
                                                          : keys[k] - rows[r]};
        check_attention(&c, 1 + turn % 4);
      }
    }
  }
  /* More keys than are packed at a time, more depth than is copied. */
  const int many = CV_ATTENTION_KEYS + 1, more = 3 * CV_ATTENTION_KEYS - 7;
  for (int i = 0; i < 12; i++) {
    const attention_case c = {.outer = 1,
                              .inner = 2,
                              .rows = i < 6 ? 19 : 1,
                              .keys = i % 2 ? many : more,
                              .depth = 9,
                              .width = 21,
                              .order = &layouts[i % 6],
                              .mask = (mask_kind)(i % 5),
                              .shares_keys = i % 6 == 2,
                              .reach = i % 3 == 1 ? more / 2 : INT32_MAX};
    check_attention(&c, 1 + i % 3);
  }
  const attention_case deep = {.outer = 1,
                               .inner = 1,
                               .rows = 17,
                               .keys = 33,
                               .depth = CV_GEMM_DEPTH + 9,
                               .width = 40,
                               .order = &layouts[0],
                               .reach = INT32_MAX};
  check_attention(&deep, 2);
  /* No row sees a key; the first ones see none; a row sees the first chunk only. */
  const int reaches[] = {-100, -5, -1, 0, 20, 600};
  for (int i = 0; i < 6; i++) {
    attention_case c = {.outer = 1,
                        .inner = 1,
                        .rows = 30,
                        .keys = i % 2 ? many : 40,
                        .depth = 5,
                        .width = 17,
                        .order = &layouts[i],
                        .mask = (mask_kind)(i % 5),
                        .reach = reaches[i]};
    check_attention(&c, 2);
    c.poisoned = 'v', c.poison = NAN;
    check_attention(&c, 2);
  }
  const float poisons[] = {NAN, INFINITY, -INFINITY};
  for (int i = 0; i < 3; i++) {
    for (const char *p = "qkvmha"; *p; p++) {
      for (int n = 0; n < 3; n++) {
        const int counts[] = {40, many, more};
        const attention_case c = {.outer = 1,
                                  .inner = 2,
                                  .rows = i == 1 && n ? 1 : 16, /* one row reads them in place */
                                  .keys = counts[n],
                                  .depth = 8,
                                  .width = 20,
                                  .order = &layouts[0],
                                  .mask = *p == 'm' || *p == 'a' || *p == 'h' ? ROWS_AND_KEYS : NO_MASK,
                                  .reach = i == 1 ? INT32_MAX : 30,
                                  .poison = poisons[i],
                                  .poisoned = *p};
        check_attention(&c, 2);
      }
    }
  }
  return check_done();
}
