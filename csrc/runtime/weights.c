/* Implements convoy_place_weights of convoy/runtime.h. */
#define _GNU_SOURCE /* mremap */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "convoy/runtime.h"
#include "runtime/environment.h"
#include "runtime/groups.h"

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

/* Bytes the group in `folder` may still take; its caches, which it could drop, count as taken. */
static double group_left(const char *folder, double none) {
  static const char *const files[][2] = {{"memory.max", "memory.current"},
                                         {"memory.limit_in_bytes", "memory.usage_in_bytes"}};
  char path[4352], line[64];
  double most, taken;
  for (int version = 0; version < 2; ++version) {
    snprintf(path, sizeof path, "%s/%s", folder, files[version][0]);
    if (!cv_read_line(path, line, sizeof line) || sscanf(line, "%lf", &most) != 1) continue; /* "max" */
    snprintf(path, sizeof path, "%s/%s", folder, files[version][1]);
    if (!cv_read_line(path, line, sizeof line) || sscanf(line, "%lf", &taken) != 1) continue;
    return most > taken ? most - taken : 0;
  }
  return none;
}

/* Pages of a file can be dropped where memory runs short, and these cannot: they move only where as much
 * again stays free, on the machine and in every control group. */
static bool has_room(size_t bytes) {
  double left = 1e18, available;
  char line[128];
  FILE *file = fopen("/proc/meminfo", "re");
  while (file && fgets(line, sizeof line, file)) {
    if (sscanf(line, "MemAvailable: %lf kB", &available) == 1) left = available * 1024;
  }
  if (file) fclose(file);
  return cv_least_of_groups("memory", group_left, left) >= 2.0 * (double)bytes;
}

void convoy_place_weights(const void *weights, size_t bytes) {
  const uintptr_t first = (uintptr_t)weights;
  const uintptr_t begin = (first + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (first + bytes) / kHugePage * kHugePage;
  if (end <= begin || !may_have_huge_pages()) return;
  const size_t size = end - begin;
  if (!has_room(size)) return;
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

void convoy_place_weights(const void *weights, size_t bytes) { (void)weights, (void)bytes; }

#endif
