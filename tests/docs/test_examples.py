"""Each program of ``examples/`` runs as it is, and says what it should."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from command import tiny_model
from pages import ROOT

EXAMPLES = ROOT / "examples"
ELSEWHERE = {"run.c": "docs/tutorial.md", "ray_images.py": "tests/deploy/test_ray.py"}
"""What another test runs, and where it says so."""


def run_example(name: str, *arguments: str | Path) -> str:
    """What it prints."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("examples") / "tiny.onnx"
    onnx.save(tiny_model(batch="N"), path)
    return path


@pytest.mark.slow
def test_a_model_is_compiled_and_run(tiny: Path) -> None:
    printed = run_example("compile_and_run.py", tiny)
    assert "0 left to TVM; 100.00 %" in printed
    assert re.search(r"y0_softmax: float32 \[1, 5\], largest at [0-4]$", printed, re.MULTILINE)


@pytest.mark.slow
def test_a_session_says_what_onnx_runtime_says(tiny: Path) -> None:
    assert run_example("onnx_session.py", tiny) == run_example("onnx_session.py", tiny, "onnxruntime") != ""


def test_a_session_without_a_model_says_how_it_is_called() -> None:
    done = subprocess.run([sys.executable, EXAMPLES / "onnx_session.py"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "python examples/onnx_session.py model.onnx" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_backend_of_ones_own_gets_folded_regions() -> None:
    printed = run_example("own_backend.py")
    assert "left: sigmoid gv - the NumPy backend has no relax.sigmoid" in printed
    assert "compiling ['Conv2d', 'Binary', 'Unary']" in printed
    assert float(printed.rpartition(":")[2]) < 1e-5


def test_each_example_is_tested_and_in_the_list() -> None:
    here = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".c")}
    assert here == set(re.findall(r"^\| \[([\w.]+)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    tested = set(re.findall(r'run_example\(\s*"([\w.]+)"', Path(__file__).read_text()))
    assert here == tested | set(ELSEWHERE)
    assert all(f"examples/{name}" in (ROOT / place).read_text() for name, place in ELSEWHERE.items())
