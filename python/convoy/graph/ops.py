"""The ops of a ``Graph``.  All of them, in one block.

Tensors are row-major, of one of the element types in ``dtypes``; activations are ``[1, C, H, W]`` or any
other shape that starts with the image axis.  An op reads and makes tensors of one type, which is float32
but for ops that only move elements.  ``Quantize`` and ``Dequantize`` go from one type to another: what is
quantised is computed between them, in float32.  Every shape is that of ONE image: the batch is
``Graph.batch`` and belongs to the call, not to the ops (see ``graph.Graph``).
Nothing is fused here: ``relu(conv2d(x, w) + b)`` is a ``Conv2d`` with three inputs and a
``Unary``. Fusion is the planner's business.

``inputs`` are names of tensors in the order given beside each op, ``output`` is the name of
the one tensor it makes; weights and biases are constants of the graph, or ``Dequantize`` of one.
``origin`` says where the op came from, for comments and reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

from convoy.graph.dtypes import BYTES, DType
from convoy.graph.views import View

Pair = tuple[int, int]
Sides = tuple[int, int, int, int]
"""Padding: top, left, bottom, right; never negative."""

ActivationKind = Literal[
    "relu", "clip", "leaky_relu", "sigmoid", "tanh", "silu", "hardswish", "hardsigmoid", "gelu",
    "gelu_tanh", "elu", "mish",
]  # fmt: skip
"""Kinds of ``Unary`` that join a kernel."""
UnaryKind = Literal[
    ActivationKind, "exp", "log", "sqrt", "rsqrt", "abs", "neg", "erf", "square", "softplus", "round",
    "floor", "ceil", "reciprocal", "sin", "cos", "atan",
]  # fmt: skip
PARAMETERS: Mapping[str, str] = {"clip": "ab", "leaky_relu": "a", "elu": "a", "hardsigmoid": "ab"}
"""Those each unary kind reads; the others read none."""
PadMode = Literal["constant", "edge", "reflect", "symmetric", "wrap"]
RecurrentKind = Literal["lstm", "gru", "gru_reset_first", "rnn"]
GATES: dict[RecurrentKind, int] = {"lstm": 4, "gru": 3, "gru_reset_first": 3, "rnn": 1}
"""How many gates a recurrent layer has."""
BinaryKind = Literal["add", "sub", "mul", "div", "max", "min", "pow", "coalesce"]


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: DType = "float32"

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * BYTES[self.dtype]


@dataclass(frozen=True, kw_only=True)
class Node:
    counts: ClassVar[tuple[int, ...]] = (1,)
    """How many inputs it may have; empty for any number but none."""
    weights: ClassVar[tuple[str, ...]] = ()
    """What its inputs behind x are, where these are constants, or ``Dequantize`` of one."""
    moves: ClassVar[bool] = False
    """It only moves elements, of whatever type."""

    inputs: tuple[str, ...]
    output: str
    origin: str = ""
    pattern: str = ""
    """The op in the names of patterns, where that is not the node's own name: ``dense`` of a ``MatMul``."""


@dataclass(frozen=True, kw_only=True)
class Conv2d(Node):
    """x [1, C, H, W], w [O, C/groups, KH, KW], optional bias [O]."""

    counts = (2, 3)
    weights = ("weight", "bias")
    stride: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1


@dataclass(frozen=True, kw_only=True)
class ConvTranspose2d(Node):
    """x [1, C, H, W], w [C, O/groups, KH, KW], optional bias [O]."""

    counts = (2, 3)
    weights = ("weight", "bias")
    stride: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    output_padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1


@dataclass(frozen=True, kw_only=True)
class MatMul(Node):
    """x [..., M, K] (or [1, K]), constant w [K, N], optional bias [N]."""

    counts = (2, 3)
    weights = ("weight", "bias")


@dataclass(frozen=True, kw_only=True)
class Product(Node):
    """Two tensors, either may be a constant; y[..., m, n] = scale · Σ a[..., m, k] · b[..., k, n].

    a, b and y are views of its operands and its output, with the same axes before the last two; y has each
    element of the output once.
    """

    counts = (2,)
    a: View
    """[..., M, K]"""
    b: View
    """[..., K, N]"""
    y: View
    """[..., M, N]"""
    scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Attention(Node):
    """Tensors of queries, keys and values, optional one of a mask; any may be a constant, or one thrice.

    y[..., m, :] = Σ p[..., m, n] · v[..., n, :] with p = softmax over n of (scale · q · kᵀ + mask).
    q, k, v, mask and y are views with the same axes before the last two: groups of heads that share keys
    have one of stride 0 in k and v.  y has each element of the output once.

    The mask is added; -inf keeps a query from a key.  A query that may see no key gives NaN, as a
    softmax of nothing but -inf does.
    """

    counts = (3, 4)
    q: View
    """[..., M, D]"""
    k: View
    """[..., N, D]"""
    v: View
    """[..., N, E]"""
    y: View
    """[..., M, E]"""
    mask: View | None = None
    """[..., M, N]; given where the node has four inputs."""
    scale: float = 1.0
    diagonal: int | None = None
    """Where it is causal: query m sees the keys n ≤ m + ``diagonal`` only."""
    safe: bool = False
    """A query whose p is NaN, as of one that may see no key, gives zeros."""


@dataclass(frozen=True, kw_only=True)
class Rotate(Node):
    """x, cos and sin, any of them a constant: pairs of numbers are turned, as rotary embeddings turn them.

    y[..., 0, i] = x[..., 0, i] · cos[..., 0, i] - x[..., 1, i] · sin[..., 0, i]
    y[..., 1, i] = x[..., 1, i] · cos[..., 1, i] + x[..., 0, i] · sin[..., 1, i]

    All are views with the same axes before the last two.  Whether pairs are neighbours or a half apart is a
    matter of strides.  y has each element of the output once.
    """

    counts = (3,)
    x: View
    """[..., 2, I], and so are the others"""
    cos: View
    sin: View
    y: View


Strided = Product | Attention | Rotate
"""Ops that read and make tensors through views."""


@dataclass(frozen=True)
class Curve:
    """A kind of ``Unary`` with its parameters."""

    kind: ActivationKind
    a: float = 0.0
    b: float = 0.0


SIGMOID, TANH = Curve("sigmoid"), Curve("tanh")


@dataclass(frozen=True, kw_only=True)
class Recurrent(Node):
    """x [.., T, G · H], constants r [H, G · H] and extra [·, H], optional states [.., 1, H], over T steps.

    x is what the inputs add to the gates, h what a step makes of the state before it, y [.., T, H]:

    - lstm, gates i, o, f, g: c = f · c + i · inner(g), h = o · outer(c), with extra [3, H] times c added
      to i, o and f; y [.., T + 1, H] ends with the last c
    - gru, gates z, r, g: g = inner(x + r · (h · R + extra)) with extra [1, H], h = (1 - z) · g + z · h
    - gru_reset_first, gates z, r, g: g = inner(x + (r · h) · R), h = (1 - z) · g + z · h
    - rnn: h = inner(x + h · R); here and in the one before extra [1, H] is not read
    """

    counts = (3, 4, 5)
    weights = ("weights", "peepholes or bias")
    kind: RecurrentKind
    back: bool = False
    """From the last step to the first."""
    clip: float = 0.0
    """Bounds what goes into a gate to ± this; 0: nothing does."""
    gate: Curve = SIGMOID
    """The activation of the gates i, o, f, z and r."""
    inner: Curve = TANH
    outer: Curve = TANH


@dataclass(frozen=True, kw_only=True)
class Pool2d(Node):
    """x [1, C, H, W].  The output's shape decides (ceil mode is only a larger one)."""

    kind: Literal["max", "avg"]
    kernel: Pair
    stride: Pair = (1, 1)
    padding: Sides = (0, 0, 0, 0)
    dilation: Pair = (1, 1)
    count_include_pad: bool = False
    """avg: divide by the taps inside the padded input, not only by those inside the input."""


@dataclass(frozen=True, kw_only=True)
class Reduce(Node):
    """x; over ``axes`` (sorted, not negative, never axis 0)."""

    kind: Literal["mean", "sum", "max", "min"]
    axes: tuple[int, ...]
    keepdims: bool = True


@dataclass(frozen=True, kw_only=True)
class Unary(Node):
    """x, elementwise.

    clip: a ≤ x ≤ b · leaky_relu, elu: slope a · hardsigmoid: min(max(a·x + b, 0), 1) ·
    hardswish: x·hardsigmoid(x; 1/6, 1/2) · mish: x·tanh(softplus(x)) · others take no
    parameter. NaN propagates.
    """

    kind: UnaryKind
    a: float = 0.0
    b: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Quantize(Node):
    """x, constants scale and zero point, both [1], or [n] for the n numbers along ``axis`` of x.

    round(x / scale) + zero, halves to even, held within the range of the type of zero and of the result,
    which is uint8 or int8.  NaN gives the least number.
    """

    counts = (3,)
    weights = ("scale", "zero point")
    axis: int = 0
    """0 where scale is one number."""


@dataclass(frozen=True, kw_only=True)
class Dequantize(Node):
    """x of uint8, int8 or int32, constants scale and zero point of x's type, as ``Quantize`` has them.

    (x - zero) · scale.  x may be a constant, such as a weight; then ``axis`` may be 0.
    """

    counts = (3,)
    weights = ("scale", "zero point")
    axis: int = 0


@dataclass(frozen=True, kw_only=True)
class Binary(Node):
    """x, y with NumPy broadcasting; either may be a constant.

    coalesce: x where it is a number, else y; so x may be a constant with a NaN for each element of y that
    stays.
    """

    counts = (2,)
    kind: BinaryKind


@dataclass(frozen=True, kw_only=True)
class Concat(Node):
    """Any number of tensors along ``axis`` (not negative, never 0)."""

    moves = True

    counts = ()
    axis: int


@dataclass(frozen=True, kw_only=True)
class Slice(Node):
    """x[..., begin:end:step, ...] along ``axis`` (never 0).

    Backwards, where step ≤ -1, ``end`` is in front of the last element: -1 for all down to the first.
    """

    moves = True

    axis: int
    begin: int
    end: int
    step: int = 1


@dataclass(frozen=True, kw_only=True)
class Reshape(Node):
    """x, to the output's shape, row-major."""

    moves = True


@dataclass(frozen=True, kw_only=True)
class Transpose(Node):
    """x; output axis i is input axis ``perm[i]``; perm[0] = 0."""

    moves = True

    perm: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ChannelShuffle(Node):
    """x [1, G·K, H, W] → out[k·G + g] = x[g·K + k] with G = ``groups``."""

    moves = True

    groups: int


@dataclass(frozen=True, kw_only=True)
class Pad(Node):
    """x; ``widths[i]`` = (before, after) of axis i, none negative, axis 0 is (0, 0)."""

    moves = True
    widths: tuple[Pair, ...]
    mode: PadMode = "constant"
    """NumPy's: what reflects or wraps does so once."""
    value: float = 0.0
    """constant only."""


@dataclass(frozen=True, kw_only=True)
class Resize(Node):
    """x [1, C, H, W] to the output's H, W."""

    mode: Literal["nearest", "bilinear"]
    coordinates: Literal["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
    rounding: Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] = "floor"
    """nearest only."""
    scales: tuple[float, float] | None = None
    """Output per input, in H and W, where they are not the quotient of the sizes."""


@dataclass(frozen=True, kw_only=True)
class Softmax(Node):
    axis: int
    log: bool = False


@dataclass(frozen=True, kw_only=True)
class Lrn(Node):
    """x / (bias + alpha/size · Σ x²)^beta over ``size`` neighbouring channels of [1, C, H, W]."""

    size: int
    alpha: float
    beta: float
    bias: float


@dataclass(frozen=True, kw_only=True)
class GridSample(Node):
    """x [1, C, H, W] at places that are computed: grid [1, 2, h, w] has the column and the row of each.

    They go from -1 to 1: from edge to edge of x's outer pixels, or with ``corners`` from middle to middle.
    What is not finite is where x begins, as in ONNX Runtime.
    """

    counts = (2,)
    mode: Literal["nearest", "bilinear"]
    padding: Literal["zeros", "border", "reflection"]
    """What lies outside: nothing, the nearest pixel, or x mirrored at its edges, or with ``corners`` at the
    middles of its outer pixels."""
    corners: bool


@dataclass(frozen=True, kw_only=True)
class LayerNorm(Node):
    """x, optional gamma and beta with a number for each element of x's axes from ``axis`` on.

    (x - mean) / √(variance + epsilon) · gamma + beta, mean and variance over these axes.  One that is not
    ``centred`` is an RMS norm: 0 stands for the mean, and the mean of x² for the variance.
    """

    counts = (1, 2, 3)
    weights = ("gamma", "beta")
    axis: int
    epsilon: float
    centred: bool = True


@dataclass(frozen=True, kw_only=True)
class GroupNorm(Node):
    """x [1, C, H, W], optional gamma [C] and beta [C].

    As ``LayerNorm``, over each of ``groups`` groups of neighbouring channels with their pixels; of as many
    groups as channels it is an instance norm.
    """

    counts = (1, 2, 3)
    weights = ("gamma", "beta")
    groups: int
    epsilon: float
