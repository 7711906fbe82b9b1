"""``convoy doctor`` says what is missing; --version, --quiet and completion."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest

import convoy
from command import Result
from convoy import installed
from convoy.cli import console, doctor
from convoy.cli.app import COMMANDS
from convoy.errors import DoorError
from convoy.report.text import format_bytes
from convoy.toolchain.cache import open_cache

Command = Callable[..., Result]


def test_all_is_well(convoy_command: Command) -> None:
    ran = convoy_command("doctor")
    assert ran.code == 0, ran.err
    for part in (
        f" {convoy.__version__}, Python ",
        "modern (Relax)",
        "C compiler",
        "cores",
        "onnxruntime",
    ):
        assert part in ran.out
    findings = json.loads(convoy_command("doctor", "--json").out)
    assert {"what", "found", "todo", "needed"} == set(findings[0])


def test_what_is_missing_has_a_remedy_and_an_exit_code(
    convoy_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(doctor, "find_tvm", lambda: None)

    def version(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(doctor, "version", version)
    ran = convoy_command("doctor")
    assert ran.code == 1
    assert "→ pip install apache-tvm" in ran.out
    assert "no network compiles without: TVM, C compiler" in ran.out
    assert "pip install 'convoy-tvm[check]', if it is wanted" in ran.out


def test_every_package_of_an_extra_is_listed_with_what_it_is_for() -> None:
    wanted = {package: extra for package, (extra, use) in doctor.WANTED.items() if use}
    known = {
        re.split(r"[^\w-]", requirement)[0]: re.findall(r'extra == "(.+)"', requirement)[0]
        for requirement in requires("convoy-tvm") or []
        if "extra == " in requirement and 'extra == "dev"' not in requirement
    }
    assert set(known) == set(wanted) - {"pnnx"}
    found = {finding.what: f"{finding.found} {finding.todo}" for finding in doctor.find_all()}
    assert all(doctor.WANTED[package][1] in found[package] for package in wanted)


def test_only_what_convoy_wrote_counts_as_its_cache(
    convoy_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path))
    (tmp_path / "thesis.pdf").write_bytes(bytes(5 << 20))
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / "photo.jpg").write_bytes(bytes(5 << 20))
    assert open_cache().used() == 0

    def make(path: Path) -> None:
        path.write_bytes(bytes(3 << 20))

    open_cache().fetch("ab" + "0" * 62, ".o", make)
    assert 3 << 20 <= open_cache().used() < 4 << 20
    assert f"{tmp_path}: {format_bytes(open_cache().used())} of" in convoy_command("doctor").out


def test_a_quota_of_the_groups_is_found(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/service/job\n")
    inner = tmp_path / "cgroup" / "service" / "job"
    inner.mkdir(parents=True)
    assert doctor.read_quota(tmp_path / "cgroup", own) is None
    (inner / "cpu.max").write_text("max 100000\n")
    assert doctor.read_quota(tmp_path / "cgroup", own) is None
    (inner.parent / "cpu.max").write_text("150000 100000\n")
    assert doctor.read_quota(tmp_path / "cgroup", own) == 1.5


@pytest.mark.parametrize(("found", "fits"), [("0.27.1", True), ("0.26.0", False), ("0.28.dev3", False)])
def test_a_tvm_outside_of_the_pin_is_refused(
    found: str, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installed, "version", lambda package: found)
    if fits:
        installed.require("relax")
        return
    with pytest.raises(DoorError, match=rf"expected 'apache-tvm>=0.27,<0.28', got {found} in .*; install"):
        installed.require("relax")


def test_the_pin_is_that_of_the_package() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'"{installed.SPECIFIER[1:-1]}",' in text
    low, high = (".".join(map(str, numbers)) for numbers in (installed.OLDEST, installed.BELOW))
    assert f"apache-tvm>={low},<{high}" in installed.SPECIFIER


def test_the_version(convoy_command: Command) -> None:
    ran = convoy_command("--version")
    assert (ran.code, ran.out) == (0, f"convoy {convoy.__version__}\n")


@pytest.mark.parametrize("where", ["before", "after"])
def test_quiet_prints_results_alone(
    where: str, convoy_command: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_is_quiet", False)
    compiling = ["compile", model, "-o", tmp_path / "net.so"]
    assert "importing the model" in convoy_command(*compiling).err
    ran = convoy_command(*(["-q", *compiling] if where == "before" else [*compiling, "--quiet"]))
    assert (ran.code, ran.err) == (0, "")
    assert "0 left to TVM" in ran.out
    assert convoy_command("-q", "run", tmp_path / "none.so").error_lines


@pytest.mark.slow
def test_commands_are_completed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from convoy.cli import main; main()"],
        env={**os.environ, "_CONVOY_COMPLETE": "complete_bash", "COMP_WORDS": "convoy ", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == list(COMMANDS)
