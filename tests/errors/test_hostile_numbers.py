"""Numbers and values nobody should write: one line that names them, or a right answer; no traceback."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from command import tiny_model
from convoy import zoo
from convoy.deploy.runner import Runner
from convoy.errors import ConvoyError, ModelError
from convoy.options import Options
from convoy.relax import NoTouch, fold, no_touch, partition, road, using
from convoy.relax.importer import load

WEIGHT = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32)
HUGE = 2**62


def model(op: str, *constants: Any, shape: Any = (1, 4, 8, 8), opset: int = 17, **attributes: Any) -> Any:
    """``op`` on the input x and constants."""
    named = [numpy_helper.from_array(np.asarray(array), f"c{i}") for i, array in enumerate(constants)]
    node = helper.make_node(op, ["x", *(c.name for c in named)], ["y"], name="node", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(
        helper.make_graph([node], "hostile", [x], [y], named), opset_imports=opsets, ir_version=8
    )


def pool(**attributes: Any) -> Any:
    return model("MaxPool", **{"kernel_shape": [2, 2], **attributes})


WINDOWS = [
    ({name: value}, expected)
    for name, least in [("strides", 1), ("dilations", 1), ("kernel_shape", 1)]
    for value, expected in [
        ([0, 0], f"expected {name} from {least} to 2^31 - 1, got [0, 0]"),
        ([1, -1], f"expected {name} from {least} to 2^31 - 1, got [1, -1]"),
        ([HUGE, HUGE], f"expected {name} from {least} to 2^31 - 1, got [{HUGE}, {HUGE}]"),
        ([1, 1, 1], f"expected {name} of 2 numbers for 2 axes, got [1, 1, 1]"),
    ]
] + [
    ({"pads": [-5] * 4}, "expected pads from 0 to 2^31 - 1, got [-5, -5, -5, -5]"),
    ({"pads": [1]}, "expected pads of 4 numbers for 2 axes, got [1]"),
    (
        {"auto_pad": "SAME"},
        "expected auto_pad to be one of NOTSET, SAME_UPPER, SAME_LOWER, VALID, got SAME",
    ),
]


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"])
def test_attributes_of_windows_are_named(op: str) -> None:
    for attributes, expected in WINDOWS:
        if "dilations" in attributes and op in ("AveragePool", "LpPool"):
            continue  # these have none in this opset
        given = {} if op.startswith("Conv") else {"kernel_shape": [2, 2]}
        hostile = model(op, *([WEIGHT] if op.startswith("Conv") else []), **{**given, **attributes})
        with pytest.raises(ModelError) as caught:
            load(hostile)
        assert str(caught.value) == f"import: hostile: {op} node: {expected}; export the model again"


@pytest.mark.parametrize(
    ("hostile", "expected"),
    [
        (
            model(
                "LSTM",
                np.ones((1, 8, 3), "f"),
                np.ones((1, 8, 2), "f"),
                shape=(5, 1, 3),
                hidden_size=2,
                direction="Reverse",
            ),
            "LSTM node: expected direction to be one of forward, reverse, bidirectional, got Reverse",
        ),
        (
            model("Gelu", opset=20, approximate="erf"),
            "Gelu node: expected approximate to be one of none, tanh, got erf",
        ),
        (model("Conv", WEIGHT, group=0), "Conv node: expected group from 1 to 2^31 - 1, got 0"),
        (
            model("Conv", WEIGHT, kernel_shape=[1, 1]),
            "expected kernel_shape to be that of the weight, [3, 3]",
        ),
        (model("ConvTranspose", WEIGHT, output_shape=[0, 0]), "expected output_shape from 1 to 2^31 - 1"),
        (
            model("QuantizeLinear", np.float32(0), np.uint8(3)),
            "QuantizeLinear node: expected a scale other than 0, got 0",
        ),
        (
            model("QuantizeLinear", np.array([1, 2, -0.0, 4], "f"), np.zeros(4, "b"), axis=1),
            "QuantizeLinear node: expected a scale other than 0, got 0",
        ),
        (model("LRN", size=-1), "LRN node: expected size from 1 to 2^31 - 1, got -1"),
        (model("DepthToSpace", blocksize=0), "expected blocksize from 1 to 2^31 - 1, got 0"),
        (model("DepthToSpace", blocksize=3), "expected channels that are multiples of 9, got [1, 4, 8, 8]"),
        (
            model("SpaceToDepth", blocksize=3),
            "expected rows and columns that are multiples of 3, got [1, 4, 8, 8]",
        ),
        (
            model("Relu", shape=(1, 4, 2**31, 8)),
            "input x: expected lengths below 2^31, got [1, 4, 2147483648, 8]",
        ),
        (
            model("Relu", shape=(2**31 - 1,) * 4),
            "expected a tensor that can be, got the shape [2147483647, ",
        ),
        (
            pool(strides=[2, 2], dilations=[20, 20]),
            "expected a window no larger than the padded map of 8, got 21",
        ),
        (model("Relu", shape=(1,) * 65), "input x: expected at most 64 axes, got 65"),
        (
            model("Unsqueeze", np.arange(5000), shape=(1,)),
            "Unsqueeze node: expected a result of at most 64 axes, got 5001",
        ),
        (model("Reshape", np.ones(100_000, "l"), shape=(1,)), "expected a result of at most 64 axes"),
        (model("Relu", opset=99), "expected an opset from 1 to"),
    ],
)
def test_numbers_that_mean_nothing_are_named(hostile: Any, expected: str) -> None:
    with pytest.raises(ModelError) as caught:
        load(hostile)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_that_mean_something_are_taken() -> None:
    for fine in (
        model("Conv", WEIGHT, strides=[2, 1], dilations=[2, 2], pads=[0, 1, 2, 3], kernel_shape=[3, 3]),
        model("Conv", WEIGHT, auto_pad=""),
        pool(auto_pad="SAME_LOWER", strides=[2, 2]),
        model("ConvTranspose", WEIGHT, output_shape=[17, 18], strides=[2, 2]),
    ):
        load(fine)


def test_what_tvm_fails_on_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("Check failed: (begin < end) is false:\n  in a loop\n")

    monkeypatch.setattr("tvm.compile", fail)
    with pytest.raises(ModelError, match=r"^build: model: expected a model that TVM can compile, got .*$"):
        convoy.compile(model("Relu"))


def boxes(limit: int) -> onnx.ModelProto:
    """As torchvision exports it: every box of two classes that is apart from better ones."""
    constants = {
        "limit": np.array([limit]),
        "iou": np.array([0.5], np.float32),
        "score": np.array([0.1], np.float32),
    }
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", *constants], ["y"], name="nms")
    values = {"boxes": [1, 12, 4], "scores": [1, 2, 12]}
    graph = helper.make_graph(
        [node],
        "boxes",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in values.items()],
        [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.slow
def test_all_boxes_there_are() -> None:
    import onnxruntime

    random = np.random.default_rng(0)
    corners = np.sort(random.random((1, 12, 2, 2), np.float32), axis=2).reshape(1, 12, 4)
    scores = random.random((1, 2, 12), np.float32)
    given = boxes(2**63 - 1)
    session = onnxruntime.InferenceSession(given.SerializeToString(), providers=["CPUExecutionProvider"])
    (found,) = Runner(convoy.compile(given)).run([corners, scores])
    np.testing.assert_array_equal(found, session.run(None, {"boxes": corners, "scores": scores})[0])


WRONG: list[Any] = [-1, 1.5, b"x", [1, 3], {"a": 1}, object(), float("nan"), np.array([1, 2]), 2**40]


@pytest.mark.parametrize(
    "option", ["target", "threads", "strict", "tune", "shapes", "options", "report", "progress"]
)
def test_keywords_of_compile(option: str) -> None:
    for value in WRONG:
        if option == "tune" and isinstance(value, int | float) and value > 0:
            continue  # seconds
        with pytest.raises(ConvoyError) as caught:
            convoy.compile(tiny_model(), **{option: value})
        assert "\n" not in str(caught.value)


def test_values_of_shapes() -> None:
    for sizes in (
        3,
        "abc",
        [1.5, 3, 8, 8],
        ["a", 3, 8, 8],
        [True, 3, 8, 8],
        None,
        [2**31, 3, 8, 8],
        [1, 3],
    ):
        with pytest.raises(ModelError, match=r"shape of x|input x"):
            load(tiny_model(batch="N"), {"x": sizes})
    load(tiny_model(batch="N"), {"x": np.array([2, 3, 8, 8])})


def test_arguments_of_all_else() -> None:
    functions = [
        convoy.compile, zoo.load, partition, fold, no_touch, NoTouch, road, using, Runner,
        lambda value: partition(report=value), lambda value: partition(codegen=value),
        lambda value: partition(refuse=value), lambda value: Options(accuracy=value),
        lambda value: Options(strict=value), lambda value: Options(merge=value),
    ]  # fmt: skip
    for function in functions:
        for value in WRONG:
            if isinstance(value, dict) and function is NoTouch:
                continue  # names are its keys
            with pytest.raises(ConvoyError) as caught:
                function(value)
            assert "\n" not in str(caught.value)


def test_an_op_of_another_domain_is_not_taken_for_onnx_s_own() -> None:
    foreign = model("Relu")
    foreign.graph.node[0].domain = "example.ops"
    foreign.opset_import.append(helper.make_opsetid("example.ops", 1))
    with pytest.raises(
        ModelError, match=r"Relu node: expected an op of ONNX's own domain, got one of exam"
    ):
        load(foreign)


@pytest.mark.parametrize("deep", [3, 40, 90])
def test_functions_that_call_each_other_twice_are_a_model_or_one_line(deep: int) -> None:
    # of 40 the writing out took all memory there is
    bomb, opsets = model("Relu"), [helper.make_opsetid("", 17), helper.make_opsetid("me", 1)]
    node = helper.make_node
    for i in range(deep):
        calls = [node(f"f{i + 1}", [a], [b], domain="me") for a, b in (("a", "c"), ("c", "b"))]
        body = calls if i + 1 < deep else [node("Relu", ["a"], ["b"])]
        bomb.functions.append(helper.make_function("me", f"f{i}", ["a"], ["b"], body, opsets))
    bomb.graph.node[0].op_type, bomb.graph.node[0].domain = "f0", "me"
    bomb.opset_import.append(opsets[1])
    if deep == 3:
        assert load(bomb)
        return
    with pytest.raises(
        ModelError, match="expected functions that are at most 200000 nodes when written out"
    ):
        load(bomb)


def test_a_function_of_the_model_may_be_named_like_an_op() -> None:
    own = model("Relu")
    own.graph.node[0].domain = "example.ops"
    own.opset_import.append(helper.make_opsetid("example.ops", 1))
    body = [helper.make_node("Neg", ["a"], ["b"])]
    opsets = [helper.make_opsetid("", 17)]
    own.functions.append(helper.make_function("example.ops", "Relu", ["a"], ["b"], body, opsets))
    x = WEIGHT[:1, :4, :, :].repeat(4, axis=2).repeat(4, axis=3)[:, :, :8, :8].copy()
    executable = convoy.compile(own)
    (got,) = Runner(executable).run([x])
    np.testing.assert_array_equal(got, -x)
