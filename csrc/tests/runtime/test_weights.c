/* Weights that are read by other threads while they move into huge pages keep their values and addresses.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>

#include "convoy/runtime.h"
#include "tests/check.h"

enum { COUNT = 3 * (2 << 20) / 4 + 12345 };
#define EIGHT(x) x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7
static const float weights[COUNT] = {EIGHT(1), [COUNT / 2] = EIGHT(11), [COUNT - 8] = EIGHT(21)};

static atomic_int stop, wrong;

static double sum(void) {
  double total = 0;
  for (int i = 0; i < COUNT; ++i) total += weights[i];
  return total;
}

static void *read_on(void *argument) {
  while (!atomic_load(&stop))
    if (sum() != *(double *)argument) atomic_fetch_add(&wrong, 1);
  return NULL;
}

int main(void) {
  double expected = sum();
  CHECK(expected == 8 * 33 + 3 * 28, "the sum of the weights is %g", expected);
  pthread_t readers[2];
  for (int i = 0; i < 2; ++i) pthread_create(&readers[i], NULL, read_on, &expected);
  convoy_place_weights(weights, sizeof weights); /* once: of memory it must not drop the pages */
  convoy_place_weights(weights + 3, 40);         /* too few to fill a page */
  convoy_place_weights(weights, 0);
  CHECK(sum() == expected, "the sum of the weights became %g", sum());
  atomic_store(&stop, 1);
  for (int i = 0; i < 2; ++i) pthread_join(readers[i], NULL);
  CHECK(atomic_load(&wrong) == 0, "%d sums were wrong while the weights moved", atomic_load(&wrong));
  return check_done();
}
