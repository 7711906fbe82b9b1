"""A fork waits for runs that are under way: so no child finds TVM's allocator locked."""

from __future__ import annotations

import os
import threading
import time

from convoy.deploy.forks import Turn


def test_a_fork_waits_for_the_calls_of_other_threads() -> None:
    turn, calling, done = Turn(), threading.Event(), threading.Event()

    def call() -> None:
        with turn:
            calling.set()
            time.sleep(0.2)
            done.set()

    thread = threading.Thread(target=call)
    thread.start()
    calling.wait()
    child = os.fork()
    if child == 0:
        with turn, Turn():
            os._exit(0 if done.is_set() else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    with turn:  # and it is free again
        pass


def test_a_thread_may_fork_in_its_own_turn() -> None:
    # the twin, as a signal handler does: it has nobody to wait for
    with Turn() as _, Turn():
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


def test_a_fork_goes_before_the_next_call() -> None:
    # locks are not fair: a thread that calls again and again kept a fork waiting for many calls
    turn, stop = Turn(), threading.Event()
    calls: list[int] = []
    waited: list[int] = []

    def call() -> None:
        while not stop.is_set():
            with turn:
                calls.append(sum(range(20000)))

    thread = threading.Thread(target=call)
    thread.start()
    for _ in range(10):
        before = len(calls)
        child = os.fork()
        waited.append(len(calls) - before)
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    stop.set()
    thread.join()
    assert sum(waited) <= 30
