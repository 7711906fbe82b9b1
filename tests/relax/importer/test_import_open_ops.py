"""Ops by sizes that a call brings, against ONNX Runtime at several sizes each, and what a call refuses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load
from pairs import pairs

node = helper.make_node


def build(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[object]]],
    constants: dict[str, object],
    opset: int = 18,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v), n) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


FLOAT, LONG = TensorProto.FLOAT, TensorProto.INT64
SIZE = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "at"], ["length"])]
"""The last size of x, a scalar."""
VECTOR = [*SIZE, node("Unsqueeze", ["length", "first"], ["lengths"])]
BASE = {"at": 1, "first": [0], "two": 2, "twos": [2], "zero": 0, "one": 1, "none": [0, 0], "last": [-1]}

CASES: dict[str, list[onnx.NodeProto]] = {
    "pad by half the length": [
        *VECTOR,
        node("Div", ["lengths", "twos"], ["half"]),
        node("Concat", ["first", "half", "first", "first"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["y"], mode="reflect"),
    ],
    "pad at the edge, crop before": [
        *VECTOR,
        node("Neg", ["twos"], ["less"]),
        node("Concat", ["first", "less", "first", "lengths"], ["pads"], axis=0),
        node("Pad", ["x", "pads"], ["y"], mode="edge"),
    ],
    "slice from the middle": [
        *VECTOR,
        node("Div", ["lengths", "twos"], ["half"]),
        node("Slice", ["x", "half", "lengths", "ones"], ["y"]),
    ],
    "slice backwards": [
        node("Slice", ["x", "last", "least", "ones", "last"], ["a"]),
        node("Slice", ["a", "ones", "last", "ones"], ["y"]),
    ],
    "slice backwards from an element": [
        node("Slice", ["x", "at7", "least", "ones", "last"], ["a"]),
        node("Slice", ["a", "third", "least", "ones", "last"], ["b"]),
        node("Slice", ["x", "first", "least", "ones", "last"], ["c"]),
        node("Concat", ["b", "c"], ["y"], axis=1),
    ],
    "range of floats": [
        *SIZE,
        node("Cast", ["length"], ["f"], to=FLOAT),
        node("Range", ["zerof", "f", "twof"], ["y"]),
    ],
    "tile": [
        *VECTOR,
        node("Concat", ["twos", "lengths"], ["times"], axis=0),
        node("Tile", ["x", "times"], ["y"]),
    ],
    "tile by a number that a shape says": [
        node("Unsqueeze", ["x", "first"], ["deep"]),
        node("Shape", ["deep"], ["single"], start=0, end=1),
        node("Concat", ["single", "twos", "single"], ["times"], axis=0),
        node("Tile", ["deep", "times"], ["y"]),
    ],
    "tile of a single row": [
        *VECTOR,
        node("ReduceMean", ["x", "first"], ["m"]),
        node("Concat", ["lengths", "ones"], ["times"], axis=0),
        node("Tile", ["m", "times"], ["y"]),
    ],
    "rows scattered into every second column": [
        node("Slice", ["x", "first", "beyond", "ones", "twos"], ["a"]),
        node("Slice", ["a", "first", "ones", "first"], ["b"]),
        node("Neg", ["b"], ["c"]),
        node("ScatterND", ["a", "row", "c"], ["y"]),
    ],
    "split": [
        *VECTOR,
        node("Div", ["lengths", "twos"], ["half"]),
        node("Sub", ["lengths", "half"], ["rest"]),
        node("Concat", ["half", "rest"], ["parts"], axis=0),
        node("Split", ["x", "parts"], ["a", "b"], axis=1),
        node("Concat", ["b", "a"], ["y"], axis=1),
    ],
    "the largest half": [
        *VECTOR,
        node("Div", ["lengths", "twos"], ["half"]),
        node("TopK", ["x", "half"], ["y", "places"], axis=1),
    ],
    "one-hot of the length": [
        *SIZE,
        node("Range", ["zero", "length", "one"], ["r"]),
        node("OneHot", ["r", "length", "values"], ["y"]),
    ],
    "a mask of the lower half": [
        *VECTOR,
        node("Concat", ["lengths", "lengths"], ["square"], axis=0),
        node(
            "ConstantOfShape", ["square"], ["ones_"], value=numpy_helper.from_array(np.ones(1, "float32"))
        ),
        node("Trilu", ["ones_"], ["t"], upper=0),
        node("MatMul", ["x", "t"], ["y"]),
    ],
    "above a diagonal by the length": [
        *SIZE,
        node("Div", ["length", "two"], ["half"]),
        node("Unsqueeze", ["x", "first"], ["deep"]),
        node("Expand", ["deep", "twice"], ["many"]),
        node("Trilu", ["many", "half"], ["y"], upper=1),
    ],
    "below a diagonal by the length": [
        *SIZE,
        node("Neg", ["length"], ["less"]),
        node("Add", ["less", "two"], ["back"]),
        node("Expand", ["x", "deeper"], ["many"]),
        node("Trilu", ["many", "back"], ["y"], upper=0),
    ],
    "expand to a length": [
        *VECTOR,
        node("ReduceMean", ["x", "ones"], ["m"]),
        node("Concat", ["ones", "lengths"], ["to"], axis=0),
        node("Expand", ["m", "to"], ["y"]),
    ],
    "a table of places, cut to the length": [
        *VECTOR,
        node("Slice", ["table", "first", "lengths"], ["t"]),
        node("Add", ["x", "t"], ["y"]),
    ],
    "a row of a table at the length": [
        *VECTOR,
        node("Add", ["lengths", "ones"], ["behind"]),
        node("Slice", ["table", "lengths", "behind"], ["t"]),
        node("Add", ["x", "t"], ["y"]),
    ],
}
MORE = {
    "twice": [2, 1, 1],
    "deeper": [4, 1, 1],
    "ones": [1],
    "at7": [7],  # beyond the end of the shorter
    "third": [-3],
    "row": [[0]],
    "beyond": [2**62],
    "least": [-(2**63)],
    "zerof": np.float32(0),
    "twof": np.float32(2),
    "values": np.array([0, 3], "float32"),
    "table": np.arange(64, dtype="float32"),
}


@pytest.mark.parametrize("name", CASES)
def test_by_the_length_of_the_input(name: str, run_tvm, run_onnx, rng) -> None:
    model = build(CASES[name], {"x": (FLOAT, ["n", "t"])}, BASE | MORE)
    module = load(model)
    for shape in ((1, 6), (3, 9)):
        x = rng.standard_normal(shape).astype("float32")
        np.testing.assert_allclose(run_tvm(module, x)[0], run_onnx(model, x)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("kind", [FLOAT, LONG, TensorProto.BOOL])
def test_a_diagonal_that_a_call_brings(kind: int, upper: int, run_tvm, run_onnx) -> None:
    nodes = [
        node("Cast", ["x"], ["a"], to=kind),
        node("Trilu", ["a", "k"], ["b"], upper=upper),
        node("Cast", ["b"], ["y"], to=FLOAT),
    ]
    model = build(nodes, {"x": (FLOAT, ["n", "h", "w"]), "k": (LONG, [])}, {})
    module = load(model)
    x = np.arange(1, 25, dtype="float32").reshape(1, 4, 6)
    for k in (-9, -2, 0, 3, 9):
        diagonal = np.array(k, "int64")
        np.testing.assert_array_equal(run_tvm(module, x, diagonal)[0], run_onnx(model, x, diagonal)[0])


def test_a_call_beyond_the_table_is_refused(run_tvm) -> None:
    model = build(CASES["a table of places, cut to the length"], {"x": (FLOAT, ["n", "t"])}, BASE | MORE)
    with pytest.raises(Exception, match="match_cast error"):
        run_tvm(load(model), np.zeros((1, 65), "float32"))


BOUNDS = {
    "an end behind the axis": [node("Add", ["lengths", "twos"], ["end"])],
    "an end of another axis": [node("Shape", ["x"], ["end"], start=0, end=1)],
    "an end below 0 or at it": [
        node("Div", ["lengths", "twos"], ["half"]),
        node("Neg", ["half"], ["end"]),
    ],
    "an end in front of the axis": [node("Mul", ["lengths", "minus"], ["end"])],
}


@pytest.mark.parametrize("name", BOUNDS)
def test_a_slice_stays_within_its_axis(name: str, run_tvm, run_onnx, rng) -> None:
    # such calls were refused, though ONNX cuts the slice off
    nodes = [
        *VECTOR,
        *BOUNDS[name],
        node("Slice", ["x", "first", "end", "ones"], ["a"]),
        node("Slice", ["x", "end", "far", "ones"], ["b"]),
        node("Concat", ["a", "b"], ["y"], axis=1),
    ]
    constants = BASE | {"ones": [1], "far": [2**62], "minus": [-2]}
    model = build(nodes, {"x": (FLOAT, ["n", "t"])}, constants)
    module = load(model)
    for shape in ((3, 6), (5, 1), (9, 2), (2, 5)):
        x = rng.standard_normal(shape).astype("float32")
        np.testing.assert_array_equal(run_tvm(module, x)[0], run_onnx(model, x)[0])


MAP = ["n", "c", "h", "w"]
MISFITS: dict[str, tuple[onnx.NodeProto, list[object], tuple[int, ...], tuple[int, ...], int]] = {
    "Reshape": (node("Reshape", ["x", "shape"], ["y"]), ["n", "t"], (3, 4), (1, 6), 18),
    "Reshape, more of them": (node("Reshape", ["x", "shape"], ["y"]), ["n", "t"], (2, 6), (4, 4), 18),
    "Reshape, what is left": (node("Reshape", ["x", "rest"], ["y"]), ["n", "t"], (3, 4), (1, 6), 18),
    "DepthToSpace": (node("DepthToSpace", ["x"], ["y"], blocksize=2), MAP, (1, 8, 3, 4), (1, 6, 3, 4), 18),
    "SpaceToDepth": (node("SpaceToDepth", ["x"], ["y"], blocksize=2), MAP, (1, 3, 4, 6), (1, 3, 3, 6), 18),
    "Split": (node("Split", ["x"], ["y", "z"], axis=1), ["n", "t"], (2, 6), (2, 5), 13),
    "Split, parts": (node("Split", ["x", "parts"], ["y", "z"], axis=1), ["n", "t"], (2, 5), (2, 6), 18),
    "Split of old": (
        node("Split", ["x"], ["y", "z"], axis=1, split=[2, 3]),
        ["n", "t"],
        (2, 5),
        (2, 4),
        11,
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_a_call_whose_elements_do_not_fit_ends(name: str, run_tvm, run_onnx, rng) -> None:
    # some read behind the tensor, or wrote there
    made, dims, fits, wrong, opset = MISFITS[name]
    constants = {"shape": [2, 6], "rest": [-1, 4], "parts": [2, 3]}
    model = build([made], {"x": (FLOAT, dims)}, constants, opset)
    module = load(model)
    x = rng.standard_normal(fits).astype("float32")
    np.testing.assert_array_equal(run_tvm(module, x)[0], run_onnx(model, x)[0])
    with pytest.raises(Exception, match="match_cast error"):
        run_tvm(module, np.zeros(wrong, "float32"))


def test_a_reshape_that_always_fits_is_not_checked() -> None:
    nodes = [node("Reshape", ["x", "heads"], ["a"]), node("Reshape", ["a", "back"], ["y"])]
    constants = {"heads": [0, 0, 4, -1], "back": [0, 0, -1]}
    text = load(build(nodes, {"x": (FLOAT, ["n", "t", 32])}, constants)).script()
    assert "match_cast" not in text


@pytest.mark.parametrize("shape", [(2, 3), (1, 1), (1, 3)])
def test_one_element_of_an_open_size_is_expanded_to_a_number(shape, run_tvm, run_onnx, rng) -> None:
    model = build([node("Expand", ["x", "to"], ["y"])], {"x": (FLOAT, ["n", "t"])}, {"to": [2, 1, 3]})
    module, x = load(model), rng.standard_normal(shape).astype("float32")
    np.testing.assert_array_equal(run_tvm(module, x)[0], run_onnx(model, x)[0])
    with pytest.raises(Exception, match="match_cast error"):
        run_tvm(module, np.zeros((2, 4), "float32"))


@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize(
    ("mode", "extra"),
    [("nearest", {"nearest_mode": "floor"}), ("nearest", {}), ("linear", {}), ("cubic", {})],
)
def test_resize_to_the_sizes_of_another(
    mode: str, extra: dict[str, str], coordinates: str, run_tvm, run_onnx, rng
) -> None:
    nodes = [
        node("Shape", ["z"], ["to"], start=2),
        node("Shape", ["x"], ["kept"], end=2),
        node("Concat", ["kept", "to"], ["sizes"], axis=0),
        node("Resize", ["x", "", "", "sizes"], ["r"], mode=mode,
             coordinate_transformation_mode=coordinates, **extra),
        node("Add", ["r", "z"], ["y"]),
    ]  # fmt: skip
    inputs = {"x": (FLOAT, ["n", 2, "h", "w"]), "z": (FLOAT, ["n", 2, "hh", "ww"])}
    model = build(nodes, inputs, {})
    module = load(model)
    shapes = ((1, 2, 3, 5), (1, 2, 7, 11)), ((2, 2, 8, 6), (2, 2, 4, 9)), ((1, 2, 14, 14), (1, 2, 32, 2))
    for small, large in shapes:
        x, z = (rng.standard_normal(s).astype("float32") for s in (small, large))
        np.testing.assert_allclose(run_tvm(module, x, z)[0], run_onnx(model, x, z)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("scaled", "one_op"), [("Mul", True), ("Add", False)])
def test_nearest_pixels_by_sizes_that_are_multiples_are_one_op(scaled: str, one_op: bool) -> None:
    nodes = [
        node("Shape", ["x"], ["from"], start=2),
        node(scaled, ["from", "two"], ["to"]),
        node("Shape", ["x"], ["kept"], end=2),
        node("Concat", ["kept", "to"], ["sizes"], axis=0),
        node("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    ]  # fmt: skip
    model = build(nodes, {"x": (FLOAT, ["n", 2, "h", "w"])}, {"two": np.array([2, 2])})
    assert ("image.resize2d" in load(model).script()) == one_op


@pytest.mark.parametrize(
    "extra",
    [{}, {"mode": "cubic"}, {"mode": "cubic", "exclude_outside": 1}],
    ids=["linear", "cubic", "inside"],
)
@pytest.mark.parametrize("by", ["sizes", "scales"])
def test_antialiasing_of_open_sizes(by: str, extra: dict[str, object], run_tvm, run_onnx, rng) -> None:
    how = {"mode": "linear", "antialias": 1, "axes": [2, 3], **extra}
    constants = (
        {"sizes": np.array([7, 20])} if by == "sizes" else {"scales": np.array([0.4, 1.5], "float32")}
    )
    names = ["x", "", "", "sizes"] if by == "sizes" else ["x", "", "scales"]
    model = build([node("Resize", names, ["y"], **how)], {"x": (FLOAT, ["n", 2, "h", "w"])}, constants)
    module = load(model)
    for shape in ((1, 2, 23, 31), (2, 2, 7, 9), (1, 2, 5, 64)):
        x = rng.standard_normal(shape).astype("float32")
        x[0, 0, 2, 2] = np.inf  # reaches the pixels that weigh it, and no others
        np.testing.assert_allclose(run_tvm(module, x)[0], run_onnx(model, x)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_antialiasing_to_nothing_ends_in_one_line(rng) -> None:
    # the number of taps is a quotient: the process ended
    nodes = [
        node("Shape", ["z"], ["sizes"]),
        node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=1, axes=[2, 3]),
    ]
    model = build(nodes, {"x": (FLOAT, ["n", 2, "h", "w"]), "z": (FLOAT, ["p", "q"])}, {})
    runner = convoy.load(convoy.compile(model))
    x = rng.standard_normal((1, 2, 4, 5)).astype("float32")
    assert runner.run([x, np.zeros((1, 3), "float32")])[0].shape == (1, 2, 1, 3)
    with pytest.raises(ModelError, match="let p be at least 1") as raised:
        runner.run([x, np.zeros((0, 3), "float32")])
    assert "\n" not in str(raised.value)


def test_pixels_outside_of_open_sizes_are_refused_in_one_line() -> None:
    nodes = [
        node("Shape", ["z"], ["sizes"]),
        node("Resize", ["x", "", "", "sizes"], ["y"], mode="cubic", exclude_outside=1),
    ]
    inputs = {"x": (FLOAT, [1, 2, "h", "w"]), "z": (FLOAT, [1, 2, "hh", "ww"])}
    with pytest.raises(ModelError, match=r"Resize.*exclude_outside.*--shape") as raised:
        load(build(nodes, inputs, {}))
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_pyramid_joins_what_has_to_be_equal(run_tvm, run_onnx, rng) -> None:
    # a half of h, twice: 2 · ((h - 1) // 4 + 1) is (h - 1) // 2 + 1 for some heights only
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Conv", ["a", "w"], ["b"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Resize", ["b", "", "scales"], ["u"], mode="nearest",
             coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("ConvTranspose", ["b", "wt"], ["v"], strides=[2, 2]),
        node("Concat", ["u", "a", "v"], ["y"], axis=1),
    ]  # fmt: skip
    constants = {
        "w": rng.standard_normal((2, 2, 3, 3)).astype("float32"),
        "wt": rng.standard_normal((2, 2, 2, 2)).astype("float32"),
        "scales": np.array([1, 1, 2, 2], "float32"),
    }
    model = build(nodes, {"x": (FLOAT, ["n", 2, "h", "w"])}, constants)
    module = load(model)
    for shape in ((1, 2, 16, 8), (2, 2, 12, 4)):
        x = rng.standard_normal(shape).astype("float32")
        np.testing.assert_allclose(run_tvm(module, x)[0], run_onnx(model, x)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(Exception, match="match_cast error"):
        run_tvm(module, np.zeros((1, 2, 10, 8), "float32"))


def test_sizes_of_two_inputs_broadcast_if_one_is_1(run_tvm, run_onnx, rng) -> None:
    model = build(
        [node("Mul", ["x", "z"], ["y"])], {"x": (FLOAT, ["n", "a"]), "z": (FLOAT, ["m", "a"])}, {}
    )
    module = load(model)
    for n, m in ((1, 3), (3, 1), (2, 2)):
        x, z = (rng.standard_normal((k, 4)).astype("float32") for k in (n, m))
        np.testing.assert_allclose(run_tvm(module, x, z)[0], run_onnx(model, x, z)[0], rtol=1e-6)
    with pytest.raises(Exception, match="match_cast error"):
        run_tvm(module, np.zeros((2, 4), "float32"), np.zeros((3, 4), "float32"))


def branch(nodes: Sequence[onnx.NodeProto], name: str, constants: dict[str, object]) -> onnx.GraphProto:
    held = [numpy_helper.from_array(np.array(v), n) for n, v in constants.items()]
    return helper.make_graph(
        nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", FLOAT, None)], held
    )


def test_an_if_runs_the_branch_that_is_taken_alone(run_tvm, run_onnx, rng) -> None:
    # the other one, for a length of 4, could not run
    short = [
        node("Reshape", ["x", "short_to"], ["short_a"]),
        node("MatMul", ["short_a", "short_w"], ["short_y"]),
    ]
    long = [
        node("Shape", ["x"], ["long_s"]),
        node("Reshape", ["x", "long_s"], ["long_a"]),
        node("ReduceMean", ["long_a", "long_axes"], ["long_m"]),
        node("Add", ["long_m", "long_w"], ["long_y"]),
    ]
    weights = rng.standard_normal((4, 3)).astype("float32")
    nodes = [
        node("Equal", ["rate", "four"], ["is"]),
        node(
            "If",
            ["is"],
            ["y"],
            then_branch=branch(short, "short", {"short_to": [-1, 4], "short_w": weights}),
            else_branch=branch(long, "long", {"long_axes": [1], "long_w": weights[:1]}),
        ),
    ]
    model = build(nodes, {"x": (FLOAT, ["n", "t"]), "rate": (LONG, [])}, {"four": 4})
    module = load(model)
    for rate, shape in ((4, (2, 4)), (1, (3, 7))):
        x = rng.standard_normal(shape).astype("float32")
        arguments = x, np.array(rate)
        np.testing.assert_allclose(
            run_tvm(module, *arguments)[0], run_onnx(model, *arguments)[0], rtol=1e-5, atol=1e-6
        )


def test_an_if_that_squeezes_wants_an_axis_of_1(run_tvm, rng) -> None:
    nodes = [
        *SIZE,
        node("Equal", ["length", "one"], ["is"]),
        node(
            "If",
            ["is"],
            ["y"],
            then_branch=branch([node("Squeeze", ["x", "then_a"], ["then_y"])], "then", {"then_a": [1]}),
            else_branch=branch([node("Identity", ["x"], ["else_y"])], "else", {}),
        ),
    ]
    model = build(nodes, {"x": (FLOAT, ["n", "t"])}, BASE)
    module = load(model)
    x = rng.standard_normal((3, 1)).astype("float32")
    np.testing.assert_array_equal(run_tvm(module, x)[0], x[:, 0])
    with pytest.raises(Exception, match="match_cast error"):
        run_tvm(module, np.zeros((3, 2), "float32"))


@pytest.mark.parametrize(("op", "fits"), [("Add", (5, 1)), ("Concat", (5,))])
def test_an_open_size_beside_a_fixed_one_is_checked_at_the_call(op, fits, run_tvm, run_onnx, rng) -> None:
    attributes = {"axis": 1} if op == "Concat" else {}
    nodes = [node(op, ["x", "z"], ["joined"], **attributes), node("Relu", ["joined"], ["y"])]
    model = build(nodes, {"x": (FLOAT, [1, 4, 6, "w"]), "z": (FLOAT, [1, 4, 6, 5])}, {})
    module, z = load(model), rng.standard_normal((1, 4, 6, 5)).astype("float32")
    for width in fits:
        x = rng.standard_normal((1, 4, 6, width)).astype("float32")
        np.testing.assert_array_equal(run_tvm(module, x, z)[0], run_onnx(model, x, z)[0])
    with pytest.raises(Exception, match="match_cast"):
        run_tvm(module, z[..., :4], z)


@pytest.mark.parametrize("wanted", [[3, 4, 0], [0, 7], [5, 0, 0]])
def test_a_zero_that_is_one_makes_a_tensor_without_elements(wanted: list[int], run_tvm) -> None:
    reshape = [node("Reshape", ["x", "wanted"], ["y"], allowzero=1)]
    model = build(reshape, {"x": (FLOAT, ["n", 3, 4])}, {"wanted": wanted}, opset=19)
    assert run_tvm(load(model), np.zeros((0, 3, 4), "float32"))[0].shape == tuple(wanted)
    with pytest.raises(ModelError, match="expected no -1 beside a 0 that is one"):
        load(build(reshape, {"x": (FLOAT, ["n", 3, 4])}, {"wanted": [-1, 0]}, opset=19))


@pytest.mark.parametrize("strides", [[1, 1], [2, 2], [2, 3]])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_of_open_sizes(mode: str, strides: list[int], run_tvm, run_onnx, rng) -> None:
    # with stride 1 it needs no size; else TVM's frontend ended with "Cannot use and / or / not operator"
    pool = node("MaxPool", ["x"], ["y"], kernel_shape=[2, 4], auto_pad=mode, strides=strides)
    model = build([pool], {"x": (FLOAT, [1, 3, "h", "w"])}, {})
    module = load(model)
    for size in ((5, 8), (9, 4), (6, 7), (1, 1)):
        x = rng.standard_normal((1, 3, *size)).astype("float32")
        np.testing.assert_array_equal(run_tvm(module, x)[0], run_onnx(model, x)[0])


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    ("op", "dtype"), [("MaxPool", "int8"), ("MaxPool", "uint8"), ("LpPool", "float32")]
)
def test_same_padding_of_other_pools(mode: str, op: str, dtype: str, run_tvm, run_onnx, rng) -> None:
    pool = node(op, ["x"], ["a"], kernel_shape=[3, 2], auto_pad=mode, strides=[2, 2])
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = build([pool, node("Cast", ["a"], ["y"], to=FLOAT)], {"x": (kind, [1, 3, "h", "w"])}, {})
    module = load(model)
    for size in ((5, 8), (6, 7), (1, 1)):
        x = (rng.standard_normal((1, 3, *size)) * 40 - 60).astype(dtype)
        np.testing.assert_allclose(run_tvm(module, x)[0], run_onnx(model, x)[0], rtol=1e-5, atol=0)


LAST_WINDOWS = [
    {"strides": [2, 3], "pads": [1, 0, 1, 1]},
    {"strides": [3, 3], "pads": [0, 1, 1, 1]},
    {"strides": [4, 3], "dilations": [1, 2]},
]


@pytest.mark.parametrize("attributes", LAST_WINDOWS)
def test_the_last_windows_of_an_lp_pool_of_open_sizes(attributes, run_tvm, run_onnx, rng) -> None:
    # TVM's frontend took the mean of fewer pixels for that of a window, or did not compile
    pool = node("LpPool", ["x"], ["y"], kernel_shape=[3, 2], ceil_mode=1, p=3, **attributes)
    model = build([pool], {"x": (FLOAT, [1, 3, "h", "w"])}, {}, opset=22)
    module = load(model)
    for size in ((8, 6), (9, 7), (10, 9), (11, 8)):
        x = rng.standard_normal((1, 3, *size)).astype("float32")
        expected = run_onnx(model, x)[0]
        np.testing.assert_allclose(run_tvm(module, x)[0], expected, rtol=1e-5, atol=1e-5)


def test_an_output_shape_of_open_sizes_is_refused(run_tvm, run_onnx, rng) -> None:
    # it was passed over
    transposed = node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], output_shape=[10, 12])
    weight = {"w": rng.standard_normal((3, 4, 3, 3)).astype("float32")}
    with pytest.raises(
        ModelError, match="ConvTranspose y: expected known sizes where there is an output_shape"
    ):
        load(build([transposed], {"x": (FLOAT, [1, 3, "h", "w"])}, weight))
    model = build([transposed], {"x": (FLOAT, ["n", 3, 5, 6])}, weight)  # the twin
    x = rng.standard_normal((1, 3, 5, 6)).astype("float32")
    np.testing.assert_allclose(run_tvm(load(model), x)[0], run_onnx(model, x)[0], rtol=1e-4, atol=1e-5)


def test_a_size_named_by_a_number_is_that_number() -> None:
    # so torch writes an axis that was asked to be open and cannot be
    module = load(build([node("Relu", ["x"], ["y"])], {"x": (FLOAT, ["n", "20", "t"])}, {}))
    n, steps, t = module["main"].params[0].ty.shape.values
    assert (str(n), int(steps), str(t)) == ("n", 20, "t")


def test_the_last_of_rows_that_may_be_none_is_one(run_tvm, run_onnx, rng) -> None:
    # pooled / pooled[-1:], where the pool has h // 8 rows: of h = 4 there is no last one
    nodes = [
        node("MaxPool", ["x"], ["pooled"], kernel_shape=[8], strides=[8]),
        node("Slice", ["pooled", "last", "end", "axes"], ["one"]),
        node("Div", ["pooled", "one"], ["y"]),
    ]
    constants = {"last": [-1], "end": [2**63 - 1], "axes": [2]}
    model = build(nodes, {"x": (FLOAT, [1, 3, "h"])}, constants)
    module = load(model)
    for h in (8, 40):
        x = 1 + rng.random((1, 3, h)).astype("float32")
        np.testing.assert_allclose(run_tvm(module, x)[0], run_onnx(model, x)[0], rtol=1e-6)
    with pytest.raises(Exception, match=r"h // 8, axis 2 of max_pool1d pooled, is less than 1"):
        run_tvm(module, np.ones((1, 3, 4), "float32"))


@pytest.mark.parametrize(
    "names",
    [
        ("a.b", "a_b"),
        ("n", "late"),
        ("num_nonzero", "late"),
        ("part_of_2", "x"),
        ("", "x_dim1"),
        ("b", "n_"),
    ],
)
def test_names_of_sizes_are_no_ones_else(names: tuple[str, str], run_onnx) -> None:
    first, second = names
    inputs = {"x": (FLOAT, [2, first or None]), "z": (FLOAT, [2, second])}
    model = build([node("Concat", ["x", "z"], ["y"], axis=1)], inputs, {})
    run = convoy.load(convoy.compile(model)).run
    for widths in ((3, 5), (4, 4), (1, 2), (0, 1)):
        given = [np.arange(2 * width, dtype="float32").reshape(2, width) for width in widths]
        np.testing.assert_array_equal(run(given)[0], run_onnx(model, *given)[0])


@pytest.mark.slow
def test_a_size_called_as_what_a_run_finds_is_given() -> None:
    # two inputs say how long it is, and it may be what the convolutions need
    weights = {"w": np.ones((4, 3, 5, 5), "float32"), "k": np.ones((4, 4, 3, 3), "float32")}
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Conv", ["c", "k"], ["d"], "inner"),
        node("ReduceMean", ["z"], ["m"], keepdims=1),
        node("Add", ["d", "m"], ["y"]),
    ]
    inputs = {"x": (FLOAT, [1, 3, "late", 9]), "z": (FLOAT, [1, 1, "late", 1])}
    run = convoy.load(convoy.compile(build(nodes, inputs, weights, 17))).run
    made = run([np.ones((1, 3, 7, 9), "float32"), np.zeros((1, 1, 7, 1), "float32")])[0]
    np.testing.assert_allclose(made, np.full((1, 4, 1, 3), 75 * 36))
    with pytest.raises(ModelError, match=r"late_ - 6, axis 2 of conv2d inner, is less than 1"):
        run([np.ones((1, 3, 6, 9), "float32"), np.zeros((1, 1, 6, 1), "float32")])


@pytest.mark.parametrize("shared", [False, True])
def test_the_last_of_rows_that_a_call_finds(shared: bool, run_onnx) -> None:
    # found and found[-1:], which is of none none; found / found[-1:], where it is one to broadcast
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Squeeze", ["places", "first"], ["place"]),
        node("Gather", ["x", "place"], ["found"]),
        node("Slice", ["found", "last", "end", "first"], ["one"]),
        node("Div", ["found", "one"], ["y"]) if shared else node("Identity", ["one"], ["y"]),
    ]
    model = build(nodes, {"x": (FLOAT, ["n"])}, {"last": [-1], "end": [2**63 - 1], "first": [0]})
    run = convoy.load(convoy.compile(model)).run
    for found in (3, 1) if shared else (3, 1, 0):
        x = np.zeros(5, "float32")
        x[:found] = np.arange(1, found + 1)
        np.testing.assert_array_equal(run([x])[0], run_onnx(model, x)[0])


@pytest.mark.parametrize(
    ("rows", "fits", "odd"),
    [(3, ([3, 4], [1, 4], [3, 1], [1, 1]), [7, 4]), (1, ([3, 1], [7, 4], [1, 1]), [2, 5])],
)
def test_sizes_that_only_a_call_has_broadcast_or_end_it(rows, fits, odd, run_tvm, run_onnx, rng) -> None:
    model = build(
        [node("Expand", ["x", "wanted"], ["y"])], {"x": (FLOAT, [rows, 4]), "wanted": (LONG, [2])}, {}
    )
    module, x = load(model), rng.standard_normal((rows, 4)).astype("float32")
    for wanted in map(np.array, fits):
        np.testing.assert_array_equal(run_tvm(module, x, wanted)[0], run_onnx(model, x, wanted)[0])
    with pytest.raises(Exception, match="match_cast"):  # which TVM answered with what lies behind x
        run_tvm(module, x, np.array(odd))


def test_factors_of_open_sizes_fit_or_end_the_call(run_tvm, run_onnx, rng) -> None:
    model = build(
        [node("MatMul", ["x", "z"], ["y"])], {"x": (FLOAT, ["n", "k"]), "z": (FLOAT, ["l", "m"])}, {}
    )
    module = load(model)
    x, z = (rng.standard_normal(shape).astype("float32") for shape in ((2, 5), (5, 3)))
    np.testing.assert_allclose(run_tvm(module, x, z)[0], run_onnx(model, x, z)[0], rtol=1e-5, atol=1e-6)
    for odd in ((2, 3), (2, 7)):
        with pytest.raises(Exception, match="match_cast"):
            run_tvm(module, np.ones(odd, "float32"), z)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_the_first_of_infinities_is_chosen(op: str, run_tvm, run_onnx) -> None:
    nodes = [node(op, ["x"], ["at"], axis=-1, keepdims=0), node("Cast", ["at"], ["y"], to=FLOAT)]
    model = build(nodes, {"x": (FLOAT, ["n", "k"])}, {})
    x = np.array([[np.inf] * 3, [-np.inf] * 3, [np.inf, 1, -np.inf]], "float32")
    np.testing.assert_array_equal(run_tvm(load(model), x)[0], run_onnx(model, x)[0])


ONES: dict[str, tuple[onnx.NodeProto, str, int, int]] = {
    "Hardmax": (node("Hardmax", ["x"], ["a"], axis=1), "float32", FLOAT, 18),
    "Hardmax of all axes behind": (node("Hardmax", ["x"], ["a"], axis=1), "float32", FLOAT, 11),
    "EyeLike of floats": (node("EyeLike", ["x"], ["a"], dtype=FLOAT), "int32", TensorProto.INT32, 18),
    "EyeLike above": (node("EyeLike", ["x"], ["a"], k=1), "float32", FLOAT, 18),
}


@pytest.mark.parametrize("name", ONES)
def test_ones_in_open_sizes(name: str, run_onnx, rng) -> None:
    made, dtype, kind, opset = ONES[name]
    shape = ["n", "h"] if made.op_type == "EyeLike" else ["n", "h", "w"]
    model = build([made, node("Cast", ["a"], ["y"], to=FLOAT)], {"x": (kind, shape)}, {}, opset)
    runner = convoy.load(convoy.compile(model))
    for size in [(2, 3, 5), (4, 2, 1)]:
        x = rng.integers(0, 3, size[: len(shape)]).astype(dtype)  # many are equal
        np.testing.assert_array_equal(runner.run([x])[0], run_onnx(model, x)[0])
        if made.op_type == "Hardmax":
            x = np.full(size, -np.inf, "float32")  # of which TVM's argmax finds none
            np.testing.assert_array_equal(runner.run([x])[0], run_onnx(model, x)[0])


def test_parts_of_nothing_are_split_off(run_onnx, rng) -> None:
    nodes = [
        node("Split", ["x", "parts"], ["a", "b", "c"], axis=1),
        node("Concat", ["c", "b", "a"], ["y"], axis=1),
    ]
    model = build(nodes, {"x": (FLOAT, ["n", 5])}, {"parts": [2, 0, 3]})
    x = rng.standard_normal((2, 5)).astype("float32")
    np.testing.assert_array_equal(convoy.load(convoy.compile(model)).run([x])[0], run_onnx(model, x)[0])


def test_powers_of_whole_numbers(run_onnx) -> None:
    nodes = [node("Pow", ["x", "e"], ["p"]), node("Cast", ["p"], ["y"], to=FLOAT)]
    model = build(nodes, {"x": (LONG, ["n"])}, {"e": np.array([2, 3, 0])})
    x = np.array([3, -2, 7])
    np.testing.assert_array_equal(convoy.load(convoy.compile(model)).run([x])[0], run_onnx(model, x)[0])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_remainders_have_the_sign_of_the_divisor(dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [node("Mod", ["x", "z"], ["p"]), node("Cast", ["p"], ["y"], to=TensorProto.FLOAT)]
    model = build(nodes, {"x": (kind, ["n"]), "z": (kind, ["n"])}, {})
    x = np.array([5.5, -5.5, 5.5, -5.5, 3, -3, np.inf, 0], dtype)
    z = np.array([0.75, 0.75, -0.75, -0.75, np.inf, np.inf, 2, -2], dtype)
    with np.errstate(invalid="ignore"):
        wanted = np.mod(x, z).astype("float32")
    np.testing.assert_array_equal(convoy.load(convoy.compile(model)).run([x, z])[0], wanted)


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_any_and_all_of_booleans(op: str, run_onnx) -> None:
    nodes = [node(op, ["x", "axes"], ["p"], keepdims=0), node("Cast", ["p"], ["y"], to=FLOAT)]
    model = build(nodes, {"x": (TensorProto.BOOL, ["n", 2])}, {"axes": [1]}, 20)
    x = np.array([[True, False], [False, False], [True, True]])
    wanted = x.any(1) if op == "ReduceMax" else x.all(1)
    np.testing.assert_array_equal(convoy.load(convoy.compile(model)).run([x])[0], wanted)


@pytest.mark.parametrize(
    ("start", "end", "step"),
    pairs([-1, -2, -7, 3, 2**63 - 1], [-(2**63), -3, 1, 2**63 - 1], [-1, -2]),
)
def test_backwards_between_any_bounds(start: int, end: int, step: int, run_tvm, run_onnx) -> None:
    # a start in front of the axis is its first element; the other axis is cut forwards
    bounds = {"s": [start, 1], "e": [end, 3], "a": [0, 1], "by": [step, 1]}
    model = build([node("Slice", ["x", "s", "e", "a", "by"], ["y"])], {"x": (FLOAT, ["n", "m"])}, bounds)
    module = load(model)
    for shape in ((1, 4), (2, 3), (6, 5)):
        x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
        np.testing.assert_array_equal(run_tvm(module, x)[0], run_onnx(model, x)[0])


@pytest.mark.parametrize("step", [10**12, 2**63 - 1, -(10**12), -(2**63)])
def test_a_step_beyond_the_axis_gives_one_element(step: int, run_tvm) -> None:
    bounds = {"s": [1 if step > 0 else -2], "e": [2**63 - 1], "a": [0], "by": [step]}
    model = build([node("Slice", ["x", "s", "e", "a", "by"], ["y"])], {"x": (FLOAT, ["n", 2])}, bounds)
    x = np.arange(10, dtype="float32").reshape(5, 2)
    np.testing.assert_array_equal(run_tvm(load(model), x)[0], x[[1 if step > 0 else -2]])


@pytest.mark.parametrize("length", ["n", 5])
def test_a_step_of_zero_is_refused(length: str | int) -> None:
    bounds = {"s": [0], "e": [3], "a": [0], "by": [0]}
    model = build([node("Slice", ["x", "s", "e", "a", "by"], ["y"])], {"x": (FLOAT, [length, 2])}, bounds)
    with pytest.raises(ModelError, match=r"^import: .*expected steps forwards or backwards, got \[0\]"):
        load(model)
