"""How many threads a launch takes beside other work: the rule of csrc/runtime/pace.c, on made-up times."""

from __future__ import annotations

from collections.abc import Callable

import cffi
import pytest

from convoy import target
from convoy.toolchain import compiler

SOURCE = """
#include "runtime/pace.h"
static cv_pace pace;
void reset(void) { pace = (cv_pace){0}; }
int threads(int most) { return cv_pace_threads(&pace, most); }
void note(double work, int64_t ns, int64_t lost) { cv_pace_note(&pace, work, ns, lost); }
"""

LAUNCH = 10e6
"""Nanoseconds a launch takes one thread that has a core."""

Speed = Callable[[int], float]
"""How many times as fast as one thread with a core, by the number of threads."""


class Pace:
    def __init__(self) -> None:
        sources = [SOURCE, compiler.runtime_sources()["pace.c"]]
        ffi = cffi.FFI()
        ffi.cdef(
            "void reset(void); int threads(int most); void note(double work, int64_t ns, int64_t lost);"
        )
        objects = compiler.compile_objects(sources, target.host())
        self.library = ffi.dlopen(str(compiler.link_shared(objects)))

    def launch(self, seconds: float, speed: Speed, most: int = 2, interrupted: float = 0) -> list[int]:
        """Launches for so long, interrupted so often a second; the threads of each."""
        counts, left, lost = [], seconds * 1e9, 0.0
        while left > 0:
            count = self.library.threads(most)
            ns = LAUNCH / speed(count)
            lost += interrupted * ns / 1e9
            self.library.note(1.0, int(ns), int(lost))
            lost -= int(lost)
            counts.append(count)
            left -= ns
        return counts


@pytest.fixture(scope="module")
def compiled() -> Pace:
    return Pace()


@pytest.fixture
def pace(compiled: Pace) -> Pace:
    compiled.library.reset()
    return compiled


def quiet(count: int) -> float:
    return 0.95 * count


def share(counts: list[int], count: int) -> float:
    return counts.count(count) / len(counts)


@pytest.mark.parametrize("most", [2, 3, 8])
def test_quiet_machine_all_threads_always(pace, most):
    assert set(pace.launch(5, quiet, most)) == {most}


def test_a_little_late_is_no_reason_to_try_fewer(pace):
    pace.launch(1, quiet)
    assert set(pace.launch(5, lambda count: 1.2 if count == 2 else 1.0)) == {2}


def test_late_team_gives_way_to_one_thread(pace):
    pace.launch(1, quiet)
    counts = pace.launch(10, lambda count: 0.7 if count == 2 else 1.0)
    assert share(counts, 1) > 0.9  # and a trial of two now and then
    assert share(counts[len(counts) // 2 :], 2) > 0


def test_quiet_again_all_threads_again(pace):
    pace.launch(1, quiet)
    assert share(pace.launch(20, lambda count: 0.7 if count == 2 else 1.0), 1) > 0.9
    counts = pace.launch(8, quiet)
    assert counts[-1] == 2
    assert set(pace.launch(5, quiet)) == {2}


def test_team_that_is_late_but_faster_than_fewer_stays(pace):
    pace.launch(1, quiet)
    assert share(pace.launch(20, lambda count: 0.8 if count == 2 else 0.6), 2) > 0.9


def test_a_machine_busy_from_the_start_is_found(pace):
    # no team was ever faster: that it loses its cores is what tells
    counts = pace.launch(10, lambda count: 0.7 if count == 2 else 1.0, interrupted=160)
    assert share(counts, 1) > 0.8


def test_a_few_interruptions_are_no_reason_to_try_fewer(pace):
    assert set(pace.launch(5, quiet, interrupted=40)) == {2}


def test_an_interrupted_team_that_is_faster_than_fewer_stays(pace):
    assert share(pace.launch(20, lambda count: 1.3 if count == 2 else 1.0, interrupted=160), 2) > 0.9


def test_half_of_many_threads_is_found(pace):
    pace.launch(1, quiet, 8)
    counts = pace.launch(20, lambda count: 3.8 if count == 4 else 1.5 if count == 8 else 0.95 * count, 8)
    assert share(counts, 4) > 0.8


def test_one_of_many_threads_is_found(pace):
    pace.launch(1, quiet, 8)
    counts = pace.launch(40, lambda count: 0.9 / count, 8)
    assert share(counts[len(counts) // 2 :], 1) > 0.8


def test_other_number_asked_for_begins_anew(pace):
    pace.launch(1, quiet)
    pace.launch(10, lambda count: 0.7 if count == 2 else 1.0)
    assert pace.library.threads(4) == 4


def test_fewer_threads_that_are_as_fast_are_kept_at_once(pace):
    pace.launch(1, quiet)
    counts = pace.launch(3, lambda count: 1.0 if count == 2 else 1.01, interrupted=160)
    assert share(counts, 1) > 0.8


def test_more_threads_that_are_hardly_faster_are_not(pace):
    pace.launch(1, quiet)
    pace.launch(2, lambda count: 0.7 if count == 2 else 1.0)
    assert share(pace.launch(20, lambda count: 1.09 if count == 2 else 1.0), 1) > 0.8


def unsteady_alone() -> Speed:
    """One thread is faster and slower by turns, 0.1 s each; two are as fast as its mean."""
    passed = 0.0

    def speed(count: int) -> float:
        nonlocal passed
        now = 1.0 if count == 2 else (0.8, 1.2)[int(passed / 1e8) % 2]
        passed += LAUNCH / now
        return now

    return speed


@pytest.mark.parametrize("before", [2.0, 2.1, 2.2, 2.3])
def test_a_trial_is_compared_with_more_than_the_stretch_before_it(pace, before):
    pace.launch(1, quiet)
    pace.launch(before, lambda count: 0.7 if count == 2 else 1.0)
    assert share(pace.launch(20, unsteady_alone()), 1) > 0.9


def changing(threads: int, seconds: float, first: float, then: float) -> Speed:
    """So many threads are as fast as ``first`` until so long after they came, and as ``then`` later."""
    since = 0.0

    def speed(count: int) -> float:
        nonlocal since
        now = 1.0 if count != threads else first if since < seconds * 1e9 else then
        since = since + LAUNCH / now if count == threads else 0.0
        return now

    return speed


def late_share(seconds: float) -> Speed:
    """One thread gets its share of a core only so long after the other has left; two are in between."""
    return changing(1, seconds, 0.85, 1.3)


def test_fewer_threads_are_tried_until_they_have_their_share(pace):
    pace.launch(1, quiet)
    assert share(pace.launch(20, late_share(0.15), interrupted=160), 1) > 0.9


def test_fewer_threads_that_never_get_more_are_not_kept(pace):
    pace.launch(1, quiet)
    assert share(pace.launch(20, late_share(1e9), interrupted=160), 2) > 0.85


def two_kinds_of_launch(late: int, slow: float) -> Speed:
    """Two threads lose a core in so many of ten launches, and are ``slow`` then; one thread never does."""
    launches = 0

    def speed(count: int) -> float:
        nonlocal launches
        launches += 1
        if count == 1:
            return 1.0
        return slow if launches * late % 10 < late else 1.9

    return speed


def test_a_team_that_most_callers_find_slow_gives_way(pace):
    # 0.53 and 1.25 times one thread's time: 0.96 in the mean
    pace.launch(1, quiet)
    assert share(pace.launch(20, two_kinds_of_launch(6, 0.8), interrupted=160), 1) > 0.8


def test_a_team_that_most_callers_find_quick_stays(pace):
    # the same two times, but fewer late ones: 0.82 in the mean
    pace.launch(1, quiet)
    assert share(pace.launch(20, two_kinds_of_launch(4, 0.8), interrupted=160), 2) > 0.8


def quick_at_first(seconds: float) -> Speed:
    """Two threads are quick until so long after the other has come back."""
    return changing(2, seconds, 1.4, 0.7)


def test_more_threads_that_gain_for_a_moment_are_not_kept(pace):
    pace.launch(1, quiet)
    pace.launch(2, lambda count: 0.7 if count == 2 else 1.0)
    assert share(pace.launch(20, quick_at_first(0.15)), 1) > 0.8


def test_more_threads_that_gain_for_long_are(pace):
    pace.launch(1, quiet)
    pace.launch(2, lambda count: 0.7 if count == 2 else 1.0)
    assert share(pace.launch(20, quick_at_first(1e9)), 2) > 0.7
