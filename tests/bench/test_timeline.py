"""A traced run, cut into pieces that follow one another."""

from __future__ import annotations

from math import isclose

from convoy.bench.timeline import AROUND, BETWEEN, TEAM, Key, Timeline
from convoy.deploy.traced import Event, Trace


def test_a_region_is_cut_at_the_steps_of_its_caller() -> None:
    events = (
        Event("region", -1, 0, 1.0, 10.0),
        Event("region", 0, 0, 2.0, 3.0),
        Event("region", 0, 1, 2.5, 5.0),  # the caller waits for it
        Event("region", 1, 0, 5.0, 8.0),
        Event("region", 1, 1, 5.0, 9.0),
    )
    found = Timeline(Trace(0.0, 11.0, events), {"region"})
    assert dict(found.seconds) == {
        Key("region", 0): 3.0,
        Key("region", 1): 4.0,
        Key(TEAM, -1): 2.0,
        Key(BETWEEN, -1): 0.0,
        Key(AROUND, -1): 2.0,
    }
    assert dict(found.busy[Key("region", 0)]) == {0: 1.0, 1: 2.5}


def test_a_call_within_a_call_counts_once() -> None:
    events = (
        Event("body", -1, 0, 1.0, 9.0),
        Event("add", -1, 0, 2.0, 4.0),
        Event("vm.builtin.alloc_tensor", -1, 0, 4.0, 5.0),
        Event("add", -1, 0, 5.0, 8.0),
    )
    found = Timeline(Trace(0.0, 10.0, events), set())
    assert dict(found.seconds) == {
        Key("body", 0): 2.0,
        Key("add", 0): 2.0,
        Key("add", 1): 3.0,
        Key("vm.builtin.alloc_tensor", -1): 1.0,
        Key(BETWEEN, -1): 0.0,
        Key(AROUND, -1): 2.0,
    }
    assert isclose(sum(found.seconds.values()), 10.0)


def test_what_is_between_calls_is_the_virtual_machines() -> None:
    events = (Event("add", -1, 0, 1.0, 2.0), Event("add", -1, 0, 2.5, 4.0), Event("mul", -1, 0, 5.0, 6.0))
    found = Timeline(Trace(0.0, 7.0, events), set())
    assert found.seconds[Key(BETWEEN, -1)] == 1.5
    assert found.seconds[Key(AROUND, -1)] == 2.0


def test_a_run_without_calls_is_the_call_from_python() -> None:
    found = Timeline(Trace(1.0, 3.0, ()), set())
    assert dict(found.seconds) == {Key(AROUND, -1): 2.0}
