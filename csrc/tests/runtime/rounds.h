/* A task that catches a thread that leaves a barrier early, runs twice or not at all, and a launch that
 * runs while another one uses its memory. */
#ifndef CONVOY_TESTS_RUNTIME_ROUNDS_H_
#define CONVOY_TESTS_RUNTIME_ROUNDS_H_

#include <stdatomic.h>
#include <string.h>

#include "convoy/region.h"
#include "convoy/runtime.h"

enum { ROUND_STRIDE = 32, ROUND_MOST_THREADS = 16, ROUND_BYTES = 4 * ROUND_STRIDE * ROUND_MOST_THREADS };

typedef struct rounds {
  int rounds;
  int seed;  /* what this launch writes, unlike any other's */
  int count; /* threads there were */
  atomic_int ran, wrong;
} rounds;

static inline void run_rounds(cv_thread thread, void *arena, void *context) {
  rounds *job = context;
  int *cells = arena;
  atomic_fetch_add_explicit(&job->ran, 1, memory_order_relaxed);
  if (thread.id == 0) job->count = thread.count;
  for (int round = 1; round <= job->rounds; ++round) {
    cells[thread.id * ROUND_STRIDE] = job->seed + round;
    convoy_barrier(thread);
    for (int i = 0; i < thread.count; ++i) {
      if (cells[i * ROUND_STRIDE] != job->seed + round)
        atomic_fetch_add_explicit(&job->wrong, 1, memory_order_relaxed);
    }
    if (convoy_arrive(thread)) { /* one thread writes what all read next */
      for (int i = 0; i < thread.count; ++i) cells[i * ROUND_STRIDE] = -round;
      convoy_release(thread);
    }
    if (cells[thread.id * ROUND_STRIDE] != -round)
      atomic_fetch_add_explicit(&job->wrong, 1, memory_order_relaxed);
  }
}

/* Launches it on `threads` threads with `bytes` of scratch memory; 1 if all went right. */
static inline int launch_rounds(int seed, int count, size_t bytes, int threads) {
  rounds job = {.rounds = count, .seed = seed};
  const size_t needed = bytes > ROUND_BYTES ? bytes : ROUND_BYTES;
  if (convoy_launch(run_rounds, &job, needed, threads, count) != CONVOY_OK) return 0;
  return job.count >= 1 && atomic_load(&job.ran) == job.count && atomic_load(&job.wrong) == 0;
}

#endif
