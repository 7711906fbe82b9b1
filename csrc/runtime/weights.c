/* Implements convoy_place_weights of convoy/runtime.h. */
#define _GNU_SOURCE /* mremap */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "convoy/runtime.h"
#include "runtime/environment.h"

#ifdef MREMAP_FIXED

static const size_t kHugePage = (size_t)2 << 20;

/* False where the user wants none, or the kernel gives none even to who asks: a copy would cost memory for
 * nothing. */
static bool may_have_huge_pages(void) {
  if (!cv_number_setting("CONVOY_HUGE_PAGES", 1)) return false;
  char modes[64] = ""; /* such as "always [madvise] never" */
  const int file = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t got = read(file, modes, sizeof modes - 1);
  close(file);
  return got > 0 && !strstr(modes, "[never]");
}

void convoy_place_weights(const float *weights, size_t bytes) {
  const uintptr_t first = (uintptr_t)weights;
  const uintptr_t begin = (first + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (first + bytes) / kHugePage * kHugePage;
  if (end <= begin || !may_have_huge_pages()) return;
  const size_t size = end - begin;
  char *mapping = mmap(NULL, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) return;
  char *copy = (char *)(((uintptr_t)mapping + kHugePage - 1) / kHugePage * kHugePage);
  madvise(copy, size, MADV_HUGEPAGE);
  for (size_t at = 0; at < size; at += kHugePage) {
    memcpy(copy + at, (const char *)begin + at, kHugePage);
    madvise((char *)begin + at, kHugePage, MADV_DONTNEED); /* they are never in memory twice */
  }
  mprotect(copy, size, PROT_READ);
  /* In one step: whoever reads sees the one or the other. */
  const bool moved = mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)begin) != MAP_FAILED;
  if (copy > mapping) munmap(mapping, (size_t)(copy - mapping));
  char *rest = moved ? copy + size : copy;
  munmap(rest, (size_t)(mapping + size + kHugePage - rest));
}

#else

void convoy_place_weights(const float *weights, size_t bytes) { (void)weights, (void)bytes; }

#endif
