"""offload/settings.py, in_force.py, per_thread.py: what is in force for a compilation, in one thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from convoy.errors import ConvoyError
from convoy.offload.in_force import InForce
from convoy.offload.per_thread import PerThreadList, with_own_attribute
from convoy.offload.settings import current_settings, make_settings, read_passes, read_report, using
from convoy.options import Options
from convoy.report.decision import Report


def in_a_thread(run: Callable[[], Any]) -> Any:
    found = []
    thread = threading.Thread(target=lambda: found.append(run()))
    thread.start()
    thread.join()
    return found[0]


def test_the_innermost_settings_are_in_force() -> None:
    assert current_settings().options == Options()
    report = Report()
    with using(Options(threads=2), report):
        assert current_settings().options.threads == 2
        assert current_settings().report is report
        with using(Options(threads=3)):
            assert current_settings().options.threads == 3
        assert current_settings().options.threads == 2
    assert current_settings().options == Options()


def test_they_end_with_an_error_too() -> None:
    with pytest.raises(RuntimeError), using(Options(threads=2)):
        raise RuntimeError
    assert current_settings().options == Options()


def test_they_are_of_one_thread() -> None:
    with using(Options(threads=2)):
        assert in_a_thread(lambda: current_settings().options.threads) == Options().threads


def test_a_value_in_force_or_none() -> None:
    force: InForce[list[int]] = InForce("numbers", list)
    assert force.chosen() is None
    assert force.current() == []
    with force.using([1]):
        assert force.chosen() == force.current() == [1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((5, None, None), "expected Options, got 5; write convoy.Options"),
        ((None, [], None), "expected a Report, got []"),
        ((None, None, "loud"), "expected a function of a text, got 'loud'"),
    ],
    ids=["options", "report", "progress"],
)
def test_what_is_no_setting_is_named(given: tuple[Any, Any, Any], words: str) -> None:
    with pytest.raises(ConvoyError) as raised:
        make_settings("compile", *given)
    assert str(raised.value).startswith(f"options: compile: {words}")


class IRModule:
    """One is written in lines."""

    def __repr__(self) -> str:
        return "# from tvm.script\n@I.ir_module"


@pytest.mark.parametrize(
    ("read", "remedy"),
    [
        (lambda module: make_settings("partition", module, None), "partition()(module)"),
        (lambda module: read_report("fold", module), "fold()(module)"),
        (lambda module: read_passes("no_touch", module, str), "no_touch(a_pass)(module)"),
    ],
    ids=["partition", "fold", "no_touch"],
)
def test_a_module_belongs_to_the_pass(read: Callable[[Any], Any], remedy: str) -> None:
    with pytest.raises(ConvoyError) as raised:
        read(IRModule())
    assert str(raised.value).endswith(
        f"got an object of type IRModule; give the module to the pass: {remedy}"
    )


def test_what_is_long_is_told_by_its_type() -> None:
    with pytest.raises(ConvoyError, match="expected a Report, got an object of type list;"):
        make_settings("compile", None, list(range(100)))


def test_progress_is_told_in_words() -> None:
    lines: list[str] = []
    settings = make_settings("compile", None, None, lines.append)
    settings.tell("planning")
    settings.tell_unit(2, 3, "region")
    assert lines == ["planning", "compiled 2 of 3 C units: region"]
    make_settings("compile", None, None).tell("to nobody")


def test_a_report_given_or_an_empty_one() -> None:
    report = Report()
    assert read_report("fold", report) is report
    assert read_report("fold", None).decisions == []


def test_one_pass_or_several() -> None:
    assert read_passes("f", "a", str) == ["a"]
    assert read_passes("f", ("a", "b"), str) == ["a", "b"]
    for wrong in (5, [5], ["a", None]):
        with pytest.raises(ConvoyError, match="expected a pass, or several in a list"):
            read_passes("f", wrong, str)


def test_each_thread_has_a_list_of_its_own() -> None:
    own = PerThreadList()
    own.append(1)
    assert in_a_thread(lambda: list(own)) == []
    assert list(own) == [1]


def test_each_thread_has_an_attribute_of_its_own() -> None:
    class Builder:
        current = "none"

    owned: Any = with_own_attribute(Builder, "current")
    owned.current = "mine"
    assert in_a_thread(lambda: owned.current) == "none"
    assert (owned.current, Builder.current) == ("mine", "none")
    assert issubclass(owned, Builder)
