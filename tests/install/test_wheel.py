"""The wheel holds all that compiling needs: it works outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

import convoy
from command import tiny_model

ROOT = Path(__file__).parents[2]
WHERE = "import convoy.toolchain.compiler as c; print(c.__file__, *c.kernel_include_dirs(), sep='\\n')"


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_installed_wheel_compiles_and_runs_a_model(tmp_path: Path) -> None:
    wheel = ("-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "--wheel-dir", tmp_path)
    run(*wheel, ROOT, folder=tmp_path, CC="false", CXX="false")  # it needs no compiler
    (made,) = tmp_path.glob("*.whl")
    assert made.name == f"convoy_tvm-{convoy.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
    assert {"convoy/py.typed", "convoy/csrc/runtime/team.c", "convoy/csrc/kernels/map.h"} <= set(names)
    assert [name for name in names if "bench" in name and name.startswith("convoy/csrc")] == []
    installed = tmp_path / "installed"
    run("-m", "pip", "install", "--no-deps", "--quiet", "--target", installed, made, folder=tmp_path)
    # -S: without the hook of an editable install, which leads to the checkout whatever the path says
    path = os.pathsep.join([str(installed), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    environment = {"PYTHONPATH": path, "CONVOY_CACHE_DIR": str(tmp_path / "cache")}

    places = run("-S", "-c", WHERE, folder=tmp_path, **environment).splitlines()
    assert all(Path(place).is_relative_to(installed) for place in places)

    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    np.save(tmp_path / "x.npy", np.ones((1, 3, 8, 8), np.float32))
    run(
        "-S",
        "-m",
        "convoy",
        "compile",
        "tiny.onnx",
        "-o",
        "tiny.so",
        "--strict",
        folder=tmp_path,
        **environment,
    )
    run(
        "-S", "-m", "convoy", "run", "tiny.so", "-i", "x.npy", "-o", "y.npy", folder=tmp_path, **environment
    )
    np.testing.assert_allclose(np.load(tmp_path / "y.npy").sum(), 1, rtol=1e-5)  # it ends in a softmax
