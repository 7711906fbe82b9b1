/* The price of a barrier of Convoy's own team. */
#include <time.h>

#include "convoy/runtime.h"

enum { CV_BARRIERS = 16 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void meet(cv_thread thread, void *arena, void *context) {
  (void)arena;
  convoy_barrier(thread); /* all are awake */
  const double start = now();
  for (int i = 0; i < CV_BARRIERS; i++) convoy_barrier(thread);
  if (thread.id == 0) *(double *)context = thread.count > 1 ? (now() - start) / CV_BARRIERS : 0;
}

/* Seconds of a barrier of so many threads; 0 where there was but one. */
double cv_machine_barrier(int threads) {
  double seconds = 0;
  convoy_launch(meet, &seconds, 64, threads, 1.0);
  return seconds;
}
