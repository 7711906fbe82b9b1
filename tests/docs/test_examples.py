"""Each program of ``examples/`` runs as it is, and says what it should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import onnx
import pytest

import convoy
from command import tiny_model
from pages import ROOT

EXAMPLES = ROOT / "examples"
PACKAGES = Path(sysconfig.get_path("purelib"))
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


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``run.c``, made as on top of it."""
    path = tmp_path_factory.mktemp("run") / "run"
    ffi = PACKAGES / "tvm_ffi"
    flags = [f"-I{ffi}/include", f"-L{ffi}/lib", "-ltvm_ffi", "-ldl", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", EXAMPLES / "run.c", "-o", path, *flags], check=True)
    return path


def run_program(program: Path, model: str, numbers: Path) -> str:
    """What it says on stderr of a library of ``model``, given one number."""
    library = program.with_name("library.so")
    convoy.compile(onnx.parser.parse_model(model)).export_library(str(library))
    libraries = f"{PACKAGES}/tvm/lib:{PACKAGES}/tvm_ffi/lib"
    return subprocess.run(
        [program, library, "1", numbers, program.with_name("out.raw")],
        env={**os.environ, "LD_LIBRARY_PATH": libraries},
        capture_output=True,
        text=True,
    ).stderr


HEAD = '<ir_version: 8, opset_import: ["": 13]> g (float[1] x) => '


@pytest.mark.slow
def test_the_program_in_c_says_what_it_does_not_take(program: Path, tmp_path: Path) -> None:
    number = tmp_path / "x.raw"
    number.write_bytes(b"\0\0\0\0")
    cast = HEAD + "(int64[1] y) { y = Cast <to = 7> (x) }"
    assert run_program(program, cast, number) == "run: main: expected an output of float32\n"
    missing, relu = tmp_path / "none.raw", HEAD + "(float[1] y) { y = Relu (x) }"
    assert run_program(program, relu, missing) == f"run: {missing}: it could not be opened\n"
    assert run_program(program, relu, number) == ""
