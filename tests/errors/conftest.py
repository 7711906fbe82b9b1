from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from command import Result, run_convoy, tiny_model


@pytest.fixture
def convoy_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    return lambda *arguments: run_convoy(capsys, monkeypatch, *arguments)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.onnx"
    onnx.save(tiny_model(), path)
    return path
