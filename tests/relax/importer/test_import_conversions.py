"""Single ONNX nodes, loaded and run by plain TVM, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from convoy.relax.importer import load


@dataclass(frozen=True)
class Case:
    op: str
    ops: set[str]
    """What the module must consist of."""
    shape: tuple[int, ...] = (1, 4, 7, 9)
    constants: Mapping[str, object] = field(default_factory=dict)
    """Further inputs, in order; None leaves one out."""
    attributes: Mapping[str, object] = field(default_factory=dict)
    opset: int = 17
    outputs: int = 1


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype("float32")


def pool(op: str, kind: str, **attributes: object) -> Case:
    return Case(
        op, {f"nn.{kind}_pool2d"}, attributes={"kernel_shape": [3, 3], "strides": [2, 2], **attributes}
    )


def resize(ops: set[str], *, sizes: object = None, scales: object = None, **attributes: object) -> Case:
    wanted = {"scales": np.array(scales, "float32")} if sizes is None else {"scales": None, "sizes": sizes}
    constants = {"roi": None, **wanted}
    constants = {k: np.array(v, "int64") if k == "sizes" else v for k, v in constants.items()}
    return Case("Resize", ops, (1, 2, 4, 6), constants, attributes, opset=19)


def old_resize(op: str, scales: object, *, opset: int, **attributes: object) -> Case:
    constants = {"scales": np.array(scales, "float32")}
    return Case(op, {"image.resize2d"}, (1, 2, 4, 6), constants, attributes, opset)


WEIGHED = {"take", "multiply", "add"}
CONV = {"w": weights(6, 4, 3, 3), "b": weights(6)}
CASES: dict[str, Case] = {
    "conv with bias": Case("Conv", {"nn.conv2d", "add"}, constants=CONV, attributes={"pads": [1, 0, 1, 2]}),
    "conv, same upper": Case(
        "Conv",
        {"nn.conv2d", "add"},
        constants=CONV,
        attributes={"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    ),
    "conv, same lower": Case(
        "Conv",
        {"nn.conv2d", "add"},
        constants=CONV,
        attributes={"auto_pad": "SAME_LOWER", "strides": [2, 3]},
    ),
    "conv_transpose with bias": Case(
        "ConvTranspose",
        {"nn.conv2d_transpose", "add"},
        constants={"w": weights(4, 6, 3, 3), "b": weights(6)},
        attributes={"strides": [2, 2], "output_padding": [1, 1], "pads": [1, 1, 1, 1]},
    ),
    "conv_transpose to an output shape": Case(
        "ConvTranspose",
        {"nn.conv2d_transpose"},
        constants={"w": weights(4, 6, 3, 3)},
        attributes={"strides": [3, 2], "output_shape": [22, 18]},
    ),
    "max pool, same lower": pool("MaxPool", "max", auto_pad="SAME_LOWER"),
    "max pool, ceil": pool("MaxPool", "max", ceil_mode=1, pads=[0, 0, 1, 1]),
    "max pool, dilated": pool("MaxPool", "max", dilations=[2, 2]),
    "average pool, same upper": pool("AveragePool", "avg", auto_pad="SAME_UPPER"),
    "average pool, padding counted": pool("AveragePool", "avg", pads=[1, 1, 1, 1], count_include_pad=1),
    "average pool, padding not counted": pool("AveragePool", "avg", pads=[1, 1, 1, 1]),
    "global average pool": Case("GlobalAveragePool", {"mean"}),
    "global max pool": Case("GlobalMaxPool", {"max"}),
    "lrn, odd": Case(
        "LRN",
        {"multiply", "expand_dims", "nn.avg_pool3d", "squeeze", "add", "power", "divide"},
        attributes={"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 2.0},
    ),
    "clip": Case("Clip", {"clip"}, constants={"low": np.float32(-0.5), "high": np.float32(0.5)}),
    "clip, upper bound only": Case("Clip", {"clip"}, constants={"low": None, "high": np.float32(0.5)}),
    "clip, lower bound only": Case("Clip", {"clip"}, constants={"low": np.float32(0)}),
    "clip, crossed bounds": Case(
        "Clip", {"maximum", "minimum"}, constants={"low": np.float32(2), "high": np.float32(1)}
    ),
    "gemm": Case(
        "Gemm",
        {"matmul", "add"},
        (3, 5),
        {"w": weights(4, 5), "b": weights(4)},
        {"transB": 1, "alpha": 0.5, "beta": 2.0},
    ),
    "sum of three": Case("Sum", {"add"}, constants={"a": weights(4, 1, 1), "b": weights(1, 4, 7, 9)}),
    "mean of three": Case("Mean", {"add", "multiply"}, constants={"a": weights(4, 1, 1), "b": weights(9)}),
    "max of two": Case("Max", {"maximum"}, constants={"a": weights(4, 1, 1)}),
    "min of two": Case("Min", {"minimum"}, constants={"a": weights(9)}),
    "pad": Case(
        "Pad", {"nn.pad"}, constants={"pads": np.array([0, 0, 1, 2, 0, 1, 3, 0]), "value": np.float32(2.5)}
    ),
    **{
        f"pad, {mode}": Case(
            "Pad",
            {"nn.pad"},
            constants={"pads": np.array([0, 0, 1, 2, 0, 1, 3, 0]), "value": None},
            attributes={"mode": mode},
            opset=19,
        )
        for mode in ("reflect", "edge", "wrap")
    },
    "pad of two axes": Case(
        "Pad",
        {"nn.pad"},
        constants={"pads": np.array([1, 2, 3, 0]), "value": None, "axes": np.array([-1, 2])},
        opset=18,
    ),
    "hardsigmoid": Case("HardSigmoid", {"multiply", "add", "clip"}, attributes={"alpha": 0.3, "beta": 0.4}),
    "hardswish": Case("HardSwish", {"multiply", "add", "clip"}),
    "gelu": Case("Gelu", {"nn.gelu"}, opset=20),
    "gelu, tanh": Case("Gelu", {"nn.gelu_tanh"}, attributes={"approximate": "tanh"}, opset=20),
    "celu, which TVM does not know": Case(
        "Celu", {"divide", "nn.relu", "subtract", "exp", "multiply", "add"}, attributes={"alpha": 2.0}
    ),
    "dropout": Case("Dropout", set()),
    "batch norm": Case(
        "BatchNormalization",
        {"nn.batch_norm"},
        constants={"g": weights(4), "b": weights(4), "m": weights(4), "v": np.abs(weights(4))},
    ),
    "layer norm with statistics": Case(
        "LayerNormalization",
        {"mean", "subtract", "multiply", "add", "sqrt", "divide"},
        constants={"g": weights(9), "b": weights(9)},
        outputs=3,
    ),
    "reduce mean": Case("ReduceMean", {"mean"}, constants={"axes": np.array([2, 3])}, opset=18),
    "squeeze": Case("Squeeze", {"squeeze"}, (1, 4, 1, 1), {"axes": np.array([2, 3])}),
    "flatten": Case("Flatten", {"reshape"}, (2, 3, 4)),
    "upsample": Case("Upsample", {"image.resize2d"}, constants={"s": np.float32([1, 1, 2, 3])}, opset=9),
    "resize, nearest": resize({"image.resize2d"}, scales=[1, 1, 2, 3], mode="nearest"),
    "resize, half pixel": resize({"image.resize2d"}, sizes=[1, 2, 7, 9], mode="linear"),
    "resize, align corners": resize(
        {"image.resize2d"},
        sizes=[1, 2, 8, 3],
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    "resize, asymmetric floor": resize(
        {"image.resize2d"},
        sizes=[1, 2, 9, 7],
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ),
    "resize, cubic": resize(WEIGHED, sizes=[1, 2, 7, 9], mode="cubic"),
    "resize, fractional scale": resize(WEIGHED, scales=[1, 1, 0.6, 0.7], mode="linear"),
    "resize, nearest by a fractional scale": resize({"take"}, scales=[1, 1, 0.6, 1.7], mode="nearest"),
    "resize, antialiased": resize(WEIGHED, sizes=[1, 2, 3, 2], mode="linear", antialias=1),
    "upsample of opset 9": old_resize("Upsample", [1, 1, 2, 3], opset=9, mode="linear"),
    "upsample of opset 9, nearest": old_resize("Upsample", [1, 1, 2, 3], opset=9, mode="nearest"),
    "resize of opset 10": old_resize("Resize", [1, 1, 3, 2], opset=10, mode="linear"),
    "resize of opset 10, nearest": old_resize("Resize", [1, 1, 2, 2], opset=10, mode="nearest"),
    "resize of opset 10, smaller": old_resize("Resize", [1, 1, 0.5, 0.5], opset=10, mode="nearest"),
    "resize, two axes": resize({"image.resize2d"}, sizes=[8, 3], mode="linear", axes=[2, 3]),
}


@pytest.mark.parametrize("name", CASES)
def test_node_gives_what_onnx_runtime_gives(
    name: str, make_model, run_tvm, run_onnx, count_ops, rng
) -> None:
    case = CASES[name]
    given = {k: np.asarray(v) for k, v in case.constants.items() if v is not None}
    inputs = ["x", *(k if v is not None else "" for k, v in case.constants.items())]
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.op, inputs, outputs, **case.attributes)
    model = make_model([node], {"x": case.shape}, given, outputs, case.opset)
    module = load(model)
    assert set(count_ops(module)) == case.ops
    x = rng.standard_normal(case.shape).astype("float32")
    for mine, reference in zip(run_tvm(module, x), run_onnx(model, x), strict=True):
        assert mine.shape == reference.shape
        np.testing.assert_allclose(mine, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("bound", ["low", "high"])
def test_a_bound_left_out_is_the_largest_of_the_type(bound: str, dtype: str, run_tvm) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("Clip", ["x", bound] if bound == "low" else ["x", "", bound], ["y"])
    tensors = [helper.make_tensor_value_info(name, kind, [5]) for name in "xy"]
    constant = numpy_helper.from_array(np.array(0.25, dtype), bound)
    graph = helper.make_graph([node], "clip", tensors[:1], tensors[1:], [constant])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    largest = np.finfo(dtype).max
    x = np.array([-largest, -1, 0.5, 1, largest], dtype)
    expected = (np.maximum if bound == "low" else np.minimum)(x, x.dtype.type(0.25))
    np.testing.assert_array_equal(run_tvm(load(model), x)[0], expected)


@pytest.mark.parametrize("op", ["Gemm", "Conv", "ConvTranspose"])
def test_a_bias_in_double_stays_double(op: str, run_tvm, rng) -> None:
    shapes = {"x": (2, 8), "w": (8, 4), "b": (4,)}
    if op != "Gemm":
        shapes = {"x": (1, 4, 5, 5), "w": (4, 4, 1, 1), "b": (4,)}
    given = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    node = helper.make_node(op, ["x", "w", "b"], ["y"])
    x, y = (helper.make_tensor_value_info(n, TensorProto.DOUBLE, shapes.get(n)) for n in "xy")
    constants = [numpy_helper.from_array(given[name], name) for name in "wb"]
    graph = helper.make_graph([node], "double", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    (found,) = run_tvm(load(model), given["x"])
    weight = given["w"].reshape(given["w"].shape[:2])
    rows = np.moveaxis(given["x"], 1, -1) @ (weight.T if op == "Conv" else weight)
    assert found.dtype == np.float64
    np.testing.assert_allclose(np.moveaxis(found, 1, -1), rows + given["b"], rtol=1e-12)


def test_training_batch_norm_updates_statistics_as_onnx_does(make_model, run_tvm, rng) -> None:
    # ONNX: running = running·momentum + batch·(1 - momentum); TVM has the two weights the other way round
    names = ["g", "b", "m", "v"]
    constants = {n: np.abs(weights(4)) + i for i, n in enumerate(names)}
    node = helper.make_node(
        "BatchNormalization", ["x", *names], ["y", "mean", "var"], training_mode=1, momentum=0.9
    )
    module = load(make_model([node], {"x": (3, 4, 5, 5)}, constants, ["y", "mean", "var"]))
    x = rng.standard_normal((3, 4, 5, 5)).astype("float32")
    _, mean, variance = run_tvm(module, x)
    np.testing.assert_allclose(mean, 0.9 * constants["m"] + 0.1 * x.mean((0, 2, 3)), rtol=1e-4)
    np.testing.assert_allclose(variance, 0.9 * constants["v"] + 0.1 * x.var((0, 2, 3)), rtol=1e-4)


def test_lrn_of_an_even_size_reaches_one_channel_further_ahead(make_model, run_tvm, rng) -> None:
    # ONNX Runtime refuses even sizes, TVM's frontend makes an extra channel; the definition decides
    node = helper.make_node("LRN", ["x"], ["y"], size=4, alpha=0.5, beta=0.75, bias=1.5)
    module = load(make_model([node], {"x": (1, 6, 3, 3)}))
    x = rng.standard_normal((1, 6, 3, 3)).astype("float32")
    squares = [np.square(x[:, max(c - 1, 0) : c + 3]).sum(1) for c in range(6)]
    expected = x / (1.5 + 0.5 / 4 * np.stack(squares, 1)) ** 0.75
    np.testing.assert_allclose(run_tvm(module, x)[0], expected, rtol=1e-4, atol=1e-6)


def test_dilated_same_padding_is_written_out(make_model, count_ops) -> None:
    # a 3x3 kernel of dilation 2 reaches 5: (7 - 1) + 5 - 7 = 4 in all, two on each side
    node = helper.make_node("Conv", ["x", "w"], ["y"], auto_pad="SAME_LOWER", dilations=[2, 2])
    module = load(make_model([node], {"x": (1, 4, 7, 7)}, {"w": weights(6, 4, 3, 3)}))
    assert count_ops(module) == {"nn.conv2d": 1}
    call = module["main"].body.blocks[0].bindings[0].value
    assert [int(p) for p in call.attrs.padding] == [2, 2, 2, 2]


def test_functions_of_the_model_are_inlined(make_model, count_ops) -> None:
    import_model = make_model([helper.make_node("Twice", ["x"], ["y"], domain="own")], {"x": (2, 3)})
    body = [helper.make_node("Relu", ["a"], ["r"]), helper.make_node("Add", ["r", "r"], ["b"])]
    opsets = [helper.make_opsetid("", 17)]
    import_model.functions.append(helper.make_function("own", "Twice", ["a"], ["b"], body, opsets))
    import_model.opset_import.append(helper.make_opsetid("own", 1))
    assert count_ops(load(import_model)) == {"nn.relu": 1, "add": 1}


def test_a_model_with_a_branch_is_dataflow_all_the_same(make_model, run_tvm, run_onnx, rng) -> None:
    # TVM's frontend leaves all ops of such a model outside of dataflow blocks, where none is offloaded
    def branch(node: onnx.NodeProto) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
        return helper.make_graph([node], "branch", [], [out])

    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node(
            "If",
            ["flag"],
            ["r"],
            then_branch=branch(helper.make_node("Relu", ["c"], ["a"])),
            else_branch=branch(helper.make_node("Neg", ["c"], ["b"])),
        ),
        helper.make_node("Sigmoid", ["r"], ["y"]),
    ]
    model = make_model(nodes, {"x": (1, 4, 7, 7), "flag": ()}, {"w": weights(6, 4, 3, 3)})
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.BOOL
    module = load(model)
    outside = [
        binding
        for block in module["main"].body.blocks
        if not isinstance(block, relax.DataflowBlock)
        for binding in block.bindings
    ]
    assert [type(binding.value) for binding in outside] == [relax.If]
    x = rng.standard_normal((1, 4, 7, 7)).astype("float32")
    for flag in (True, False):
        expected = run_onnx(model, x, np.array(flag))[0]
        np.testing.assert_allclose(run_tvm(module, x, np.array(flag))[0], expected, rtol=1e-4, atol=1e-5)
