/* Waiting for another thread of the team: spin a few microseconds, then offer the core to others.
 *
 * The spin answers within a fraction of a microsecond while both threads run.  Yielding after it
 * keeps a team alive that has more threads than free cores: an endless spin would cost a time slice
 * per barrier.  Time, not a count, bounds both, since a pause takes 5 ns on one CPU and 60 on another.
 */
#ifndef CONVOY_RUNTIME_WAIT_H_
#define CONVOY_RUNTIME_WAIT_H_

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define CV_CACHE_LINE 128 /* two lines: x86 prefetches them in pairs */

enum { CV_SPIN_NS = 4000, CV_POLLS = 64 };

static inline void cv_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield" ::: "memory");
#endif
}

static inline int64_t cv_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Waits until *word is no longer `old`, at most `limit_ns`.  True if it changed. */
static inline bool cv_wait_while(const _Atomic uint32_t *word, uint32_t old, int64_t limit_ns) {
  int64_t start = 0, waited = 0;
  do {
    for (int i = 0; i < CV_POLLS; ++i) {
      if (atomic_load_explicit(word, memory_order_acquire) != old) return true;
      if (waited < CV_SPIN_NS) {
        cv_pause();
      } else {
        sched_yield();
      }
    }
    const int64_t now = cv_now_ns();
    if (start == 0) start = now;
    waited = now - start;
  } while (waited < limit_ns);
  return false;
}

#endif
