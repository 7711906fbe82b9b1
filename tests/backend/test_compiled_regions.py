"""Compiled regions against the float64 reference: every op and fusion, on every instruction set.

Each case is a small graph; sizes are odd on purpose, so that tails and padding lanes are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.backend import LoadedRegion
from convoy.graph import Graph
from convoy.graph.ops import (
    GATES,
    Binary,
    ChannelShuffle,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Curve,
    GridSample,
    GroupNorm,
    LayerNorm,
    Lrn,
    MatMul,
    Pad,
    PadMode,
    Pool2d,
    Recurrent,
    RecurrentKind,
    Reduce,
    Reshape,
    Resize,
    Slice,
    Softmax,
    Transpose,
    Unary,
)
from convoy.graph.reference import run
from convoy.kernels.matmul import Gemm
from convoy.kernels.planner import make_plan
from convoy.kernels.recurrent import Recur
from convoy.options import Options
from convoy.target import InstructionSet, Target, host
from instruction_sets import HOST_SETS, in_turn, of_bfloat16
from together import Asked

BOUND = 2e-6
"""Error, of the largest output; direct float32 sums of these lengths stay below it."""
BOUND_OF_BFLOAT16 = 3e-2
"""The same for a few layers with maps and products of bfloat16, each of which rounds to 8 bits."""

Case = Callable[[], Graph]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def conv(b: Builder, x: str, out: int, kernel: int, **attributes: object) -> str:
    channels = b.tensors[x].shape[1]
    groups = int(attributes.get("groups", 1))  # type: ignore[call-overload]
    return b.add(Conv2d, x, b.weight(out, channels // groups, kernel, kernel), b.weight(out), **attributes)


@case
def first_layers_of_wide_images() -> Graph:
    """Tiles of 12 and 11 pixels that share pixels, with a bound and without; one that is dilated."""
    b = Builder([1, 3, 9, 35])
    relu = b.add(Unary, conv(b, "x0", 35, 3, padding=(1, 1, 1, 1)), kind="relu")
    strided = b.add(Unary, conv(b, "x0", 32, 5, padding=(2, 2, 2, 2), stride=(2, 2)), kind="relu")
    plain = conv(b, "x0", 32, 3, padding=(1, 1, 1, 1))
    dilated = conv(b, "x0", 32, 3, padding=(2, 2, 2, 2), dilation=(2, 2))
    return b.graph(relu, strided, plain, dilated)


@case
def conv_with_everything() -> Graph:
    b = Builder([1, 20, 15, 17])
    x = b.add(Unary, conv(b, "x0", 33, 3, padding=(1, 1, 1, 1)), kind="relu")
    y = b.add(Binary, conv(b, x, 33, 3, padding=(1, 1, 1, 1)), x, kind="add")
    return b.graph(b.add(Unary, y, kind="relu"))


@case
def conv_then_activation_then_residual() -> Graph:
    b = Builder([1, 16, 7, 9])
    x = conv(b, "x0", 16, 1)
    y = b.add(Unary, conv(b, x, 16, 3, padding=(1, 1, 1, 1)), kind="silu")
    return b.graph(b.add(Binary, x, y, kind="add"))


@case
def conv_strided_dilated_asymmetric() -> Graph:
    b = Builder([1, 18, 19, 14])
    x = conv(b, "x0", 17, 3, stride=(2, 1), padding=(0, 2, 1, 1))
    return b.graph(conv(b, x, 5, 3, dilation=(2, 3), padding=(2, 0, 3, 3)))


@case
def first_layer() -> Graph:
    b = Builder([1, 3, 23, 21])
    return b.graph(conv(b, "x0", 24, 7, stride=(2, 2), padding=(3, 3, 3, 3)))


@case
def first_layer_of_one_pixel_rows() -> Graph:
    b = Builder([1, 1, 9, 5])
    return b.graph(conv(b, "x0", 3, 5))


@case
def pointwise_chain() -> Graph:
    b = Builder([1, 32, 7, 7])
    x = conv(b, "x0", 64, 1)
    return b.graph(conv(b, b.add(Unary, x, kind="relu"), 19, 1))


@case
def pointwise_strided() -> Graph:
    b = Builder([1, 16, 9, 9])
    return b.graph(conv(b, "x0", 48, 1, stride=(2, 2)))


@case
def short_rows_two_a_tile() -> Graph:
    b = Builder([1, 40, 14, 14])
    x = conv(b, "x0", 48, 3, stride=(2, 2), padding=(1, 1, 1, 1))
    y = b.add(Binary, conv(b, x, 48, 5, padding=(2, 2, 2, 2)), x, kind="add")
    return b.graph(conv(b, b.add(Unary, y, kind="silu"), 34, 1, stride=(2, 2)))


@case
def grouped() -> Graph:
    b = Builder([1, 30, 8, 8])
    x = conv(b, "x0", 60, 3, groups=3, padding=(1, 1, 1, 1))
    return b.graph(conv(b, x, 36, 1, groups=6))


@case
def depthwise() -> Graph:
    b = Builder([1, 21, 11, 13])
    x = conv(b, "x0", 21, 3, groups=21, padding=(1, 1, 1, 1))
    x = b.add(Unary, x, kind="clip", a=0.0, b=6.0)
    x = conv(b, x, 21, 5, groups=21, stride=(2, 2), padding=(2, 2, 2, 2))
    return b.graph(b.add(Unary, x, kind="hardswish"))


@case
def depthwise_multiplier_and_dilation() -> Graph:
    b = Builder([1, 10, 11, 12])
    x = conv(b, "x0", 20, 3, groups=10, padding=(1, 1, 1, 1))
    return b.graph(conv(b, x, 20, 3, groups=20, dilation=(2, 2), padding=(2, 2, 2, 2)))


@case
def filters_of_a_channel() -> Graph:
    # two and four, with lanes to spare; strides, a residual, an activation; then three, which is no divisor
    b = Builder([1, 21, 15, 16])
    x = conv(b, "x0", 42, 7, groups=21, stride=(2, 2), padding=(3, 3, 3, 3))
    y = conv(b, "x0", 42, 3, groups=21, stride=(2, 2), padding=(1, 1, 1, 1))
    y = b.add(Unary, b.add(Binary, x, y, kind="add"), kind="gelu")
    y = conv(b, y, 168, 3, groups=42, dilation=(2, 2), padding=(2, 2, 2, 2))
    return b.graph(conv(b, y, 504, 1, groups=168))


@case
def groups_within_a_vector() -> Graph:
    # four channels a group and two, with lanes to spare; strides, dilation, a residual, an activation; then
    # groups of several inputs for each output, which are none
    b = Builder([1, 36, 15, 16])
    x = b.add(Unary, conv(b, "x0", 36, 3, groups=9, padding=(1, 1, 1, 1)), kind="relu")
    y = conv(b, x, 36, 5, groups=18, padding=(4, 4, 4, 4), dilation=(2, 2))
    y = b.add(Unary, b.add(Binary, x, y, kind="add"), kind="hardswish")
    y = conv(b, y, 36, 3, groups=9, stride=(2, 2), padding=(0, 1, 1, 0))
    return b.graph(conv(b, y, 18, 1, groups=9))


@case
def depthwise_of_taps_far_apart() -> Graph:
    # an atrous pyramid's largest rate; then tiles whose pixels lie far apart
    b = Builder([1, 10, 38, 82])
    x = conv(b, "x0", 10, 3, groups=10, dilation=(36, 36), padding=(36, 36, 36, 36))
    return b.graph(conv(b, x, 10, 5, groups=10, stride=(5, 5)))


def recurrent(kind: RecurrentKind, cells: int, *rows: int, **given: object) -> Graph:
    """Two layers side by side, from a state and from zeros, of an odd number of cells.

    An image has one sequence, or as many as rows.
    """
    gates, states = GATES[kind], 2 if kind == "lstm" else 1
    b = Builder([1, *rows, 5, 7], *[[1, *rows, 1, cells]] * states)
    w, r = b.weight(7, gates * cells), b.weight(cells, gates * cells)
    extra = b.weight(3 if kind == "lstm" else 1, cells)
    x = b.add(MatMul, "x0", w)
    y = b.add(Recurrent, x, r, extra, *b.inputs[1:], kind=kind, **given)
    return b.graph(b.add(Recurrent, x, r, extra, kind=kind, back=True), y)


@case
def lstm() -> Graph:
    return recurrent("lstm", 37, clip=0.75)


def recurrent_of_shared_steps(kind: RecurrentKind) -> Graph:
    """A layer by itself, of so many cells that threads share a step."""
    b = Builder([1, 5, 7])
    x = b.add(MatMul, "x0", b.weight(7, GATES[kind] * 290))
    r, extra = b.weight(290, GATES[kind] * 290), b.weight(3 if kind == "lstm" else 1, 290)
    return b.graph(b.add(Recurrent, x, r, extra, kind=kind))


@case
def lstm_of_shared_steps() -> Graph:
    return recurrent_of_shared_steps("lstm")


@case
def lstm_of_rows() -> Graph:
    return recurrent("lstm", 37, 3)


@case
def gru_of_rows() -> Graph:
    return recurrent("gru", 20, 2, 3)


@case
def gru() -> Graph:
    return recurrent("gru", 37)


@case
def gru_reset_first() -> Graph:
    return recurrent("gru_reset_first", 37, 3, clip=0.75)


@case
def gru_reset_first_of_shared_steps() -> Graph:
    return recurrent_of_shared_steps("gru_reset_first")


@case
def rnn() -> Graph:
    return recurrent("rnn", 70, back=True, clip=0.75)


@case
def lstm_of_other_activations() -> Graph:
    hard = Curve("hardsigmoid", 0.2, 0.5)
    return recurrent("lstm", 37, gate=hard, inner=Curve("relu"), outer=Curve("elu", 0.7), clip=0.75)


@case
def rnn_of_relu() -> Graph:
    return recurrent("rnn", 20, inner=Curve("relu"))


@case
def transposed() -> Graph:
    b = Builder([1, 18, 5, 6])
    x = b.add(ConvTranspose2d, "x0", b.weight(18, 11, 2, 2), b.weight(11), stride=(2, 2))
    x = b.add(Unary, x, kind="relu")
    y = b.add(
        ConvTranspose2d, x, b.weight(11, 7, 3, 4), b.weight(7), stride=(2, 3), padding=(1, 2, 0, 1),
        output_padding=(1, 1),
    )  # fmt: skip
    return b.graph(conv(b, y, 8, 3, padding=(1, 1, 1, 1)))


@case
def transposed_grouped_dilated() -> Graph:
    b = Builder([1, 12, 5, 6])
    w = b.weight(12, 3, 3, 3)
    x = b.add(ConvTranspose2d, "x0", w, groups=4, stride=(2, 1), dilation=(3, 2), padding=(1, 1, 1, 1))
    return b.graph(x)


@case
def transposed_with_gaps() -> Graph:
    # stride 3 with a kernel of 2: every third row and column gets the bias alone
    b = Builder([1, 4, 4, 4])
    return b.graph(b.add(ConvTranspose2d, "x0", b.weight(4, 6, 2, 2), b.weight(6), stride=(3, 3)))


@case
def pools() -> Graph:
    b = Builder([1, 19, 13, 14])
    x = conv(b, "x0", 19, 1)
    outs = [
        b.add(Pool2d, x, kind="max", kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1)),
        b.add(Pool2d, x, kind="avg", kernel=(3, 2), stride=(1, 2), padding=(1, 0, 1, 1)),
        b.add(Pool2d, x, kind="avg", kernel=(3, 3), padding=(1, 1, 1, 1), count_include_pad=True),
        b.add(Pool2d, x, kind="max", kernel=(3, 3), stride=(2, 2), shape=[1, 19, 6, 7]),
        b.add(Unary, b.add(Pool2d, x, kind="max", kernel=(2, 2), dilation=(2, 3)), kind="relu"),
    ]
    return b.graph(*outs)


@case
def squeeze_and_excite() -> Graph:
    b = Builder([1, 20, 9, 9])
    x = b.add(Unary, conv(b, "x0", 36, 1), kind="silu")
    gate = b.add(Reduce, x, kind="mean", axes=(2, 3))
    gate = b.add(Unary, conv(b, gate, 8, 1), kind="relu")
    gate = b.add(Unary, conv(b, gate, 36, 1), kind="sigmoid")
    return b.graph(conv(b, b.add(Binary, x, gate, kind="mul"), 20, 1))


@case
def classifier() -> Graph:
    b = Builder([1, 16, 6, 5])
    x = conv(b, "x0", 32, 3)
    x = b.add(Reshape, x, shape=[1, 32 * 4 * 3])
    x = b.add(Unary, b.add(MatMul, x, b.weight(384, 70), b.weight(70)), kind="relu")
    return b.graph(b.add(Softmax, b.add(MatMul, x, b.weight(70, 10), b.weight(10)), axis=1))


@case
def global_pool_classifier() -> Graph:
    b = Builder([1, 16, 6, 5])
    x = b.add(Reduce, conv(b, "x0", 32, 3), kind="mean", axes=(2, 3), keepdims=False)
    return b.graph(b.add(MatMul, x, b.weight(32, 10), b.weight(10)))


@case
def matmul_with_residual() -> Graph:
    b = Builder([1, 13, 24])
    x = b.add(MatMul, "x0", b.weight(24, 37))
    y = b.add(Binary, b.add(MatMul, x, b.weight(37, 37), b.weight(37)), x, kind="add")
    return b.graph(b.add(Unary, y, kind="gelu"))


@case
def dense_block() -> Graph:
    # every operand of the nested concats is computed in place
    b = Builder([1, 16, 7, 7])
    x = conv(b, "x0", 32, 1)
    for _ in range(3):
        scale, shift = b.weight(b.tensors[x].shape[1], 1, 1), b.weight(b.tensors[x].shape[1], 1, 1)
        y = b.add(Binary, b.add(Binary, x, scale, kind="mul"), shift, kind="add")
        y = conv(b, b.add(Unary, y, kind="relu"), 16, 3, padding=(1, 1, 1, 1))
        x = b.add(Concat, x, y, axis=1)
    return b.graph(x)


@case
def concat_of_odd_channels() -> Graph:
    b = Builder([1, 16, 7, 7], [1, 5, 7, 7])
    x = conv(b, "x0", 19, 3, padding=(1, 1, 1, 1))
    y = b.add(Pool2d, "x0", kind="max", kernel=(3, 3), padding=(1, 1, 1, 1))
    joined = b.add(Concat, x, y, x, "x1", axis=1)
    return b.graph(conv(b, joined, 9, 3, padding=(1, 1, 1, 1)), joined)


@case
def concat_with_constants() -> Graph:
    b = Builder([1, 16, 7, 7], [1, 5, 24])
    x = conv(b, "x0", 32, 3, padding=(1, 1, 1, 1))
    joined = b.add(Concat, b.weight(1, 16, 7, 7), x, b.weight(1, 3, 7, 7), axis=1)
    rows = b.add(Concat, b.weight(1, 1, 24), "x1", axis=1)
    return b.graph(
        conv(b, joined, 9, 3, padding=(1, 1, 1, 1)), joined, b.add(MatMul, rows, b.weight(24, 7))
    )


@case
def split_and_shuffle() -> Graph:
    b = Builder([1, 16, 6, 6])
    x = conv(b, "x0", 48, 1)
    left = b.add(Slice, x, axis=1, begin=0, end=16)
    right = conv(b, b.add(Slice, x, axis=1, begin=16, end=48), 32, 3, padding=(1, 1, 1, 1))
    joined = b.add(ChannelShuffle, b.add(Concat, left, right, axis=1), groups=3)
    return b.graph(b.add(Slice, joined, axis=1, begin=5, end=27), joined)


@case
def normalised() -> Graph:
    b = Builder([1, 16, 6, 6])
    return b.graph(b.add(Lrn, conv(b, "x0", 21, 1), size=5, alpha=1e-2, beta=0.75, bias=1.0))


@case
def resized() -> Graph:
    b = Builder([1, 16, 5, 6])
    x = conv(b, "x0", 21, 1)
    up = {"shape": [1, 21, 10, 15]}
    outs = [
        b.add(Resize, x, mode="nearest", coordinates="asymmetric", **up),
        b.add(Resize, x, mode="nearest", coordinates="half_pixel", rounding="round_prefer_floor", **up),
        b.add(Resize, x, mode="bilinear", coordinates="half_pixel", **up),
        b.add(Resize, x, mode="bilinear", coordinates="align_corners", **up),
        b.add(Resize, x, mode="bilinear", coordinates="pytorch_half_pixel", shape=[1, 21, 1, 3]),
    ]
    return b.graph(*outs)


@case
def sampled_at_a_grid() -> Graph:
    b = Builder([1, 16, 5, 6], [1, 2, 9, 4], [1, 3, 4, 7])
    x = conv(b, "x0", 21, 1)
    of_map = b.add(GridSample, x, "x1", mode="bilinear", padding="zeros", corners=False)
    outs = [
        conv(b, of_map, 9, 3, padding=(1, 1, 1, 1)),
        b.add(GridSample, "x2", "x1", mode="bilinear", padding="reflection", corners=True),
        b.add(
            GridSample,
            b.add(Unary, "x2", kind="tanh"),
            "x1",
            mode="bilinear",
            padding="border",
            corners=True,
        ),
    ]
    return b.graph(*outs)


@case
def row_major_movement() -> Graph:
    b = Builder([1, 6, 7, 8])
    t = b.add(Transpose, "x0", perm=(0, 2, 3, 1))
    padded = b.add(Pad, "x0", widths=((0, 0), (1, 0), (2, 1), (0, 3)), value=1.5)
    outs = [
        b.add(Softmax, t, axis=2),
        b.add(Softmax, "x0", axis=3, log=True),
        b.add(Reduce, padded, kind="max", axes=(1, 3)),
        b.add(Reduce, padded, kind="sum", axes=(2,), keepdims=False),
        b.add(Slice, padded, axis=3, begin=1, end=10, step=3),
        b.add(Slice, padded, axis=3, begin=10, end=-1, step=-1),
        b.add(Slice, padded, axis=2, begin=8, end=1, step=-3),
        b.add(Slice, "x0", axis=1, begin=5, end=-1, step=-1),
        b.add(Concat, t, t, axis=2),
        padded,
    ]
    return b.graph(*outs)


@case
def numbers_in_place_of_others() -> Graph:
    b = Builder([1, 6, 7, 8])
    fixed = np.where(b.random.random((6, 7, 1)) < 0.5, np.nan, 3)
    fixed[0, 0] = -9
    root = b.add(Unary, "x0", kind="sqrt")  # NaN below 0
    return b.graph(
        b.add(Binary, b.constant(fixed), "x0", kind="coalesce"),
        b.add(Binary, root, b.constant([2.0]), kind="coalesce"),
        b.add(Binary, b.add(Unary, conv(b, root, 5, 1), kind="relu"), b.weight(5, 1, 1), kind="coalesce"),
    )


@case
def padded_by_itself() -> Graph:
    b = Builder([1, 6, 7, 8])
    widths = ((0, 0), (1, 5), (6, 0), (2, 7))
    pads = [b.add(Pad, "x0", widths=widths, mode=mode) for mode in get_args(PadMode)]
    image = conv(
        b, b.add(Pad, conv(b, "x0", 17, 1), widths=((0, 0), (0, 0), (2, 2), (1, 1)), mode="reflect"), 9, 3
    )
    return b.graph(*pads, image)


@case
def row_major_broadcasts() -> Graph:
    b = Builder([1, 5, 7, 9], [1, 1, 7, 1])
    x = b.add(Binary, "x0", "x1", kind="mul")
    x = b.add(Binary, b.weight(5, 1, 9), x, kind="sub")
    x = b.add(Binary, x, b.constant(0.3), kind="max")
    x = b.add(Binary, x, b.constant(np.full((9,), 1.5)), kind="pow")
    return b.graph(b.add(Unary, x, kind="tanh"), b.add(Binary, "x1", "x1", kind="add"))


@case
def blocked_broadcasts() -> Graph:
    b = Builder([1, 16, 6, 7])
    x = conv(b, "x0", 21, 1)
    pixel = conv(b, "x0", 1, 1)
    y = b.add(Binary, x, pixel, kind="mul")
    y = b.add(Binary, y, b.weight(1, 21, 6, 7), kind="min")
    y = b.add(Binary, y, b.weight(6, 7), kind="add")
    y = b.add(Binary, y, b.constant(2.0), kind="div")
    return b.graph(b.add(Unary, b.add(Unary, y, kind="exp"), kind="softplus"))


@case
def bounds_past_the_range_of_float32() -> Graph:
    b = Builder([1, 5, 6, 7])
    x = b.add(Unary, conv(b, "x0", 5, 1), kind="clip", a=-1e300, b=1e300)
    return b.graph(b.add(Unary, b.add(Unary, x, kind="exp"), kind="clip", a=1e-300, b=1e39))


@case
def outputs_that_are_read_again() -> Graph:
    b = Builder([1, 16, 6, 7])
    x = conv(b, "x0", 16, 1)
    y = b.add(Unary, x, kind="relu")
    r = b.add(Reshape, y, shape=[1, 16 * 42])
    return b.graph(x, y, r)


@pytest.mark.slow
def test_a_name_of_the_model_does_not_end_a_comment() -> None:
    b = Builder([1, 5, 6, 7])
    y = b.add(Unary, "x0", kind="relu", origin='relu */ " \\ /* \n %s {}')
    agree(b.graph(y), host().isa, images=1)


@case
def group_norms_of_maps() -> Graph:
    """Groups that begin and end within blocks, readers that want a halo, more pixels than a piece."""
    b = Builder([1, 3, 41, 30])
    x, outputs = conv(b, "x0", 40, 3, padding=(1, 1, 1, 1)), []
    for groups in (1, 2, 5, 40):
        norm = b.add(GroupNorm, x, b.weight(40), b.weight(40), groups=groups, epsilon=1e-5)
        active = b.add(Unary, norm, kind="sigmoid")
        outputs.append(conv(b, active, 8, 3, padding=(1, 1, 1, 1), groups=8))
    bare = conv(b, b.add(GroupNorm, x, groups=8, epsilon=1e-5), 8, 1)
    last = b.add(Unary, b.add(GroupNorm, x, b.weight(40), groups=4, epsilon=1e-5), kind="relu")
    return b.graph(*outputs, bare, last)


@case
def group_norms_of_tensors() -> Graph:
    b = Builder([1, 12, 5, 7])
    scales = b.weight(12), b.weight(12)
    norms = [b.add(GroupNorm, "x0", *scales, groups=groups, epsilon=1e-5) for groups in (1, 3, 12)]
    return b.graph(*norms[1:], b.add(Unary, norms[0], kind="silu"))


@case
def layer_norms() -> Graph:
    """Of rows, of all rows together, of rows so few that threads share each; with and without gamma."""
    b = Builder([1, 9, 37], [1, 3, 8, 6])
    whole = b.add(LayerNorm, "x0", b.weight(9, 37), b.weight(9, 37), axis=1, epsilon=1e-5)
    last = b.add(LayerNorm, "x0", b.weight(37), axis=2, epsilon=1e-2)
    image = b.add(LayerNorm, "x1", axis=2, epsilon=1e-5)
    last = b.add(LayerNorm, last, b.weight(37), axis=2, epsilon=1e-3, centred=False)
    y = b.add(Binary, b.add(MatMul, last, b.weight(37, 37), b.weight(37)), "x0", kind="add")
    return b.graph(whole, image, b.add(LayerNorm, y, b.weight(37), b.weight(37), axis=2, epsilon=1e-5))


EVERYWHERE = (
    "sampled_at_a_grid", "numbers_in_place_of_others", "row_major_broadcasts", "blocked_broadcasts",
    "layer_norms",
)  # fmt: skip
"""Cases with kernels of float32 that no other case and no other test has on each set."""


def asked(name: str, isa: InstructionSet) -> list[Asked]:
    return [Asked(CASES[name](), Target(isa), Options(threads=2))]


def asked_of_bfloat16(name: str, isa: InstructionSet) -> list[Asked]:
    return [Asked(CASES[name](), of_bfloat16(isa), Options(threads=2))]


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize(("name", "isa"), in_turn(CASES, first=1, everywhere=EVERYWHERE))
def test_region_agrees_with_reference(name: str, isa: InstructionSet, regions: list[LoadedRegion]) -> None:
    hold(CASES[name](), regions[0], images=1)


@pytest.mark.together(of=asked_of_bfloat16)
@pytest.mark.parametrize(("name", "isa"), in_turn(CASES))
def test_region_of_bfloat16_agrees_with_reference(
    name: str, isa: InstructionSet, regions: list[LoadedRegion]
) -> None:
    hold(CASES[name](), regions[0], images=1, bound=BOUND_OF_BFLOAT16)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["conv_with_everything", "classifier", "group_norms_of_maps", "dense_block", "transposed"]
)
def test_every_image_of_a_batch_is_computed(name: str) -> None:
    graph = CASES[name]()
    many = Graph(graph.inputs, graph.outputs, graph.nodes, graph.tensors, graph.constants, batch=None)
    agree(many, host().isa, images=3)


DENSE_TAILS: dict[str, tuple[Callable[[Builder, str], str], bool]] = {
    "products": (lambda b, y: y, True),
    "then a softmax, image by image": (lambda b, y: b.add(Softmax, y, axis=1), True),
    "then a map": (lambda b, y: conv(b, b.add(Reshape, y, shape=[1, 10, 1, 1]), 8, 1), False),
}
"""What follows the dense layers, and whether they take all images at once."""


@pytest.mark.parametrize("isa", HOST_SETS)
@pytest.mark.parametrize("tail", DENSE_TAILS)
def test_dense_layers_at_the_end_take_all_images(tail: str, isa: InstructionSet) -> None:
    # conv -> flatten -> dense -> relu -> dense  =>  the products run once, with a row for each image
    follow, batched = DENSE_TAILS[tail]
    b = Builder([1, 3, 4, 4], batch=None)
    y = b.add(Reshape, conv(b, "x0", 8, 3, padding=(1, 1, 1, 1)), shape=[1, 128])
    y = b.add(Unary, b.add(MatMul, y, b.weight(128, 65)), kind="relu")
    graph = b.graph(follow(b, b.add(MatMul, y, b.weight(65, 10))))
    plan = make_plan(graph, Target(isa))
    products = [i for i, step in enumerate(plan.steps) if isinstance(step, Gemm)]
    assert (plan.batched <= products[0]) == batched
    for images in (1, 2, 3, 17):
        agree(graph, isa, images)


@pytest.mark.slow
def test_dense_layers_alone_take_all_images() -> None:
    b = Builder([1, 32], batch=None)
    graph = b.graph(b.add(MatMul, b.add(MatMul, "x0", b.weight(32, 48)), b.weight(48, 5)))
    assert make_plan(graph, host()).batched == 0
    for images in (1, 5):
        agree(graph, host().isa, images)


def test_one_image_shares_the_arena() -> None:
    graph = CASES["classifier"]()
    plan = make_plan(graph, host())
    assert (plan.batched, plan.batch_bytes) == (len(plan.steps), 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lstm", "gru_reset_first"])
def test_more_threads_than_layers_side_by_side_share_their_steps(kind: RecurrentKind) -> None:
    graph, target, options = recurrent(kind, 290), Target(host().isa), Options(threads=3)
    (step,) = (step for step in make_plan(graph, target, options).steps if isinstance(step, Recur))
    assert (len(step.layers), step.shared) == (2, True)
    hold(graph, backend.load(graph, target, options), images=1)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_report_counts_the_scratch_of_each_thread(threads: int) -> None:
    b = Builder([1, 64, 56, 56])
    graph, options = b.graph(conv(b, "x0", 64, 3, padding=(1, 1, 1, 1))), Options(threads=threads)
    plan = make_plan(graph, Target("avx2"), options)
    report = backend.generate(graph, "region", Target("avx2"), options).report
    assert plan.thread_bytes > 0
    assert report.arena_bytes == plan.arena_bytes + threads * plan.thread_bytes


def agree(graph: Graph, isa: InstructionSet, images: int) -> None:
    hold(graph, backend.load(graph, Target(isa), Options(threads=2)), images)


def hold(graph: Graph, region: LoadedRegion, images: int, bound: float = BOUND) -> None:
    """Run twice (the arena is dirty the second time), compare with float64."""
    random = np.random.default_rng(7)
    shapes = [graph.shape(name) for name in graph.inputs]
    arrays = [
        random.standard_normal((images, *s[1:]) if images > 1 else s).astype(np.float32) for s in shapes
    ]
    region(*[a * 100 for a in arrays])
    found = region(*arrays)
    for got, want in zip(found, run(graph, arrays, np.float64), strict=True):
        assert got.shape == want.shape
        error = float(np.abs(got - want).max() / max(float(np.abs(want).max()), 1e-30))
        assert error <= bound, f"error {error:.2e} of the largest output"
