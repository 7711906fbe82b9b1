"""Indices of a call that lie outside end it, and divisors that are 0, and shapes of other elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, tirx

import convoy
from convoy.deploy.tensors import OUTSIDE, UNLIKE, ZERO
from convoy.relax.importer import load
from convoy.relax.indices import check_indices
from relax.onnx_models import run_onnx

TABLE = np.arange(40, dtype=np.float32).reshape(10, 4)
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}


def make(op: str, inputs: dict[str, tuple[str, list[Any]]], **attributes: Any) -> onnx.ModelProto:
    """One node of TABLE and of inputs that are open."""
    read = list(inputs) if "x" in inputs else ["table", *inputs]
    table = [] if "x" in inputs else [numpy_helper.from_array(TABLE, "table")]
    given = [helper.make_tensor_value_info(n, TYPES[t], s) for n, (t, s) in inputs.items()]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([helper.make_node(op, read, ["y"], **attributes)], "g", given, made, table)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


ROWS = np.ones((2, 4), np.float32)
BOX = np.array([[0, 0, 3, 3]], np.float32)
IMAGE = np.arange(60, dtype=np.float32).reshape(1, 3, 4, 5)
I64 = np.int64
IMAGES = {"x": ("float32", ["n", 3, "h", "w"]), "rois": ("float32", ["k", 4]), "of": ("int64", ["k"])}
OPEN = {"x": ("float32", ["n", 4]), "i": ("int64", ["k", 2])}
CASES = {
    "rows": (make("Gather", {"i": ("int64", ["n"])}), [I64([0, 9, -10])], [I64([0, 10])]),
    "rows before": (make("Gather", {"i": ("int64", ["n"])}), [I64([-1])], [I64([-11])]),
    "one column": (make("Gather", {"i": ("int64", [])}, axis=1), [np.array(3)], [np.array(2**40)]),
    "elements": (
        make("GatherElements", {"i": ("int64", ["n", 4])}),
        [np.full((2, 4), -10)],
        [np.full((2, 4), 10)],
    ),
    "elements of more rows than there are": (
        make("GatherElements", OPEN, axis=1),
        [TABLE[:3], np.full((3, 2), 1)],
        [TABLE[:3], np.full((4, 2), 1)],
    ),
    "places": (make("GatherND", {"i": ("int64", ["n", 2])}), [I64([[9, -4]])], [I64([[3, 4]])]),
    "written elements": (
        make("ScatterElements", {"i": ("int64", ["n", 4]), "u": ("float32", ["n", 4])}),
        [I64([[0] * 4, [-10] * 4]) + I64([[0], [1]]), ROWS],
        [np.full((2, 4), 10), ROWS],
    ),
    "fewer updates than indices": (
        make("ScatterElements", {**OPEN, "u": ("float32", ["l", 2])}, axis=1),
        [TABLE[:3], I64([[0, 1]]), ROWS[:1, :2]],
        [TABLE[:3], I64([[0, 1], [1, 2]]), ROWS[:1, :2]],
    ),
    "written rows": (
        make("ScatterND", {"i": ("int64", ["n", 1]), "u": ("float32", ["n", 4])}),
        [I64([[9], [-10]]), ROWS],
        [I64([[0], [-11]]), ROWS],
    ),
    "boxes of an image": (
        make("RoiAlign", IMAGES, output_height=2, output_width=2),
        [IMAGE, BOX, I64([0])],
        [IMAGE, BOX, I64([1])],
    ),
    "boxes without corners": (
        make("RoiAlign", IMAGES, output_height=2, output_width=2),
        [IMAGE, BOX, I64([0])],
        [IMAGE, BOX * np.float32(np.nan), I64([0])],
    ),
    "chosen rows": (
        make("Compress", {"c": ("bool", ["n"])}, axis=0),
        [np.array([True] * 10)],
        [np.array([True] * 11)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_lies_inside_is_answered_and_what_does_not_is_refused(case: str) -> None:
    model, inside, outside = CASES[case]
    machine = relax.VirtualMachine(convoy.compile(model, threads=1), tvm.cpu())
    (wanted,) = run_onnx(model, *inside)
    got = machine["main"](*map(tvm.runtime.tensor, inside)).numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    with pytest.raises(RuntimeError, match=OUTSIDE):
        machine["main"](*map(tvm.runtime.tensor, outside))
    np.testing.assert_array_equal(machine["main"](*map(tvm.runtime.tensor, inside)).numpy(), got)


def test_a_constant_index_of_a_size_that_is_open_is_checked() -> None:
    model = make("Gather", {"x": ("float32", ["n", "k"]), "i": ("int64", [1])}, axis=1)
    del model.graph.input[1]
    model.graph.initializer.append(numpy_helper.from_array(I64([3]), "i"))
    machine = relax.VirtualMachine(convoy.compile(model, threads=1), tvm.cpu())
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(TABLE)).numpy(), TABLE[:, 3:])
    with pytest.raises(RuntimeError, match=OUTSIDE):
        machine["main"](tvm.runtime.tensor(TABLE[:, :3].copy()))


def test_constants_inside_of_sizes_that_are_known_cost_and_say_nothing(capfd) -> None:
    model = make("Gather", {"x": ("float32", ["n", 4]), "i": ("int64", [1])}, axis=1)
    del model.graph.input[1]
    model.graph.initializer.append(numpy_helper.from_array(I64([3]), "i"))
    assert "check_indices" not in check_indices()(load(model)).script()
    convoy.compile(model, threads=1)
    assert capfd.readouterr().err == ""  # TVM warns of places that it takes on trust


@pytest.mark.parametrize(("case", "apart"), [("rows", False), ("elements", False), ("places", True)])
def test_what_counts_from_the_end_of_a_known_size_is_found_in_the_check(case: str, apart: bool) -> None:
    # where(i < 0, i + 10, i), checked  =>  one pass over the indices
    live = relax.transform.DeadCodeElimination()(check_indices()(load(CASES[case][0]))).script()
    assert "check_indices" in live
    assert ("R.where" in live) == apart


def test_a_runner_says_it_in_one_line(tmp_path) -> None:
    model, inside, outside = CASES["rows"]
    library = tmp_path / "rows.so"
    convoy.compile(model, threads=1).export_library(str(library))
    runner = convoy.load(library)
    assert runner.run(inside)[0].shape == (3, 4)
    with pytest.raises(convoy.errors.ModelError, match=f"^run: main: {OUTSIDE}; give others$"):
        runner.run(outside)


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_a_call_that_divides_by_0_ends(op: str) -> None:
    # it ended the process: SIGFPE
    nodes = [helper.make_node(op, ["i", "j"], ["z"]), helper.make_node("Cast", ["z"], ["y"], to=1)]
    model = make(op, {"i": ("int64", ["n"]), "j": ("int64", ["n"])})
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    machine = relax.VirtualMachine(convoy.compile(model, threads=1), tvm.cpu())
    whole = [I64([7, -7, 7, -7]), I64([3, 3, -3, -3])]
    got = machine["main"](*map(tvm.runtime.tensor, whole)).numpy()
    np.testing.assert_array_equal(got, run_onnx(model, *whole)[0])
    with pytest.raises(RuntimeError, match=ZERO):
        machine["main"](*map(tvm.runtime.tensor, (whole[0], whole[1] * 0)))


@pytest.mark.slow
def test_a_slice_in_steps_of_0_ends() -> None:
    given = {"x": ("float32", ["n", 4]), **{name: ("int64", [1]) for name in ("s", "e", "a", "t")}}
    model = make("Slice", given)
    del model.graph.input[3]
    model.graph.initializer.append(numpy_helper.from_array(I64([0]), "a"))
    machine = relax.VirtualMachine(convoy.compile(model, threads=1), tvm.cpu())
    cut = [TABLE, I64([1]), I64([9]), I64([3])]
    got = machine["main"](*map(tvm.runtime.tensor, cut)).numpy()
    np.testing.assert_array_equal(got, TABLE[1:9:3])
    with pytest.raises(RuntimeError, match=ZERO):
        machine["main"](*map(tvm.runtime.tensor, (*cut[:3], I64([0]))))


@pytest.mark.parametrize("op", ["Div", "Mod"])
@pytest.mark.parametrize("fixed", [False, True], ids=["fed", "constant"])
def test_the_lowest_number_is_divided_by_minus_1(op: str, fixed: bool) -> None:
    # it ended the process: SIGFPE, in ONNX Runtime, too
    model = make(op, {"i": ("int64", ["n"]), "j": ("int64", [4])})
    del model.graph.node[:]
    nodes = [helper.make_node(op, ["i", "j"], ["y"])]
    model.graph.node.extend(nodes)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    i, j = I64([-(2**63), -7, -(2**63), 2**63 - 1]), I64([-1, -1, 1, -1])
    if fixed:
        del model.graph.input[-1]
        model.graph.initializer.append(numpy_helper.from_array(j, "j"))
    machine = relax.VirtualMachine(convoy.compile(model, threads=1), tvm.cpu())
    got = machine["main"](*map(tvm.runtime.tensor, [i] if fixed else [i, j])).numpy()
    wanted = [-(2**63), 7, -(2**63), -(2**63) + 1] if op == "Div" else [0] * 4
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("op", ["index_tensor", "index_put"])
def test_indices_of_each_axis(op: str) -> None:
    x = relax.Var("x", relax.TensorType((10, 4), "float32"))
    rows, columns = (relax.Var(name, relax.TensorType((2,), "int64")) for name in "ij")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, rows, columns]):
        at = relax.Tuple([rows, columns])
        if op == "index_put":
            made = relax.op.index_put(x, at, relax.const(np.float32([-1, -2])))
        else:
            made = relax.op.index_tensor(x, at)
        builder.emit_func_output(builder.emit(made))
    machine = relax.VirtualMachine(convoy.compile(builder.get(), threads=1), tvm.cpu())
    i, j = I64([9, -10]), I64([-4, 3])
    wanted = TABLE[i, j]
    if op == "index_put":
        wanted = TABLE.copy()
        wanted[i, j] = [-1, -2]
    feeds = [(i, j), (I64([10, 0]), j), (i, I64([0, -5]))]
    got = machine["main"](*map(tvm.runtime.tensor, (TABLE, *feeds[0]))).numpy()
    np.testing.assert_array_equal(got, wanted)
    for outside in feeds[1:]:
        with pytest.raises(RuntimeError, match=OUTSIDE):
            machine["main"](*map(tvm.runtime.tensor, (TABLE, *outside)))


def test_a_reshape_to_more_elements_than_there_are() -> None:
    # it read behind them, and one to fewer wrote behind its result
    n, m, k = (tirx.Var(name, "int64") for name in "nmk")
    x, like = (relax.Var(name, relax.TensorType(s, "float32")) for name, s in (("x", (n, m)), ("y", (k,))))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, like]):
        made = builder.emit(relax.op.reshape(x, relax.ShapeExpr([k])))
        builder.emit_func_output(builder.emit(relax.op.add(made, like)))
    machine = relax.VirtualMachine(convoy.compile(builder.get(), threads=1), tvm.cpu())
    got = machine["main"](*map(tvm.runtime.tensor, (TABLE[:3], np.zeros(12, np.float32)))).numpy()
    np.testing.assert_array_equal(got, TABLE[:3].ravel())
    for count in (11, 13):
        with pytest.raises(RuntimeError, match=UNLIKE):
            machine["main"](*map(tvm.runtime.tensor, (TABLE[:3], np.zeros(count, np.float32))))


def test_a_reshape_from_sizes_of_which_tvm_takes_the_right_ones_for_wrong() -> None:
    # its simplifier holds 20 w == 160 for false where a tensor is of [2, 10 w - 20]
    w = tirx.Var("w", "int64")
    like, x = (
        relax.Var(name, relax.TensorType(s, "float32"))
        for name, s in (("y", (w,)), ("x", (2, w * 10 - 20)))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [like, x]):
        builder.emit_func_output(builder.emit(relax.op.reshape(x, (2, 5, 12))))
    machine = relax.VirtualMachine(convoy.compile(builder.get(), threads=1), tvm.cpu())

    def run(count: int) -> Any:
        data = np.arange(2 * (10 * count - 20), dtype=np.float32).reshape(2, -1)
        return machine["main"](*map(tvm.runtime.tensor, (np.zeros(count, np.float32), data))).numpy()

    np.testing.assert_array_equal(run(8).ravel(), np.arange(120))
    for count in (7, 9):
        with pytest.raises(RuntimeError, match=UNLIKE):
            run(count)


@pytest.mark.parametrize("size", [[], [1]], ids=["a number", "a constant of more axes"])
def test_what_counts_from_the_end_keeps_its_axes(size: list[int]) -> None:
    # where(i < 0, i + [10], i) of one index is a row of one
    x, i = (
        relax.Var(n, relax.TensorType(s, t)) for n, s, t in (("x", (10, 4), "float32"), ("i", (), "int64"))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x, i]):
        with builder.dataflow():
            less = builder.emit(relax.op.less(i, relax.const(np.zeros(size, I64), "int64")))
            plus = builder.emit(relax.op.add(i, relax.const(np.full(size, 10, I64), "int64")))
            where = builder.emit(relax.op.where(less, plus, i))
            y = builder.emit_output(relax.op.take(x, where, axis=0, mode="fast"))
        builder.emit_func_output(y)
    machine = relax.VirtualMachine(convoy.compile(builder.get(), threads=1), tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(TABLE), tvm.runtime.tensor(np.array(-3))).numpy()
    np.testing.assert_array_equal(got, TABLE[np.full(size, 7)])
