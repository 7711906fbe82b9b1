/* Latency of a launch and of a barrier: our team against TVM's thread pool, taken in turns.
 *
 *   LIB=.venv/lib/python3.11/site-packages/tvm/lib
 *   FFI=.venv/lib/python3.11/site-packages/tvm_ffi/lib
 *   RUNTIME=$(echo csrc/runtime/{library,team,pace,arena,cores,environment}.c)
 *   cc -std=gnu11 -O2 -pthread -Icsrc -Icsrc/include $RUNTIME csrc/runtime/bench/launch.c \
 *      -o launch -L$LIB -ltvm_runtime -L$FFI -ltvm_ffi
 *   LD_LIBRARY_PATH=$LIB:$FFI TVM_NUM_THREADS=2 ./launch
 *
 * Prints microseconds, the median of the rounds, for launches that follow each other at once and
 * after a pause of 1 ms, in which our workers fall asleep and TVM's keep polling.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "convoy/runtime.h"

typedef struct TVMParallelGroupEnv { /* as in tvm/runtime/c_backend_api.h */
  void *sync_handle;
  int32_t num_task;
} TVMParallelGroupEnv;
typedef int (*FTVMParallelLambda)(int task_id, TVMParallelGroupEnv *env, void *cdata);
int TVMBackendParallelLaunch(FTVMParallelLambda task, void *cdata, int num_task);
int TVMBackendParallelBarrier(int task_id, TVMParallelGroupEnv *env);

enum { ROUNDS = 41, LAUNCHES = 200, BARRIERS = 1000 };

static int team_size;

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void our_task(cv_thread thread, void *arena, void *context) {
  (void)arena;
  team_size = thread.count;
  for (int i = *(int *)context; i > 0; --i) convoy_barrier(thread);
}

static int their_task(int id, TVMParallelGroupEnv *env, void *context) {
  team_size = env->num_task;
  for (int i = *(int *)context; i > 0; --i) TVMBackendParallelBarrier(id, env);
  return 0;
}

static void launch(int theirs, int barriers) {
  if (theirs) {
    TVMBackendParallelLaunch(their_task, &barriers, 0);
  } else {
    convoy_launch(our_task, &barriers, 0, 0, 1);
  }
}

static double time_launches(int theirs, int launches, long pause_us) {
  double spent = 0;
  for (int i = 0; i < launches; ++i) {
    if (pause_us) nanosleep(&(struct timespec){0, pause_us * 1000}, NULL);
    const double start = now_us();
    launch(theirs, 0);
    spent += now_us() - start;
  }
  return spent / launches;
}

static double time_barriers(int theirs) {
  const double start = now_us();
  launch(theirs, BARRIERS);
  return (now_us() - start) / BARRIERS;
}

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(void) {
  double times[2][3][ROUNDS];
  for (int theirs = 0; theirs < 2; ++theirs) {
    launch(theirs, 0);
    printf("%s: %d threads\n", theirs ? "TVM" : "own", team_size);
  }
  for (int round = 0; round < ROUNDS; ++round) {
    for (int theirs = 0; theirs < 2; ++theirs) {
      nanosleep(&(struct timespec){0, 250000000}, NULL); /* the other pool's workers go to sleep */
      launch(theirs, 0);
      times[theirs][0][round] = time_launches(theirs, LAUNCHES, 0);
      times[theirs][1][round] = time_barriers(theirs);
      times[theirs][2][round] = time_launches(theirs, 10, 1000);
    }
  }
  static const char *const what[] = {"launch", "barrier", "launch after 1 ms"};
  for (int kind = 0; kind < 3; ++kind) {
    for (int theirs = 0; theirs < 2; ++theirs) {
      qsort(times[theirs][kind], ROUNDS, sizeof(double), ascending);
      printf("%-18s %s %8.2f us\n", what[kind], theirs ? "TVM" : "own", times[theirs][kind][ROUNDS / 2]);
    }
  }
  return 0;
}
