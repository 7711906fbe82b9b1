/* Memory filled once: implements convoy_prepare of convoy/runtime.h. */
#include "runtime/prepared.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "convoy/region.h"
#include "convoy/runtime.h"
#include "runtime/arena.h"

/* One of them for each region that prepares something; released when the library is unloaded. */
typedef struct kept {
  struct kept *next;
  cv_arena arena;
} kept;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `all`; held while one is filled */
static kept *all;

typedef struct filling {
  convoy_task fill;
  void *memory;
} filling;

static void run_fill(cv_thread thread, void *arena, void *context) {
  const filling *f = context;
  (void)arena;
  f->fill(thread, f->memory, NULL);
}

int convoy_prepare(convoy_prepared *prepared, size_t bytes, convoy_task fill) {
  if (atomic_load_explicit(&prepared->memory, memory_order_acquire)) return CONVOY_OK;
  int status = CONVOY_OK;
  pthread_mutex_lock(&lock);
  if (!atomic_load_explicit(&prepared->memory, memory_order_relaxed)) {
    kept *entry = calloc(1, sizeof *entry);
    filling f = {fill, entry ? cv_arena_reserve(&entry->arena, bytes) : NULL};
    status = f.memory ? convoy_launch(run_fill, &f, 0, 0) : CONVOY_OUT_OF_MEMORY;
    if (status == CONVOY_OK) {
      entry->next = all;
      all = entry;
      atomic_store_explicit(&prepared->memory, f.memory, memory_order_release);
    } else if (entry) {
      cv_arena_release(&entry->arena);
      free(entry);
    }
  }
  pthread_mutex_unlock(&lock);
  return status;
}

void cv_unlock_prepared_in_child(void) { pthread_mutex_init(&lock, NULL); }

void cv_release_prepared(void) {
  while (all) {
    kept *entry = all;
    all = entry->next;
    cv_arena_release(&entry->arena);
    free(entry);
  }
}
