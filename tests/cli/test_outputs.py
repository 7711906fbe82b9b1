"""Where results go may be full, closed, or of an encoding that has few letters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

MAIN = "from convoy.cli import main; main()"


def run(program: str, *arguments: str, **given: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", program, *arguments], timeout=60, **given)  # type: ignore[call-overload]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is Linux's")
def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "wb") as full:
        ran = run(MAIN, "doctor", stdout=full, stderr=subprocess.PIPE)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith(
        b"error: write: the output: expected room for it, got No space"
    )
    assert b"Traceback" not in ran.stderr


@pytest.mark.slow
def test_a_reader_that_has_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ran = run(MAIN, "doctor", stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)
    assert (ran.returncode, ran.stderr) == (1, b"")


@pytest.mark.slow
def test_too_little_memory_is_one_line(tmp_path: Path) -> None:
    shape = numpy_helper.from_array(np.int64([1 << 36, 2]), "shape")
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["zeros"]),
        helper.make_node("Add", ["zeros", "x"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
    x.type.tensor_type.shape.dim.add().dim_value = 2
    model = helper.make_model(helper.make_graph(nodes, "large", [x], [y], [shape]))
    onnx.save(model, tmp_path / "m.onnx")
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_AS, (12 << 30,) * 2); {MAIN}"
    asked = ("compile", str(tmp_path / "m.onnx"), "-o", str(tmp_path / "m.so"))
    ran = run(limited, *asked, cwd=tmp_path, capture_output=True)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1].startswith(b"error: convoy: memory: expected enough of it, got ")
    assert b"Traceback" not in ran.stderr


def test_letters_that_an_encoding_lacks_are_question_marks(tmp_path: Path) -> None:
    program = "from convoy.cli.console import say, take_over; take_over(); say('1×2')"
    ran = run(program, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, cwd=tmp_path)
    assert (ran.stdout, ran.stderr) == (b"1?2\n", b"")


@pytest.mark.slow
def test_a_terminal_said_to_have_no_columns_gets_results_and_errors() -> None:
    ran = run(MAIN, "explain", "missing.onnx", capture_output=True, env={**os.environ, "COLUMNS": "0"})
    assert ran.stderr.splitlines()[-1].startswith(b"error: import: missing.onnx: expected an ONNX file")
    program = "from convoy.cli.console import show; from convoy.report.sheet import block; show(block('a'))"
    ran = run(program, capture_output=True, env={**os.environ, "COLUMNS": "0"})
    assert ran.stdout.strip() == b"a"


def test_the_package_reads_its_own_files_in_any_locale() -> None:
    # Python's UTF-8 mode and its coercion of the locale are off, as they are for Latin-1
    program = "from convoy.toolchain import compiler; compiler._kernel_header('product_bytes')"
    other = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = run(program, capture_output=True, env={**os.environ, **other})
    assert (ran.returncode, ran.stderr) == (0, b"")


NAMED_TWICE = [
    ("explain", "net.onnx", "--onnx", "net.onnx"),
    ("explain", "link.onnx", "--html", "./net.onnx"),
    ("explain", "net.onnx", "--html", "page", "--onnx", "./page"),
    ("profile", "net.onnx", "--trace", "net.onnx"),
    ("profile", "net.onnx", "--html", "net.onnx"),
    ("bench", "net.onnx", "--html", "net.onnx", "--against", "tvm"),
    ("bisect", "net.onnx", "-o", "net.onnx"),
    ("compile", "net.onnx", "-o", "link.so"),
]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", NAMED_TWICE, ids=" ".join)
def test_a_model_is_not_written_over(arguments: tuple[str, ...], tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(b"a model")
    for name in ("link.onnx", "link.so"):
        (tmp_path / name).symlink_to(model)
    ran = run(MAIN, *arguments, capture_output=True, cwd=tmp_path)
    last = ran.stderr.splitlines()[-1]
    assert last.startswith(b"error: write: -"), last
    assert last.endswith(b"expected a file of its own, got one that is named twice; name another file")
    assert model.read_bytes() == b"a model"


@pytest.mark.parametrize("option", ["--onnx", "--html"])
def test_weights_beside_a_model_are_not_written_over(option: str, tmp_path: Path) -> None:
    w = numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 2, 2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "g", [x], [y], [w])
    outside = {"save_as_external_data": True, "location": "w.data", "size_threshold": 0}
    onnx.save(helper.make_model(graph), tmp_path / "net.onnx", **outside)
    before = (tmp_path / "w.data").read_bytes()
    ran = run(MAIN, "explain", "net.onnx", option, "w.data", capture_output=True, cwd=tmp_path)
    assert ran.stderr.splitlines()[-1].startswith(b"error: write: " + option.encode())
    assert (tmp_path / "w.data").read_bytes() == before


def test_two_results_behind_a_link_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"a model")
    (tmp_path / "link").symlink_to("page")
    ran = run(
        MAIN, "explain", "net.onnx", "--html", "link", "--onnx", "page", capture_output=True, cwd=tmp_path
    )
    assert b"got one that is named twice" in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "net.onnx", "--html", "x" * 300),
        ("profile", "net.onnx", "--trace", "x" * 300),
        ("bisect", "x" * 300),
    ],
    ids=lambda arguments: str(arguments[0]),
)
def test_a_name_longer_than_names_are_is_one_line(arguments: tuple[str, ...], tmp_path: Path) -> None:
    ran = run(MAIN, *arguments, capture_output=True, cwd=tmp_path)
    (said,) = ran.stderr.splitlines()
    assert ran.returncode == 1
    assert said.startswith(b"error: write: -")
    assert b"got File name too long" in said


@pytest.mark.parametrize("model", ["", ".", ".."])
def test_a_folder_is_no_model_to_bisect(model: str, tmp_path: Path) -> None:
    ran = run(MAIN, "bisect", model, capture_output=True, cwd=tmp_path)
    (said,) = ran.stderr.splitlines()
    assert (ran.returncode, said.count(b"got Is a directory")) == (1, 1)
