"""Bad input and a bad machine: one clear line each, exit code 1, no traceback.

Each line is ``error: <step>: <node>: expected X, got Y; <what to do>``; a refusal gives its reason in
place of ``expected X, got Y``.
"""

from __future__ import annotations

import contextlib
import re
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tvm import relax, tirx

import convoy
from command import Result, tiny_model
from convoy.errors import ConvoyError, ModelError
from convoy.onnx_file import parse_file
from convoy.options import Options

Command = Callable[..., Result]
FORM = re.compile(r"^error: [^:]+: .+: .+; .+$")


def assert_one_error(result: Result, *texts: str) -> None:
    assert result.code == 1, result.err
    assert "Traceback" not in result.err
    assert len(result.error_lines) == 1, result.err
    (line,) = result.error_lines
    assert FORM.match(line), line
    for text in texts:
        assert text in line, line


def save(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path


def one_node_model(
    op: str, dtype: int, *inputs: list[int], opset: int = 13, **attributes: object
) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(inputs))]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], name="node0", **attributes)],
        "one",
        [helper.make_tensor_value_info(n, dtype, shape) for n, shape in zip(names, inputs, strict=True)],
        [helper.make_tensor_value_info("y", dtype, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


# Damaged models


def test_an_object_that_is_no_model() -> None:
    with pytest.raises(ModelError, match=r"import: int: expected a path, an onnx.ModelProto or a Relax"):
        convoy.compile(42)  # type: ignore[arg-type]


def test_a_negative_number_of_threads(model: Path) -> None:
    with pytest.raises(ConvoyError, match=r"options: threads: expected .*, got -1; take 0"):
        convoy.compile(model, threads=-1)


@pytest.mark.parametrize("threads", [1.5, "2", None, True, 257, 10**12])
def test_a_number_of_threads_that_is_none(threads: object) -> None:
    with pytest.raises(
        ConvoyError, match=r"options: threads: expected a number of threads up to 256, got .*; take 0"
    ):
        Options(threads=threads)  # type: ignore[arg-type]


@pytest.mark.parametrize("tune", [-1, float("nan"), "long"])
def test_seconds_to_tune_that_are_none(tune: object) -> None:
    with pytest.raises(ConvoyError, match=r"options: tune: expected a number of seconds, got .*; take 0"):
        Options(tune=tune)  # type: ignore[arg-type]


def test_numbers_of_any_fitting_type() -> None:
    assert Options(threads=np.int64(2), tune=3) == Options(threads=2, tune=3.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["strict", "merge"])
def test_a_truth_value_that_is_none(option: str) -> None:
    # "false" is true to Python
    with pytest.raises(ConvoyError, match=f"options: {option}: expected True or False, got 'false'"):
        Options(**{option: "false"})  # type: ignore[arg-type]


@pytest.mark.parametrize("names", ["softmax, lrn", ["softmax", "lrn"], {"softmax", "lrn"}])
def test_names_of_any_fitting_type(names: object) -> None:
    assert Options(disabled_ops=names).disabled_ops == {"softmax", "lrn"}  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [7, None, [7]])
def test_names_that_are_none(names: object) -> None:
    with pytest.raises(ConvoyError, match=r"options: exclude: expected names, got .*; write {"):
        Options(exclude=names)  # type: ignore[arg-type]


@pytest.mark.parametrize("function", ["using", "partition", "compile"])
def test_options_and_reports_that_are_none(function: str) -> None:
    take = {
        "using": convoy.relax.using,
        "partition": convoy.relax.partition,
        "compile": lambda options, report: convoy.compile("net.onnx", options=options, report=report),
    }[function]
    with pytest.raises(
        ConvoyError, match=f"options: {function}: expected Options, got {{'threads': 2}}; write"
    ):
        take({"threads": 2}, None)
    with pytest.raises(ConvoyError, match=f"options: {function}: expected a Report, got 3; write"):
        take(None, 3)


@pytest.mark.parametrize("name", ["keep", "cache"])
def test_folders_may_be_text(name: str) -> None:
    assert getattr(Options(**{name: "some/folder"}), name) == Path("some/folder")
    with pytest.raises(ConvoyError, match=f"options: {name}: expected a path or None, got 7"):
        Options(**{name: 7})


def test_a_missing_file(convoy_command: Command, tmp_path: Path) -> None:
    assert_one_error(convoy_command("explain", tmp_path / "none.onnx"), "none.onnx", "no such file")


def test_an_empty_file(convoy_command: Command, tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").touch()
    assert_one_error(convoy_command("explain", tmp_path / "empty.onnx"), "empty.onnx")


def test_a_folder_in_place_of_a_file(convoy_command: Command, tmp_path: Path) -> None:
    assert_one_error(convoy_command("explain", tmp_path), str(tmp_path))


@pytest.mark.parametrize("command", ["explain", "check", "bench"])
@pytest.mark.parametrize("part", [0.2, 0.7, 0.99])
def test_a_truncated_file(
    convoy_command: Command, model: Path, tmp_path: Path, command: str, part: float
) -> None:
    data = model.read_bytes()
    (tmp_path / "cut.onnx").write_bytes(data[: int(part * len(data))])
    assert_one_error(convoy_command(command, tmp_path / "cut.onnx"), "cut.onnx")


@pytest.mark.parametrize("command", ["explain", "check"])
def test_a_file_of_another_format(convoy_command: Command, tmp_path: Path, command: str) -> None:
    (tmp_path / "text.onnx").write_text("This is not a model.\n" * 50)
    assert_one_error(convoy_command(command, tmp_path / "text.onnx"), "text.onnx")


def test_a_weight_shorter_than_its_shape(convoy_command: Command, tmp_path: Path) -> None:
    model = tiny_model()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-8]
    assert_one_error(convoy_command("explain", save(model, tmp_path / "short.onnx")))


def test_a_node_that_reads_a_tensor_nobody_makes(convoy_command: Command, tmp_path: Path) -> None:
    model = tiny_model()
    model.graph.node[1].input[0] = "nowhere"
    assert_one_error(convoy_command("explain", save(model, tmp_path / "dangling.onnx")), "nowhere")


@pytest.mark.parametrize("command", ["explain", "check"])
@pytest.mark.parametrize("name", ["conv0", "relu0", "gemm0", "NOTSET"])
def test_a_name_that_is_no_text(convoy_command: Command, tmp_path: Path, command: str, name: str) -> None:
    model = tiny_model(softmax=False)
    model.graph.node[0].attribute.append(helper.make_attribute("auto_pad", "NOTSET"))
    damaged = model.SerializeToString().replace(name.encode(), b"\xff" * len(name))
    (tmp_path / "bytes.onnx").write_bytes(damaged)
    assert_one_error(convoy_command(command, tmp_path / "bytes.onnx"))


@pytest.mark.parametrize("command", ["explain", "check", "bench"])
@pytest.mark.parametrize("place", ["size", "domain", "location"])
def test_other_names_that_are_no_text(
    convoy_command: Command, tmp_path: Path, command: str, place: str
) -> None:
    model = tiny_model(batch="AAAA" if place == "size" else 1)
    if place == "domain":
        model.opset_import.append(helper.make_opsetid("AAAA", 1))
    if place == "location":
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="AAAA")
    damaged = model.SerializeToString().replace(b"AAAA", b"\xed\xa0\x80\xff")
    (tmp_path / "bytes.onnx").write_bytes(damaged)
    assert_one_error(convoy_command(command, tmp_path / "bytes.onnx"), "expected names in UTF-8, got b")


def test_what_nobody_reads_need_be_no_text(tmp_path: Path) -> None:
    model = tiny_model()
    model.doc_string = model.graph.doc_string = model.graph.node[0].doc_string = "AAAA"
    model.metadata_props.add(key="AAAA", value="AAAA")
    path = tmp_path / "bytes.onnx"
    path.write_bytes(model.SerializeToString().replace(b"AAAA", b"\xed\xa0\x80\xff"))
    assert parse_file(path).graph.node[0].name == "conv0"


@pytest.mark.parametrize("command", ["explain", "check", "bench"])
def test_missing_external_data(convoy_command: Command, tmp_path: Path, command: str) -> None:
    path = tmp_path / "external.onnx"
    onnx.save(tiny_model(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    assert_one_error(convoy_command(command, path), "weights.bin")


# Unsupported ops, dtypes, shapes


def test_an_op_that_does_not_exist(convoy_command: Command, tmp_path: Path) -> None:
    model = save(tiny_model(extra="Frobnicate"), tmp_path / "op.onnx")
    assert_one_error(convoy_command("explain", model), "Frobnicate")


def test_a_loop_the_importer_wrote_is_left_by_its_name(convoy_command: Command, tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4]) for name in "xy")
    node = helper.make_node("EyeLike", ["x"], ["y"], k=1)
    model = helper.make_model(
        helper.make_graph([node], "diagonal", [x], [y]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    result = convoy_command("explain", save(model, tmp_path / "diagonal.onnx"))
    assert "expected an op, got a call of eye_like" in result.out, result.out + result.err


def test_strict_names_the_first_op_not_offloaded(convoy_command: Command, tmp_path: Path) -> None:
    # plain TVM runs Atan; Convoy leaves it
    model = save(tiny_model(extra="Tan", softmax=False), tmp_path / "tan.onnx")
    library = tmp_path / "m.so"
    assert_one_error(convoy_command("compile", model, "-o", library, "--strict"), "tan")
    result = convoy_command("compile", model, "-o", library)
    assert result.code == 0, result.err
    assert "left to TVM: 1 × tan" in result.out


def test_a_dtype_convoy_does_not_compute_is_left_with_its_reason(
    convoy_command: Command, tmp_path: Path
) -> None:
    model = save(one_node_model("Relu", TensorProto.DOUBLE, [1, 8, 4, 4]), tmp_path / "double.onnx")
    result = convoy_command("explain", model)
    assert result.code == 0, result.err
    assert "float64" in result.out
    assert_one_error(convoy_command("compile", model, "-o", tmp_path / "m.so", "--strict"), "float64")


def test_shapes_that_do_not_fit_each_other(convoy_command: Command, tmp_path: Path) -> None:
    model = one_node_model("Conv", TensorProto.FLOAT, [1, 3, 8, 8], [4, 5, 3, 3])
    assert_one_error(convoy_command("explain", save(model, tmp_path / "shapes.onnx")))


def test_check_wants_the_shape_of_a_symbolic_dimension(convoy_command: Command, tmp_path: Path) -> None:
    model = one_node_model("Relu", TensorProto.FLOAT, [1, 8, 4, 4])
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    path = save(model, tmp_path / "symbolic.onnx")
    assert_one_error(convoy_command("check", path), "height", "--shape x0=")


def test_a_shape_for_an_input_the_model_does_not_have(convoy_command: Command, model: Path) -> None:
    assert_one_error(convoy_command("explain", model, "--shape", "nobody=1x3x8x8"), "nobody")


def test_an_unknown_target(convoy_command: Command, model: Path) -> None:
    assert_one_error(convoy_command("explain", model, "--target", "pentium9"), "pentium9")


@pytest.mark.parametrize("target", ["llvm -mcpu=haswell", '{"kind": "llvm", "mcpu": '])
def test_a_target_tvm_cannot_read(convoy_command: Command, model: Path, target: str) -> None:
    assert_one_error(convoy_command("explain", model, "--target", target), "llvm", "haswell")


def test_an_unknown_engine(convoy_command: Command, model: Path) -> None:
    assert_one_error(convoy_command("bench", model, "--against", "abacus"), "abacus", "onnxruntime")


def test_the_demo_knows_its_engines_before_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from convoy.cli import demo

    monkeypatch.setattr(demo.zoo, "load", lambda name: pytest.fail("it began"))
    with pytest.raises(ModelError, match=r"engine 'abacus': expected one of .*onnxruntime"):
        demo.show_demo(against="onnxruntime,abacus")


# A machine that cannot


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(folder))
    return folder


def test_a_compiler_that_is_not_there(
    convoy_command: Command, model: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/nonexistent")
    assert_one_error(convoy_command("explain", model), "C compiler", "/nonexistent", "install")


def test_no_compiler_on_the_path(
    convoy_command: Command, model: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_one_error(convoy_command("explain", model), "C compiler", "gcc", "install")


def test_a_compiler_that_fails(
    convoy_command: Command, model: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", str(_fake_compiler(tmp_path, "internal compiler error: out of luck")))
    result = convoy_command("explain", model)
    # the compiler's own words follow on lines of their own
    assert result.code == 1
    assert "expected a unit the C compiler accepts, got" in result.error_lines[0]
    assert "out of luck" in result.err
    assert "Traceback" not in result.err


def test_a_compiler_that_finds_the_disk_full(
    convoy_command: Command, model: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    message = "fatal error: error writing to unit.o: No space left on device"
    monkeypatch.setenv("CC", str(_fake_compiler(tmp_path, message)))
    assert_one_error(convoy_command("explain", model), "No space left on device", "free")


def _fake_compiler(folder: Path, message: str) -> Path:
    script = folder / "cc"
    script.write_text(
        "#!/bin/sh\n"
        'case "$1" in --version) echo "fake 1.0"; exit 0;; -dumpmachine) echo fake-machine; exit 0;; esac\n'
        f'echo "{message}" >&2\nexit 1\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KB, already full."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mount.returncode != 0:
        pytest.skip(f"mounting a tmpfs needs root: {mount.stderr.strip()}")
    try:
        with contextlib.suppress(OSError):
            (folder / "filler").write_bytes(bytes(1 << 20))
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_under_cache_and_temporary_files(
    convoy_command: Command, model: Path, full_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(full_disk / "cache"))
    monkeypatch.setenv("TMPDIR", str(full_disk))
    monkeypatch.setattr("tempfile.tempdir", str(full_disk))
    assert_one_error(convoy_command("explain", model), "No space left on device", "free")


def test_a_full_disk_under_the_output(convoy_command: Command, model: Path, full_disk: Path) -> None:
    output = full_disk / "model.so"
    assert_one_error(
        convoy_command("compile", model, "-o", output), "model.so", "No space left", "free space"
    )


def test_a_full_disk_under_the_results(
    convoy_command: Command, model: Path, full_disk: Path, tmp_path: Path
) -> None:
    assert convoy_command("compile", model, "-o", tmp_path / "m.so").code == 0
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 8, 8), np.float32))
    results = [tmp_path / "y.npy", full_disk / "y.npy", full_disk / "y.npz"]
    for result in results:
        ran = convoy_command("run", tmp_path / "m.so", "-i", tmp_path / "x.npy", "-o", result)
        if result.parent == full_disk:
            assert_one_error(ran, str(result), "No space left", "free space")
    assert [result.exists() for result in results] == [True, False, False]


def test_an_output_in_a_folder_that_does_not_exist(
    convoy_command: Command, model: Path, tmp_path: Path
) -> None:
    output = tmp_path / "nowhere" / "model.so"
    assert_one_error(
        convoy_command("compile", model, "-o", output), "nowhere", "expected an existing folder"
    )


def test_an_output_that_is_no_name_of_a_library(convoy_command: Command, model: Path) -> None:
    given = model.read_bytes()
    assert_one_error(convoy_command("compile", model, "-o", model), "ends in .so", f"{model.stem}.so")
    assert model.read_bytes() == given


def test_an_output_that_is_a_folder(convoy_command: Command, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m.so"
    folder.mkdir()
    assert_one_error(
        convoy_command("compile", model, "-o", folder), "m.so", "expected a file, got a folder"
    )


def test_names_longer_than_any_files(convoy_command: Command, model: Path, tmp_path: Path) -> None:
    long = "x" * 300
    library = tmp_path / f"{long}.so"
    assert_one_error(convoy_command("compile", model, "-o", library), "a name a file can have", "too long")
    assert_one_error(convoy_command("run", library, "-i", model, "-o", "y.npy"), "error: run: ")
    assert_one_error(convoy_command("bench", long), "expected an ONNX file or a network of the zoo")
    assert_one_error(convoy_command("explain", long), "too long")


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_gives_one_warning_and_the_answer(
    convoy_command: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # /proc: unwritable for root too
    monkeypatch.setenv("CONVOY_CACHE_DIR", "/proc/convoy-cache")
    result = convoy_command("check", model)
    assert result.code == 0, result.err
    warnings = [line for line in result.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1, result.err
    assert "/proc/convoy-cache" in warnings[0]


# Running


def test_run_of_a_missing_library(convoy_command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(1, np.float32))
    result = convoy_command("run", tmp_path / "no.so", "-i", tmp_path / "x.npy", "-o", tmp_path / "y.npy")
    assert_one_error(result, "no.so", "no such file")


def test_run_of_a_file_that_is_no_library(convoy_command: Command, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(1, np.float32))
    (tmp_path / "bad.so").write_bytes(b"not a library")
    result = convoy_command("run", tmp_path / "bad.so", "-i", tmp_path / "x.npy", "-o", tmp_path / "y.npy")
    assert_one_error(result, "bad.so", "convoy compile")


def test_run_on_inputs_that_are_no_arrays(convoy_command: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_text("words")
    assert convoy_command("compile", model, "-o", tmp_path / "m.so").code == 0
    result = convoy_command("run", tmp_path / "m.so", "-i", tmp_path / "x.npy", "-o", tmp_path / "y.npy")
    assert_one_error(result, "x.npy", "numpy.save")


@pytest.mark.parametrize(
    "x",
    [
        np.zeros((1, 3, 9, 8), np.float32),
        np.zeros((1, 3, 8, 8), np.float64),
        np.zeros((3, 8, 8), np.float32),
    ],
    ids=["size", "dtype", "rank"],
)
def test_run_on_an_input_of_another_shape_or_dtype(
    convoy_command: Command, model: Path, tmp_path: Path, x: np.ndarray
) -> None:
    assert convoy_command("compile", model, "-o", tmp_path / "m.so").code == 0
    np.save(tmp_path / "x.npy", x)
    result = convoy_command("run", tmp_path / "m.so", "-i", tmp_path / "x.npy", "-o", tmp_path / "y.npy")
    assert_one_error(result, str(x.dtype), str(list(x.shape)))


def test_debug_shows_the_traceback(
    convoy_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convoy.errors import ModelError

    monkeypatch.setenv("CONVOY_DEBUG", "1")
    with pytest.raises(ModelError):
        convoy_command("explain", tmp_path / "none.onnx")


def test_a_call_that_tvm_has_no_loop_for_is_named() -> None:
    # the last line of TVM's text was "# Metadata omitted. Use show_meta=True ..."
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([tirx.Var("n", "int64"), tirx.Var("c", "int64")], "float32"))
    one = relax.const(np.ones(1, "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.layer_norm(x, one, one, [-1])))
    with pytest.raises(ModelError, match=r"got InternalError: no code for R\.nn\.layer_norm\(x, .*; see "):
        convoy.compile(builder.get())


def test_what_tvm_itself_cannot_build_is_one_line() -> None:
    # an RMS norm in float64 along the first of two axes: TVM's own lowering ends in a failed check
    builder = relax.BlockBuilder()
    x, w = (
        relax.Var("x", relax.TensorType([3, 4], "float64")),
        relax.Var("w", relax.TensorType([3], "float64")),
    )
    with builder.function("main", [x, w]):
        builder.emit_func_output(builder.emit(relax.op.nn.rms_norm(x, w, axes=[0])))
    with pytest.raises(
        ModelError, match=r"^build: model: expected a model that TVM can compile, got .*; see "
    ) as caught:
        convoy.compile(builder.get())
    assert "\n" not in str(caught.value)
