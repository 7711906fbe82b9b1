/* Weights that lie as float16 or bfloat16 in a library's file, and as the float32 that kernels read in
 * memory.
 *
 * Only weights that are held exactly are kept so: those of models in one of these types. */
#ifndef CONVOY_RUNTIME_HALF_H_
#define CONVOY_RUNTIME_HALF_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* How weights lie in the file. */
enum { CV_AS_IN_MEMORY, CV_AS_FLOAT16, CV_AS_BFLOAT16 };

/* A stretch of weights: `bytes` in memory, which lie in the file as they are or as half as many. */
typedef struct cv_stretch {
  size_t bytes;
  int stored;
} cv_stretch;

/* The bits of the float32 of the same value as the float16 `half`.  A subnormal one is an integer times
 * 2^-24: no float32 on the way is subnormal, so a process that flushes those reads the same weights. */
static inline uint32_t cv_float_bits(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
  const float small = (float)fraction * 0x1p-24f;
  uint32_t bits;
  memcpy(&bits, &small, sizeof bits);
  if (exponent == 31) bits = 0x7f800000 | fraction << 13;
  if (exponent > 0 && exponent < 31) bits = (exponent + 112) << 23 | fraction << 13;
  return sign | bits;
}

/* Reads the `count` stretches that lie one after the other in `file` into `memory`. */
static inline void cv_read_stretches(void *memory, const void *file, const cv_stretch *stretches,
                                     size_t count) {
  char *to = memory;
  const char *from = file;
  for (size_t s = 0; s < count; ++s) {
    const size_t bytes = stretches[s].bytes;
    const uint16_t *halves = (const uint16_t *)from;
    uint32_t *floats = (uint32_t *)to;
    switch (stretches[s].stored) {
      case CV_AS_FLOAT16:
        for (size_t i = 0; i < bytes / 4; ++i) floats[i] = cv_float_bits(halves[i]);
        break;
      case CV_AS_BFLOAT16:
        for (size_t i = 0; i < bytes / 4; ++i) floats[i] = (uint32_t)halves[i] << 16;
        break;
      default:
        memcpy(to, from, bytes);
    }
    to += bytes;
    from += stretches[s].stored == CV_AS_IN_MEMORY ? bytes : bytes / 2;
  }
}

#endif
