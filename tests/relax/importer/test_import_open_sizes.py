"""Open sizes: each is its own, and what cannot run is refused with the ``--shape`` to give."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from tvm import tirx

from convoy.errors import ModelError
from convoy.relax.importer import load

END = {"begin": np.array([0]), "end": np.array([2**31 - 1]), "axes": np.array([0])}
"""Slice[0:] of the images, as TensorFlow's exporter writes it."""


def parse(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> network {text}')
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def sizes(module) -> list[int | str]:
    dims = module["main"].params[0].ty.shape.values
    return [int(d) if isinstance(d, tirx.IntImm) else d.name for d in dims]


@pytest.mark.parametrize("written", [(None, None), ("?", "?"), (-1, -1), ("None", "None"), ("-1", "-1")])
def test_a_size_without_a_name_is_its_own(
    written: tuple[object, object], make_model, run_tvm, run_onnx, rng
) -> None:
    # [-1, 3, ?, ?], as Paddle's exporter writes it: "?" is a name to ONNX
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"]),
        helper.make_node("Flatten", ["p"], ["y"]),
    ]
    weights = {"w": rng.standard_normal((4, 3, 3, 3)).astype("float32")}
    model = make_model(nodes, {"x": ["?" if written[0] == "?" else -1, 3, *written]}, weights)
    module = load(model)
    batch, channels, height, width = sizes(module)
    assert (batch, channels) == ("n", 3)
    assert len({batch, height, width}) == 3
    for shape in ((1, 3, 8, 20), (2, 3, 9, 6)):
        x = rng.standard_normal(shape).astype("float32")
        expected = run_onnx(make_model(nodes, {"x": shape}, weights), x)[0]
        np.testing.assert_allclose(run_tvm(module, x)[0], expected, rtol=1e-4, atol=1e-5)


def test_sizes_that_share_a_name_are_one(make_model) -> None:
    module = load(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["N", 3, "side", "side"]}))
    assert sizes(module) == ["n", 3, "side", "side"]


@pytest.mark.parametrize("end", [2**31 - 1, 2**63 - 1])
@pytest.mark.parametrize("begin", [0, 1, -2])
def test_a_slice_to_the_end_of_an_open_axis_can_run(
    begin: int, end: int, make_model, run_tvm, run_onnx, rng
) -> None:
    # TVM's planner set min(2147483647, n) images aside for the padded ones: std::bad_alloc
    nodes = [
        helper.make_node("Slice", ["x", "begin", "end", "axes"], ["a"]),
        helper.make_node("Pad", ["a", "pads"], ["b"], mode="reflect"),
        helper.make_node("Sigmoid", ["b"], ["c"]),
        helper.make_node("Softmax", ["c"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    ends = {"begin": np.array([begin]), "end": np.array([end]), "axes": END["axes"]}
    model = make_model(nodes, {"x": ["n", 2, 20]}, {**ends, "pads": np.array([0, 0, 3, 0, 0, 3])})
    module = load(model)
    for n in (3, 5):
        x = rng.standard_normal((n, 2, 20)).astype("float32")
        np.testing.assert_allclose(run_tvm(module, x)[0], run_onnx(model, x)[0], rtol=1e-5)


def test_a_tensor_nobody_has_memory_for_is_refused(make_model) -> None:
    # an end so far away that TVM would set 900,000,000 images aside; one at 5 is not refused
    nodes = [helper.make_node("Slice", ["x", "begin", "end", "axes"], ["y"])]

    def sliced(end: int):
        return make_model(nodes, {"x": [None, 3, 224, 224]}, {**END, "end": np.array([end])})

    assert sizes(load(sliced(5))) == ["n", 3, 224, 224]
    with pytest.raises(
        ModelError, match=r"min\(900000000, n\).*; fix the open sizes: --shape x=\?x3x224x224,"
    ):
        load(sliced(900_000_000))


SQUEEZED = """(float[N,3,H,W] x) => (float y) {{ s = Shape (x)
    two = Constant <value_int = 2> () h = Gather (s, two) one = Constant <value_int = 1> ()
    c = Equal (h, one) a = Constant <value_ints = [2]> ()
    z = If (c) <then_branch = yes () => (float[A,B,C] o) {{ o = Squeeze (x, a) }},
        else_branch = no () => (float[D,E,F,G] p) {{ p = Identity (x) }}>
    {read} }}"""
"""How PyTorch's older exporter writes ``x.squeeze(2)``."""
NUMBERS = {
    "squeezed": (
        "(float[N,3,H,W] x) => (float y) { a = Constant <value_ints = [2]> () y = Squeeze (x, a) }",
        2,
    ),
    "of a fed state": (
        """(float[N,3,H] x, float[1,1,4] h) => (float y) {
            ws = Constant <value_ints = [1, 12, 3]> () w = ConstantOfShape <value = float {0.1}> (ws)
            rs = Constant <value_ints = [1, 12, 4]> () r = ConstantOfShape <value = float {0.1}> (rs)
            t = Transpose <perm = [2, 0, 1]> (x) y = GRU <hidden_size = 4> (t, w, r, , , h) }""",
        0,
    ),
    "of a squeeze that a branch asks for": (
        SQUEEZED.format(read="y = Transpose <perm = [0, 2, 1]> (z)"),
        2,
    ),
    "of one of which an axis is kept": (
        SQUEEZED.format(read="r = Constant <value_ints = [0, -1]> () y = Reshape (z, r)"),
        2,
    ),
    "twin: squeezed, and reshaped": (
        SQUEEZED.format(read="r = Constant <value_ints = [-1, 6]> () y = Reshape (z, r)"),
        None,
    ),
    # twins: a size computed of the open one, one that may broadcast, and one that a branch asks for
    "twin: pooled": (
        """(float[N,3,H,W] x) => (float y) { p = MaxPool <kernel_shape = [4, 1], strides = [4, 1]> (x)
            a = Constant <value_ints = [2]> () y = Squeeze (p, a) }""",
        None,
    ),
    "twin: broadcast": (
        """(float[N,3,H,W] x) => (float y) { s = Constant <value_ints = [4, 1]> ()
            b = ConstantOfShape <value = float {1}> (s) y = Add (x, b) }""",
        None,
    ),
    "twin: in a branch": (
        """(float[N,3,H,W] x, bool c) => (float y) { a = Constant <value_ints = [2]> ()
            y = If (c) <then_branch = yes () => (float[N,K,W] o) { s = Squeeze (x, a) o = Neg (s) },
            else_branch = no () => (float[N,L,W] p) { p = ReduceMax <axes = [2], keepdims = 0> (x) } > }""",
        None,
    ),
}


@pytest.mark.parametrize("form", NUMBERS)
def test_a_size_that_has_to_be_one_number_at_every_call_is_that_number(form: str) -> None:
    text, axis = NUMBERS[form]
    found = sizes(load(parse(text)))
    names: list[int | str] = ["n", 3, "H", "W"]
    expected = names[: len(found)]
    if axis is not None:
        expected[axis] = 1
    assert found == expected


def test_axes_that_are_not_said_name_the_sizes_that_may_be_1() -> None:
    with pytest.raises(
        ModelError, match=r"as any of them may be 1, got none beside n, W; fix .*--shape x=\?x3x"
    ):
        load(parse("(float[N,3,4,W] x) => (float y) { y = Squeeze (x) }"))


FOUR_AXES = "(float[n,3,h,4,4,4] x, float[2,3,1,1,1,1] w) => (float[a,b,c,d,e,f] y) { y = Conv (x, w) }"
WINDOWS = """(float[n,3,h,4,4,4] x) => (float[a,b,c,d,e,f] y) {
    y = MaxPool <kernel_shape = [2, 2, 2, 2]> (x) }"""
FED_SCALES = """(float[1,3,h,w] x, float[4] s) => (float[a,b,c,d] y) {
    y = Resize <exclude_outside = 1, mode = "cubic"> (x, , s) }"""


@pytest.mark.parametrize("text", [FOUR_AXES, WINDOWS, FED_SCALES])
def test_sizes_are_not_to_be_fixed_where_that_does_not_help(text: str) -> None:
    # they fail alike with sizes that are known
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    with pytest.raises(ModelError, match="export the model with") as raised:
        load(model)
    assert "--shape" not in str(raised.value)


def test_sizes_are_to_be_fixed_where_that_helps() -> None:
    scale = "s = Constant <value_floats = [1.0, 1.0, 0.6, 0.6]> ()"
    text = f"""(float[1,3,h,w] x) => (float[a,b,c,d] y) {{ {scale}
        y = Resize <exclude_outside = 1, mode = "cubic"> (x, , s) }}"""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 21]> g {text}')
    with pytest.raises(ModelError, match=r"fix the open sizes: --shape x=1x3x\?x\?"):
        load(model)
    load(model, {"x": (1, 3, 20, 30)})
