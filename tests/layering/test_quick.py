"""``scripts/test --quick``: which tests it runs (tests/quick.py), and that every room is among them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from quick import FILE_TESTS

ROOT = Path(__file__).parents[2]
PACKAGE, TESTS = ROOT / "python" / "convoy", ROOT / "tests"

FILE = """
import pytest

@pytest.mark.parametrize("a", [1, 2])
@pytest.mark.parametrize("b", [3, 4])
def test_cases(a, b):
    pass

@pytest.mark.parametrize("a", [pytest.param(1, marks=pytest.mark.slow), 2, 3])
def test_slow_case(a):
    pass

@pytest.mark.slow
def test_slow():
    pass

class TestOthers:
    def test_cases(self):
        pass
""" + "".join(f"\n\ndef test_{n}():\n    pass\n" for n in range(FILE_TESTS))


def run_pytest(folder: Path, *options: str) -> list[str]:
    """The tests of ``FILE`` that run."""
    (folder / "test_file.py").write_text(FILE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "quick", *options],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [
        line.split()[0].removeprefix("test_file.py::")
        for line in done.stdout.splitlines()
        if "PASSED" in line
    ]


@pytest.mark.slow
def test_quick_is_the_first_case_of_each_function_that_is_not_slow(tmp_path: Path) -> None:
    assert len(run_pytest(tmp_path)) == 9 + FILE_TESTS
    first = ["test_cases[3-1]", "test_slow_case[2]", "TestOthers::test_cases"]
    others = [f"test_{n}" for n in range(FILE_TESTS)]
    assert run_pytest(tmp_path, "--quick") == [*first, *others[: FILE_TESTS - len(first)]]
    assert run_pytest(tmp_path, "--quick", "test_file.py") == [*first, *others]


def is_slow(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) == "pytest.mark.slow" for decorator in function.decorator_list)


def quick_functions(file: Path) -> int:
    """How many test functions of a file are not marked slow."""
    tree = ast.parse(file.read_text())
    if any(
        isinstance(node, ast.Assign) and ast.unparse(node) == "pytestmark = pytest.mark.slow"
        for node in tree.body
    ):
        return 0
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    return sum(not is_slow(function) for function in found)


@pytest.mark.slow
def test_every_room_has_quick_tests() -> None:
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()} | {"backend"}
    counted = {room: sum(map(quick_functions, (TESTS / room).rglob("test_*.py"))) for room in rooms}
    assert {room for room, count in counted.items() if not count} == set()
    assert {"graph", "plan", "relax", "relay"} <= rooms


def test_a_folder_of_slow_tests_is_found() -> None:
    assert quick_functions(TESTS / "models" / "test_zoo_networks.py") == 0
    assert quick_functions(TESTS / "layering" / "test_without_tvm.py") == 0
    assert quick_functions(Path(__file__)) == 1
