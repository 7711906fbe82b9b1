"""NaN, infinities, denormals and huge numbers go through every op as they do in ONNX Runtime.

Known to differ, and not compared:
- reductions to a maximum or minimum keep a NaN; ONNX Runtime keeps it or not, by its position;
- ONNX Runtime's maximum over a window of nothing but -inf is that, or the lowest finite number, as many
  taps fill a vector or not; here it is -inf;
- a maximum over a window that is partly NaN is that of ONNX Runtime's blocked kernels; its others, for
  numbers of channels that fill no block, forget other taps before the NaN;
- LRN's sums are of their own channels; those of ONNX Runtime run on, past a NaN or an overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.deploy.runner import Runner
from convoy.options import Options
from convoy.report.decision import Report

Array = NDArray[np.float32]
SPECIAL = {
    "nan": np.nan,
    "inf": np.inf,
    "-inf": -np.inf,
    "denormal": 1e-40,
    "-denormal": -1e-40,
    "huge": 1e34,
    "-huge": -1e34,
    "zero": 0.0,
    "-zero": -0.0,
}
CHANNELS, HEIGHT, WIDTH = 32, 9, 10
"""A multiple of 16 channels: ONNX Runtime pools these in blocks, and then rows come first."""
LOWEST = np.finfo(np.float32).min
BOUND = 1e-5
"""Error, of the largest finite value."""


class Sketch:
    """An ONNX model of many outputs, one op a line; ``x`` and ``y`` are its inputs."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(1)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs: list[str] = []

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, *shape: int) -> str:
        scale = np.sqrt(np.prod(shape[1:]))
        return self.constant((self.random.standard_normal(shape) / scale).astype(np.float32))

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def output(self, label: str, name: str) -> None:
        self.nodes.append(helper.make_node("Identity", [name], [label]))
        self.outputs.append(label)

    def model(self) -> onnx.ModelProto:
        shape = [1, CHANNELS, HEIGHT, WIDTH]
        graph = helper.make_graph(
            self.nodes,
            "special",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.outputs],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


UNARY = (
    "Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Abs", "Neg", "Erf", "Softplus", "Floor", "Ceil",
    "Round", "Reciprocal", "HardSwish", "HardSigmoid", "Elu", "LeakyRelu", "Mish",
)  # fmt: skip
EPILOGUES = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid")


def draw_ops() -> Sketch:
    """Every op by itself, and a convolution with each activation."""
    s = Sketch()
    for op in UNARY:
        s.output(op, s.op(op, "x"))
    for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"):
        s.output(op, s.op(op, "x", "y"))
    low, high = s.constant(np.float32(-1)), s.constant(np.float32(2))
    s.output("Clip", s.op("Clip", "x", low, high))
    s.output("Clip from below", s.op("Clip", "x", low))
    s.output("Clip from above", s.op("Clip", "x", "", high))
    s.output("Silu", s.op("Mul", "x", s.op("Sigmoid", "x")))
    s.output("Softmax over channels", s.op("Softmax", "x", axis=1))
    s.output("Softmax over columns", s.op("Softmax", "x", axis=3))
    # without a shift, which ONNX Runtime loses beside a huge mean
    scale, none = s.weight(CHANNELS), s.constant(np.zeros(CHANNELS, np.float32))
    s.output("InstanceNormalization", s.op("InstanceNormalization", "x", scale, none))
    s.output("LayerNormalization", s.op("LayerNormalization", "x", s.weight(WIDTH), s.weight(WIDTH)))
    s.output("LogSoftmax", s.op("LogSoftmax", "x", axis=1))
    s.output("GlobalAveragePool", s.op("GlobalAveragePool", "x"))
    s.output("Concat", s.op("Concat", "x", "y", axis=1))
    for kernel, stride, pad in ((2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 3, 2)):
        sides = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        s.output(f"MaxPool {kernel}x{kernel}/{stride}", s.op("MaxPool", "x", **sides))
        s.output(f"AveragePool {kernel}x{kernel}/{stride}", s.op("AveragePool", "x", **sides))
    twice = s.constant(np.array([1, 1, 2, 2], np.float32))
    for mode in ("half_pixel", "align_corners", "asymmetric"):
        resized = s.op("Resize", "x", "", twice, mode="linear", coordinate_transformation_mode=mode)
        s.output(f"Resize linear {mode}", resized)
    bias = s.weight(40)
    for name, shape, attributes in (
        ("1x1", (40, CHANNELS, 1, 1), {}),
        ("3x3", (40, CHANNELS, 3, 3), {"pads": [1] * 4}),
        ("3x3/2", (40, CHANNELS, 3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
    ):
        s.output(f"Conv {name}", s.op("Conv", "x", s.weight(*shape), bias, **attributes))
    depthwise = s.op("Conv", "x", s.weight(CHANNELS, 1, 3, 3), group=CHANNELS, pads=[1] * 4)
    s.output("Conv depthwise", depthwise)
    s.output("Conv grouped", s.op("Conv", "x", s.weight(32, 16, 1, 1), group=2))
    s.output("ConvTranspose", s.op("ConvTranspose", "x", s.weight(CHANNELS, 16, 2, 2), strides=[2, 2]))
    pointwise = s.weight(40, CHANNELS, 1, 1)
    for op in EPILOGUES:
        s.output(f"Conv {op}", s.op(op, s.op("Conv", "x", pointwise, bias)))
    s.output("Conv Clip", s.op("Clip", s.op("Conv", "x", pointwise, bias), low, high))
    s.output("Gemm", s.op("Gemm", s.op("Flatten", "x"), s.weight(CHANNELS * HEIGHT * WIDTH, 9)))
    return s


def draw_networks() -> Sketch:
    """Small networks: what a padding lane or a halo let through would show behind the next layer."""
    s = Sketch()
    stem = s.op("Relu", s.op("Conv", "x", s.weight(20, CHANNELS, 3, 3), s.weight(20), pads=[1] * 4))
    body = s.op("Conv", stem, s.weight(20, 1, 3, 3), group=20, pads=[1] * 4)
    body = s.op("Add", s.op("Conv", body, s.weight(20, 20, 1, 1)), stem)
    s.output("residual", s.op("Conv", body, s.weight(12, 20, 3, 3), pads=[1] * 4))
    pooled = s.op("MaxPool", stem, kernel_shape=[2, 2], strides=[2, 2])
    gate = s.op("Sigmoid", s.op("Conv", s.op("GlobalAveragePool", pooled), s.weight(20, 20, 1, 1)))
    s.output("gated", s.op("Conv", s.op("Mul", pooled, gate), s.weight(7, 20, 1, 1)))
    # maps of a size for Winograd's algorithm
    wide = s.op("ConvTranspose", "x", s.weight(CHANNELS, 32, 2, 2), strides=[2, 2])
    first = s.op("Relu", s.op("Conv", wide, s.weight(40, 32, 3, 3), s.weight(40), pads=[1] * 4))
    second = s.op("Add", s.op("Conv", first, s.weight(32, 40, 3, 3), pads=[1] * 4), wide)
    s.output("winograd", s.op("MaxPool", second, kernel_shape=[2, 2], strides=[2, 2]))
    s.output("winograd alone", s.op("Conv", wide, s.weight(50, 32, 3, 3)))
    # 0/0 and log 0 in the lanes past 20 channels must stay there
    odd = s.op("Conv", "y", s.weight(20, CHANNELS, 1, 1), s.weight(20))
    odd = s.op("Add", s.op("Div", odd, odd), s.op("Log", s.op("Abs", odd)))
    s.output("odd lanes", s.op("Conv", odd, s.weight(7, 20, 3, 3)))
    return s


def draw_groups() -> Sketch:
    """Convolutions whose groups are no whole blocks of channels: none may see what is in another."""
    s = Sketch()
    for groups, per_group, kernel, stride, pad, dilation in (
        (2, 16, 1, 1, 0, 1), (2, 7, 3, 1, 1, 1), (4, 8, 3, 2, 1, 1), (8, 4, 3, 1, 1, 1), (8, 1, 5, 1, 2, 1),
        (16, 3, 1, 2, 0, 1), (32, 3, 3, 1, 1, 1), (4, 5, 3, 1, 2, 2),
    ):  # fmt: skip
        weight = s.weight(groups * per_group, CHANNELS // groups, kernel, kernel)
        form = {"group": groups, "pads": [pad] * 4, "strides": [stride] * 2, "dilations": [dilation] * 2}
        label = f"{groups} groups, {kernel}x{kernel}/{stride}, {groups * per_group} channels"
        s.output(label, s.op("Conv", "x", weight, s.weight(groups * per_group), **form))
    grouped = {"group": 8, "pads": [1] * 4}
    for op in EPILOGUES:
        s.output(f"8 groups {op}", s.op(op, s.op("Conv", "x", s.weight(32, 4, 3, 3), **grouped)))
    squares = s.op("Relu", s.op("Conv", "x", s.weight(32, 4, 3, 3), **grouped))
    s.output(
        "residual", s.op("Relu", s.op("Add", s.op("Conv", squares, s.weight(32, 4, 1, 1), group=8), "x"))
    )
    for stride in (1, 2):
        weight = s.weight(CHANNELS, 3, 3, 3)
        s.output(f"transposed/{stride}", s.op("ConvTranspose", "x", weight, group=4, strides=[stride] * 2))
    # channels that fill no block, and a concat of them
    odd = s.op("Sigmoid", s.op("Conv", "x", s.weight(21, CHANNELS, 1, 1), s.weight(21)))
    s.output("21 channels", s.op("Conv", odd, s.weight(14, 3, 3, 3), group=7))
    both = s.op("Concat", s.op("Conv", "x", s.weight(8, 4, 1, 1), group=8), odd, "y", axis=1)
    s.output("61 channels", s.op("Conv", both, s.weight(122, 1, 3, 3), group=61))
    return s


class Pair:
    """The same model in ONNX Runtime and in Convoy."""

    def __init__(self, sketch: Sketch, options: Options | None = None) -> None:
        self.outputs = sketch.outputs
        self.session = onnxruntime.InferenceSession(
            sketch.model().SerializeToString(), providers=["CPUExecutionProvider"]
        )
        self.report = Report()
        self.runner = Runner(convoy.compile(sketch.model(), options=options, report=self.report))
        self.answers: dict[str, list[tuple[Array, Array]]] = {}
        for label, value in SPECIAL.items():
            self.answers[label] = [self.run(x, y) for x, y in placed(value)]

    def run(self, x: Array, y: Array) -> Any:
        theirs = self.session.run(self.outputs, {"x": x, "y": y})
        return dict(zip(self.outputs, zip(theirs, self.runner.run([x, y]), strict=True), strict=True))


def placed(value: float) -> list[tuple[Array, Array]]:
    """Random inputs with ``value`` here and there, in either input, in whole planes and in both."""
    random = np.random.default_rng(2)
    x, y = (random.standard_normal((1, CHANNELS, HEIGHT, WIDTH)).astype(np.float32) for _ in "xy")
    few, plane, other = x.copy(), x.copy(), y.copy()
    for channel, row, column in ((3, 2, 3), (17, 8, 9), (8, 0, 0), (8, 4, 5)):
        few[0, channel, row, column] = value
    plane[0, 5] = value
    other[0, 3, 2, 3] = value
    return [(few, y), (plane, y), (few, other)]


def assert_agrees(theirs: Array, ours: Array, special: str) -> None:
    """The same NaN and infinities, and finite values within the bound."""
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs), f"{special}: NaN in other places")
    infinite = np.isinf(theirs) | np.isinf(ours)
    np.testing.assert_array_equal(ours[infinite], theirs[infinite], f"{special}: other infinities")
    finite = np.isfinite(theirs)
    scale = float(np.abs(theirs[finite]).max(initial=1e-30))
    np.testing.assert_allclose(
        ours[finite], theirs[finite], rtol=BOUND, atol=BOUND * scale, err_msg=special
    )


DRAWINGS: dict[str, Callable[[], Sketch]] = {
    "ops": draw_ops,
    "networks": draw_networks,
    "groups": draw_groups,
}


def cases() -> Sequence[tuple[str, str]]:
    return [(drawing, label) for drawing, draw in DRAWINGS.items() for label in draw().outputs]


@pytest.fixture(scope="module", params=["fast", "direct"])
def pairs(request: pytest.FixtureRequest) -> dict[str, Pair]:
    options = Options(accuracy=request.param, threads=2)
    with np.errstate(all="ignore"):
        return {drawing: Pair(draw(), options) for drawing, draw in DRAWINGS.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("drawing", "label"), cases())
def test_special_values_propagate_as_in_onnx_runtime(
    pairs: dict[str, Pair], drawing: str, label: str
) -> None:
    for special, answers in pairs[drawing].answers.items():
        for answer in answers:
            theirs, ours = answer[label]
            if label.startswith("MaxPool") and special == "-inf":
                theirs = np.where(theirs == LOWEST, -np.inf, theirs)
            assert_agrees(theirs, ours, special)


@pytest.mark.slow
def test_winograd_is_among_what_is_compared(pairs: dict[str, Pair], request: pytest.FixtureRequest) -> None:
    choices = {decision.choice for decision in pairs["networks"].report.decisions}
    assert ("winograd F(4x4, 3x3)" in choices) == (request.node.callspec.params["pairs"] == "fast")
