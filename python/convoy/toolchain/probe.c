/* What the machine can do, each figure of one thread and of a run of about `seconds`: the caller takes the
 * best of several. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "convoy/runtime.h"
#include "simd/simd.h"

/* The value is computed, and nothing else is. */
#if defined(__x86_64__)
#define CV_KEEP(v) __asm__ volatile("" : "+x"(v))
#elif defined(__aarch64__)
#define CV_KEEP(v) __asm__ volatile("" : "+w"(v))
#else
#define CV_KEEP(v) __asm__ volatile("" : "+m"(v))
#endif

static clockid_t clock_id = CLOCK_MONOTONIC;

/* From now on count only the time a thread has a core. */
void cv_machine_use_cpu_time(void) { clock_id = CLOCK_THREAD_CPUTIME_ID; }

static double now(void) {
  struct timespec t;
  clock_gettime(clock_id, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Cycles/s, by additions that wait for each other: each takes one. */
double cv_machine_clock(double seconds) {
  enum { STEPS = 1 << 12 };
  uint64_t sum = 1, more = 3;
  const double start = now();
  double elapsed;
  long steps = 0;
  do {
#pragma GCC unroll 16
    for (int step = 0; step < STEPS; step++) {
      __asm__ volatile("" : "+r"(sum), "+r"(more));
      sum += more;
    }
    steps += STEPS;
    elapsed = now() - start;
  } while (elapsed < seconds);
  __asm__ volatile("" : "+r"(sum));
  return (double)steps / elapsed;
}

/* FLOP/s of 12 independent chains of multiply-adds. */
double cv_machine_flops(double seconds) {
  enum { CHAINS = 12, STEPS = 1 << 10 };
  cv_vec sum[CHAINS];
  cv_vec a = cv_set1(0.5f), b = cv_set1(0.25f);
  for (int i = 0; i < CHAINS; i++) sum[i] = cv_set1((float)i);
  const double start = now();
  double elapsed;
  long steps = 0;
  do {
    for (int step = 0; step < STEPS; step++) {
      CV_KEEP(a); /* keeps the loop from being computed once */
      CV_KEEP(b);
#pragma GCC unroll 12
      for (int i = 0; i < CHAINS; i++) sum[i] = cv_fma(sum[i], a, b);
    }
    steps += STEPS;
    elapsed = now() - start;
  } while (elapsed < seconds);
  for (int i = 0; i < CHAINS; i++) CV_KEEP(sum[i]);
  return 2.0 * CV_LANES * CHAINS * (double)steps / elapsed;
}

/* Loads x[0..count), count a multiple of 8 vectors. */
static void sweep(const float *x, ptrdiff_t count) {
  for (ptrdiff_t at = 0; at < count; at += 8 * CV_LANES) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
      cv_vec v = cv_loadu(x + at + i * CV_LANES);
      CV_KEEP(v);
    }
  }
}

/* Bytes/s of reading x[0..count), count a multiple of 8 vectors, once; the caller sees to it that they are
 not * in a cache. */
double cv_machine_bandwidth(const float *x, ptrdiff_t count) {
  const double start = now();
  sweep(x, count);
  return (double)count * sizeof(float) / (now() - start);
}

/* Bytes/s of reading it again and again: from the cache that it fits. */
double cv_machine_cached_bandwidth(double seconds, const float *x, ptrdiff_t count) {
  /* To look at the clock takes as long as a sweep of L1. */
  const long together = count < 1 << 16 ? (1 << 16) / count : 1;
  sweep(x, count);
  const double start = now();
  double elapsed;
  long sweeps = 0;
  do {
    for (long i = 0; i < together; i++) sweep(x, count);
    sweeps += together;
    elapsed = now() - start;
  } while (elapsed < seconds);
  return (double)sweeps * (double)count * sizeof(float) / elapsed;
}
