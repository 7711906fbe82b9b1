/* Loops as TVM's compiled code launches them: each part runs once, waits work, an error reaches the caller.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "convoy/runtime.h"
#include "convoy/tvm_abi.h"
#include "runtime/tvm_loops.h"
#include "tests/check.h"

enum { MOST = 4, ROUNDS = 50 };

/* Stand in for libtvm_ffi: an error is memory with a count of references. */
static _Thread_local int *raised;
static atomic_int errors;

static void raise_one(void) {
  raised = malloc(sizeof *raised);
  *raised = 1;
  atomic_fetch_add(&errors, 1);
}

int TVMFFIObjectDecRef(void *object) {
  int *error = object;
  if (--*error > 0) return 0;
  free(error);
  atomic_fetch_sub(&errors, 1);
  return 0;
}

void TVMFFIErrorMoveFromRaised(void **error) {
  *error = raised;
  raised = NULL;
}

void TVMFFIErrorSetRaised(void *error) {
  raised = error;
  ++*raised;
}

typedef struct work {
  atomic_int runs[MOST], count, early, nested, failing;
} work;

static int run_nested(int thread, cv_tvm_loop_threads *threads, void *closure) {
  work *own = closure;
  if (thread == 0) atomic_fetch_add(&own->nested, 1);
  if (own->count > 1 && threads->count > 1) atomic_fetch_add(&own->early, 1);
  return 0;
}

static int run(int thread, cv_tvm_loop_threads *threads, void *closure) {
  work *own = closure;
  atomic_store(&own->count, threads->count);
  atomic_fetch_add(&own->runs[thread], 1);
  __TVMBackendParallelBarrier(thread, threads);
  for (int i = 0; i < threads->count; ++i) {
    if (atomic_load(&own->runs[i]) != 1) atomic_fetch_add(&own->early, 1);
  }
  if (__TVMBackendParallelLaunch(run_nested, own, 0) != 0) return -1;
  if (!(atomic_load(&own->failing) >> thread & 1)) return 0;
  raise_one();
  return -1;
}

static void check_loop(int threads, int asked, int failing) {
  work own = {.failing = failing};
  const int code = __TVMBackendParallelLaunch(run, &own, asked);
  const int count = asked && asked < threads ? asked : threads;
  CHECK(own.count == count, "%d threads, of which %d are asked for: the loop has %d", threads, asked,
        own.count);
  for (int i = 0; i < MOST; ++i)
    CHECK(own.runs[i] == (i < count), "part %d of %d ran %d times", i, count, own.runs[i]);
  CHECK(own.early == 0, "%d threads did not wait for others, or were not alone", own.early);
  CHECK(own.nested == count, "%d of %d loops within the loop ran, by one thread", own.nested, count);
  const bool fails = failing & ((1 << count) - 1);
  CHECK((code != 0) == fails && (raised != NULL) == fails, "parts %x fail of %d threads: the code is %d",
        failing, count, code);
  if (raised) TVMFFIObjectDecRef(raised);
  raised = NULL;
  CHECK(atomic_load(&errors) == 0, "%d errors are kept", atomic_load(&errors));
}

int main(void) {
  for (int threads = 1; threads <= MOST; ++threads) {
    convoy_set_num_threads(threads);
    for (int i = 0; i < ROUNDS; ++i) check_loop(threads, i % 3, i % 5 ? 0 : i % 16);
  }
  return check_done();
}
