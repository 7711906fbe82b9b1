/* Waiting for another thread of the team: spin a while, then sleep.
 *
 * The spin answers within a fraction of a microsecond while both threads run, and is as long as the waits
 * of a team whose threads all have a core.  One that waits longer has lost a partner to another
 * process: it sleeps on a futex, which gives the core away at once, and gets it back at once.  (It must not
 * yield: beside a process that computes, sched_yield hands that process a whole time slice.)
 * Time, not a count, bounds the spin, since a pause takes much longer on some CPUs than on others.
 */
#ifndef CONVOY_RUNTIME_WAIT_H_
#define CONVOY_RUNTIME_WAIT_H_

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CV_CACHE_LINE 128 /* two lines: x86 prefetches them in pairs */

enum { CV_POLLS = 64 };

/* A number that threads wait to see change, and how many of them sleep. */
typedef struct cv_signal {
  _Atomic uint32_t value;
  _Atomic uint32_t sleepers;
} cv_signal;

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

/* Changes the value and wakes who sleeps. */
static inline void cv_signal_set(cv_signal *signal, uint32_t value) {
  /* Both this store and the sleeper's count are sequentially consistent: either it is seen here and woken,
   * or its futex sees the new value and does not sleep. */
  atomic_store(&signal->value, value);
  if (atomic_load(&signal->sleepers)) {
    syscall(SYS_futex, &signal->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
  }
}

/* Waits until the value is no longer `old`: awake for `spin_ns`, then asleep. */
static inline void cv_signal_wait(cv_signal *signal, uint32_t old, int64_t spin_ns) {
  int64_t start = 0, spun = 0;
  do {
    for (int i = 0; i < CV_POLLS; ++i) {
      if (atomic_load_explicit(&signal->value, memory_order_acquire) != old) return;
      cv_pause();
    }
    const int64_t now = cv_now_ns();
    if (start == 0) start = now;
    spun = now - start;
  } while (spun < spin_ns);
  atomic_fetch_add(&signal->sleepers, 1);
  while (atomic_load(&signal->value) == old) {
    syscall(SYS_futex, &signal->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
  }
  atomic_fetch_sub(&signal->sleepers, 1);
}

#endif
