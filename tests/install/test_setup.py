"""scripts/setup on a machine that lacks something: one line that says what, and how to get it; --help."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what setup needs, and a PATH with no Python and no compiler."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup", tmp_path / "scripts")
    shutil.copytree(ROOT / "scripts" / "relay", tmp_path / "scripts" / "relay")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "cat", "cksum", "dirname", "env", "uname"):
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "bin" / tool).symlink_to(found)
    return tmp_path


def add_program(checkout: Path, name: str, script: str) -> None:
    program = checkout / "bin" / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def setup_error(checkout: Path, *options: str) -> str:
    done = subprocess.run(
        [str(checkout / "scripts" / "setup"), *options],
        env={"PATH": str(checkout / "bin")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("setup: ")
    return done.stderr


def test_no_python(checkout: Path) -> None:
    error = setup_error(checkout)
    assert "expected version 3.10 or newer" in error
    assert "apt-get install python3" in error


def test_an_old_python(checkout: Path) -> None:
    add_program(checkout, "python3", 'if [ "$1" = -V ]; then echo Python 3.8.1; else exit 1; fi')
    assert "got Python 3.8.1" in setup_error(checkout)


def test_a_python_without_venv(checkout: Path) -> None:
    # Debian splits venv off: the version is fine, the import fails
    add_program(checkout, "python3", 'case "$2" in *ensurepip*) exit 1;; esac')
    error = setup_error(checkout)
    assert "expected the venv module" in error
    assert "apt-get install python3-venv" in error


def test_no_compiler(checkout: Path) -> None:
    add_program(checkout, "python3", f'exec "{sys.executable}" "$@"')
    error = setup_error(checkout)
    assert "expected gcc or clang on PATH" in error
    assert "apt-get install gcc" in error


def test_an_unknown_option(checkout: Path) -> None:
    assert "expected no argument, --relay, --torch or --python VERSION, got --relax" in setup_error(
        checkout, "--relax"
    )
    assert "got --relay --force" in setup_error(checkout, "--relay", "--force")


def test_a_python_by_its_version(checkout: Path) -> None:
    add_program(checkout, "python3.12", 'if [ "$1" = -V ]; then echo Python 3.12.1; else exit 1; fi')
    assert "expected Python 3.12, 3.10 or newer, got none" in setup_error(checkout, "--python", "3.12")
    assert "expected a version such as 3.12, got three" in setup_error(checkout, "--python", "three")
    assert not (checkout / ".venv-3.12").exists()


def test_versions_that_are_not_there(checkout: Path) -> None:
    shutil.copy(ROOT / "scripts" / "test-versions", checkout / "scripts")
    for tool in ("grep", "mkdir", "tail", "tr"):
        (checkout / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    # one that is older than its name says
    add_program(checkout, "python3.13", "exit 1")

    def run(*versions: str) -> tuple[int, list[str]]:
        done = subprocess.run(
            [str(checkout / "scripts" / "test-versions"), *versions],
            env={"PATH": str(checkout / "bin")},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.returncode, (done.stdout + done.stderr).splitlines()

    absent = [f"Python 3.{minor}: not there" for minor in range(10, 15)]
    assert run() == (1, absent)
    assert run("3.12", "3.13") == (1, absent[2:4])
    code, (error,) = run("2.7")
    assert (code, error) == (2, "test-versions: expected versions such as 3.12, or --types, got 2.7")


@pytest.mark.skipif(sys.platform != "linux", reason="classic TVM is tested on Linux")
def test_no_python_for_classic_tvm(checkout: Path) -> None:
    add_program(checkout, "python3", 'if [ "$1" = -V ]; then echo Python 3.13.0; else exit 1; fi')
    error = setup_error(checkout, "--relay")
    assert "expected Python 3.11 or 3.10" in error
    assert "got Python 3.13.0" in error
    assert "scripts/test --no-relay" in error


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("setup", []),
        ("setup", ["--relay"]),
        ("test", []),
        ("test", ["--no-relay"]),
        ("test", ["--quick"]),
        ("test-versions", []),
        ("check", []),
        ("bench", []),
        ("docs", []),
    ],
)
def test_a_script_says_what_it_does_and_does_nothing(checkout: Path, name: str, options: list[str]) -> None:
    done = subprocess.run(
        [shutil.copy(ROOT / "scripts" / name, checkout / "scripts"), *options, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(f"scripts/{name}") >= 2
    assert "set -euo" not in done.stdout
    assert not (checkout / ".venv").exists()
