/* The C interface of one compiled region, free of TVM.
 *
 *   int SYMBOL(const void *const *inputs, void *const *outputs, int64_t images);
 *
 * inputs[i], outputs[j]: dense row-major tensors in the order of the graph, each of its own element
 * type, with `images` as its axis 0 (a region whose axis 0 is no image axis is called with images = 1).
 * Returns a convoy_status; nothing is thrown, nothing is printed.
 */
#ifndef CONVOY_REGION_H_
#define CONVOY_REGION_H_

#include <math.h> /* generated code writes INFINITY and NAN */
#include <stdint.h>

typedef enum convoy_status {
  CONVOY_OK = 0,
  CONVOY_OUT_OF_MEMORY = 1,
  CONVOY_NESTED_CALL = 2, /* from within another region's run, whose threads it would wait for */
} convoy_status;

typedef int (*convoy_region)(const void *const *inputs, void *const *outputs, int64_t images);

#endif
