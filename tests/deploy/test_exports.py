"""Libraries kept between runs are found again for the same model on the same CPU, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from command import tiny_model
from convoy.deploy import exports


class Library:
    """Stands in for TVM's executable."""

    def export_library(self, path: str, fcompile: object) -> None:
        Path(path).write_text("library")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "external.onnx"
    onnx.save(tiny_model(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def is_made(model: Path, settings: str = "threads=1") -> bool:
    made = []

    def build() -> Library:
        made.append(settings)
        return Library()

    assert exports.exported_library(model, settings, [], build).read_text() == "library"
    return bool(made)


def test_the_same_model_is_made_once(model: Path) -> None:
    assert [is_made(model), is_made(model)] == [True, False]


def test_other_settings_are_another_library(model: Path) -> None:
    assert [is_made(model), is_made(model, "threads=2")] == [True, True]


def test_other_external_data_is_another_library(model: Path) -> None:
    assert is_made(model)
    weights = model.with_name("weights.bin")
    data = bytearray(weights.read_bytes())
    data[0] ^= 1
    weights.write_bytes(data)
    assert is_made(model)


def test_another_cpu_is_another_library(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # a home folder may be shared by machines: code for AVX-512 ends the process on one without
    assert is_made(model)
    monkeypatch.setattr(exports, "describe_cpu", lambda: "another CPU")
    assert is_made(model)
