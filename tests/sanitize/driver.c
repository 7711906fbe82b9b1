/* Calls regions on data from a file, by one to three threads each and by several callers at once, and
 * compares.
 *
 * Compiled with a generated table of regions.  Every tensor is memory of its own, as large as it must be
 * and no larger, so that a sanitizer sees what is read or written beside it.  The file: for each region
 * int64 images, inputs, outputs, the type of each and its elements; then the values of all; then for each
 * output, in floats, how far each value may be from the expected one by ties of rounding.
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

/* As regions.py numbers them. */
typedef enum type { FLOAT32, UINT8, INT8 } type;

typedef struct data {
  int64_t images, inputs, outputs, types[MOST], sizes[MOST];
  void *values[MOST]; /* inputs, then expected outputs */
  float *slack[MOST]; /* of each output */
} data;

static size_t bytes_of(const data *d, int64_t tensor) {
  return (size_t)d->sizes[tensor] * (d->types[tensor] == FLOAT32 ? sizeof(float) : 1);
}

static double value_at(const void *values, int64_t type, int64_t i) {
  if (type == FLOAT32) return ((const float *)values)[i];
  return type == UINT8 ? ((const uint8_t *)values)[i] : ((const int8_t *)values)[i];
}

static void take(void *to, size_t bytes, FILE *file) {
  if (bytes && fread(to, bytes, 1, file) != 1) {
    fprintf(stderr, "the data ends too early\n");
    exit(2);
  }
}

static data read_data(FILE *file) {
  data d = {0};
  take(&d.images, 3 * sizeof(int64_t), file);
  const int64_t tensors = d.inputs + d.outputs;
  take(d.types, (size_t)tensors * sizeof(int64_t), file);
  take(d.sizes, (size_t)tensors * sizeof(int64_t), file);
  for (int64_t i = 0; i < tensors; i++) {
    d.values[i] = malloc(bytes_of(&d, i));
    take(d.values[i], bytes_of(&d, i), file);
  }
  for (int64_t i = 0; i < d.outputs; i++) {
    const size_t bytes = (size_t)d.sizes[d.inputs + i] * sizeof(float);
    d.slack[i] = malloc(bytes);
    take(d.slack[i], bytes, file);
  }
  return d;
}

/* Beyond ties, of the largest output; infinite for NaN. */
static double error_of(const void *got, const data *d, int64_t output) {
  const int64_t tensor = d->inputs + output, type = d->types[tensor];
  double largest = 1e-3, worst = 0;
  for (int64_t i = 0; i < d->sizes[tensor]; i++) {
    const double expected = value_at(d->values[tensor], type, i);
    const double error = fabs(value_at(got, type, i) - expected) - d->slack[output][i];
    if (fabs(expected) > largest) largest = fabs(expected);
    if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
  }
  return worst / largest;
}

/* One call with outputs of its own; the largest error, or infinity where the call fails. */
static double call(const sample *s, const data *d) {
  void *outputs[MOST];
  for (int64_t i = 0; i < d->outputs; i++) outputs[i] = malloc(bytes_of(d, d->inputs + i));
  const int status = s->region((const void *const *)d->values, outputs, d->images);
  double worst = status == CONVOY_OK ? 0 : INFINITY;
  for (int64_t i = 0; i < d->outputs; i++) {
    const double error = error_of(outputs[i], d, i);
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
    for (int64_t j = 0; j < d.inputs + d.outputs; j++) free(d.values[j]);
    for (int64_t j = 0; j < d.outputs; j++) free(d.slack[j]);
  }
  fclose(file);
  printf("%d regions\n", sample_count);
  return 0;
}
