"""Libraries are written whole or not at all; what was there before stays until then."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_region import make_region

from convoy.deploy import export
from convoy.deploy.export import export_library
from convoy.deploy.runner import Runner
from convoy.errors import ToolchainError


def no_space(output: str) -> None:
    Path(output).write_bytes(b"half a library")
    raise RuntimeError(f"ld: {output}: No space left on device")


def killed(output: str) -> None:
    Path(output).write_bytes(b"half a library")
    raise ToolchainError(
        "compile", "gcc", "expected it to run to its end, got a signal (SIGKILL)", "try again"
    )


def interrupted(output: str) -> None:
    Path(output).write_bytes(b"half a library")
    raise KeyboardInterrupt


@pytest.mark.parametrize("before", [None, b"a good library"], ids=["nothing", "a library"])
@pytest.mark.parametrize(
    ("fail", "error"),
    [(no_space, "No space left"), (killed, re.escape("got a signal (SIGKILL)")), (interrupted, None)],
)
def test_what_was_there_before_outlives_a_failure(
    build: Callable,
    library_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fail: Callable,
    error: str | None,
    before: bytes | None,
) -> None:
    executable = build(make_region("convoy_kept"))
    if before is not None:
        library_path.write_bytes(before)
    monkeypatch.setattr(export, "link", lambda output, objects, **_: fail(output))
    kind = KeyboardInterrupt if fail is interrupted else ToolchainError
    with pytest.raises(kind, match=error) as raised:
        export_library(executable, library_path)
    if kind is ToolchainError:
        assert str(raised.value).startswith(f"export: {library_path}: expected to write it, got ")
    assert [path.read_bytes() for path in library_path.parent.iterdir()] == ([before] if before else [])


def test_what_a_link_leads_to_is_looked_at_before_anything_is_compiled(tmp_path: Path) -> None:
    round_about, lost, pipe = (tmp_path / f"{name}.so" for name in ("round", "lost", "pipe"))
    round_about.symlink_to(round_about)
    lost.symlink_to(tmp_path / "nowhere" / "net.so")
    os.mkfifo(pipe)
    for path, problem in (
        (round_about, "expected a file, got a link that leads to itself"),
        (lost, f"expected an existing folder, got {tmp_path / 'nowhere'}; make the folder first"),
        (pipe, "expected a file, got a pipe or a device"),
    ):
        with pytest.raises(ToolchainError, match=f"^export: {re.escape(f'{path}: {problem}')}"):
            export.check_destination(path)


def test_a_new_library_takes_the_place_of_the_old(build: Callable, library_path: Path) -> None:
    # by a symbolic link too, which stays one
    real = library_path.with_name("real.so")
    real.write_bytes(b"an old library")
    library_path.symlink_to(real)
    export_library(build(make_region("convoy_new")), library_path)
    assert library_path.is_symlink()
    assert sorted(path.name for path in real.parent.iterdir()) == ["model.so", "real.so"]
    Runner(real)
