/* The thread team of a library: implements convoy/runtime.h.
 *
 * The caller is thread 0.  Each worker has a mailbox on a cache line of its own; a launch writes a
 * ticket into the mailboxes of the workers it needs.  An idle worker watches its mailbox for some
 * tens of microseconds, so that regions that follow each other closely find it awake, then sleeps
 * on a futex: an idle library costs nothing, and never spins against another pool.
 */
#define _GNU_SOURCE /* thread affinities */
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "convoy/region.h"
#include "convoy/runtime.h"
#include "runtime/arena.h"
#include "runtime/cores.h"
#include "runtime/wait.h"

enum { CV_MAX_THREADS = 256 };

/* Overridden by the generated module when a number of threads was compiled in. */
__attribute__((weak)) int convoy_compiled_threads = 0;

typedef struct cv_mailbox {
  _Alignas(CV_CACHE_LINE) _Atomic uint32_t ticket; /* changes when there is work, or to stop */
  _Atomic uint32_t sleeping;
  uint32_t seen; /* the last ticket when the worker was started */
  cv_thread thread;
  pthread_t handle;
} cv_mailbox;

static struct {
  _Alignas(CV_CACHE_LINE) _Atomic uint32_t arrived;
  _Alignas(CV_CACHE_LINE) _Atomic uint32_t phase;
} barrier;

static cv_mailbox mailboxes[CV_MAX_THREADS];                    /* [0] is the caller's: unused */
static pthread_mutex_t launch_lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below, held for a launch */
static int workers;                                             /* started: threads 1 .. workers */
static bool stopping;
static convoy_task current_task;
static void *current_context;
static cv_arena arena;
static cpu_set_t process_cpus; /* set once, when the library is loaded */
static int default_threads;
static int excluded_cpu = -1;      /* the CPU a pinned caller holds: workers keep off it */
static _Atomic int chosen_threads; /* by convoy_set_num_threads; 0: none */

/* ---- How many ---- */

static int positive_setting(const char *name) {
  const char *text = getenv(name);
  if (!text) return 0;
  char *end;
  const long value = strtol(text, &end, 10);
  if (end == text || *end || value <= 0) return 0;
  return value > CV_MAX_THREADS ? CV_MAX_THREADS : (int)value;
}

static int choose_default_threads(void) {
  const char *const settings[] = {"CONVOY_NUM_THREADS", "TVM_NUM_THREADS"};
  for (int i = 0; i < 2; ++i) {
    const int threads = positive_setting(settings[i]);
    if (threads) return threads;
  }
  if (convoy_compiled_threads > 0) return convoy_compiled_threads;
  return cv_physical_cores(&process_cpus);
}

int convoy_num_threads(void) {
  const int chosen = atomic_load(&chosen_threads);
  const int threads = chosen > 0 ? chosen : default_threads;
  return threads < CV_MAX_THREADS ? threads : CV_MAX_THREADS;
}

void convoy_set_num_threads(int threads) { atomic_store(&chosen_threads, threads > 0 ? threads : 0); }

/* ---- Workers ---- */

static void sleep_while(cv_mailbox *box, uint32_t ticket) {
  /* Both this store and the ticket's are sequentially consistent: either the launcher sees the
   * sleeper and wakes it, or the futex sees the new ticket and does not sleep. */
  atomic_store(&box->sleeping, 1);
  while (atomic_load(&box->ticket) == ticket) {
    syscall(SYS_futex, &box->ticket, FUTEX_WAIT_PRIVATE, ticket, NULL, NULL, 0);
  }
  atomic_store(&box->sleeping, 0);
}

static void post(cv_mailbox *box) {
  atomic_fetch_add(&box->ticket, 1);
  if (atomic_load(&box->sleeping)) syscall(SYS_futex, &box->ticket, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void *work(void *argument) {
  cv_mailbox *box = argument;
  for (uint32_t seen = box->seen;; ++seen) {
    if (!cv_spin_while(&box->ticket, seen)) sleep_while(box, seen);
    if (stopping) return NULL;
    current_task(box->thread, arena.memory, current_context);
    convoy_barrier(box->thread);
  }
}

/* Where workers may run: everywhere the process may, except on the core of a caller that is pinned
 * to one CPU, as TVM's pool pins it: two threads of a team on one core halve its speed until the
 * kernel's balancer notices, and it looks only every few milliseconds. */
static cpu_set_t worker_cpus(int held) {
  cpu_set_t cpus = process_cpus, siblings;
  if (held < 0) return cpus;
  cv_siblings(held, &siblings);
  CPU_AND(&siblings, &siblings, &cpus);
  CPU_XOR(&cpus, &cpus, &siblings);
  if (CPU_COUNT(&cpus) < workers) { /* the other hardware threads of that core are needed */
    cpus = process_cpus;
    CPU_CLR(held, &cpus);
  }
  return CPU_COUNT(&cpus) < workers ? process_cpus : cpus;
}

static void place_workers(int held) {
  const cpu_set_t cpus = worker_cpus(held);
  for (int id = 1; id <= workers; ++id) pthread_setaffinity_np(mailboxes[id].handle, sizeof cpus, &cpus);
  excluded_cpu = held;
}

static int caller_cpu(void) {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0 || CPU_COUNT(&mask) != 1) return -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) return cpu;
  }
  return -1;
}

/* Starts workers up to thread `count - 1`, as far as the system lets it. */
static void start_workers(int count) {
  if (count - 1 <= workers) return;
  sigset_t all, before;
  sigfillset(&all); /* signals are the application's: its own threads take them */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (workers < count - 1) {
    cv_mailbox *box = &mailboxes[workers + 1];
    box->seen = atomic_load(&box->ticket);
    box->thread.id = workers + 1;
    if (pthread_create(&box->handle, NULL, work, box) != 0) break;
    pthread_setname_np(box->handle, "convoy");
    ++workers;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  place_workers(caller_cpu()); /* a new thread inherits the mask of the caller, perhaps one core */
}

static void stop_workers(void) {
  stopping = true;
  for (int id = 1; id <= workers; ++id) post(&mailboxes[id]);
  for (int id = 1; id <= workers; ++id) pthread_join(mailboxes[id].handle, NULL);
  workers = 0;
  stopping = false;
}

/* ---- Launch and barrier ---- */

int convoy_launch(convoy_task task, void *context, size_t arena_bytes, int threads) {
  pthread_mutex_lock(&launch_lock);
  void *memory = cv_arena_reserve(&arena, arena_bytes);
  if (!memory) {
    pthread_mutex_unlock(&launch_lock);
    return CONVOY_OUT_OF_MEMORY;
  }
  const int setting = convoy_num_threads();
  int count = threads > 0 && threads < setting ? threads : setting;
  if (count > 1) {
    start_workers(count);
    if (count > workers + 1) count = workers + 1;
    const int held = caller_cpu();
    if (held != excluded_cpu) place_workers(held);
  }
  current_task = task;
  current_context = context;
  const cv_thread caller = {0, count};
  for (int id = 1; id < count; ++id) {
    mailboxes[id].thread.count = count;
    post(&mailboxes[id]);
  }
  task(caller, memory, context);
  convoy_barrier(caller); /* all have finished */
  pthread_mutex_unlock(&launch_lock);
  return CONVOY_OK;
}

void convoy_barrier(cv_thread thread) {
  if (thread.count == 1) return;
  const uint32_t phase = atomic_load_explicit(&barrier.phase, memory_order_relaxed);
  const uint32_t before = atomic_fetch_add_explicit(&barrier.arrived, 1, memory_order_acq_rel);
  if (before + 1 == (uint32_t)thread.count) {
    atomic_store_explicit(&barrier.arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&barrier.phase, phase + 1, memory_order_release);
  } else {
    cv_wait_while(&barrier.phase, phase);
  }
}

/* ---- Load, fork, unload ---- */

static void before_fork(void) { pthread_mutex_lock(&launch_lock); } /* no launch is in the middle */

static void after_fork_in_parent(void) { pthread_mutex_unlock(&launch_lock); }

static void after_fork_in_child(void) {
  workers = 0; /* threads do not survive a fork: the next launch starts new ones */
  excluded_cpu = -1;
  for (int id = 1; id < CV_MAX_THREADS; ++id) atomic_store(&mailboxes[id].sleeping, 0);
  pthread_mutex_init(&launch_lock, NULL);
}

__attribute__((constructor)) static void load(void) {
  cv_process_cpus(&process_cpus);
  default_threads = choose_default_threads();
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

__attribute__((destructor)) static void unload(void) {
  /* Runs at dlclose, when no call is under way, and at exit, when a thread of the application may
   * still be in one: then the kernel ends the workers, a moment later. */
  struct timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += 1;
  if (pthread_mutex_timedlock(&launch_lock, &deadline) != 0) return;
  stop_workers();
  cv_arena_release(&arena);
  pthread_mutex_unlock(&launch_lock);
}
