"""What a log gets of progress: the first line, and what lasts."""

from __future__ import annotations

import threading

import pytest

from convoy.cli import console


class Lines(list[str]):
    """What was printed; waits for a number of lines."""

    def __init__(self) -> None:
        super().__init__()
        self._more = threading.Condition()

    def print(self, text: str) -> None:
        with self._more:
            self.append(text)
            self._more.notify_all()

    def wait_for(self, count: int) -> list[str]:
        with self._more:
            assert self._more.wait_for(lambda: len(self) >= count, timeout=60), self
        return list(self)


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> Lines:
    lines = Lines()
    monkeypatch.setattr(console, "note", lines.print)
    return lines


def test_what_passes_within_a_second_is_not_in_a_log(
    printed: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_SECONDS_A_LINE", 1000.0)
    with console.progress("compiling a.onnx") as tell:
        tell("importing the model")
        for unit in range(20):
            tell(f"compiled {unit} of 20 C units")
    assert printed == ["compiling a.onnx: importing the model"]


def test_what_lasts_is(printed: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_SECONDS_A_LINE", 0.2)
    with console.progress("compiling a.onnx") as tell:
        tell("importing the model")
        tell("folding")
        tell("generating code")
        assert printed.wait_for(2)[1:] == ["compiling a.onnx: generating code"]
        tell("generating code")
        tell("writing a.so")
        assert printed.wait_for(3)[2:] == ["compiling a.onnx: writing a.so"]


def test_slow_lines_are_all_there(printed: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_SECONDS_A_LINE", 0.0)
    with console.progress("timing") as tell:
        for text in ("one", "one", "two", "one"):
            tell(text)
    assert printed == ["timing: one", "timing: two", "timing: one"]
