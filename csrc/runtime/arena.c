#define _GNU_SOURCE
#include "runtime/arena.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

static const size_t kHugePage = (size_t)2 << 20;

void cv_arena_release(cv_arena *arena) {
  if (arena->mapping) munmap(arena->mapping, arena->mapped);
  *arena = (cv_arena){0};
}

void *cv_arena_reserve(cv_arena *arena, size_t bytes) {
  if (arena->memory && bytes <= arena->bytes) return arena->memory;
  cv_arena_release(arena); /* first: the old and the new together may not fit */
  if (bytes > SIZE_MAX - 2 * kHugePage) return NULL;
  const size_t size = (bytes + kHugePage) / kHugePage * kHugePage; /* at least one page, also for 0 */
  void *mapping = mmap(NULL, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return NULL;
  arena->mapping = mapping;
  arena->mapped = size + kHugePage;
  arena->memory = (void *)(((uintptr_t)mapping + kHugePage - 1) / kHugePage * kHugePage);
  arena->bytes = size;
#ifdef MADV_HUGEPAGE
  madvise(arena->memory, size, MADV_HUGEPAGE); /* advice: small pages serve too */
#endif
  return arena->memory;
}

/* ---- Spare arenas ---- */

static struct {
  cv_arena arena;
  atomic_flag borrowed;
} spare[CV_SPARE_ARENAS];

cv_arena *cv_arena_borrow(void) {
  for (int i = 0; i < CV_SPARE_ARENAS; ++i) { /* the first is the one most used: its memory is there */
    if (!atomic_flag_test_and_set_explicit(&spare[i].borrowed, memory_order_acquire))
      return &spare[i].arena;
  }
  return NULL;
}

/* An arena is the first member of its entry. */
void cv_arena_give_back(cv_arena *arena) {
  atomic_flag_clear_explicit((atomic_flag *)((char *)arena + offsetof(__typeof__(spare[0]), borrowed)),
                             memory_order_release);
}

void cv_arena_after_fork(void) {
  for (int i = 0; i < CV_SPARE_ARENAS; ++i) atomic_flag_clear(&spare[i].borrowed);
}

void cv_arena_release_spare(void) {
  for (int i = 0; i < CV_SPARE_ARENAS; ++i) {
    if (atomic_flag_test_and_set(&spare[i].borrowed)) continue;
    cv_arena_release(&spare[i].arena);
    atomic_flag_clear(&spare[i].borrowed);
  }
}
