"""Ops that TVM's frontend lacks or cannot convert, written out in simpler ones; against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import bodies, load
from convoy.relax.importer.read import read
from convoy.report.decision import Report


def make(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 23]> {text}')


def agree(model: onnx.ModelProto, run_tvm, run_onnx, *arrays: np.ndarray) -> None:
    found = run_tvm(load(model), *arrays)
    for got, wanted in zip(found, run_onnx(model, *arrays), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_attention_is_written_out_as_onnx_defines_it(run_tvm, run_onnx, rng, count_ops) -> None:
    model = make(
        """network (float[2,4,6,8] q, float[2,2,5,8] k, float[2,2,5,8] v, float[6,5] mask)
            => (float[2,4,6,8] y) {
            y = Attention <is_causal = 1> (q, k, v, mask)
        }"""
    )
    assert count_ops(load(model))["nn.softmax"] == 1
    arrays = [
        rng.standard_normal(s, np.float32) for s in ((2, 4, 6, 8), (2, 2, 5, 8), (2, 2, 5, 8), (6, 5))
    ]
    agree(model, run_tvm, run_onnx, *arrays)


def test_an_input_left_out_in_the_middle_hinders_no_body(run_tvm, run_onnx, rng) -> None:
    model = make(
        """network (float[1,2,3,8] q, float[1,2,4,8] k, float[1,2,4,8] v,
            float[1,2,2,8] pk, float[1,2,2,8] pv)
            => (float[1,2,3,8] y, float[1,2,6,8] nk, float[1,2,6,8] nv) {
            y, nk, nv = Attention (q, k, v, , pk, pv)
        }"""
    )
    shapes = [(1, 2, n, 8) for n in (3, 4, 4, 2, 2)]
    agree(model, run_tvm, run_onnx, *(rng.standard_normal(s, np.float32) for s in shapes))


@pytest.mark.parametrize("shape", [(), (1,), (1, 6), (4, 6)], ids=str)
def test_layer_norm_takes_a_scale_that_broadcasts(shape, run_tvm, run_onnx, rng) -> None:
    model = make(
        "network (float[2,4,6] x) => (float[2,4,6] y) { y = LayerNormalization <axis = 1> (x, g, b) }"
    )
    for name in "gb":
        model.graph.initializer.append(
            numpy_helper.from_array(rng.standard_normal(shape, np.float32), name)
        )
    found = run_tvm(load(model), x := rng.standard_normal((2, 4, 6), np.float32))
    centered = x - x.mean((1, 2), keepdims=True)
    normal = centered / np.sqrt((centered**2).mean((1, 2), keepdims=True) + 1e-5)
    scale, shift = (numpy_helper.to_array(t) for t in model.graph.initializer)
    np.testing.assert_allclose(found[0], normal * scale + shift, rtol=1e-4, atol=1e-5)


SCALES = {
    "one for all": (["n", "c"], -1, (1,), None),
    "one for all, and a shift": (["n", "c"], -1, (1,), (1,)),
    "of two axes, the first open": (["n", "c", 4], 1, (4,), (1, 4)),
    "of two axes, the last open": (["n", 3, "c"], 1, (3, 1), (1, 1)),
    "the first axis": (["n", 3], 0, (3,), (1,)),
}


@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("case", SCALES)
def test_a_scale_broadcasts_along_open_axes(case, op: str, make_model, run_tvm, run_onnx, rng) -> None:
    # TVM failed to compile it, in its own words
    dims, axis, *shapes = SCALES[case]
    shapes = [shape for shape in shapes[: 1 + (op == "LayerNormalization")] if shape]
    scales = {name: rng.standard_normal(s, np.float32) for name, s in zip("gb", shapes, strict=False)}
    node = helper.make_node(op, ["x", *scales], ["y"], axis=axis)
    model = make_model([node], {"x": dims}, scales, opset=23)
    x = rng.standard_normal([{"n": 2, "c": 5}.get(d, d) for d in dims]).astype(np.float32)
    np.testing.assert_allclose(run_tvm(load(model), x)[0], run_onnx(model, x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [17, 18])
def test_a_body_is_of_the_opset_of_the_model(opset: int, make_model, run_tvm, run_onnx, rng) -> None:
    # a scale that a call gives, no shift: the mean of opset 18 was read as that of 17, of all axes
    node = helper.make_node("LayerNormalization", ["x", "g"], ["y"])
    model = make_model([node], {"x": ["n", "c"], "g": ["d"]}, opset=opset)
    for length in (1, 5):
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 5), (length,))]
        agree(model, run_tvm, run_onnx, *arrays)


@pytest.mark.parametrize(
    ("op", "opset", "inputs"),
    [("LayerNormalization", 17, 1), ("LayerNormalization", 18, 2), ("Softmax", 13, 1)],
)
def test_axes_are_where_the_opset_has_them(op: str, opset: int, inputs: int, make_model) -> None:
    node = helper.make_node(op, ["x", "g"][: 1 + (op != "Softmax")], ["y"])
    model = read(make_model([node], {"x": [2, 6]}, {"g": np.ones(6, "float32")}, opset=opset))
    assert bodies.write_out(model, {op})
    found = [len(node.input) for node in model.graph.node if node.op_type in ("ReduceMean", "ReduceMax")]
    assert found
    assert set(found) == {inputs}


def test_a_layer_norm_that_tvm_converts_stays_one_op(make_model, count_ops) -> None:
    node = helper.make_node("LayerNormalization", ["x", "g"], ["y"])
    module = load(make_model([node], {"x": [2, 4, 6]}, {"g": np.ones(6, "float32")}))
    assert count_ops(module)["nn.layer_norm"] == 1


def test_what_cannot_be_converted_either_way_is_refused_as_it_was_written(make_model) -> None:
    node = helper.make_node("StringNormalizer", ["x"], ["y"], "names")
    model = make_model([node], {"x": [2]})
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(
        ModelError, match="StringNormalizer names: expected ops that TVM's ONNX frontend knows"
    ):
        load(model)


BRANCH = """
    network (float[2,3] x) => (float[2,3] y)
    <bool on = {%d}, float[3] k = {1, 2, 3}> {
        y = If (on) <
            then_branch = g1 () => (float[2,3] a) <float[3] two = {2, 2, 2}> {
                s = Mul (x, two)
                a = Add (s, k)
            },
            else_branch = g2 () => (float[2,3] b) { b = Sub (x, k) }
        >
    }"""


@pytest.mark.parametrize("on", [0, 1])
def test_a_branch_of_a_constant_condition_is_taken(on: int, run_tvm, run_onnx, rng, count_ops) -> None:
    model = make(BRANCH % on)
    assert set(count_ops(load(model))) == ({"multiply", "add"} if on else {"subtract"})
    agree(model, run_tvm, run_onnx, rng.standard_normal((2, 3), np.float32))


LOOP = """
    network (float[3] x, int64 given) => (float[3] y, float[n,3] rows)
    <int64 count = {4}, bool on = {1}> {
        y, rows = Loop (COUNT, on, x) <
            body = step (int64 i, bool go, float[3] state) => (bool more, float[3] next, float[3] row) {
                at = Cast <to = 1> (i)
                next = Mul (state, at)
                row = Add (next, x)
                more = Identity (go)
            }
        >
    }"""


def test_a_loop_of_a_known_count_is_written_out(run_tvm, run_onnx, rng) -> None:
    model = make(LOOP.replace("COUNT", "count").replace(", int64 given", ""))
    agree(model, run_tvm, run_onnx, rng.standard_normal(3, np.float32))


def test_a_loop_of_a_count_that_is_fed_is_called(run_tvm, run_onnx, rng) -> None:
    model = make(LOOP.replace("COUNT", "given"))
    for count in (1, 4):
        agree(model, run_tvm, run_onnx, rng.standard_normal(3, np.float32), np.array(count))


def test_a_loop_too_long_to_write_out_is_called() -> None:
    long = LOOP.replace("COUNT", "count").replace(", int64 given", "").replace("{4}", "{9000000000}")
    assert any(var.name_hint.startswith("run") for var in load(make(long)).get_global_vars())


@pytest.mark.parametrize("back", [0, 1])
def test_a_scan_is_written_out_along_its_axis(back: int, run_tvm, run_onnx, rng) -> None:
    model = make(
        f"""network (float[2] s, float[2,5] x) => (float[2] last, float[2,5] sums) {{
            last, sums = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [{back}],
                scan_output_axes = [-1], body = step (float[2] a, float[2] b) => (float[2] c, float[2] d) {{
                c = Add (a, b)
                d = Tanh (c)
            }}> (s, x)
        }}"""
    )
    agree(
        model,
        run_tvm,
        run_onnx,
        rng.standard_normal(2, np.float32),
        rng.standard_normal((2, 5), np.float32),
    )


@pytest.mark.parametrize("opset", [18, 21])
def test_group_norm_of_opset_18_has_a_scale_for_each_group(opset: int, make_model, run_tvm, rng) -> None:
    sizes = 2 if opset < 21 else 6
    scale, shift = rng.standard_normal((2, sizes), np.float32)
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2, epsilon=1e-3)
    model = make_model([node], {"x": [2, 6, 5, 3]}, {"s": scale, "b": shift}, opset=opset)
    (found,) = run_tvm(load(model), x := rng.standard_normal((2, 6, 5, 3), np.float32))
    rows = x.reshape(2, 2, -1)
    normal = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-3)
    each = 6 // sizes
    wanted = normal.reshape(x.shape) * scale.repeat(each)[:, None, None] + shift.repeat(each)[:, None, None]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_group_norm_of_opset_18_is_one_kernel(make_model) -> None:
    norm = helper.make_node("GroupNormalization", ["c", "s", "b"], ["y"], num_groups=2)
    conv = helper.make_node("Conv", ["x", "w"], ["c"])
    constants = {
        "s": np.array([2, 3], "float32"),
        "b": np.array([4, 5], "float32"),
        "w": np.ones((32, 8, 3, 3), "float32"),
    }
    report = Report()
    convoy.compile(make_model([conv, norm], {"x": [1, 8, 40, 40]}, constants, opset=18), report=report)
    (region,) = report.regions
    assert set(region.ops) - {"pad", "pack", "unpack"} == {"conv2d", "group_norm"}


def test_the_first_body_too_counts_among_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("network (float[3,4] x) => (float[3,4] y) { y = LpNormalization (x) }")
    monkeypatch.setattr(bodies, "_MOST_NODES", 9)  # one node, and a body of eight
    load(model)
    monkeypatch.setattr(bodies, "_MOST_NODES", 8)
    with pytest.raises(ModelError, match="expected ops that TVM's ONNX frontend knows, got LpNorm"):
        load(model)
