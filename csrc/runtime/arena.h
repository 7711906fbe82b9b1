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

/* A spare arena for one call, which any thread may ask for at any time; NULL: none is left
 * (CV_SPARE_ARENAS). */
enum { CV_SPARE_ARENAS = 64 };
cv_arena *cv_arena_borrow(void);
void cv_arena_give_back(cv_arena *arena);

/* In a forked child: those that other threads of the parent had borrowed are free. */
void cv_arena_after_fork(void);

/* Releases the memory of those that are not borrowed. */
void cv_arena_release_spare(void);

#endif
