"""``convoy run``: inputs from files of every kind, pictures or random numbers; times of runs."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import convoy
from command import Result, tiny_model
from convoy import pipes
from convoy.cli import console
from convoy.cli.arrays import read_inputs, write_outputs
from convoy.deploy.description import Tensor
from convoy.deploy.requests import Load, measure_requests
from convoy.errors import ModelError

Command = Callable[..., Result]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "tiny.so"
    x = np.ones((1, 3, 8, 8), np.float32)
    (y,) = convoy.load(convoy.compile(tiny_model())).run([x])
    convoy.compile(tiny_model(batch="N"), example=([x], [y])).export_library(str(path))
    return path


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)


@pytest.mark.slow
def test_random_inputs_of_the_library_s_shapes(convoy_command: Command, library: Path) -> None:
    first, again, other = (convoy_command("run", library, "--json", "--seed", seed) for seed in "001")
    assert first.code == 0, first.err
    (output,) = json.loads(first.out)["outputs"]
    assert (output["name"], output["shape"], output["dtype"]) == ("y0_softmax", [1, 5], "float32")
    assert first.out == again.out != other.out


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pb", ".txt", ".csv"])
def test_inputs_and_outputs_by_their_ending(
    suffix: str, convoy_command: Command, library: Path, tmp_path: Path, x: np.ndarray
) -> None:
    given, wanted = tmp_path / f"x{suffix}", tmp_path / f"y{suffix}"
    if suffix == ".npz":
        np.savez(given, x=x)
    elif suffix == ".pb":
        given.write_bytes(numpy_helper.from_array(x, "x").SerializeToString())
    elif suffix == ".npy":
        np.save(given, x)
    else:
        np.savetxt(given, x.reshape(8, -1), "%.9g", delimiter="," if suffix == ".csv" else " ")
    ran = convoy_command("run", library, "-i", given, "-o", wanted)
    assert ran.code == 0, ran.err
    (expected,) = convoy.load(library).run([x])
    if suffix == ".npz":
        found = np.load(wanted)["y0_softmax"]
    elif suffix == ".pb":
        tensor = onnx.TensorProto.FromString(wanted.read_bytes())
        assert tensor.name == "y0_softmax"
        found = numpy_helper.to_array(tensor)
    elif suffix == ".npy":
        found = np.load(wanted)
    else:
        found = np.loadtxt(wanted, delimiter=",").reshape(1, 5)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


TENSORS = (Tensor("a", (2, "n"), "float32"), Tensor("b=c", (2,), "int64"))


def test_files_by_name_and_in_order(tmp_path: Path) -> None:
    a, b = np.zeros((2, 3), np.float32), np.array([4, 5])
    np.save(tmp_path / "a.npy", a)
    (tmp_path / "b.txt").write_text("4, 5\n")
    np.savez(tmp_path / "both.npz", **{"b=c": b, "a": a})
    np.savez(tmp_path / "order.npz", a, b)
    for given in (
        [str(tmp_path / "a.npy"), str(tmp_path / "b.txt")],
        [f"a={tmp_path}/a.npy", str(tmp_path / "both.npz")],
        [f"a={tmp_path}/a.npy", f"b=c={tmp_path}/b.txt"],
        [str(tmp_path / "both.npz")],
        [str(tmp_path / "order.npz")],
    ):
        found = read_inputs(given, TENSORS)
        np.testing.assert_array_equal(found[0], a)
        np.testing.assert_array_equal(found[1], b)
        assert found[1].dtype == np.int64


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["c=a.npy"], "input c: expected one of a, b=c"),
        (["a=a.npy"], "expected a, b=c, got a; give each input"),
        (["a=a.npy", "a=few.txt"], "input a: expected one file, got a.npy and few.txt; leave one out"),
        (["a=a.npy", "a.npy"], "expected a, b=c, got a and 1 without a name"),
        (["none.npy"], "none.npy: expected a file of arrays, got No such file or directory; check"),
        (["none.npz"], "none.npz: expected a file of arrays, got No such file or directory; check"),
        (["."], ".: expected a file of arrays, got Is a directory; check the path"),
        (["bad.npz"], "expected an archive numpy.savez wrote"),
        (["bad.pb"], "bad.pb: expected a tensor of ONNX's, got none: "),
        (
            ["bad.txt"],
            "bad.txt: expected numbers between blanks, commas and line ends, got could not convert",
        ),
        (["few.txt"], "got 3 numbers for a: float32 [2, n]; correct it"),
        (["b=c=half.txt"], "got 1.5 for a number of type int64; correct it"),
        (["b=c=large.txt"], "got 9223372036854775808 for a number of type int64; correct it"),
        (["objects.npy"], "allow_pickle=False"),
        (["bad.npy"], "bad.npy: expected an array numpy.save wrote, got the magic string is not correct"),
    ],
)
def test_files_that_do_not_fit_are_one_line(
    given: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.zeros((2, 3), np.float32))
    np.save("objects.npy", np.array([{}], object), allow_pickle=True)
    for name in ("bad.npy", "bad.npz", "bad.pb", "bad.txt"):
        Path(name).write_bytes(b"\xffnonsense \x1b[2J")
    texts = {"bad": "one two", "few": "1 2 3", "half": "1 1.5", "large": f"1 {2**63}"}
    for name, text in texts.items():
        Path(f"{name}.txt").write_text(text)
    with pytest.raises(ModelError) as caught:
        read_inputs(given, TENSORS)
    assert problem in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "array",
    [
        np.array([[2**53 + 1, -(2**63)]]),
        np.array([[255, 0]], np.uint8),
        np.array([[0.1, 1e300]]),
        np.array([[0.1, -3e38]], np.float32),
        np.array([[True, False]]),
        np.zeros((2, 0), np.float32),
        np.zeros(0, np.int64),
    ],
    ids=lambda array: f"{array.dtype}-{array.size}",
)
def test_numbers_in_text_are_what_they_were(array: np.ndarray[Any, Any], tmp_path: Path) -> None:
    write_outputs([tmp_path / "a.txt"], [array], ["a"])
    (found,) = read_inputs([str(tmp_path / "a.txt")], [Tensor("a", array.shape, str(array.dtype))])
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_text_for_several_open_sizes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1 2")
    with pytest.raises(ModelError, match="of which several sizes are open"):
        read_inputs([str(tmp_path / "a.txt")], [Tensor("a", ("n", "m"), "float32")])


def test_times_are_a_result_that_quiet_leaves(
    convoy_command: Command, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_is_quiet", False)
    ran = convoy_command("-q", "run", library, "--iterations", "3")
    assert (ran.code, ran.err) == (0, "")
    assert "median of 3 runs: " in ran.out


def test_times_are_printed_and_samples_are_in_the_json(convoy_command: Command, library: Path) -> None:
    ran = convoy_command("run", library, "--iterations", "12", "--warmup", "2", "--streams", "2", "--json")
    assert ran.code == 0, ran.err
    times = json.loads(ran.out)["latency_ms"]
    assert len(times["samples"]) == 12
    assert min(times["samples"]) <= times["p50"] <= times["p90"] <= times["p99"] <= max(times["samples"])
    assert times["throughput"] > 0
    assert "median of 12 runs: " in ran.err
    assert "runs/s in 2 streams" in ran.err
    quiet = convoy_command("run", library, "--duration", "0.05", "--hint", "throughput", "--pin", "--json")
    assert len(json.loads(quiet.out)["latency_ms"]["samples"]) > 2


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("none.so", "none.so: expected a library, got no such file; check the path"),
        (".", ": expected a library, got a folder; check the path"),
        ("net.onnx", "net.onnx: expected a library, whose name ends in .so, got net.onnx; make one"),
        ("text.so", "text.so: expected a library, got a file of another kind; make one"),
        ("cut.so", "got 1000; copy it here again"),
    ],
)
@pytest.mark.parametrize("command", ["run", "inspect"])
def test_what_is_no_library_is_said(
    command: str, name: str, problem: str, convoy_command: Command, library: Path, tmp_path: Path
) -> None:
    (tmp_path / "net.onnx").touch()
    (tmp_path / "text.so").write_text("no library")
    (tmp_path / "cut.so").write_bytes(library.read_bytes()[:1000])
    result = convoy_command(command, tmp_path / name)
    assert result.code == 1
    (error,) = result.error_lines
    assert problem in error


def test_an_output_that_cannot_be_written_is_said(
    convoy_command: Command, library: Path, tmp_path: Path
) -> None:
    (error,) = convoy_command("run", library, "-o", tmp_path / "y.json").error_lines
    assert "expected a name that ends in .npy, .npz, .pb, .txt, .csv, got y.json; rename it" in error
    assert not (tmp_path / "y.json").exists()
    (error,) = convoy_command("run", library, "-o", tmp_path / "none" / "y.npy").error_lines
    assert "y.npy: expected a file to write, got No such file or directory; name another" in error


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("-o y.npz -o z.npy", "outputs: expected one .npz for all, got more; name the others .npy"),
        ("-o y.npy -o z.npy", "outputs: expected 1 of -o, got 2; give one -o OUT.npy per output"),
        ("-i x.npy --image x.png", "expected -i or --image, got both"),
        ("-i x.npy --shape x=1x3x8x8", "expected -i or --shape, got both; a file has its own shape"),
        ("--mean 0.5", "expected --mean with --image, got no picture"),
        ("--std 0.5", "expected --std with --image, got no picture"),
    ],
)
def test_options_that_do_not_go_together_are_said_before_the_run(
    given: str, problem: str, convoy_command: Command, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(library.parent)
    monkeypatch.setattr(convoy.Runner, "__init__", None)  # nothing is loaded
    ran = convoy_command("run", library, *given.split())
    assert ran.code in (1, 2)
    assert problem in ran.err
    assert not list(library.parent.glob("[yz].np?"))


@pytest.mark.slow
def test_open_sizes_of_random_inputs_are_given(
    convoy_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half the size and twice that are the size only where it is even."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["half"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Resize", ["half", "", "scales"], ["again"], mode="nearest"),
        helper.make_node("Add", ["x", "again"], ["y"]),
    ]
    sides = ["n", 1, "h", 4]
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, sides) for name in "xy"]
    graph = helper.make_graph(nodes, "open", ends[:1], ends[1:], [scales])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    convoy.compile(model).export_library(str(tmp_path / "open.so"))
    monkeypatch.chdir(tmp_path)

    def run(*given: str) -> str:
        ran = convoy_command("run", "open.so", *given)
        return "\n".join(ran.error_lines) or ran.out

    assert "expected all of its sizes, got x: float32 [n, 1, h, 4], which are open in part" in run()
    assert "--shape: expected one of x, got z; see convoy inspect" in run("--shape", "z=1x1x6x4")
    assert "2×1×6×4" in run("--shape", "x=2x1x6x4")
    assert "1×1×6×4" in run("--shape", "x=Nx1x6x4")
    odd = run("--shape", "x=1x1x5x4")
    taken = "expected sizes that the network takes, got"
    assert f"{taken} float32 [1, 1, 5, 4]: where a multiple of 2 is meant, it has 5" in odd
    assert "match_cast" not in odd


@pytest.mark.slow
def test_sizes_that_follow_from_others_need_not_be_given(
    convoy_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["both"], axis=1),
        helper.make_node("Add", ["both", "y"], ["z"]),
    ]
    shapes = {"x": ["n", "t"], "y": ["n", "2*t"], "z": ["n", "2*t"]}
    x, y, z = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in shapes.items())
    graph = helper.make_graph(nodes, "derived", [x, y], [z])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(tmp_path / "derived.onnx"))
    convoy.compile(model).export_library(str(tmp_path / "derived.so"))
    monkeypatch.chdir(tmp_path)
    for given in ("x=3x5", "y=3x10"):
        ran = convoy_command("run", "derived.so", "--shape", given, "--json")
        assert ran.code == 0, ran.err
        assert json.loads(ran.out)["outputs"][0]["shape"] == [3, 10]
        checked = convoy_command("check", "derived.onnx", "--shape", given)
        assert checked.code == 0, checked.err
        assert "3×10" in checked.out


def test_an_error_in_a_stream_ends_all(library: Path) -> None:
    runner, wrong = convoy.load(library), np.zeros((1, 3, 8, 9), np.float32)
    with pytest.raises(
        ModelError, match=r"x: expected float32 \[.*, 3, 8, 8\], got float32 \[1, 3, 8, 9\]; give"
    ):
        measure_requests(lambda: lambda: runner.run([wrong]), Load(streams=3))


def test_the_library_s_example(convoy_command: Command, library: Path, tmp_path: Path) -> None:
    good = convoy_command("run", library, "--check")
    assert good.code == 0, good.err
    assert "the example's error over its largest output: " in good.out
    wrong = tmp_path / "wrong.so"
    x = np.ones((1, 3, 8, 8), np.float32)
    convoy.compile(tiny_model(), example=([x], [np.ones((1, 5))])).export_library(str(wrong))
    bad = convoy_command("run", wrong, "--check")
    assert bad.code == 1
    assert "expected an error of 0.0001 at most" in bad.error_lines[0]


def test_an_archive_holds_outputs_of_any_name(tmp_path: Path) -> None:
    arrays = [np.arange(3.0), np.ones((2, 2), np.int64), np.zeros((), np.float32)]
    write_outputs([tmp_path / "all.npz"], arrays, ["file", "/m/Add_output:0"])
    found = np.load(tmp_path / "all.npz")
    assert found.files == ["file", "/m/Add_output:0", "output_2"]
    for name, array in zip(found.files, arrays, strict=True):
        np.testing.assert_array_equal(found[name], array, strict=True)


def test_an_archive_has_no_room_for_a_very_long_name(tmp_path: Path) -> None:
    path, longest = tmp_path / "all.npz", "é" * 32765 + "x"
    write_outputs([path], [np.ones(1)], [longest])
    assert np.load(path).files == [longest]
    path.unlink()
    with pytest.raises(ModelError, match=r"at most 65531 bytes, got one of 65532; write each output to a"):
        write_outputs([path], [np.ones(1)], [f"{longest}x"])
    assert not path.exists()


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".pb", ".txt"])
def test_inputs_may_come_through_a_pipe(
    suffix: str, library: Path, tmp_path: Path, x: np.ndarray, monkeypatch
) -> None:
    write_outputs([tmp_path / f"file{suffix}"], [x], ["1.x"])
    pipe = tmp_path / f"pipe{suffix}"
    os.mkfifo(pipe)
    data = (tmp_path / f"file{suffix}").read_bytes()
    writer = threading.Thread(target=lambda: pipe.write_bytes(data), daemon=True)
    writer.start()
    tensors = convoy.load(str(library)).inputs
    found = read_inputs([str(pipe)], tensors)
    np.testing.assert_allclose(found[0], x, rtol=1e-6)
    writer.join()
    monkeypatch.setattr(pipes, "PIPE_SECONDS", 0.1)  # the twin: nobody writes
    with pytest.raises(ModelError, match=r"got a pipe into which nobody wrote for 0\.1 s; check the path"):
        read_inputs([str(pipe)], tensors)
