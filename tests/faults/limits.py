"""Too little memory, too few processes, few cores, and cores that change."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from faults.child import SPEECHLESS, Outcome, run_in_child
from faults.network import answers_right, compile_and_run, compile_network, draw_input, is_right
from line import Line
from mutants.judge import unclear

GROUPS = Path("/sys/fs/cgroup")


def limit_memory(folder: Path, steps: int) -> Line:
    """Compile and run with less and less address space: right, or refused, never wrong.

    Where not even Python can go on, it says ``MemoryError``, and TVM ends the process; both are told apart.
    """
    start = time.monotonic()
    used = run_in_child(_address_space).value
    counts = {"right": 0, "refused": 0, "no memory": 0}
    wrong = []
    for i in range(steps):
        room = (i * i * (1 << 22)) + (1 << 20)

        def limited(limit: int = used + room, n: int = i) -> bool:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            return compile_and_run(700 + n, folder / f"memory{n}.so")

        counts[judge_starved(run_in_child(limited), f"{room >> 20} MB", wrong)] += 1
    if not counts["right"]:
        wrong.append("not even the last one had memory enough")
    said = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    return Line(
        "memory limits", f"{steps} ({said})", not wrong, time.monotonic() - start, "; ".join(wrong[:4])
    )


def judge_starved(outcome: Outcome, what: str, wrong: list[str]) -> str:
    """The kind of an outcome; a wrong answer, or a line that is none, is noted."""
    if outcome.kind == "done":
        if outcome.value is not True:
            wrong.append(f"{what}: a wrong answer")
        return "right"
    if outcome.kind == "refused":
        if unclear(str(outcome.value)):
            wrong.append(f"{what}: {str(outcome.value)[:300]!r}")
        return "refused"
    text = str(outcome.value)
    starved = (
        "MemoryError",
        "bad_alloc",
        "Cannot allocate memory",
        "failed to map segment",
        "status -6",
        f"status {SPEECHLESS}",
        "status -9",
        "can't start new thread",
    )
    if not any(sign in text for sign in starved):
        wrong.append(f"{what}: {text[-300:]!r}")
    return "no memory"


def _address_space() -> int:
    import convoy  # noqa: F401

    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")


def limit_processes(folder: Path) -> Line:
    """Few threads and processes: a library runs on the threads it gets; a compile is right or one line."""
    start = time.monotonic()
    library = folder / "processes.so"
    compile_outcome = run_in_child(lambda: compile_network(730, library, threads=8))
    if compile_outcome.failure:
        return Line("process limits", "none", False, time.monotonic() - start, compile_outcome.failure)
    wrong, counts = [], {"right": 0, "refused": 0, "no memory": 0}
    with _group("pids") as group:
        if group is None:
            return Line("process limits", "none", True, 0.0, "left out: no control group can be made")
        for most in (1, 2, 3, 5, 20):
            (group / "pids.max").write_text(str(most))

            def run_in_group(n: int = most) -> bool:
                (group / "cgroup.procs").write_text(str(os.getpid()))
                return answers_right(730, library)

            def compile_in_group(n: int = most) -> bool:
                (group / "cgroup.procs").write_text(str(os.getpid()))
                return compile_and_run(730 + n, folder / f"few{n}.so")

            ran = run_in_child(run_in_group)
            if ran.value is not True:
                wrong.append(f"a library with {most} threads at most: {ran}")
            counts[judge_starved(run_in_child(compile_in_group), f"{most} processes", wrong)] += 1
    said = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    size = f"1 to 20 processes: 5 runs, 5 compilations ({said})"
    return Line("process limits", size, not wrong, time.monotonic() - start, "; ".join(wrong[:4]))


def change_cores(folder: Path, seconds: float) -> Line:
    """Run while the cores the process may use change, and with a tenth of a core."""
    start = time.monotonic()
    library = folder / "cores.so"

    def run_on_changing_cores() -> int:
        compile_network(750, library, threads=2)
        from convoy.deploy.runner import Runner

        runner, x = Runner(library), draw_input(3)
        cores = sorted(os.sched_getaffinity(0))
        stop = threading.Event()

        def change() -> None:
            i = 0
            while not stop.wait(0.01):
                for task in os.listdir("/proc/self/task"):
                    with suppress(ProcessLookupError):
                        os.sched_setaffinity(int(task), {cores[i % len(cores)]} if i % 3 else set(cores))
                i += 1

        changer = threading.Thread(target=change)
        changer.start()
        runs, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            if not is_right(750, x, runner.run([x])[0]):
                raise AssertionError(f"run {runs} is wrong")
            runs += 1
        stop.set()
        changer.join()
        return runs

    changing = run_in_child(run_on_changing_cores)
    wrong = [changing.failure] if changing.failure else []
    size = f"{changing.value} runs while cores changed" if not wrong else "cores that change"
    with _group("cpu") as group:
        if group is None:
            size += "; the quota was left out: no control group can be made"
        else:
            (group / "cpu.cfs_period_us").write_text("100000")
            (group / "cpu.cfs_quota_us").write_text("10000")

            def run_on_a_tenth() -> int:
                (group / "cgroup.procs").write_text(str(os.getpid()))
                return sum(answers_right(750, library) for _ in range(20))

            slow = run_in_child(run_on_a_tenth)
            if slow.value != 20:
                wrong.append(f"a tenth of a core: {slow}")
            size += "; 20 loads and runs on a tenth of a core"
    return Line("cores and quotas", size, not wrong, time.monotonic() - start, "; ".join(wrong))


@contextmanager
def _group(controller: str) -> Iterator[Path | None]:
    """A control group (version 1) for the block; None where none can be made."""
    path = GROUPS / controller / f"convoy-test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError:
        yield None
        return
    try:
        yield path if (path / "cgroup.procs").exists() else None
    finally:
        for _ in range(50):  # its last process may not be gone yet
            try:
                path.rmdir()
                break
            except OSError:
                time.sleep(0.1)
