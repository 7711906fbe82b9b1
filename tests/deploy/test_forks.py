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
