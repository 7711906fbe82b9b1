/* Waiting for another thread of the team: spin, then give the core away.
 *
 * A bounded spin answers within a fraction of a microsecond while both threads run; yielding keeps
 * a team alive that has more threads than free cores (a busy machine, a caller pinned to the core
 * of a worker), where an endless spin would cost a time slice per barrier.
 */
#ifndef CONVOY_RUNTIME_WAIT_H_
#define CONVOY_RUNTIME_WAIT_H_

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define CV_CACHE_LINE 128 /* two lines: x86 prefetches them in pairs */

enum { CV_SPINS = 2000 }; /* 20 to 100 us with the pauses of today's CPUs */

static inline void cv_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield" ::: "memory");
#endif
}

/* Waits until *word is no longer `old`, at most CV_SPINS pauses.  True if it changed. */
static inline bool cv_spin_while(const _Atomic uint32_t *word, uint32_t old) {
  for (int i = 0; i < CV_SPINS; ++i) {
    if (atomic_load_explicit(word, memory_order_acquire) != old) return true;
    cv_pause();
  }
  return atomic_load_explicit(word, memory_order_acquire) != old;
}

/* Waits until *word is no longer `old`. */
static inline void cv_wait_while(const _Atomic uint32_t *word, uint32_t old) {
  if (cv_spin_while(word, old)) return;
  while (atomic_load_explicit(word, memory_order_acquire) == old) sched_yield();
}

#endif
