/* What every kernel test shares: counted checks, seeded numbers, aligned memory, a team of threads.
 *
 * A test is one C file with a main() that ends in `return check_done();`.  It is compiled once per
 * instruction set; the naive double-precision version written in it is the specification.
 */
#ifndef CONVOY_TESTS_CHECK_H_
#define CONVOY_TESTS_CHECK_H_

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simd/amx.h"

/* Forms that differ from others in a number: a test does without under a sanitizer, with which code takes
 * minutes to build, and for instruction sets that are not the machine's widest.  Shapes that take long:
 * only under a sanitizer. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECK_LONG(...)
#undef CHECK_FEW
#define CHECK_FEW
#else
#define CHECK_LONG(...) __VA_ARGS__
#endif
#ifdef CHECK_FEW
#define CHECK_MORE(...)
#else
#define CHECK_MORE(...) __VA_ARGS__
#endif

static int check_count, check_failures;

/* Counts a check; a failed one prints where, then the formatted text (ten of them at most). */
#define CHECK(condition, ...) check_that(!!(condition), __FILE__, __LINE__, __VA_ARGS__)

__attribute__((format(printf, 4, 5))) static inline void check_that(int holds, const char *file, int line,
                                                                    const char *format, ...) {
  check_count++;
  if (holds || ++check_failures > 10) return;
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "%s:%d [%s]: ", file, line, CV_ISA);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
}

/* True if got is within `relative` of expected, measured against `scale`; NaN equals NaN. */
static inline int check_near(double got, double expected, double scale, double relative) {
  if (isnan(expected) || isnan(got)) return isnan(expected) && isnan(got);
  if (isinf(expected) || isinf(got)) return got == expected;
  return fabs(got - expected) <= relative * (fabs(scale) > 1e-30 ? fabs(scale) : 1e-30);
}

static inline int check_done(void) {
  printf("%s: %d checks, %d failed\n", CV_ISA, check_count, check_failures);
#ifdef CV_EMULATE_AMX
  if (!cv_amx_products) fprintf(stderr, "no AMX tile was multiplied\n"), check_failures++;
#endif
  return check_failures != 0 || check_count == 0;
}

/* Uniform in [-1, 1), the same sequence in every run. */
static inline float check_random(void) {
  static uint64_t state = 0x9e3779b97f4a7c15u;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (float)((double)(state >> 11) / (double)(1ull << 52) - 1.0);
}

static inline void check_fill(float *p, ptrdiff_t count) {
  for (ptrdiff_t i = 0; i < count; i++) p[i] = check_random();
}

/* 64-byte aligned floats, all NaN, so that what is read before it is written shows. */
static inline float *check_floats(ptrdiff_t count) {
  float *p = NULL;
  if (posix_memalign((void **)&p, 64, (size_t)(count > 0 ? count : 1) * sizeof(float))) {
    fprintf(stderr, "out of memory: %td floats\n", count);
    exit(2);
  }
  for (ptrdiff_t i = 0; i < count; i++) p[i] = NAN;
  return p;
}

#endif
