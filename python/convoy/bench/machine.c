/* What the machine can do: multiply-adds of one thread, and its reads from memory. */
#include <stddef.h>
#include <time.h>

#include "simd/simd.h"

static clockid_t clock_id = CLOCK_MONOTONIC;

/* From now on count only the time a thread has a core. */
void cv_machine_use_cpu_time(void) { clock_id = CLOCK_THREAD_CPUTIME_ID; }

static double now(void) {
  struct timespec t;
  clock_gettime(clock_id, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* FLOP/s of 12 independent chains of multiply-adds, for about `seconds`. */
double cv_machine_flops(double seconds) {
  enum { CHAINS = 12, STEPS = 1 << 13 };
  cv_vec sum[CHAINS];
  cv_vec a = cv_set1(0.5f), b = cv_set1(0.25f);
  for (int i = 0; i < CHAINS; i++) sum[i] = cv_set1((float)i);
  const double start = now();
  double elapsed;
  long steps = 0;
  do {
    for (int step = 0; step < STEPS; step++) {
      __asm__ volatile("" : "+x"(a), "+x"(b)); /* keeps the loop from being computed once */
#pragma GCC unroll 12
      for (int i = 0; i < CHAINS; i++) sum[i] = cv_fma(sum[i], a, b);
    }
    steps += STEPS;
    elapsed = now() - start;
  } while (elapsed < seconds);
  float total = 0;
  for (int i = 0; i < CHAINS; i++) total += cv_reduce_add(sum[i]);
  volatile float used = total;
  (void)used;
  return 2.0 * CV_LANES * CHAINS * (double)steps / elapsed;
}

/* Bytes/s of reading floats x[0..count), count a multiple of 8 vectors; the caller sees to it that they
 * are not in a cache. */
double cv_machine_bandwidth(const float *x, ptrdiff_t count) {
  enum { CHAINS = 8 };
  cv_vec sum[CHAINS];
  for (int i = 0; i < CHAINS; i++) sum[i] = cv_zero();
  const double start = now();
  for (ptrdiff_t at = 0; at < count; at += CHAINS * CV_LANES) {
#pragma GCC unroll 8
    for (int i = 0; i < CHAINS; i++) sum[i] = cv_add(sum[i], cv_loadu(x + at + i * CV_LANES));
  }
  const double elapsed = now() - start;
  float total = 0;
  for (int i = 0; i < CHAINS; i++) total += cv_reduce_add(sum[i]);
  volatile float used = total;
  (void)used;
  return (double)(count * (ptrdiff_t)sizeof(float)) / elapsed;
}
