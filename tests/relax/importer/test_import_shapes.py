"""Open dimensions and shape arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper
from tvm import relax, tirx

from convoy.relax.importer import load
from convoy.report.decision import Report
from relax.onnx_models import make_model

SHAPE_OPS = {
    "shape_of",
    "shape_to_tensor",
    "tensor_to_shape",
    "take",
    "where",
    "call_tir",
    "scatter_elements",
}


def shape_of(module, index: int = 0) -> list[int | str]:
    dims = module["main"].params[index].ty.shape.values
    return [int(d) if isinstance(d, tirx.IntImm) else d.name for d in dims]


def shuffle_nodes() -> list:
    """x.view(n, 2, c // 2, h, w).transpose(1, 2).view(n, -1, h, w), as torch.onnx writes it."""
    nodes = [helper.make_node("Shape", ["x"], ["s"])]
    for i, name in enumerate("nchw"):
        nodes.append(helper.make_node("Gather", ["s", f"i{i}"], [name], axis=0))
        nodes.append(helper.make_node("Unsqueeze", [name, "zero"], [f"{name}1"]))
    return [
        *nodes,
        helper.make_node("Div", ["c", "two"], ["half"]),
        helper.make_node("Unsqueeze", ["half", "zero"], ["half1"]),
        helper.make_node("Concat", ["n1", "two1", "half1", "h1", "w1"], ["five"], axis=0),
        helper.make_node("Reshape", ["x", "five"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Concat", ["n1", "minus1", "h1", "w1"], ["four"], axis=0),
        helper.make_node("Reshape", ["b", "four"], ["y"]),
    ]


SHUFFLE_CONSTANTS = {
    **{f"i{i}": np.array(i, "int64") for i in range(4)},
    "zero": np.array([0], "int64"),
    "two": np.array(2, "int64"),
    "two1": np.array([2], "int64"),
    "minus1": np.array([-1], "int64"),
}


def test_exported_channel_shuffle_is_two_reshapes_and_a_transpose(
    make_model, run_tvm, run_onnx, count_ops, rng
) -> None:
    model = make_model(shuffle_nodes(), {"x": [2, 6, 4, 5]}, SHUFFLE_CONSTANTS)
    module = load(model)
    assert count_ops(module) == {"reshape": 2, "permute_dims": 1}
    x = rng.standard_normal((2, 6, 4, 5)).astype("float32")
    np.testing.assert_array_equal(run_tvm(module, x)[0], run_onnx(model, x)[0])


def test_exported_channel_shuffle_of_an_open_batch(make_model, run_tvm, run_onnx, count_ops, rng) -> None:
    model = make_model(shuffle_nodes(), {"x": ["batch", 6, 4, 5]}, SHUFFLE_CONSTANTS)
    module = load(model)
    assert count_ops(module) == {"reshape": 2, "permute_dims": 1}
    assert shape_of(module) == ["n", 6, 4, 5]
    result = module["main"].ret_ty.shape.values
    assert result[0].same_as(module["main"].params[0].ty.shape.values[0])
    for n in (1, 3):
        x = rng.standard_normal((n, 6, 4, 5)).astype("float32")
        np.testing.assert_array_equal(run_tvm(module, x)[0], run_onnx(model, x)[0])


def test_flatten_by_shape_keeps_an_open_batch(make_model, run_tvm, rng, count_ops) -> None:
    # x.view(x.size(0), -1)
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "minus1"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
    ]
    constants = {"zero": np.array([0], "int64"), "minus1": np.array([-1], "int64")}
    module = load(make_model(nodes, {"x": [None, 3, 2, 2]}, constants))
    assert count_ops(module) == {"reshape": 1}
    x = rng.standard_normal((3, 3, 2, 2)).astype("float32")
    np.testing.assert_array_equal(run_tvm(module, x)[0], x.reshape(3, 12))


def test_inputs_share_the_symbol_of_the_batch(make_model) -> None:
    model = make_model([helper.make_node("Add", ["a", "b"], ["y"])], {"a": ["N", 4], "b": ["N", 4]})
    module = load(model)
    assert shape_of(module, 0) == shape_of(module, 1) == ["n", 4]
    a, b = (p.ty.shape.values[0] for p in module["main"].params)
    assert a.same_as(b)


def test_unnamed_dimensions_are_not_taken_for_equal(make_model) -> None:
    # two open, unnamed axes of one input: TVM's frontend would give both one symbol
    module = load(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": [1, 3, None, None]}))
    dims = shape_of(module)
    assert dims[:2] == [1, 3]
    assert dims[2] != dims[3]


def test_other_open_dimensions_stay_open(make_model) -> None:
    module = load(
        make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["N", 3, "height", "wide-th"]})
    )
    assert shape_of(module) == ["n", 3, "height", "wide_th"]


def test_shapes_fixes_open_dimensions(make_model) -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["N", 3, "h", "w"]})
    assert shape_of(load(model, shapes={"x": (2, 3, 16, 24)})) == [2, 3, 16, 24]


def test_shapes_may_leave_a_dimension_as_it_is(make_model) -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["N", 3, "h", "w"]})
    assert shape_of(load(model, shapes={"x": (None, None, 16, 24)})) == ["n", 3, 16, 24]


def test_batch_stays_open_through_every_idiom(make_model, count_ops, run_tvm, run_onnx, rng) -> None:
    constants = {
        "w": rng.standard_normal((4, 3, 3, 3)).astype("float32"),
        "b": rng.standard_normal(4).astype("float32"),
        "zero": np.float32(0),
        "six": np.float32(6),
        "fc": rng.standard_normal((5, 4)).astype("float32"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c", "zero", "six"], ["r"]),
        helper.make_node("Sigmoid", ["r"], ["g"]),
        helper.make_node("Mul", ["r", "g"], ["s"]),
        helper.make_node("Sum", ["s", "r", "c"], ["t"]),
        helper.make_node("HardSwish", ["t"], ["h"]),
        helper.make_node("GlobalAveragePool", ["h"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "fc"], ["y"], transB=1),
    ]
    model = make_model(nodes, {"x": ["batch", 3, 6, 6]}, constants)
    module = load(model)
    ops = count_ops(module)
    assert not SHAPE_OPS & set(ops), ops
    assert ops["nn.silu"] == 1
    assert ops["matmul"] == 1
    (n,) = {d for d in module["main"].params[0].ty.shape.values if isinstance(d, tirx.Var)}
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            assert binding.var.ty.shape.values[0].same_as(n)
    x = rng.standard_normal((2, 3, 6, 6)).astype("float32")
    np.testing.assert_allclose(run_tvm(module, x)[0], run_onnx(model, x)[0], rtol=1e-4, atol=1e-5)


def test_constant_of_shape_weights_become_constants(make_model, count_ops) -> None:
    value = numpy_helper.from_array(np.array([0.5], "float32"))
    nodes = [
        helper.make_node("ConstantOfShape", ["dims"], ["w"], value=value),
        helper.make_node("Conv", ["x", "w"], ["y"]),
    ]
    model = make_model(nodes, {"x": [1, 3, 8, 8]}, {"dims": np.array([4, 3, 3, 3], "int64")}, opset=9)
    module = load(model)
    assert count_ops(module) == {"nn.conv2d": 1}
    (call,) = [b.value for block in module["main"].body.blocks for b in block.bindings][:1]
    np.testing.assert_array_equal(call.args[1].value.numpy(), np.full((4, 3, 3, 3), 0.5, "float32"))


@pytest.mark.parametrize("opset", [7, 9, 10, 11])
def test_old_opsets_are_converted(make_model, run_tvm, run_onnx, rng, opset: int) -> None:
    clip = (
        helper.make_node("Clip", ["p"], ["y"], min=0.0, max=0.5)
        if opset < 11
        else helper.make_node("Clip", ["p", "low", "high"], ["y"])
    )
    constants = {"low": np.float32(0), "high": np.float32(0.5)} if opset >= 11 else {}
    pool = helper.make_node("AveragePool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2])
    model = make_model([pool, clip], {"x": [1, 3, 8, 8]}, constants, opset=opset)
    x = rng.standard_normal((1, 3, 8, 8)).astype("float32")
    np.testing.assert_allclose(run_tvm(load(model), x)[0], run_onnx(model, x)[0], rtol=1e-5, atol=1e-6)


def test_model_onnx_cannot_convert_is_imported_as_it_is(make_model, count_ops, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("no adapter for Clip")

    monkeypatch.setattr("onnx.version_converter.convert_version", refuse)
    report = Report()
    clip = helper.make_node("Clip", ["x"], ["y"], min=0.0, max=6.0)
    module = load(make_model([clip], {"x": [1, 3]}, opset=9), report=report)
    assert count_ops(module) == {"clip": 1}
    (decision,) = report.decisions
    assert decision.choice == "as is"
    assert "no adapter for Clip" in decision.reason


def test_names_of_nodes_become_names_of_variables(make_model, rng) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="/stem/Conv"),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    constants = {"w": rng.standard_normal((4, 3, 3, 3)), "b": rng.standard_normal(4)}
    constants = {k: v.astype("float32") for k, v in constants.items()}
    module = load(make_model(nodes, {"x": [1, 3, 8, 8]}, constants))
    named = {
        b.var.name: b.value.op.name
        for block in module["main"].body.blocks
        for b in block.bindings
        if isinstance(b.value, relax.Call)
    }
    assert named["/stem/Conv"] == "relax.nn.conv2d"
    assert named["/stem/Conv_bias"] == "relax.add"


def test_nothing_that_is_moved_is_left_out_of_a_concat(make_model, run_tvm, run_onnx, rng) -> None:
    # a vision transformer with no register tokens: [1, 0, C] is expanded to each image
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "first", "second"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["sizes"], axis=0),
        helper.make_node("Expand", ["registers", "sizes"], ["each"]),
        helper.make_node("Concat", ["each", "x"], ["y"], axis=1),
    ]
    constants = {
        "first": np.array([0]), "second": np.array([1]), "rest": np.array([0, 4]),
        "registers": np.zeros((1, 0, 4), np.float32),
    }  # fmt: skip
    model = make_model(nodes, {"x": ("n", 6, 4)}, constants)
    x = rng.standard_normal((3, 6, 4)).astype(np.float32)
    np.testing.assert_array_equal(run_tvm(load(model), x)[0], run_onnx(model, x)[0])


@pytest.mark.parametrize("times", [[1, 3, 2], [2, 1, 1], [1, 1, 4], [1, 0, 2]])
def test_a_tensor_so_many_times(times, run_tvm, count_ops) -> None:
    """Repeated along axes of their own, which regions take, but for none at all."""
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    node = helper.make_node("Tile", ["x", "times"], ["y"])
    model = make_model([node], {"x": [2, 3, 4]}, {"times": np.array(times)})
    assert ("broadcast_to" in count_ops(load(model))) == (0 not in times)
    (got,) = run_tvm(load(model), x)
    np.testing.assert_array_equal(got, np.tile(x, times))
