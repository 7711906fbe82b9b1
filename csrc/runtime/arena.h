/* One block of scratch memory, kept between calls, grown to the largest size asked for.
 *
 * 2 MB-aligned and offered to the kernel for huge pages: activations are walked in large strides,
 * and 4 KB pages would cost a TLB miss at most of them.
 */
#ifndef CONVOY_RUNTIME_ARENA_H_
#define CONVOY_RUNTIME_ARENA_H_

#include <stddef.h>

typedef struct cv_arena {
  void *mapping; /* what mmap returned; NULL: nothing is held */
  size_t mapped;
  void *memory; /* the aligned part of it */
  size_t bytes;
} cv_arena;

/* Memory of at least `bytes` bytes with unspecified contents, or NULL: then nothing is held. */
void *cv_arena_reserve(cv_arena *arena, size_t bytes);

void cv_arena_release(cv_arena *arena);

#endif
