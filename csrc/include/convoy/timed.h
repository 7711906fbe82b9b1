/* What a region emitted with its steps timed adds: the least seconds each step has taken so far.
 *
 *   CONVOY_TIMED(t, seconds[i], step(t, f));
 *
 * All threads meet before and after the step, so that the time is that of its slowest thread, waiting
 * included; thread 0 keeps it.  A region timed so is a little slower than it is without: steps that need
 * no barrier between them get two.
 */
#ifndef CONVOY_TIMED_H_
#define CONVOY_TIMED_H_

#include <time.h>

#include "convoy/runtime.h"

static inline double convoy_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#define CONVOY_TIMED(t, least, call)                                       \
  do {                                                                     \
    convoy_barrier(t);                                                     \
    const double convoy_start = convoy_seconds();                          \
    call;                                                                  \
    convoy_barrier(t);                                                     \
    const double taken = convoy_seconds() - convoy_start;                  \
    if ((t).id == 0 && !((least) > 0 && (least) < taken)) (least) = taken; \
  } while (0)

#endif
