"""The rooms that see no TVM are tested without one: their tests run where ``import tvm`` fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
RUN = ("fold", "offload")
"""Folders whose tests are run so: all of them, in seconds."""
COLLECTED = ("graph", "target", "plan", "codegen", "kernels", "backend", "toolchain")
"""Folders whose tests are imported so; they run with the others."""
PROGRAM = """
import sys
from importlib.machinery import PathFinder

find = PathFinder.find_spec


@classmethod
def find_others(finder, name, *rest):
    return None if name in ("tvm", "tvm_ffi") else find(name, *rest)


PathFinder.find_spec = find_others
import pytest

sys.exit(pytest.main(sys.argv[1:]))
"""


def run_pytest(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and output of pytest in a process that has no TVM."""
    command = [sys.executable, "-c", PROGRAM, "-q", "-p", "no:cacheprovider", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent)
    return done.returncode, done.stdout + done.stderr


def test_they_pass_without_tvm() -> None:
    code, output = run_pytest(*(TESTS / name for name in RUN))
    assert code == 0, output
    assert "skipped" not in output


def test_none_of_them_imports_tvm() -> None:
    code, output = run_pytest("--collect-only", *(TESTS / name for name in COLLECTED))
    assert code == 0, output


def test_a_test_that_needs_tvm_fails(tmp_path: Path) -> None:
    for name, line in (("tvm", "import tvm"), ("door", "from convoy.relax import lower")):
        (tmp_path / f"test_{name}_is_needed.py").write_text(f"{line}\n")
    code, output = run_pytest(tmp_path)
    assert code == pytest.ExitCode.INTERRUPTED, output
    assert "No module named 'tvm'" in output
    assert "expected a modern TVM (Relax), got no TVM at all" in output
