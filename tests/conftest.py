"""What all tests share.  Being here puts this folder on the path: ``from fuzz.graphs import …``."""

from __future__ import annotations

import os

# Before NumPy is imported: its BLAS threads spin, and on a busy machine the reference then takes
# thirty times as long (measured 2026-11-21).
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from command import Result, run_convoy, tiny_model


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
