/* How code that TVM compiled calls for threads: as tvm/runtime/c_backend_api.h has it. */
#ifndef CONVOY_RUNTIME_TVM_LOOPS_H_
#define CONVOY_RUNTIME_TVM_LOOPS_H_

#include <stdint.h>

typedef struct cv_tvm_loop_threads {
  void *barrier; /* TVM's own: unused */
  int32_t count;
} cv_tvm_loop_threads;

/* The part of one thread of `threads->count`.  0, or another number with an error raised. */
typedef int (*cv_tvm_loop)(int thread, cv_tvm_loop_threads *threads, void *closure);

/* Where TVM's code finds what shares a loop among `threads` threads (0: as many as there are), and what one
 * of them waits for the others with. */
extern int (*const __TVMBackendParallelLaunch)(cv_tvm_loop loop, void *closure, int threads);
extern int (*const __TVMBackendParallelBarrier)(int thread, cv_tvm_loop_threads *threads);

#endif
