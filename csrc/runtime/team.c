/* The thread team of a library: implements convoy/runtime.h.
 *
 * The caller is thread 0.  Each worker has a mailbox on a cache line of its own; a launch writes a
 * ticket into the mailboxes of the workers it needs.  An idle worker watches its mailbox for some
 * tens of microseconds, so that regions that follow each other closely find it awake, then sleeps
 * on a futex: an idle library costs nothing, and never spins against another pool.  How many threads
 * a launch has on a busy machine is decided in pace.c.
 */
#define _GNU_SOURCE /* thread affinities */
#include "runtime/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "convoy/region.h"
#include "convoy/runtime.h"
#include "runtime/arena.h"
#include "runtime/cores.h"
#include "runtime/environment.h"
#include "runtime/pace.h"
#include "runtime/wait.h"

enum {
  CV_MAX_THREADS = 256,
  CV_AWAKE_NS = 50000,        /* in barriers, too: longer waits are rare where all threads have a core */
  CV_WORTH_ASKING_NS = 50000, /* the kernel takes half a microsecond to tell of interruptions */
};

/* Overridden by the generated module when a number of threads was compiled in. */
__attribute__((weak)) int convoy_compiled_threads = 0;

typedef struct cv_mailbox {
  _Alignas(CV_CACHE_LINE) cv_signal ticket; /* changes when there is work, or to stop */
  uint32_t seen;                            /* the last ticket when the worker was started */
  cv_thread thread;
  int cpu; /* that the worker began its last task on */
  pthread_t handle;
} cv_mailbox;

static struct {
  _Alignas(CV_CACHE_LINE) _Atomic uint32_t arrived;
  _Alignas(CV_CACHE_LINE) cv_signal phase;
} barrier;

static cv_mailbox mailboxes[CV_MAX_THREADS];                    /* [0] is the caller's: unused */
static pthread_mutex_t launch_lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below, held for a launch */
static int workers;                                             /* started: threads 1 .. workers */
static bool stopping;
static convoy_task current_task;
static void *current_context;
static cv_arena arena;
static cv_pace pace;
static int64_t launched_ns;                 /* the end of the last launch */
static int64_t interruptions;               /* what the kernel had counted when it was asked last */
static int64_t spin_ns;                     /* in barriers */
static cpu_set_t process_cpus, worker_cpus; /* the first is set once, when the library is loaded */
static int16_t core_of[CPU_SETSIZE];
static int default_threads;
static _Thread_local bool launching; /* this thread waits for, or is part of, a launch of a team */
static _Atomic int chosen_threads;   /* by convoy_set_num_threads; 0: none */

/* ---- How many ---- */

static int choose_default_threads(void) {
  const char *const settings[] = {"CONVOY_NUM_THREADS", "TVM_NUM_THREADS"};
  for (int i = 0; i < 2; ++i) {
    const int threads = cv_number_setting(settings[i], 0);
    if (threads) return threads;
  }
  if (convoy_compiled_threads > 0) return convoy_compiled_threads;
  return cv_count_cores(core_of);
}

int convoy_num_threads(void) {
  const int chosen = atomic_load(&chosen_threads);
  const int threads = chosen > 0 ? chosen : default_threads;
  return threads < CV_MAX_THREADS ? threads : CV_MAX_THREADS;
}

void convoy_set_num_threads(int threads) { atomic_store(&chosen_threads, threads > 0 ? threads : 0); }

/* ---- Workers ---- */

static void post(cv_mailbox *box) { cv_signal_set(&box->ticket, atomic_load(&box->ticket.value) + 1); }

static void *work(void *argument) {
  cv_mailbox *box = argument;
  for (uint32_t seen = box->seen;; ++seen) {
    cv_signal_wait(&box->ticket, seen, CV_AWAKE_NS);
    if (stopping) return NULL;
    box->cpu = sched_getcpu();
    launching = true;
    current_task(box->thread, arena.memory, current_context);
    convoy_barrier(box->thread);
  }
}

/* Workers may run wherever the process may, except on the caller's core.
 *
 * They must not inherit the caller's mask, which TVM's pool narrows, to one core on a 2-core
 * machine.  And a worker that woke on the caller's core, as the kernel likes it, would share that
 * core for many launches on a machine that is busy otherwise: each barrier then costs two switches.
 * No thread is tied to one core: several teams on one machine would tie theirs to the same. */
static void place_workers(int caller) {
  cpu_set_t cpus = process_cpus;
  const int core = core_of[caller];
  for (int cpu = 0; core >= 0 && cpu < CPU_SETSIZE; ++cpu) {
    if (core_of[cpu] == core) CPU_CLR(cpu, &cpus);
  }
  if (CPU_COUNT(&cpus) < workers) { /* the other hardware threads of that core are needed */
    cpus = process_cpus;
    CPU_CLR(caller, &cpus);
  }
  if (CPU_COUNT(&cpus) < workers) cpus = process_cpus;
  for (int id = 1; id <= workers; ++id) pthread_setaffinity_np(mailboxes[id].handle, sizeof cpus, &cpus);
  worker_cpus = cpus;
}

static int current_cpu(void) {
  const int cpu = sched_getcpu();
  return cpu >= 0 && cpu < CPU_SETSIZE ? cpu : 0;
}

/* True if a worker of the launch just done shared the caller's core although it need not. */
static bool collided(int count, int caller) {
  if (CPU_EQUAL(&worker_cpus, &process_cpus)) return false; /* more threads than cores */
  if (!CPU_ISSET(caller, &worker_cpus)) return false;       /* placed already */
  for (int id = 1; id < count; ++id) {
    const int cpu = mailboxes[id].cpu;
    if (cpu >= 0 && cpu < CPU_SETSIZE && core_of[cpu] == core_of[caller]) return true;
  }
  return false;
}

/* Signals are the application's, and its own threads take them: all but those that tell of the very thread
 * they reach, what it did wrong or what it is doing.  Were a fault blocked, the kernel would end the
 * process without the application's crash handler; were SIGPROF, no profiler would see a worker's time. */
static sigset_t signals_of_others(void) {
  static const int own[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGPROF};
  sigset_t others;
  sigfillset(&others);
  for (size_t i = 0; i < sizeof own / sizeof *own; ++i) sigdelset(&others, own[i]);
  return others;
}

/* Starts workers up to thread `count - 1`, as far as the system lets it. */
static void start_workers(int count) {
  if (count - 1 <= workers) return;
  sigset_t before;
  const sigset_t others = signals_of_others();
  pthread_sigmask(SIG_SETMASK, &others, &before);
  while (workers < count - 1) {
    cv_mailbox *box = &mailboxes[workers + 1];
    box->seen = atomic_load(&box->ticket.value);
    box->thread.id = workers + 1;
    if (pthread_create(&box->handle, NULL, work, box) != 0) break;
    pthread_setname_np(box->handle, "convoy");
    ++workers;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  place_workers(current_cpu());
}

static void stop_workers(void) {
  stopping = true;
  for (int id = 1; id <= workers; ++id) post(&mailboxes[id]);
  for (int id = 1; id <= workers; ++id) pthread_join(mailboxes[id].handle, NULL);
  workers = 0;
  stopping = false;
}

/* ---- Launch and barrier ---- */

/* The caller alone, in an arena of its own: callers do not wait for each other. */
static int launch_alone(convoy_task task, void *context, size_t arena_bytes) {
  cv_arena *own = cv_arena_borrow();
  if (!own) return CONVOY_OUT_OF_MEMORY;
  void *memory = cv_arena_reserve(own, arena_bytes);
  if (memory) task((cv_thread){0, 1}, memory, context);
  cv_arena_give_back(own);
  return memory ? CONVOY_OK : CONVOY_OUT_OF_MEMORY;
}

/* The caller and `count - 1` workers. */
static void run_team(convoy_task task, void *context, int count) {
  current_task = task;
  current_context = context;
  spin_ns =
      count > CPU_COUNT(&process_cpus) ? 0 : CV_AWAKE_NS; /* else one spins for who waits for its core */
  const cv_thread caller = {0, count};
  for (int id = 1; id < count; ++id) {
    mailboxes[id].thread.count = count;
    post(&mailboxes[id]);
  }
  task(caller, arena.memory, context);
  convoy_barrier(caller); /* all have finished */
  const int cpu = current_cpu();
  if (collided(count, cpu)) place_workers(cpu);
}

static int64_t count_interruptions(void) {
  struct rusage used;
  return getrusage(RUSAGE_SELF, &used) == 0 ? used.ru_nivcsw : 0;
}

/* Tells `pace` how long a launch took and how often it was interrupted.  What the application does in
 * between is interrupted, too: so the count is taken anew after each long pause, which costs no more than a
 * hundredth of it.  A short launch was not interrupted, or it would be a long one. */
static void run_timed(convoy_task task, void *context, int count, double work) {
  const int64_t start = cv_now_ns();
  if (start - launched_ns > CV_WORTH_ASKING_NS) interruptions = count_interruptions();
  run_team(task, context, count);
  launched_ns = cv_now_ns();
  const int64_t ns = launched_ns - start, before = interruptions;
  if (ns > CV_WORTH_ASKING_NS) interruptions = count_interruptions();
  cv_pace_note(&pace, work, ns, interruptions - before);
}

int convoy_launch(convoy_task task, void *context, size_t arena_bytes, int threads, double work) {
  const int setting = convoy_num_threads();
  const int most = threads > 0 && threads < setting ? threads : setting;
  if (most == 1) return launch_alone(task, context, arena_bytes);
  if (launching) return CONVOY_NESTED_CALL;
  launching = true;
  pthread_mutex_lock(&launch_lock);
  const bool fits = cv_arena_reserve(&arena, arena_bytes);
  if (fits) {
    int count = cv_pace_threads(&pace, most);
    start_workers(count);
    if (count > workers + 1) count = workers + 1;
    if (work > 0) {
      run_timed(task, context, count, work);
    } else {
      run_team(task, context, count);
    }
  }
  pthread_mutex_unlock(&launch_lock);
  launching = false;
  return fits ? CONVOY_OK : CONVOY_OUT_OF_MEMORY;
}

bool convoy_arrive(cv_thread thread) {
  if (thread.count == 1) return true;
  const int64_t spin = spin_ns; /* read before arriving: after it, the next launch may set another */
  const uint32_t phase = atomic_load_explicit(&barrier.phase.value, memory_order_relaxed);
  const uint32_t before = atomic_fetch_add_explicit(&barrier.arrived, 1, memory_order_acq_rel);
  if (before + 1 == (uint32_t)thread.count) return true;
  cv_signal_wait(&barrier.phase, phase, spin);
  return false;
}

void convoy_release(cv_thread thread) {
  if (thread.count == 1) return;
  atomic_store_explicit(&barrier.arrived, 0, memory_order_relaxed);
  cv_signal_set(&barrier.phase, atomic_load_explicit(&barrier.phase.value, memory_order_relaxed) + 1);
}

void convoy_barrier(cv_thread thread) {
  if (convoy_arrive(thread)) convoy_release(thread);
}

/* ---- The life of the library: see library.c ---- */

void cv_team_load(void) {
  cv_process_cpus(&process_cpus);
  worker_cpus = process_cpus;
  cv_find_cores(&process_cpus, core_of);
  default_threads = choose_default_threads();
}

void cv_team_before_fork(void) { pthread_mutex_lock(&launch_lock); }

void cv_team_after_fork_in_parent(void) { pthread_mutex_unlock(&launch_lock); }

void cv_team_after_fork_in_child(void) {
  workers = 0; /* threads do not survive a fork: the next launch starts new ones */
  for (int id = 1; id < CV_MAX_THREADS; ++id) atomic_store(&mailboxes[id].ticket.sleepers, 0);
  pthread_mutex_init(&launch_lock, NULL);
  cv_arena_after_fork();
}

void cv_team_unload(void) {
  struct timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += 1;
  if (pthread_mutex_timedlock(&launch_lock, &deadline) != 0) return;
  stop_workers();
  cv_arena_release(&arena);
  cv_arena_release_spare();
}
