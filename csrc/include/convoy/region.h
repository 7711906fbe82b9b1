/* The C interface of one compiled region, free of TVM.
 *
 *   int SYMBOL(const void *const *inputs, void *const *outputs, int64_t images);
 *   int SYMBOL(const void *const *inputs, void *const *outputs, int64_t images, const int64_t *sizes);
 *
 * inputs[i], outputs[j]: dense row-major tensors in the order of the graph, each of its own element
 * type, with `images` as its axis 0 (a region whose axis 0 is no image axis is called with images = 1).
 * sizes: where some are known only at the call, those from which all others are computed.
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
typedef int (*convoy_open_region)(const void *const *inputs, void *const *outputs, int64_t images,
                                  const int64_t *sizes);

/* What expressions of sizes need beside C's operators. */
static inline int64_t convoy_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t convoy_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t convoy_floor(int64_t a, int64_t b) { return a / b - (a % b < 0); } /* b > 0 */

#endif
