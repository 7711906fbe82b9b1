"""A library says what it is: names, shapes, types, what made it and for what; to read it runs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

import convoy
from command import run_convoy, tiny_model
from convoy.deploy.description import (
    Description,
    Tensor,
    encode_example,
    read_description,
    read_example,
)
from convoy.deploy.export import export_library
from convoy.deploy.runner import Runner
from convoy.errors import ModelError
from convoy.onnx import InferenceSession
from convoy.toolchain.compiler import embed_section, link_shared
from convoy.toolchain.elf import read_section


def two_inputs() -> onnx.ModelProto:
    """``sum = left.1 + right/2`` in float32, ``both`` of int64: names that Python and TVM do not take."""
    nodes = [
        helper.make_node("Add", ["left.1", "right/2"], ["the sum"]),
        helper.make_node("Mul", ["n", "n"], ["9both"]),
    ]
    image, count = [1, 3, "H", 4], [2]
    graph = helper.make_graph(
        nodes,
        "two",
        [
            helper.make_tensor_value_info("left.1", TensorProto.FLOAT, image),
            helper.make_tensor_value_info("right/2", TensorProto.FLOAT, image),
            helper.make_tensor_value_info("n", TensorProto.INT64, count),
        ],
        [
            helper.make_tensor_value_info("the sum", TensorProto.FLOAT, image),
            helper.make_tensor_value_info("9both", TensorProto.INT64, count),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("two") / "two.so"
    sizes = (1, 3, (2, 4), 4)
    export_library(convoy.compile(two_inputs(), shapes={"left.1": sizes, "right/2": sizes}), path)
    return path


def described(path: Path) -> Description:
    found = read_description(path)
    assert found is not None
    return found


@pytest.mark.slow
def test_tensors_have_the_model_s_names_and_all_sizes(library: Path) -> None:
    says = described(library)
    assert [str(t) for t in says.inputs] == [
        "left.1: float32 [1, 3, ?, 4]",
        "right/2: float32 [1, 3, ?, 4]",
        "n: int64 [2]",
    ]
    assert [str(t) for t in says.outputs] == ["the sum: float32 [1, 3, ?, 4]", "9both: int64 [2]"]
    assert [version.inputs[1].shape for version in says.versions] == [(1, 3, 2, 4), (1, 3, 4, 4)]
    assert [version.outputs[0].shape for version in says.versions] == [(1, 3, 2, 4), (1, 3, 4, 4)]


def test_a_model_with_large_weights_has_its_names_too(rng: np.random.Generator) -> None:
    # large weights are held beside the graph, as further inputs of it: the names were TVM's variables then
    weights = rng.standard_normal((64, 64)).astype(np.float32)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 64]) for n in ("input.1", "y"))
    node = helper.make_node("MatMul", ["input.1", "weight.0"], ["y"])
    graph = helper.make_graph([node], "net", [x], [y], [numpy_helper.from_array(weights, "weight.0")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = InferenceSession(model.SerializeToString())
    assert [arg.name for arg in session.get_inputs()] == ["input.1"]
    given = rng.standard_normal((2, 64)).astype(np.float32)
    (found,) = session.run(None, {"input.1": given})
    np.testing.assert_allclose(found, given @ weights, atol=1e-4)


@pytest.mark.slow
def test_what_made_it_and_for_what(tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    executable = convoy.compile(
        tiny_model(batch="N"), "haswell", threads=3, disabled_ops="nn.softmax", report=convoy.Report()
    )
    executable.export_library(str(path))  # TVM's own
    says = described(path)
    assert says.inputs == (Tensor("x", ("n", 3, 8, 8), "float32"),)
    assert (says.cpu, says.instructions, says.threads, says.versions) == ("haswell", "avx2", 3, ())
    assert says.made_by["convoy"] == convoy.__version__
    assert {"apache-tvm", "compiler"} < set(says.made_by)
    assert says.report["left"] == [(1, "nn.softmax", "op nn.softmax is switched off")]
    (region,) = says.report["regions"]
    assert region["symbol"] == executable.report.regions[0].symbol
    assert region["kernels"]["matmul"] == 1
    assert says.alignments == (4,)  # TVM's softmax reads what a region made of it


@pytest.mark.slow
def test_a_library_says_the_precision_it_was_compiled_for(tmp_path: Path) -> None:
    for target, precision in (("znver4", "bf16"), ("haswell", "float32")):
        path = tmp_path / f"{target}.so"
        convoy.compile(tiny_model(), target, precision="bf16").export_library(str(path))
        assert described(path).precision == precision


@pytest.mark.slow
def test_libraries_through_tvm_s_own_door_say_it_too(tmp_path: Path) -> None:
    from convoy.relax.importer import load

    module = load(tiny_model())
    tvm.compile(module, target="convoy").export_library(str(tmp_path / "a.so"))
    assert [t.name for t in described(tmp_path / "a.so").outputs] == ["y0_softmax"]
    assert described(tmp_path / "a.so").alignments == (4,)  # nothing of TVM's looks at the input
    tvm.compile(module, target="llvm").export_library(str(tmp_path / "b.so"))
    assert read_description(tmp_path / "b.so") is None
    bare = module.clone()
    bare.update_func(
        bare.get_global_var("main"),
        bare["main"].without_attr("convoy_inputs").without_attr("convoy_outputs"),
    )
    tvm.compile(bare, target="convoy").export_library(str(tmp_path / "c.so"))
    assert [t.name for t in described(tmp_path / "c.so").outputs] == ["output_0"]


COMPILE = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import convoy
from command import tiny_model
from convoy.deploy.export import export_library
sizes = {{"x": ((1, 2), 3, 8, 8)}}
export_library(convoy.compile(tiny_model(batch="N", extra="Sinh"), shapes=sizes), Path("own.so"))
convoy.compile(tiny_model()).export_library("tvm.so")
"""


@pytest.mark.slow
def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[1])
    for seed in ("1", "2"):
        (tmp_path / seed).mkdir()
        subprocess.run(
            [sys.executable, "-c", COMPILE.format(tests=tests)],
            cwd=tmp_path / seed,
            env={**os.environ, "PYTHONHASHSEED": seed, "TMPDIR": str(tmp_path / seed)},
            check=True,
            timeout=300,
        )
    for name in ("own.so", "tvm.so"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def section_library(folder: Path, text: bytes) -> Path:
    """A library that says ``text`` of itself, and that writes a file when it is loaded."""
    source = folder / "ran.c"
    source.write_text(
        "#include <stdio.h>\n__attribute__((constructor)) static void run(void)"
        f' {{ fclose(fopen("{folder}/loaded", "w")); }}\n'
    )
    made = folder / "ran.o"
    subprocess.run(["cc", "-c", "-fPIC", str(source), "-o", str(made)], check=True)
    said = embed_section(".convoy", text, output=folder / "said.o")
    return link_shared([made, said], output=folder / "said.so")


HUGE_WORK = f"""\
{{"format": 1, "inputs": [], "outputs": [], "versions": [], "cpu": "", "instructions": "", "threads": 1, \
"made_by": {{}}, "report": {{"ops_offloaded": 0, "left": [], "flops": {10**400}}}}}"""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"\n", "a description that is none (JSONDecodeError"),
        (b"[" * 100_000, "a description that is none (RecursionError"),
        (b"{}", "a description that is none (KeyError"),
        (b'{"format": 2}', "a description of format 2"),
        (b'{"format": 1, "inputs": 5}', "a description that is none (TypeError"),
        (b'{"format": "\\u001b[2J\\n"}', r"a description of format \x1b[2J\n"),
        (b"\xff\xfa", "a description that is none (UnicodeDecodeError"),
        (HUGE_WORK.encode(), "a description that is none (TypeError: expected a number, got 1000"),
    ],
    ids=["empty", "deep", "without", "later", "number", "escapes", "binary", "huge"],
)
def test_other_descriptions_are_refused_in_a_line(
    tmp_path: Path, text: bytes, problem: str, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    path = section_library(tmp_path, text)
    with pytest.raises(ModelError) as caught:
        read_description(path)
    assert problem in str(caught.value)
    result = run_convoy(capsys, monkeypatch, "inspect", path)
    assert (result.code, len(result.error_lines), "\x1b" in result.err) == (1, 1, False)
    assert not (tmp_path / "loaded").exists()  # nothing of it ran


def test_a_damaged_file_is_no_library_or_says_what_it_said(library: Path, tmp_path: Path) -> None:
    whole = library.read_bytes()
    rng = np.random.default_rng(0)
    path = tmp_path / "damaged.so"
    table = int.from_bytes(whole[40:48], "little")
    for _ in range(300):
        data = bytearray(whole)
        start = table if rng.random() < 0.7 else 0
        for at in rng.integers(start, start + (len(data) - start if start else 64), 4):
            data[at] = rng.integers(256)
        path.write_bytes(data)
        with suppress(ModelError):
            assert isinstance(read_description(path), Description | None)
    for at in range(40, 48):  # a table past what a file can hold
        path.write_bytes(whole[:at] + b"\xff" * (48 - at) + whole[48:])
        assert read_description(path) is None
    path.write_bytes(whole[: table + 10])
    assert read_description(path) is None
    assert described(library).encode() == read_section(library, ".convoy", 1 << 20)
    os.mkfifo(tmp_path / "pipe.so")
    assert read_description(tmp_path / "pipe.so") is None


def test_a_section_past_the_bound_is_not_read(library: Path) -> None:
    size = len(described(library).encode())
    assert read_section(library, ".convoy", size) is not None
    assert read_section(library, ".convoy", size - 1) is None
    assert read_section(library, ".convoys", size) is None


@pytest.mark.slow
def test_an_example_is_kept_and_tried(tmp_path: Path, rng: np.random.Generator) -> None:
    model, path = tiny_model(), tmp_path / "net.so"
    x = rng.standard_normal((1, 3, 8, 8)).astype(np.float32)
    (y,) = Runner(convoy.compile(model)).run([x])
    executable = convoy.compile(model, example=([x], [y]))
    assert Runner(executable).check() == 0
    export_library(executable, path)
    inputs, outputs = read_example(path) or ([], [])
    np.testing.assert_array_equal(inputs[0], x)
    np.testing.assert_array_equal(outputs[0], y)
    wrong = Runner(convoy.compile(model, example=([x], [y + np.max(y) / 2])))
    assert wrong.check() == pytest.approx(1 / 3, rel=1e-3)
    with pytest.raises(ModelError, match="expected a library with an example in it, got one without"):
        Runner(convoy.compile(model)).check()


@pytest.mark.parametrize("given", [5, ([object()], []), ([np.zeros(2)],)], ids=["number", "object", "one"])
def test_what_is_no_example_is_refused(given: object) -> None:
    with pytest.raises(ModelError, match="expected the inputs and the outputs, in order, got"):
        encode_example(given)  # type: ignore[arg-type]


def test_inspect_prints_it(
    library: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = run_convoy(capsys, monkeypatch, "inspect", library).out
    for part in ("left.1: float32 [1, 3, ?, 4]", "n: int64 [2]", "made by", "convoy 0.1.0", "% of"):
        assert part in text
    assert '"name": "9both"' in run_convoy(capsys, monkeypatch, "inspect", library, "--json").out
    other = run_convoy(capsys, monkeypatch, "inspect", next(Path(tvm.__file__).parent.glob("lib/*.so")))
    assert "expected a library that describes itself" in other.error_lines[0]
