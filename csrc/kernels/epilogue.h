/* What happens to the sums of a convolution before they are stored:
 *
 *   y = outer(inner(sum + bias) + residual)
 *
 * Lanes past y.channels come out zero, whatever the activation makes of a zero.
 *
 * Nearly every epilogue is a clamp of sum + bias + residual: a tile does that while its sums are in
 * registers.  Any other one is finished by cv_epilogue_finish on the tiles just stored, still in L1:
 * one loop shared by all tiles, so that tiles stay small to compile.
 */
#ifndef CONVOY_KERNELS_EPILOGUE_H_
#define CONVOY_KERNELS_EPILOGUE_H_

#include <math.h>

#include "kernels/activation.h"
#include "kernels/map.h"
#include "kernels/requantize.h"

typedef struct cv_epilogue {
  const float *bias; /* [blocks * CV_LANES], never NULL, zero padded */
  cv_activation inner;
  const cv_map *residual; /* NULL, or a map of y's shape */
  cv_activation outer;
  const cv_requantize *requantize; /* of sums of bytes, where all but the bias is in it; or NULL */
} cv_epilogue;

static inline int cv_stores_floats(const cv_epilogue *e) { return !e->requantize || e->requantize->floats; }

/* How a driver carries an epilogue out. */
typedef struct cv_epilogue_split {
  float low, high;        /* a tile clamps to them; infinite: it does not */
  const cv_map *residual; /* a tile adds it before that; or NULL */
  int finish;             /* the rest is cv_epilogue_finish's */
  const cv_requantize *requantize;
} cv_epilogue_split;

static inline cv_epilogue_split cv_split_epilogue(const cv_epilogue *e) {
  cv_epilogue_split s = {
      .low = -INFINITY, .high = INFINITY, .residual = e->residual, .requantize = e->requantize};
  if (e->requantize) return s;
  /* Without a residual, inner and outer act on the same value. */
  const int inner_is_last = !e->residual && e->outer.kind == CV_IDENTITY;
  const cv_activation last = inner_is_last ? e->inner : e->outer;
  const int one_step = inner_is_last || e->inner.kind == CV_IDENTITY;
  if (one_step && last.kind == CV_CLAMP) {
    s.low = last.a;
    s.high = last.b;
  } else if (!one_step || last.kind != CV_IDENTITY) {
    s.residual = NULL;
    s.finish = 1;
  }
  return s;
}

/* Completes `pixels` of a row x `blocks` that are stored: p is the first in map y, in block `block`; r the
 * same pixel of the residual.  y is of float32, or a tile's own memory of it.  s->finish: the whole
 * epilogue past the bias; else only the lanes past y's channels are zeroed. */
static inline void cv_epilogue_finish(const cv_epilogue *e, const cv_epilogue_split *s, const cv_map *y,
                                      float *p, const float *r, int block, int blocks, int pixels) {
  for (int b = 0; b < blocks; b++, p += y->plane) {
    if (s->finish) {
      if (e->inner.kind != CV_IDENTITY) cv_activate_vectors(e->inner, p, pixels, y->step, CV_LANES);
      for (int i = 0; e->residual && i < pixels; i++) {
        const float *q = r + b * e->residual->plane + i * e->residual->step;
        const cv_vec added = cv_load_lanes(cv_is_bf16(e->residual), q);
        cv_store(p + i * y->step, cv_add(cv_load(p + i * y->step), added));
      }
      if (e->outer.kind != CV_IDENTITY) cv_activate_vectors(e->outer, p, pixels, y->step, CV_LANES);
    }
    const int lanes = y->channels - (block + b) * CV_LANES;
    for (int i = 0; lanes < CV_LANES && i < pixels; i++)
      cv_store(p + i * y->step, cv_load_n(p + i * y->step, lanes));
  }
}

#endif
