"""A network that draws random numbers, from ``convoy check`` to a library that runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

Command = Callable[..., Any]


def write_noisy(path: Path) -> Path:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 22]> noisy (float[N,256] x) => (float[N,256] y) {
            scaled = Mul (x, x)
            [noise] noise = RandomNormalLike <scale = 0.25> (x)
            y = Add (scaled, noise)
        }"""
    )
    onnx.save(model, path)
    return path


@pytest.mark.slow
def test_check_compares_with_constants_and_a_library_draws(convoy_command: Command, tmp_path: Path) -> None:
    model = write_noisy(tmp_path / "noisy.onnx")
    checked = convoy_command("check", model)
    assert checked.code == 0, checked
    assert "random numbers are drawn by noise: compared with constants in their place" in checked.out
    library, x = tmp_path / "noisy.so", np.full((8, 256), 3, np.float32)
    compiled = convoy_command("compile", model, "-o", library)
    assert compiled.code == 0, compiled
    np.save(tmp_path / "x.npy", x)
    answers = []
    for name in ("first.npz", "second.npz"):
        ran = convoy_command("run", library, "--input", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / name)
        assert ran.code == 0, ran
        with np.load(tmp_path / name) as found:
            answers.append(found["y"] - x * x)
    for noise in answers:
        assert abs(noise.mean()) < 0.05
        assert abs(noise.std() - 0.25) < 0.05
