"""What all tests share.  Being here puts this folder on the path: ``from fuzz.graphs import …``."""

from __future__ import annotations

import os

# Before NumPy is imported: its BLAS threads spin, and on a busy machine the reference then takes
# thirty times as long (measured 2026-11-21).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Plans are those of the row: what a probe reads is no business of the tests but its own.
os.environ.setdefault("CONVOY_PROBE", "0")

import importlib.util
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import numpy as np
import onnx
import pytest

from command import Result, run_convoy, tiny_model
from convoy.kernels import planner
from convoy.toolchain import compiler
from optimising import less

pytest_plugins = ["collecting", "frames", "quick", "together"]

_TESTS = Path(__file__).parent
_RELAY_TESTS = _TESTS / "relay"


def _classic_tvm() -> bool:
    """Whether the installed TVM has Relay (0.19 and earlier); TVM is not imported."""
    spec = importlib.util.find_spec("tvm")
    return spec is not None and spec.origin is not None and Path(spec.origin).with_name("relay").is_dir()


CLASSIC_TVM = _classic_tvm()
SHARED = ("backend", "fuzz", "kernels", "robustness")
"""Folders whose tests want several threads in small regions, too."""
AS_SHIPPED = (*SHARED, "codegen", "faults", "models", "runtime", "target", "toolchain")
"""Folders whose tests compile C as users do: they ask what kernels compute, or how they are compiled."""


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Each environment has one TVM: the Relay door's tests run with the classic one, all others with
    the modern one."""
    if collection_path.parent != _TESTS or not collection_path.is_dir():
        return None
    return True if (collection_path == _RELAY_TESTS) != CLASSIC_TVM else None


def pytest_report_header() -> str:
    if CLASSIC_TVM:
        return "convoy: classic TVM is installed: only tests/relay is collected"
    return "convoy: modern TVM is installed: tests/relay is left to scripts/test and .venv-relay"


@pytest.fixture
def convoy_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """Runs ``convoy`` with the arguments given."""
    return lambda *arguments: run_convoy(capsys, monkeypatch, *arguments)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny ONNX file."""
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    onnx.save(tiny_model(), path)
    return path


@pytest.fixture(autouse=True)
def small_regions_have_a_team(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions of any size are shared by all threads where kernels are tested, though the smallest would be
    quicker on one: what several threads compute is seen on small tensors."""
    if request.path.relative_to(_TESTS).parts[0] in SHARED:
        monkeypatch.setattr(planner, "images_worth_a_team", lambda *_: 0)


@pytest.fixture(autouse=True)
def numbers_of_its_own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module's random numbers begin anew for each test: which ran before it in its process is chance."""
    seed = crc32(request.node.name.encode())
    for name, value in list(vars(request.module).items()):
        if isinstance(value, np.random.Generator):
            monkeypatch.setattr(request.module, name, np.random.default_rng(seed))


@pytest.fixture(autouse=True)
def other_folders_optimise_less(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where tests ask for something else than what kernels compute."""
    if request.path.relative_to(_TESTS).parts[0] not in AS_SHIPPED:
        monkeypatch.setattr(compiler, "FLAGS", (*compiler.FLAGS, *less()))
