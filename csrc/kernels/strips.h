/* Several kernels one after another, a few rows at a time.
 *
 * A chain of members, each of which reads the result of the one before it, runs strip by strip: `rows` rows
 * of the last result, and of every other result the rows those need.  So what passes between members
 * stays in the cache of one core, and no thread waits for another.
 *
 * Result i is kept in strips[i], a map of each thread's own with a range of the result's rows; the last one
 * is written to its place.
 *
 * Rows of a result that the next strip reads again are moved up in its memory, not computed again.  Only
 * where the shares of two threads meet do both compute them.  Zeros that a member reads above and below its
 * input are part of the strip.
 *
 * Threads share the rows of the last result.
 */
#ifndef CONVOY_KERNELS_STRIPS_H_
#define CONVOY_KERNELS_STRIPS_H_

#include <limits.h>
#include <string.h>

#include "kernels/halo.h"
#include "kernels/map.h"

#define CV_STRIP_MEMBERS 8

/* What a member does now.  Row numbers are those of whole maps, except for *_first. */
typedef struct cv_strip {
  cv_range rows;        /* of its result */
  cv_range read;        /* of its input, under those rows and inside the input */
  int above;            /* rows that its window reaches above its input */
  int x_first, y_first; /* rows of the input and of the result that stand first in their memory */
} cv_strip;

struct frame; /* the memory of the call, which the members look into */

typedef struct cv_strip_member {
  void (*run)(cv_thread t, const struct frame *f, const cv_strip *s);
  /* For rows [begin, end) of its result it reads rows begin * stride - pad to (end - 1) * stride - pad +
   * reach of its input. */
  int stride, pad, reach;
  int x_height, height; /* rows of its whole input and result */
} cv_strip_member;

/* `rows` of a map, with the halo that is theirs. */
static inline cv_map cv_map_rows(cv_map m, cv_range rows) {
  m.top = rows.begin == 0 ? m.top : 0;
  m.bottom = rows.end == m.height ? m.bottom : 0;
  m.data += rows.begin * m.row;
  m.height = rows.end - rows.begin;
  return m;
}

/* The rows of a member's result in its strip; the strip's sides are zero already. */
static inline cv_map cv_strip_result(cv_map m, const cv_strip *s) {
  m.left = m.right = 0;
  m.data += (s->rows.begin - s->y_first) * m.row;
  m.height = s->rows.end - s->rows.begin;
  return m;
}

/* A member's input from the row on that lies under the first row of its result. */
static inline cv_map cv_strip_under(cv_map m, const cv_strip *s, int stride) {
  m.data += (s->rows.begin * stride - s->x_first) * m.row;
  return m;
}

/* The rows of a member's input under those of its result, without what is outside. */
static inline cv_map cv_strip_inside(cv_map m, const cv_strip *s) {
  m.data += (s->read.begin - s->x_first) * m.row;
  m.height = s->read.end - s->read.begin;
  return m;
}

static inline int cv_clamp_row(int row, int height) { return row < 0 ? 0 : row < height ? row : height; }

/* `wanted` of the rows of a result of `height` rows: moves up those of them that `held` has, zeroes the
 * others outside the result, and returns those to compute. */
static inline cv_range cv_strip_advance(cv_map strip, int height, cv_range held, cv_range wanted) {
  const int kept = held.end > wanted.begin ? held.end - wanted.begin : 0;
  const cv_range fresh = {wanted.begin + kept, wanted.end};
  for (int block = 0; block < cv_blocks(strip.channels); block++) {
    float *first = strip.data + block * strip.plane - strip.left * strip.step;
    if (kept > 0 && wanted.begin > held.begin)
      memmove(first, first + (wanted.begin - held.begin) * strip.row,
              (size_t)kept * (size_t)strip.row * sizeof *first);
    for (int row = fresh.begin; row < fresh.end; row++) {
      if (row < 0 || row >= height)
        cv_clear_pixels(first + (row - wanted.begin) * strip.row, strip.left + strip.width + strip.right,
                        (int)strip.step);
    }
  }
  const cv_range inside = {cv_clamp_row(fresh.begin, height), cv_clamp_row(fresh.end, height)};
  return inside;
}

static inline void cv_run_strips(cv_thread t, const cv_strip_member *members, const cv_map *strips,
                                 int count, int rows, const struct frame *f) {
  const cv_thread alone = {0, 1};
  const cv_range share = cv_share(t, members[count - 1].height);
  cv_range held[CV_STRIP_MEMBERS];
  for (int i = 0; i < count - 1; i++) {
    held[i].begin = held[i].end = INT_MIN; /* nothing */
    cv_clear_border(alone, strips[i], cv_blocks(strips[i].channels), (int)strips[i].step);
  }
  for (int begin = share.begin; begin < share.end; begin += rows) {
    cv_strip strip[CV_STRIP_MEMBERS];
    cv_range wanted = {begin, begin + rows < share.end ? begin + rows : share.end};
    int first = count;
    while (first > 0) { /* from the last member up: what each has to compute */
      const int i = first - 1;
      const cv_strip_member *m = &members[i];
      const int in_strip = i < count - 1;
      const cv_range fresh = in_strip ? cv_strip_advance(strips[i], m->height, held[i], wanted) : wanted;
      if (in_strip) held[i] = wanted;
      if (fresh.begin == fresh.end) break; /* nothing but zeros is wanted: nor of those before it */
      const cv_range window = {fresh.begin * m->stride - m->pad,
                               (fresh.end - 1) * m->stride - m->pad + m->reach + 1};
      strip[i].rows = fresh;
      strip[i].y_first = in_strip ? wanted.begin : 0;
      strip[i].x_first = i > 0 ? window.begin : 0;
      strip[i].read.begin = cv_clamp_row(window.begin, m->x_height);
      strip[i].read.end = cv_clamp_row(window.end, m->x_height);
      strip[i].above = window.begin < 0 ? -window.begin : 0;
      wanted = window;
      first = i;
    }
    for (int i = first; i < count; i++) members[i].run(alone, f, &strip[i]);
  }
}

#endif
