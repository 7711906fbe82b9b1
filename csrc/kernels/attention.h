/* Attention of heads whose operands lie by any strides.  In each head
 *
 *   s[i][j] = scale * sum_d q[i][d] * k[j][d] + mask[i][j]    for the keys that row i sees: j <= i + reach
 *   m[i]    = max_j s[i][j]
 *   y[i][e] = sum_j exp(s[i][j] - m[i]) * v[j][e] / sum_j exp(s[i][j] - m[i])
 *
 * q [rows][depth], k [keys][depth], v [keys][width], mask [rows][keys] or NULL, y [rows][width] are stacks
 * of matrices, one a head; a stride of 0 is what heads, rows or keys have in common.  y overlaps none of
 * the others.
 *
 * A thread packs the keys and values of a head in panels, at most CV_ATTENTION_KEYS of them at a time, and
 * computes all its tiles of rows with them.  A tile's scores stay in L1.  Of more keys than that the
 * maximum and the sum so far are kept for each row, and the sums in y shrink as the maximum grows.
 *
 * cv_attend_bf16 multiplies bfloat16: what is packed, queries times scale, and weights are rounded to it.
 * Their totals are of float32.
 *
 * One row reads keys and values where they lie, once each, if theirs are rows of neighbours;
 * in float32.
 *
 * A row with a NaN or inf among its scores, or without a score above -inf, is NaN, or zeros where it is to
 * be safe.  Keys that no row of a tile sees are left out, but for values that are not finite: what these
 * make of a weight of 0 is NaN.
 *
 * Threads share heads times tiles of rows.
 */
#ifndef CONVOY_KERNELS_ATTENTION_H_
#define CONVOY_KERNELS_ATTENTION_H_

#include <math.h>

#include "kernels/gemv.h"

/* A tile of scores has the rows of a copied tile. */
#define CV_ATTENTION_KEYS CV_GEMM_DEPTH

#define CV_ATTENTION_PADDED(columns) (((columns) + CV_GEMM_PANEL - 1) / CV_GEMM_PANEL * CV_GEMM_PANEL)
#define CV_ATTENTION_PACKED(keys) \
  ((keys) < CV_ATTENTION_KEYS ? CV_ATTENTION_PADDED(keys) : CV_ATTENTION_KEYS)

/* Floats of a thread's scratch: packed keys, packed values, sums of all rows, their maxima and totals. */
#define CV_ATTENTION_SCRATCH(rows, keys, depth, width)                  \
  (CV_ATTENTION_PACKED(keys) * ((depth) + CV_ATTENTION_PADDED(width)) + \
   (rows) * CV_ATTENTION_PADDED(width) + 2 * ((rows) + CV_LANES))

typedef struct cv_attention {
  int stack[CV_STACK]; /* heads */
  int rows, keys, depth, width;
  const float *q, *k, *v, *mask;
  float *y;
  cv_strides q_strides, k_strides, v_strides, mask_strides, y_strides;
  float scale;
  int reach;
  int safe;
} cv_attention;

/* Where a thread is: one head, some of its keys, packed. */
typedef struct cv_attention_head {
  cv_matrix q, mask; /* mask.data may be NULL */
  cv_range keys;     /* those packed */
  float *packed_k, *packed_v;
  int reads_once; /* one row does without them: */
  cv_matrix k, v;
  int finite;         /* all packed values are */
  cv_matrix sums;     /* columns are neighbours: y itself if y's are */
  float *max, *total; /* of each row */
  int amx, shaped;    /* whether AMX tiles multiply, and for how many rows they are shaped (gemm.h) */
} cv_attention_head;

/* s = s + mask over `count` keys; returns the largest, or a NaN if there is one in the last lanes. */
static inline float cv_mask_scores(float *s, int count, const float *mask, ptrdiff_t column) {
  cv_vec max = cv_set1(-INFINITY);
  int whole = 0; /* keys in vectors that need no masks */
  if (!mask) {
    cv_vec next = max;
    for (; whole + 2 * CV_LANES <= count; whole += 2 * CV_LANES) {
      max = cv_max(max, cv_loadu(s + whole));
      next = cv_max(next, cv_loadu(s + whole + CV_LANES));
    }
    max = cv_max(max, next);
  }
  if (mask && column != 0 && column != 1) {
    for (int j = 0; j < count; j++) s[j] += mask[j * column];
  }
  for (int j = whole; j < count; j += CV_LANES) {
    const int lanes = cv_least(count - j, CV_LANES);
    cv_vec v = cv_load_n_or(s + j, lanes, -INFINITY);
    if (mask && (column == 0 || column == 1)) {
      v = cv_add(v, column ? cv_load_n(mask + j, lanes) : cv_set1(*mask));
      cv_storeu(s + j, v);
    }
    max = cv_max(max, v);
  }
  return cv_reduce_max(max);
}

CV_INLINE cv_vec cv_weight_of(cv_vec score, cv_vec max) {
  return cv_exp2(cv_max(cv_set1(-127.0f), cv_mul(cv_sub(score, max), cv_set1(0x1.715476p0f))));
}

/* s = exp(s - max) for the first `seen` keys and 0 for the others, or cells of that; returns the sum. */
CV_INLINE float cv_weigh_scores(const int bf16, float *s, int seen, int count, float max) {
  const cv_vec m = cv_set1(max);
  cv_vec sum = cv_zero();
  cv_vec next = sum;
  int j = 0;
  /* Two at a time where they and the constants fit the registers. */
  for (; CV_REGISTERS == 32 && j + 2 * CV_LANES <= seen; j += 2 * CV_LANES) {
    const cv_vec e = cv_weight_of(cv_loadu(s + j), m), f = cv_weight_of(cv_loadu(s + j + CV_LANES), m);
    cv_store_copied(bf16, s, j, e);
    cv_store_copied(bf16, s, j + CV_LANES, f);
    sum = cv_add(sum, e);
    next = cv_add(next, f);
  }
  sum = cv_add(sum, next);
  for (; j + CV_LANES <= seen; j += CV_LANES) {
    const cv_vec e = cv_weight_of(cv_loadu(s + j), m);
    cv_store_copied(bf16, s, j, e);
    sum = cv_add(sum, e);
  }
  for (; j < seen; j += CV_LANES) {
    const cv_vec e = cv_weight_of(cv_load_n_or(s + j, cv_least(seen - j, CV_LANES), -INFINITY), m);
    cv_store_copied(bf16, s, j, e);
    sum = cv_add(sum, e);
  }
  for (; j < count; j += CV_LANES) cv_store_copied(bf16, s, j, cv_zero());
  return cv_reduce_add(sum);
}

/* s[i][j] for the rows of a tile and the first `count` packed keys. */
CV_INLINE void cv_score_tile(const int bf16, const cv_attention *a, const cv_attention_head *h,
                             cv_range rows, int count, float *s) {
  float copy[CV_GEMM_ROWS * CV_GEMM_X_ROW] __attribute__((aligned(64)));
  const ptrdiff_t steps = cv_gemm_steps(bf16, a->depth);
  const cv_vec none[CV_GEMM_BLOCKS] = {0};
  if (h->reads_once) {
    cv_copy_tile(0, copy, h->q, 1, a->depth, a->scale);
    cv_dot_rows(s, copy, cv_part_of_matrix(h->k, h->keys.begin, 0), count, a->depth);
    return;
  }
  for (int d = 0; d < a->depth || d == 0; d += CV_GEMM_DEPTH) {
    const int depth = cv_least(a->depth - d, CV_GEMM_DEPTH);
    cv_copy_tile(bf16, copy, cv_part_of_matrix(h->q, rows.begin, d), rows.end - rows.begin, depth,
                 a->scale);
    for (int j = 0; j < count; j += CV_GEMM_PANEL) {
      const cv_gemm_tile tile = {
          .x = copy,
          .x_row = CV_GEMM_X_ROW,
          .panel = h->packed_k + j * steps + cv_gemm_steps(bf16, d) * CV_GEMM_PANEL,
          .depth = cv_gemm_steps(bf16, depth),
          .columns = count - j > CV_LANES ? CV_GEMM_PANEL : CV_LANES, /* zeros where there are no keys */
          .y = s + j,
          .y_row = CV_GEMM_X_ROW,
          .start = d == 0 ? (const float *)none : NULL,
          .amx = h->amx,
      };
      cv_run_tile(bf16, &tile, rows.end - rows.begin);
    }
  }
}

/* The rows' sums of values, weighted by s, on top of what they are times `shrink`; `first`: of nothing. */
CV_INLINE void cv_sum_values(const int bf16, const cv_attention *a, const cv_attention_head *h,
                             cv_range rows, int count, const float *s, const float *shrink, int first) {
  const cv_vec none[CV_GEMM_BLOCKS] = {0};
  const cv_matrix sums = cv_part_of_matrix(h->sums, rows.begin, 0);
  for (int r = 0; !first && r < rows.end - rows.begin; r++) {
    for (int e = 0; shrink[r] != 1 && e < a->width; e += CV_LANES) {
      float *p = sums.data + r * sums.row + e;
      const int lanes = cv_least(a->width - e, CV_LANES);
      cv_store_n(p, cv_mul(cv_load_n(p, lanes), cv_set1(shrink[r])), lanes);
    }
  }
  if (h->reads_once) {
    for (int e = 0; first && e < a->width; e++) sums.data[e] = 0;
    cv_add_rows(sums.data, s, 1, 1.0f, cv_part_of_matrix(h->v, h->keys.begin, 0), count, a->width);
    return;
  }
  for (int e = 0; e < a->width; e += CV_GEMM_PANEL) {
    const cv_gemm_tile tile = {
        .x = s,
        .x_row = CV_GEMM_X_ROW,
        .panel = h->packed_v + (ptrdiff_t)e * cv_gemm_steps(bf16, h->keys.end - h->keys.begin),
        .depth = cv_gemm_steps(bf16, count),
        .columns = cv_least(a->width - e, CV_GEMM_PANEL),
        .y = sums.data + e,
        .y_row = sums.row,
        .start = first ? (const float *)none : NULL,
        .amx = h->amx,
    };
    cv_run_tile(bf16, &tile, rows.end - rows.begin);
  }
}

/* Takes the packed keys into the sums of a tile of rows. */
CV_INLINE void cv_attend_tile(const int bf16, const cv_attention *a, const cv_attention_head *h,
                              cv_range rows) {
  float s[CV_GEMM_ROWS * CV_GEMM_X_ROW] __attribute__((aligned(64)));
  float largest[CV_LANES] = {0}, part[CV_LANES] = {0}, shrink[CV_LANES];
  const int keys = h->keys.end - h->keys.begin, first = h->keys.begin == 0, tile = rows.end - rows.begin;
  /* Of the packed keys, those that row i sees. */
  const int64_t seen = (int64_t)a->reach + 1 - h->keys.begin;
  int count = rows.end - 1 + seen < keys ? (int)(rows.end - 1 + seen) : keys;
  if (!h->finite) count = keys;
  if (count < 0) count = 0;
  if (count == 0 && !first) return;
  cv_score_tile(bf16, a, h, rows, count, s);
  int sees[CV_GEMM_ROWS];
  for (int r = 0; r < tile; r++) {
    const int64_t own = rows.begin + r + seen;
    sees[r] = own < 0 ? 0 : own < count ? (int)own : count;
    const float *mask = h->mask.data ? cv_element(h->mask, rows.begin + r, h->keys.begin) : NULL;
    largest[r] = cv_mask_scores(s + r * CV_GEMM_X_ROW, sees[r], mask, h->mask.column);
  }
  const cv_vec before = first ? cv_set1(-INFINITY) : cv_load_n(h->max + rows.begin, tile);
  const cv_vec max = cv_max(before, cv_loadu(largest));
  /* Nothing above -inf yet: the weights are 0. */
  const cv_vec from = cv_select(cv_eq(max, cv_set1(-INFINITY)), cv_zero(), max);
  const cv_vec less = cv_exp(cv_sub(before, from));
  cv_storeu(largest, from);
  cv_storeu(shrink, less);
  for (int r = 0; r < tile; r++) {
    part[r] = cv_weigh_scores(bf16 && !h->reads_once, s + r * CV_GEMM_X_ROW, sees[r], count, largest[r]);
  }
  const cv_vec total = first ? cv_zero() : cv_load_n(h->total + rows.begin, tile);
  cv_store_n(h->total + rows.begin, cv_fma(total, less, cv_loadu(part)), tile);
  cv_store_n(h->max + rows.begin, max, tile);
  cv_sum_values(bf16, a, h, rows, count, s, shrink, first);
}

/* Divides a tile's sums by their totals, and brings them to y. */
static inline void cv_finish_rows(const cv_attention *a, const cv_attention_head *h, cv_matrix y,
                                  cv_range rows) {
  const cv_matrix sums = cv_part_of_matrix(h->sums, rows.begin, 0);
  for (int r = 0; r < rows.end - rows.begin; r++) {
    const float total = h->total[rows.begin + r];
    const int zeros = a->safe && !(total > 0);
    const cv_vec share = cv_set1(1.0f / total);
    for (int e = 0; e < a->width; e += CV_LANES) {
      float *p = sums.data + r * sums.row + e;
      const int lanes = cv_least(a->width - e, CV_LANES);
      cv_store_n(p, zeros ? cv_zero() : cv_mul(cv_load_n(p, lanes), share), lanes);
    }
  }
  if (h->sums.data != y.data) {
    cv_store_tile(cv_part_of_matrix(y, rows.begin, 0), sums.data, sums.row, rows.end - rows.begin,
                  a->width);
  }
}

/* Whether all packed values are finite, `steps` of a vector in panels `packed.row` apart. */
CV_INLINE int cv_all_finite(const int bf16, cv_matrix packed, int steps, int width) {
  cv_vec sum = cv_zero();
  for (int e = 0; e < width; e += CV_LANES) {
    const float *p = packed.data + e / CV_GEMM_PANEL * packed.row + e % CV_GEMM_PANEL;
    for (int j = 0; j < steps; j++) {
      const cv_vec v = cv_load(p + (ptrdiff_t)j * CV_GEMM_PANEL);
      sum = cv_fma(bf16 ? cv_low_bf16(v) : v, cv_zero(), sum);
      if (bf16) sum = cv_fma(cv_high_bf16(v), cv_zero(), sum);
    }
  }
  return !cv_any(cv_unordered(sum, sum));
}

/* The tiles [first, last) of a head, of `tiles`. */
CV_INLINE void cv_attend_head(const int bf16, const cv_attention *a, cv_attention_head *h, int head,
                              int first, int last, int tiles, const float **packed) {
  const cv_matrix k = cv_find_matrix(a->k, &a->k_strides, a->stack, head);
  const cv_matrix v = cv_find_matrix(a->v, &a->v_strides, a->stack, head);
  const cv_matrix y = cv_find_matrix(a->y, &a->y_strides, a->stack, head);
  h->q = cv_find_matrix(a->q, &a->q_strides, a->stack, head);
  if (a->mask) h->mask = cv_find_matrix(a->mask, &a->mask_strides, a->stack, head);
  if (y.column == 1) h->sums = y;
  h->k = k, h->v = v;
  h->reads_once = a->rows == 1 && a->reach >= a->keys - 1 && a->depth <= CV_GEMM_DEPTH && k.column == 1 &&
                  v.column == 1;
  const int panels = CV_ATTENTION_PADDED(a->keys) / CV_GEMM_PANEL;
  const int most = CV_ATTENTION_KEYS / CV_GEMM_PANEL, parts = (panels + most - 1) / most;
  for (int part = 0; part < parts; part++) {
    const cv_range share = cv_share((cv_thread){part, parts}, panels);
    h->keys = (cv_range){share.begin * CV_GEMM_PANEL, cv_least(share.end * CV_GEMM_PANEL, a->keys)};
    const int keys = h->keys.end - h->keys.begin;
    /* Heads in a group have their keys and values in common. */
    if (h->reads_once) {
      h->finite = 1;
    } else if (parts > 1 || packed[0] != k.data || packed[1] != v.data) {
      const cv_matrix turned = {k.data + h->keys.begin * k.row, k.column, k.row};
      cv_pack_panels(bf16, h->packed_k, turned, a->depth, keys);
      cv_pack_panels(bf16, h->packed_v, cv_part_of_matrix(v, h->keys.begin, 0), keys, a->width);
      const int steps = cv_gemm_steps(bf16, keys);
      const cv_matrix values = {h->packed_v, (ptrdiff_t)steps * CV_GEMM_PANEL, 1};
      h->finite = a->reach >= a->keys - 1 || cv_all_finite(bf16, values, steps, a->width);
      packed[0] = k.data, packed[1] = v.data;
    }
    for (int tile = first; tile < last; tile++) {
      const cv_range rows = cv_share((cv_thread){tile, tiles}, a->rows);
      h->amx = cv_gemm_shape(bf16 ? CV_BFLOATS : CV_FLOATS, rows.end - rows.begin, &h->shaped);
      cv_attend_tile(bf16, a, h, rows);
      if (part == parts - 1) cv_finish_rows(a, h, y, rows);
    }
  }
  cv_gemm_release(h->shaped);
  h->shaped = 0;
}

CV_INLINE void cv_attend_of(const int bf16, cv_thread thread, const cv_attention *a, float *scratch) {
  const ptrdiff_t width = CV_ATTENTION_PADDED(a->width), keys = CV_ATTENTION_PACKED(a->keys);
  cv_attention_head h = {.packed_k = scratch, .packed_v = scratch + keys * a->depth};
  h.sums = (cv_matrix){h.packed_v + keys * width, width, 1};
  h.max = h.sums.data + a->rows * width;
  h.total = h.max + a->rows + CV_LANES;
  const float *packed[2] = {NULL, NULL};
  const int tiles = (a->rows + CV_GEMM_ROWS - 1) / CV_GEMM_ROWS;
  const cv_range share = cv_share(thread, cv_stack_size(a->stack) * tiles);
  for (int begin = share.begin; begin < share.end;) {
    const int first = begin % tiles, last = cv_least(tiles, first + share.end - begin);
    cv_attend_head(bf16, a, &h, begin / tiles, first, last, tiles, packed);
    begin += last - first;
  }
}

/* scratch: CV_ATTENTION_SCRATCH floats of this thread, aligned to a vector. */
CV_SHARED void cv_attend(cv_thread thread, const cv_attention *a, float *scratch) CV_SYMBOL(cv_attend);

#if CV_DEFINES(ATTENTION)
CV_SHARED void cv_attend(cv_thread thread, const cv_attention *a, float *scratch) {
  cv_attend_of(0, thread, a, scratch);
}
#endif

static inline void cv_attend_bf16(cv_thread thread, const cv_attention *a, float *scratch) {
  cv_attend_of(1, thread, a, scratch);
}

#endif
