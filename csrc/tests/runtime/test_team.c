/* Launches from several threads at once, while another one changes the number of threads; launches after a
 * fork; an exit in the middle of a launch.  Made for the sanitizers; right answers are asked for without.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/check.h"
#include "tests/runtime/rounds.h"

enum { CALLERS = 6, LAUNCHES = 60 };

static atomic_int failed, done;

static void *call(void *argument) {
  const int id = (int)(intptr_t)argument;
  for (int i = 0; i < LAUNCHES; ++i) {
    const size_t bytes = i % 7 == 0 ? (size_t)(1 + id) << 20 : 0; /* the arena grows under the others */
    if (!launch_rounds((id + 1) * 1000000 + i * 1000, 1 + i % 5, bytes, i % 4))
      atomic_fetch_add(&failed, 1);
  }
  atomic_fetch_add(&done, 1);
  return NULL;
}

static void *change_threads(void *argument) {
  (void)argument;
  for (int i = 0; atomic_load(&done) < CALLERS; ++i) {
    convoy_set_num_threads(i % 5);
    if (convoy_num_threads() < 1) atomic_fetch_add(&failed, 1);
    usleep(200);
  }
  return NULL;
}

static void check_callers_at_once(void) {
  pthread_t callers[CALLERS], changer;
  for (intptr_t i = 0; i < CALLERS; ++i) pthread_create(&callers[i], NULL, call, (void *)i);
  pthread_create(&changer, NULL, change_threads, NULL);
  for (int i = 0; i < CALLERS; ++i) pthread_join(callers[i], NULL);
  pthread_join(changer, NULL);
  CHECK(atomic_load(&failed) == 0, "%d of %d launches went wrong", atomic_load(&failed),
        CALLERS * LAUNCHES);
}

static void check_every_number_of_threads(void) {
  for (int threads = 1; threads <= 9; ++threads) {
    convoy_set_num_threads(threads);
    CHECK(convoy_num_threads() == threads, "set %d threads, got %d", threads, convoy_num_threads());
    for (int i = 0; i < 5; ++i)
      CHECK(launch_rounds(i * 1000, 10, 0, 0), "%d threads: a launch went wrong", threads);
    usleep(1000); /* the workers fall asleep */
    CHECK(launch_rounds(9000, 3, 0, 2), "2 of %d threads: a launch went wrong", threads);
  }
  convoy_set_num_threads(0);
}

static void check_memory_that_cannot_be_had(void) {
  rounds job = {.rounds = 1, .seed = 1};
  CHECK(convoy_launch(run_rounds, &job, SIZE_MAX / 2, 0, 1) == CONVOY_OUT_OF_MEMORY,
        "half of all memory was had");
  CHECK(convoy_launch(run_rounds, &job, SIZE_MAX, 0, 1) == CONVOY_OUT_OF_MEMORY, "all of memory was had");
  CHECK(atomic_load(&job.ran) == 0, "the task ran without memory");
  CHECK(launch_rounds(1, 5, 0, 0), "the launch after it went wrong");
}

#ifndef __SANITIZE_THREAD__ /* which cannot follow threads that a child of a fork starts */
/* Runs `child` in a child process; its exit code, or 128 and a signal. */
static int in_child(int (*child)(void)) {
  const pid_t id = fork();
  if (id == 0) {
    alarm(60); /* a deadlock ends as a failure */
    _exit(child());
  }
  int status = 0;
  waitpid(id, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int launch_in_child(void) {
  for (int i = 0; i < 5; ++i)
    if (!launch_rounds(i * 100, 10, 0, 0)) return 1;
  return 0;
}

static void *launch_on(void *argument) {
  while (!atomic_load((atomic_int *)argument)) launch_rounds(5000, 5, 0, 0);
  return NULL;
}

static void check_forks_while_running(void) {
  atomic_int stop = 0;
  pthread_t caller;
  convoy_set_num_threads(3);
  pthread_create(&caller, NULL, launch_on, &stop);
  for (int i = 0; i < 10; ++i) {
    const int code = in_child(launch_in_child);
    CHECK(code == 0, "a child forked while a launch ran ended with %d", code);
  }
  atomic_store(&stop, 1);
  pthread_join(caller, NULL);
}
#else
static void check_forks_while_running(void) {}
#endif

static void launch_within(cv_thread thread, void *arena, void *context) {
  (void)arena;
  rounds job = {.rounds = 1, .seed = 1};
  if (thread.id == 0) *(int *)context = convoy_launch(run_rounds, &job, ROUND_BYTES, 0, 1);
  convoy_barrier(thread);
}

static void check_launch_within_a_launch(void) {
  int status = -1;
  convoy_set_num_threads(3);
  convoy_launch(launch_within, &status, 0, 0, 1);
  CHECK(status == CONVOY_NESTED_CALL || status == CONVOY_OK, "a launch within a launch gave %d", status);
  CHECK(launch_rounds(1, 5, 0, 0), "the launch after it went wrong");
}

int main(void) {
  check_every_number_of_threads();
  check_memory_that_cannot_be_had();
  check_launch_within_a_launch();
  check_callers_at_once();
  check_forks_while_running();
  return check_done();
}
