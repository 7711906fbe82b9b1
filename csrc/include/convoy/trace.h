/* What a region adds whose steps are traced: when each thread began and ended each step.
 *
 *   CONVOY_TRACED("convoy_1f00", 3, step(t, f));
 *
 * Threads meet where they do without it.  While nobody listens, a step costs a load and a branch more.
 */
#ifndef CONVOY_TRACE_H_
#define CONVOY_TRACE_H_

#include <stdint.h>

#include "convoy/timed.h"

typedef struct cv_event {
  const char *name;  /* of the region, or of the function that TVM calls; lives as long as the library */
  double begin, end; /* as convoy_seconds has it */
  int32_t step;      /* of the region; -1: the call as a whole, of a region or another function */
  int32_t thread;    /* threads are numbered by their first event */
} cv_event;

/* From now on events go to `events`, of which there is room for `room`. */
void convoy_trace_start(cv_event *events, int64_t room);

/* The events since the start, also those for which there was no room.  No region may be running. */
int64_t convoy_trace_stop(void);

/* The time, or 0 while nobody listens. */
double convoy_trace_begin(void);
void convoy_trace_end(const char *name, int step, double begin);

#define CONVOY_TRACED(name, step, call)                                   \
  do {                                                                    \
    const double convoy_begin = convoy_trace_begin();                     \
    call;                                                                 \
    if (convoy_begin > 0) convoy_trace_end((name), (step), convoy_begin); \
  } while (0)

#endif
