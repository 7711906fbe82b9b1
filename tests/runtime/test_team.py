"""The thread team: launches, barriers, settings, forks, pinned callers, unloading."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable

import cffi
import pytest

from convoy import target
from convoy.toolchain import compiler

SOURCE = """
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>
#include "convoy/runtime.h"

enum { CELLS = 64 };
typedef struct job { int rounds, count, wrong; int cpu[CELLS]; uintptr_t arena; } job;

/* Each round every thread writes its cell and reads all others': a thread that leaves a barrier
 * early or runs twice is caught. */
static void rounds(cv_thread thread, void *arena, void *context) {
  job *j = context;
  volatile int *cells = arena;
  if (thread.id == 0) j->count = thread.count, j->arena = (uintptr_t)arena;
  j->cpu[thread.id] = sched_getcpu();
  for (int round = 1; round <= j->rounds; ++round) {
    cells[thread.id * 32] = round;
    convoy_barrier(thread);
    for (int i = 0; i < thread.count; ++i) {
      if (cells[i * 32] != round) __atomic_fetch_add(&j->wrong, 1, __ATOMIC_RELAXED);
    }
    convoy_barrier(thread);
  }
}

int launch(job *j, size_t bytes, int threads) { return convoy_launch(rounds, j, bytes, threads, 1); }

/* A launch within a launch: what it answers is kept for each thread. */
static void nest(cv_thread thread, void *arena, void *context) {
  (void)arena;
  job inner = {.rounds = 1}, *j = context;
  j->cpu[thread.id] = launch(&inner, 64 * 32 * 4, j->rounds);
}

int launch_nested(job *j) { return convoy_launch(nest, j, 0, 0, 1); }

/* Waits, a while, until `count` callers are in here at once. */
static int callers;
static void meet(cv_thread thread, void *arena, void *context) {
  (void)thread, (void)arena;
  job *j = context;
  __atomic_fetch_add(&callers, 1, __ATOMIC_SEQ_CST);
  for (long i = 0; i < 5000 && !j->wrong; ++i) {
    if (__atomic_load_n(&callers, __ATOMIC_SEQ_CST) >= j->count) j->wrong = 1;
    usleep(1000);
  }
}

/* 1 if they met. */
int launch_and_meet(job *j, int threads) {
  convoy_launch(meet, j, 64, threads, 1);
  return j->wrong;
}

/* In place of the kernel's. */
long interruptions;
__attribute__((visibility("hidden"))) int getrusage(int who, struct rusage *used) {
  used->ru_nivcsw = interruptions;
  return 0 * who;
}

/* A launch of some time slices, during which the process loses its cores as often as `rounds` says. */
static void slow(cv_thread thread, void *arena, void *context) {
  (void)arena;
  job *j = context;
  if (thread.id == 0) j->count = thread.count, interruptions += j->rounds;
  usleep(15000);
}

int launch_slowly(job *j) { return convoy_launch(slow, j, 0, 0, 1); }
"""

DECLARATIONS = """
typedef struct { int rounds, count, wrong; int cpu[64]; uintptr_t arena; } job;
int launch(job *j, size_t bytes, int threads);
int launch_nested(job *j);
int launch_and_meet(job *j, int threads);
int launch_slowly(job *j);
extern long interruptions;
int convoy_num_threads(void);
void convoy_set_num_threads(int threads);
"""

ENOUGH = 64 * 32 * 4


@pytest.fixture(scope="module")
def library_file() -> str:
    objects = compiler.compile_objects([SOURCE, *compiler.runtime_sources().values()], target.host())
    return str(compiler.link_shared(objects))


class Team:
    def __init__(self, path: str) -> None:
        self.ffi = cffi.FFI()
        self.ffi.cdef(DECLARATIONS)
        self.library = self.ffi.dlopen(path)

    def launch(self, rounds: int = 20, size: int = ENOUGH, threads: int = 0):
        job = self.ffi.new("job *", {"rounds": rounds})
        assert self.library.launch(job, size, threads) == 0
        assert job.wrong == 0
        return job


@pytest.fixture
def team(library_file: str) -> Team:
    team = Team(library_file)
    team.library.convoy_set_num_threads(0)
    return team


@pytest.fixture
def in_fresh_process(library_file: str) -> Callable[..., str]:
    def run(body: str, **environment: str) -> str:
        program = f"import os, sys\nsys.path[:0] = {[os.path.dirname(__file__)]!r}\n"
        program += f"from test_team import Team\nlibrary_file = {library_file!r}\n" + textwrap.dedent(body)
        clean = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**clean, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_thread_passes_every_barrier(team, threads):
    team.library.convoy_set_num_threads(threads)
    for _ in range(5):
        assert team.launch().count == threads


def test_launch_takes_no_more_threads_than_set(team):
    team.library.convoy_set_num_threads(3)
    assert team.launch(threads=2).count == 2
    assert team.launch(threads=9).count == 3
    assert team.launch().count == 3


@pytest.mark.parametrize(("within", "between", "fewer"), [(3, 0, True), (0, 3, False)])
def test_fewer_threads_are_tried_where_launches_are_interrupted(team, within, between, fewer):
    # what interrupts the application between its launches says nothing of them
    for threads in (3, 2):  # another number begins anew
        team.library.convoy_set_num_threads(threads)
        team.launch()
    counts = []
    for _ in range(20):
        job = team.ffi.new("job *", {"rounds": within})
        team.library.launch_slowly(job)
        team.library.interruptions += between
        time.sleep(0.001)
        counts.append(job.count)
    assert (min(counts) < max(counts)) == fewer


def test_arena_is_aligned_and_grows(team):
    for size in (0, 1, 3 << 20, 1 << 20, 64 << 20):
        assert team.launch(size=max(size, ENOUGH)).arena % (2 << 20) == 0


def test_arena_that_cannot_be_had(team):
    job = team.ffi.new("job *", {"rounds": 1})
    for size in (1 << 60, (1 << 64) - 1):
        assert team.library.launch(job, size, 0) == 1
        assert job.count == 0
    team.launch()


def test_callers_queue(team):
    team.library.convoy_set_num_threads(2)
    failures: list[BaseException] = []

    def call() -> None:
        try:
            for _ in range(100):
                team.launch(rounds=3)
        except BaseException as failure:
            failures.append(failure)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures


@pytest.mark.parametrize(("setting", "asked"), [(2, 1), (1, 0)])
def test_callers_with_one_thread_run_side_by_side(in_fresh_process, setting, asked):
    body = f"""
    import threading
    team = Team(library_file)
    team.library.convoy_set_num_threads({setting})
    met = []
    def call():
        met.append(team.library.launch_and_meet(team.ffi.new("job *", {{"count": 3}}), {asked}))
    callers = [threading.Thread(target=call) for _ in range(3)]
    [caller.start() for caller in callers], [caller.join() for caller in callers]
    print(met)
    """
    assert in_fresh_process(body) == "[1, 1, 1]"


def test_launch_of_a_team_within_a_launch_is_refused(team):
    team.library.convoy_set_num_threads(3)
    job = team.ffi.new("job *", {"rounds": 0})
    assert team.library.launch_nested(job) == 0
    assert list(job.cpu[0:3]) == [2, 2, 2]  # CONVOY_NESTED_CALL
    team.launch()


def test_launch_of_one_thread_within_a_launch_runs(team):
    team.library.convoy_set_num_threads(3)
    job = team.ffi.new("job *", {"rounds": 1})
    assert team.library.launch_nested(job) == 0
    assert list(job.cpu[0:3]) == [0, 0, 0]


@pytest.mark.slow
def test_forked_child_has_a_team_of_its_own(in_fresh_process):
    body = """
    team = Team(library_file)
    team.library.convoy_set_num_threads(3)
    team.launch()
    child = os.fork()
    job = team.launch()
    assert job.count == 3
    if child == 0:
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(status)
    """
    assert in_fresh_process(body) == "0"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_workers_keep_off_the_cpu_of_the_caller(in_fresh_process):
    # TVM's pool pins the thread that uses it; workers must neither inherit that nor share its CPU
    body = """
    cpus = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {cpus[0]})
    team = Team(library_file)
    os.sched_setaffinity(0, cpus)
    team.library.convoy_set_num_threads(2)
    for cpu in cpus * 3:
        os.sched_setaffinity(0, {cpu})
        for _ in range(2):  # the first may find them together, and then parts them
            team.launch()
        job = team.launch()
        assert job.cpu[0] == cpu != job.cpu[1], (cpu, list(job.cpu[0:2]))
    print("apart")
    """
    # loaded by a pinned thread; another thread of the process, as BLAS has some, is not pinned
    other = """
    import threading
    release = threading.Event()
    threading.Thread(target=release.wait, daemon=True).start()
    """
    assert in_fresh_process(other + body) == "apart"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_pinned_loader_does_not_shrink_the_team(in_fresh_process):
    body = """
    import threading
    release = threading.Event()
    other = threading.Thread(target=release.wait)
    other.start()  # any thread started before the pinning, as BLAS has
    everything = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(everything)})
    team = Team(library_file)
    print(team.launch().count)
    release.set()
    """
    assert int(in_fresh_process(body)) == target.host().cores


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"TVM_NUM_THREADS": "3"}, 3),
        ({"TVM_NUM_THREADS": "3", "CONVOY_NUM_THREADS": "5"}, 5),
        ({"CONVOY_NUM_THREADS": "0"}, None),
        ({"CONVOY_NUM_THREADS": "", "TVM_NUM_THREADS": " 3 "}, 3),
        ({"CONVOY_NUM_THREADS": "100000"}, 256),
    ],
)
def test_number_of_threads(in_fresh_process, environment, expected):
    body = "print(Team(library_file).library.convoy_num_threads())"
    cores = target.host().cores
    found = int(in_fresh_process(body, **environment))
    assert found == expected if expected else 1 <= found <= cores  # a CPU quota may take some cores


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CONVOY_NUM_THREADS", "TVM_NUM_THREADS"])
@pytest.mark.parametrize("text", ["abc", "2x", "-1", "1.5", "\x1b[2J\nerror: é" + "x" * 99])
def test_a_number_of_threads_that_is_none_is_said_once(in_fresh_process, name, text):
    # 2 and 1, so that what was written to the process's stderr is read back
    body = """
    import tempfile
    with tempfile.TemporaryFile() as lines:
        os.dup2(lines.fileno(), 2)
        found = Team(library_file).library.convoy_num_threads()
        Team(library_file).library.convoy_num_threads()
        lines.seek(0)
        print(found, lines.read().decode(), end="")
    """
    found, _, lines = in_fresh_process(body, **{name: text}).partition(" ")
    assert int(found) == int(in_fresh_process("print(Team(library_file).library.convoy_num_threads())"))
    told = "".join(c if " " <= c <= "~" else "?" * len(c.encode()) for c in text)[:79]
    assert lines == (
        f"convoy: {name}: expected a number of at least 0, got '{told}'; it is ignored, correct or unset it"
    )


def test_unloading_ends_the_workers(in_fresh_process):
    body = """
    def threads():
        return len(os.listdir("/proc/self/task"))
    before = threads()
    for _ in range(3):
        team = Team(library_file)
        team.library.convoy_set_num_threads(4)
        team.launch()
        assert threads() == before + 3
        team.ffi.dlclose(team.library)
        assert threads() == before
    print("done")
    """
    assert in_fresh_process(body) == "done"


@pytest.mark.slow
def test_exit_while_a_thread_is_launching(in_fresh_process):
    body = """
    import threading, time
    team = Team(library_file)
    team.library.convoy_set_num_threads(2)
    def forever():
        while True:
            team.launch()
    for _ in range(2):
        threading.Thread(target=forever, daemon=True).start()
    time.sleep(0.1)
    print("leaving")
    """
    for _ in range(3):
        assert in_fresh_process(body) == "leaving"


def test_idle_workers_sleep(in_fresh_process):
    body = """
    import time
    team = Team(library_file)
    team.library.convoy_set_num_threads(4)
    team.launch()
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    print(time.process_time() - before < 0.05)
    """
    assert in_fresh_process(body) == "True"


def test_workers_hear_the_signals_that_tell_of_themselves(in_fresh_process):
    # a fault that is blocked ends the process without the application's crash handler
    body = """
    import signal
    team = Team(library_file)
    team.library.convoy_set_num_threads(3)
    team.launch()
    blocked = []
    for task in os.listdir("/proc/self/task"):
        lines = open(f"/proc/self/task/{task}/status").read().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        if status["Name"].strip() == "convoy":
            blocked.append(int(status["SigBlk"], 16))
    heard = [s.name for s in signal.Signals if s < 32 and not blocked[0] >> s - 1 & 1]
    print(len(blocked), *heard) if blocked[0] == blocked[1] else print(blocked)
    """
    heard = "SIGILL SIGTRAP SIGBUS SIGFPE SIGKILL SIGSEGV SIGSTOP SIGPROF SIGSYS"
    assert in_fresh_process(body) == f"2 {heard}"
