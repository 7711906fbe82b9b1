/* Timing for the microbenchmarks: best of several runs, against the machine's own multiply-add peak. */
#ifndef CONVOY_BENCH_MEASURE_H_
#define CONVOY_BENCH_MEASURE_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/map.h"

/* CPU time of this thread: a neighbour on a shared machine is not counted.  A system call. */
static inline double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reading it costs next to nothing. */
static inline double wall_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* FLOP/s of 12 independent chains of multiply-adds, best of `runs` of about 0.03 ms. */
static inline double measure_peak(int runs) {
  enum { CHAINS = 12, STEPS = 1 << 14 };
  double best = 0;
  for (int run = 0; run < runs; run++) {
    cv_vec sum[CHAINS];
    cv_vec a = cv_set1(0.5f), b = cv_set1(0.25f);
    CV_UNROLL
    for (int i = 0; i < CHAINS; i++) sum[i] = cv_set1((float)i);
    const double start = wall_seconds();
    for (int step = 0; step < STEPS; step++) {
      __asm__ volatile("" : "+x"(a), "+x"(b)); /* keeps the loop from being computed once */
      CV_UNROLL
      for (int i = 0; i < CHAINS; i++) sum[i] = cv_fma(sum[i], a, b);
    }
    const double elapsed = wall_seconds() - start;
    float total = 0;
    CV_UNROLL
    for (int i = 0; i < CHAINS; i++) total += cv_reduce_add(sum[i]);
    if (total == 12345.0f) puts(""); /* the sums are used */
    const double rate = 2.0 * CV_LANES * CHAINS * STEPS / elapsed;
    if (rate > best) best = rate;
  }
  return best;
}

/* The same of products of bytes: two operations each, as a multiply-add is.  In parts (simd/simd.h) each is
 * of half of the bytes, which are made of nothing here. */
static inline double measure_dots_peak(int runs) {
  enum { CHAINS = 12, STEPS = 1 << 14 };
  double best = 0;
  for (int run = 0; run < runs; run++) {
    cv_int sum[CHAINS], a = cv_int_set1(0x01010101), b = cv_int_set1(0x01010101);
    CV_UNROLL
    for (int i = 0; i < CHAINS; i++) sum[i] = cv_int_set1(i);
    const double start = wall_seconds();
    for (int step = 0; step < STEPS; step++) {
      CV_UNROLL
      for (int i = 0; i < CHAINS; i++) {
        __asm__ volatile("" : "+x"(a)); /* or equal products are made once */
        sum[i] = cv_dot(sum[i], a, b);
      }
    }
    const double elapsed = wall_seconds() - start;
    float total = 0;
    CV_UNROLL
    for (int i = 0; i < CHAINS; i++) total += cv_reduce_add(cv_from_int(sum[i]));
    if (total == 12345.0f) puts("");
    const double rate = 2.0 * 4 / CV_DOT_PARTS * CV_LANES * CHAINS * STEPS / elapsed;
    if (rate > best) best = rate;
  }
  return best;
}

/* The same of products of bfloat16. */
static inline double measure_bf16_peak(int runs) {
  enum { CHAINS = CV_REGISTERS - 8, STEPS = 1 << 14 };
  double best = 0;
  for (int run = 0; run < runs; run++) {
    cv_vec sum[CHAINS], a = cv_as_float(cv_int_set1(0x3f003f00)), b = a;
    CV_UNROLL
    for (int i = 0; i < CHAINS; i++) sum[i] = cv_set1((float)i);
    const double start = wall_seconds();
    for (int step = 0; step < STEPS; step++) {
      __asm__ volatile("" : "+x"(a), "+x"(b));
      CV_UNROLL
      for (int i = 0; i < CHAINS; i++) sum[i] = cv_dot_bf16(a, b, sum[i]);
    }
    const double elapsed = wall_seconds() - start;
    float total = 0;
    CV_UNROLL
    for (int i = 0; i < CHAINS; i++) total += cv_reduce_add(sum[i]);
    if (total == 12345.0f) puts("");
    const double rate = 2.0 * 2 * CV_LANES * CHAINS * STEPS / elapsed;
    if (rate > best) best = rate;
  }
  return best;
}

static inline int compare_doubles(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Sorts the values. */
static inline double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, compare_doubles);
  return values[count / 2];
}

/* Zeroed floats in huge pages where the system gives them, as in a region's arena. */
static inline float *huge_floats(ptrdiff_t count) {
  const size_t page = (size_t)2 << 20;
  const size_t bytes = ((size_t)count * sizeof(float) + page - 1) / page * page;
  float *p = aligned_alloc(page, bytes);
  if (!p) {
    fprintf(stderr, "out of memory: %zu bytes\n", bytes);
    exit(2);
  }
  madvise(p, bytes, MADV_HUGEPAGE);
  memset(p, 0, bytes);
  return p;
}

/* A blocked map (planar if lanes is 1) with a halo of `halo` pixels all around, its planes an odd number
 * of cache lines apart: else all planes of a power-of-two map fall into the same sets of the L1. */
static inline cv_map make_map(int channels, int height, int width, int halo, int lanes) {
  const int line = 16;
  const ptrdiff_t row = (ptrdiff_t)(width + 2 * halo) * lanes;
  ptrdiff_t plane = ((height + 2 * halo) * row + line - 1) / line * line;
  if (plane / line % 2 == 0) plane += line;
  const int planes = (channels + lanes - 1) / lanes;
  float *data = huge_floats(planes * plane);
  const cv_map map = {data + halo * row + halo * lanes,
                      channels,
                      height,
                      width,
                      plane,
                      row,
                      lanes,
                      halo,
                      halo,
                      halo,
                      halo,
                      CV_FLOAT32};
  return map;
}

static inline void free_map(cv_map m) { free(m.data - m.top * m.row - m.left * m.step); }

#endif
