/* Loops that TVM compiled run on the library's team: what TVM's code calls to share one among threads.
 *
 * TVM's code launches through a pointer in the library, which TVM's loader sets to its own pool.  That pool
 * does not survive a fork: the child's exit joins threads that it does not have.  So the pointer is
 * defined here, where the loader cannot see it.
 */
#include "runtime/tvm_loops.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "convoy/region.h"
#include "convoy/runtime.h"
#include "convoy/tvm_abi.h"

typedef struct cv_loop {
  cv_tvm_loop body;
  void *closure;
  _Atomic bool failed;
  _Atomic(void *) error; /* of the first thread that failed, if it raised one */
} cv_loop;

static void run_part(cv_thread thread, void *arena, void *context) {
  (void)arena;
  cv_loop *loop = context;
  cv_tvm_loop_threads threads = {NULL, thread.count};
  if (loop->body(thread.id, &threads, loop->closure) == 0) return;
  void *raised = NULL, *none = NULL; /* errors are each thread's own */
  TVMFFIErrorMoveFromRaised(&raised);
  atomic_store(&loop->failed, true);
  if (raised && !atomic_compare_exchange_strong(&loop->error, &none, raised)) TVMFFIObjectDecRef(raised);
}

/* Runs a loop on `threads` threads, 0: the library's setting.  TVM's code asks for no other number. */
__attribute__((used)) static int launch_loop(cv_tvm_loop body, void *closure, int threads) {
  cv_loop loop = {.body = body, .closure = closure};
  const bool alone = threads == 1 || convoy_num_threads() == 1; /* without memory, of which it needs none */
  if (alone ||
      convoy_launch(run_part, &loop, 0, threads, 0) != CONVOY_OK) { /* within a launch: this thread */
    run_part((cv_thread){0, 1}, NULL, &loop);
  }
  if (!atomic_load(&loop.failed)) return 0;
  void *error = atomic_load(&loop.error);
  if (error) {
    TVMFFIErrorSetRaised(error);
    TVMFFIObjectDecRef(error);
  }
  return -1;
}

__attribute__((used)) static int wait_in_loop(int thread, cv_tvm_loop_threads *threads) {
  convoy_barrier((cv_thread){thread, threads->count});
  return 0;
}

/* What TVM's code reads the functions from.  Its own definitions are weak, so these are not; in groups, of
 * which the linker keeps one, since a library may have two Convoy modules.  Hidden: the loader, which looks
 * them up by name, would overwrite them. */
#define CV_READ_BY_TVM(name, function)                                                 \
  __asm__(".pushsection .data.rel.ro." #name ",\"awG\",@progbits," #name               \
          ",comdat\n"                                                                  \
          ".globl " #name "\n.hidden " #name "\n.type " #name ",@object\n.size " #name \
          ",8\n"                                                                       \
          ".balign 8\n" #name ":\n.8byte " #function "\n.popsection\n")

CV_READ_BY_TVM(__TVMBackendParallelLaunch, launch_loop);
CV_READ_BY_TVM(__TVMBackendParallelBarrier, wait_in_loop);
