/* Calls regions on data from a file, by one to three threads each and by several callers at once, and
 * compares.
 *
 * Compiled with a generated table of regions.  Every tensor is memory of its own, as large as it must be
 * and no larger, so that a sanitizer sees what is read or written beside it.  The file: for each region
 * int64 images, inputs, outputs, the sizes of all in floats; then the values of all.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convoy/region.h"
#include "convoy/runtime.h"

typedef struct sample {
  const char *name;
  convoy_region region;
} sample;

extern const sample samples[];
extern const int sample_count;

enum { MOST = 64, CALLERS = 3 };

typedef struct data {
  int64_t images, inputs, outputs, sizes[MOST];
  float *values[MOST]; /* inputs, then expected outputs */
} data;

static void take(void *to, size_t bytes, FILE *file) {
  if (bytes && fread(to, bytes, 1, file) != 1) {
    fprintf(stderr, "the data ends too early\n");
    exit(2);
  }
}

static data read_data(FILE *file) {
  data d = {0};
  take(&d.images, 3 * sizeof(int64_t), file);
  take(d.sizes, (size_t)(d.inputs + d.outputs) * sizeof(int64_t), file);
  for (int i = 0; i < d.inputs + d.outputs; i++) {
    d.values[i] = malloc((size_t)d.sizes[i] * sizeof(float));
    take(d.values[i], (size_t)d.sizes[i] * sizeof(float), file);
  }
  return d;
}

/* Of the largest output; infinite for NaN. */
static double error_of(const float *got, const float *expected, int64_t count) {
  double largest = 1e-3, worst = 0;
  for (int64_t i = 0; i < count; i++) {
    const double error = fabs((double)got[i] - expected[i]);
    if (fabs(expected[i]) > largest) largest = fabs(expected[i]);
    if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
  }
  return worst / largest;
}

/* One call with outputs of its own; the largest error, or infinity where the call fails. */
static double call(const sample *s, const data *d) {
  float *outputs[MOST];
  for (int i = 0; i < d->outputs; i++) outputs[i] = malloc((size_t)d->sizes[d->inputs + i] * sizeof(float));
  const int status = s->region((const void *const *)d->values, (void *const *)outputs, d->images);
  double worst = status == CONVOY_OK ? 0 : INFINITY;
  for (int i = 0; i < d->outputs; i++) {
    const double error = error_of(outputs[i], d->values[d->inputs + i], d->sizes[d->inputs + i]);
    if (error > worst) worst = error;
    free(outputs[i]);
  }
  return worst;
}

static const sample *called;
static const data *called_with;
static _Atomic double bound;
static atomic_int wrong;

static void *call_beside_others(void *unused) {
  if (call(called, called_with) > bound) atomic_fetch_add(&wrong, 1);
  return unused;
}

int main(int count, char **arguments) {
  if (count != 3) {
    fprintf(stderr, "expected the file with the data and the largest error that passes\n");
    return 2;
  }
  FILE *file = fopen(arguments[1], "rb");
  if (!file) {
    perror(arguments[1]);
    return 2;
  }
  bound = atof(arguments[2]);
  for (int i = 0; i < sample_count; i++) {
    data d = read_data(file);
    double worst = 0;
    for (int threads = 1; threads <= 3; threads++) {
      convoy_set_num_threads(threads);
      const double error = call(&samples[i], &d);
      if (error > worst) worst = error;
    }
    pthread_t callers[CALLERS];
    called = &samples[i], called_with = &d;
    for (int j = 0; j < CALLERS; j++) pthread_create(&callers[j], NULL, call_beside_others, NULL);
    for (int j = 0; j < CALLERS; j++) pthread_join(callers[j], NULL);
    if (worst > bound || atomic_load(&wrong)) {
      fprintf(stderr, "%s: an error of %g, %d of %d callers at once wrong\n", samples[i].name, worst,
              atomic_load(&wrong), CALLERS);
      return 1;
    }
    for (int j = 0; j < d.inputs + d.outputs; j++) free(d.values[j]);
  }
  fclose(file);
  printf("%d regions\n", sample_count);
  return 0;
}
