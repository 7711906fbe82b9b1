/* How many threads a launch uses on a machine that others use, too.
 *
 * Where other processes compute, a thread loses its core for milliseconds, all others wait for it at the
 * next barrier, and a team may take longer than a few of its threads would.  `less` threads of `count` are,
 * all having a core, less / count times as fast.  So as long as a team is faster than that part of what it
 * once was, and is not interrupted, nothing is tried: on a quiet machine every launch has all threads. Else
 * stretches of launches are compared, with this number of threads and with the next lower, and later, now
 * and then, with the next higher.  Interruptions tell of a machine that was busy from the start, where no
 * team was ever faster.
 */
#ifndef CONVOY_RUNTIME_PACE_H_
#define CONVOY_RUNTIME_PACE_H_

#include <stdbool.h>
#include <stdint.h>

enum { CV_PACE_LAUNCHES = 64 };

/* Nanoseconds a unit of work, of the last launches. */
typedef struct cv_pace_times {
  float of[CV_PACE_LAUNCHES];
  uint32_t count; /* of launches so far: the next goes to its remainder */
} cv_pace_times;

typedef struct cv_pace {
  int most;              /* threads asked for; another number begins anew */
  int home;              /* what was found best */
  int count;             /* in use: home, or what is tried */
  double best;           /* the speed of the fastest stretch with all threads: work a nanosecond */
  double work;           /* of this stretch */
  int64_t ns;            /* of this stretch */
  int launches;          /* of this stretch */
  int waited, patience;  /* stretches since the last trial, and how many there shall be */
  int tried;             /* stretches of this trial so far */
  int64_t interrupted;   /* how often in this stretch */
  bool fewer_was_slower; /* the last trial was one of fewer threads, in vain */
  cv_pace_times home_times, tried_times; /* of launches with these numbers, since the machine was busy */
} cv_pace;

/* The threads of the next launch, 1 to `most`. */
int cv_pace_threads(cv_pace *pace, int most);

/* After a launch with that many threads: its work, in any unit, how long it took, and how often the process
 * lost a core meanwhile that it wanted to keep. */
void cv_pace_note(cv_pace *pace, double work, int64_t ns, int64_t interruptions);

#endif
