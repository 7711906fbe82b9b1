"""What each op becomes in a ``Graph``: the tables of ``lower``.

An entry gets the lowering at work, for its operands and to append nodes, and the call; it returns
the name of the tensor it makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from tvm import relax

from convoy.graph.ops import (
    Binary,
    BinaryKind,
    ChannelShuffle,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Lrn,
    MatMul,
    Node,
    Pad,
    Pool2d,
    Reduce,
    Reshape,
    Resize,
    Softmax,
    Transpose,
    Unary,
    UnaryKind,
)
from convoy.offload import elementwise
from convoy.offload.reasons import INTERPOLATIONS
from convoy.relax import attributes
from convoy.relax.dataflow import number
from convoy.relax.operands import Array, Operands

# Anchors -------------------------------------------------------------------------------------------


def _lower_conv(at: Operands, call: relax.Call, bias: Array | None) -> str:
    weight = at.array(call.args[1])
    return at.build.windowed(
        Conv2d,
        at.tensor(call.args[0]),
        at.shape(call),
        weight if weight.ndim == 4 else weight[:, :, None, :],
        bias,
        stride=attributes.pair(call.attrs.strides),
        padding=attributes.padding(call.attrs.padding),
        dilation=attributes.pair(call.attrs.dilation),
        groups=int(call.attrs.groups),
    )


def _lower_conv_transpose(at: Operands, call: relax.Call, bias: Array | None) -> str:
    return at.build.windowed(
        ConvTranspose2d,
        at.tensor(call.args[0]),
        at.shape(call),
        at.array(call.args[1]),
        bias,
        stride=attributes.pair(call.attrs.strides),
        padding=attributes.padding(call.attrs.padding),
        output_padding=attributes.output_padding(call),
        dilation=attributes.pair(call.attrs.dilation),
        groups=int(call.attrs.groups),
    )


def _lower_matmul(at: Operands, call: relax.Call, bias: Array | None) -> str:
    constants = [at.array(call.args[1]), *([bias] if bias is not None else [])]
    names = [at.build.constant(array) for array in constants]
    return at.build.node(MatMul, (at.tensor(call.args[0]), *names), at.shape(call))


ANCHORS: dict[str, Callable[[Operands, relax.Call, Array | None], str]] = {
    "nn.conv1d": _lower_conv,
    "nn.conv2d": _lower_conv,
    "nn.conv2d_transpose": _lower_conv_transpose,
    "matmul": _lower_matmul,
}

# Items of tuples -----------------------------------------------------------------------------------


def _lower_batch_norm(at: Operands, call: relax.Call, item: int) -> str:
    data, *rest = call.args
    gamma, beta, mean, variance = (at.array(arg).astype(np.float64) for arg in rest)
    return at.build.batch_norm(
        at.tensor(data),
        at.axes([attributes.axis(call)])[0],
        gamma if call.attrs.scale else 1.0,
        beta if call.attrs.center else 0.0,
        mean,
        variance,
        attributes.epsilon(call),
    )


def _lower_split(at: Operands, call: relax.Call, item: int) -> str:
    axis, begin, end, step = attributes.piece(call, item)
    return at.build.slices(at.tensor(call.args[0]), [(axis + at.build.lift, begin, end, step)])


def _lower_dropout(at: Operands, call: relax.Call, item: int) -> str:
    return at.build.reshape(at.tensor(call.args[0]), at.shape(call.args[0]))


ITEMS: dict[str, Callable[[Operands, relax.Call, int], str]] = {
    "nn.batch_norm": _lower_batch_norm,
    "nn.dropout": _lower_dropout,
    "split": _lower_split,
}

# Ops -----------------------------------------------------------------------------------------------

OpLowering = Callable[[Operands, relax.Call], str]


def _unary(kind: UnaryKind, a: float = 0.0, b: float = 0.0) -> OpLowering:
    return lambda at, call: at.node(Unary, call, kind=kind, a=a, b=b)


def _binary(kind: BinaryKind) -> OpLowering:
    return lambda at, call: at.node(Binary, call, *call.args, kind=kind)


def _lower_clip(at: Operands, call: relax.Call) -> str:
    low, high = (float(number(bound) or 0) for bound in call.args[1:])
    return at.node(Unary, call, kind="clip", a=low, b=high)


def _lower_leaky_relu(at: Operands, call: relax.Call) -> str:
    return at.node(Unary, call, kind="leaky_relu", a=float(call.attrs.alpha))


def _lower_prelu(at: Operands, call: relax.Call) -> str:
    slope = float(at.array(call.args[1]).reshape(()))
    return at.node(Unary, call, call.args[0], kind="leaky_relu", a=slope)


def _pool(kind: Literal["max", "avg"]) -> OpLowering:
    def lower_pool(at: Operands, call: relax.Call) -> str:
        return at.build.windowed(
            Pool2d,
            at.tensor(call.args[0]),
            at.shape(call),
            kind=kind,
            kernel=attributes.pair(call.attrs.pool_size),
            stride=attributes.pair(call.attrs.strides),
            padding=attributes.padding(call.attrs.padding),
            dilation=attributes.pair(call.attrs.dilation),
            count_include_pad=bool(call.attrs.count_include_pad),
        )

    return lower_pool


def _lower_adaptive_pool(at: Operands, call: relax.Call) -> str:
    return at.build.average_to(at.tensor(call.args[0]), at.shape(call))


def _reduce(kind: Literal["mean", "sum", "max", "min"]) -> OpLowering:
    def lower_reduce(at: Operands, call: relax.Call) -> str:
        axes = at.axes(attributes.axes(call))
        if not axes:
            return _lower_reshape(at, call)
        return at.node(Reduce, call, kind=kind, axes=axes, keepdims=bool(call.attrs.keepdims))

    return lower_reduce


def _softmax(log: bool) -> OpLowering:
    return lambda at, call: at.node(Softmax, call, axis=at.axes([attributes.axis(call)])[0], log=log)


def _lower_concat(at: Operands, call: relax.Call) -> str:
    return at.node(Concat, call, *call.args[0].fields, axis=at.axes([attributes.axis(call)])[0])


def _lower_reshape(at: Operands, call: relax.Call) -> str:
    return at.node(Reshape, call, call.args[0])


def _lower_permute_dims(at: Operands, call: relax.Call) -> str:
    lifted = at.axes(attributes.permutation(call))
    return at.node(Transpose, call, perm=(*range(at.build.lift), *lifted))


def _lower_pad(at: Operands, call: relax.Call) -> str:
    widths = ((0, 0),) * at.build.lift + attributes.pad_widths(call)
    return at.node(Pad, call, widths=widths, value=float(call.attrs.pad_value))


def _lower_strided_slice(at: Operands, call: relax.Call) -> str:
    spans = attributes.slices(call) or ()
    lifted = [(axis + at.build.lift, begin, end, step) for axis, begin, end, step in spans]
    return at.build.slices(at.tensor(call.args[0]), lifted)


def _lower_resize2d(at: Operands, call: relax.Call) -> str:
    mode = INTERPOLATIONS[str(call.attrs.method)]
    coordinates = str(call.attrs.coordinate_transformation_mode)
    rounding = {"rounding": attributes.rounding(call)} if mode == "nearest" else {}
    return at.node(Resize, call, call.args[0], mode=mode, coordinates=coordinates, **rounding)


def _lower_pixel_shuffle(at: Operands, call: relax.Call) -> str:
    return at.build.depth_to_space(at.tensor(call.args[0]), attributes.pixel_shuffle(call))


OPS: dict[str, OpLowering] = {
    **{name: _unary(kind) for name, kind in elementwise.UNARY.items()},
    **{name: _binary(kind) for name, kind in elementwise.BINARY.items()},
    "nn.relu6": _unary("clip", 0.0, 6.0),
    "clip": _lower_clip,
    "nn.leakyrelu": _lower_leaky_relu,
    "nn.prelu": _lower_prelu,
    "nn.silu": _unary("silu"),
    "nn.gelu": _unary("gelu"),
    "nn.gelu_tanh": _unary("gelu_tanh"),
    "square": _unary("square"),
    "nn.softplus": _unary("softplus"),
    "nn.max_pool2d": _pool("max"),
    "nn.avg_pool2d": _pool("avg"),
    "nn.max_pool1d": _pool("max"),
    "nn.avg_pool1d": _pool("avg"),
    "nn.adaptive_avg_pool2d": _lower_adaptive_pool,
    "mean": _reduce("mean"),
    "sum": _reduce("sum"),
    "max": _reduce("max"),
    "min": _reduce("min"),
    "nn.softmax": _softmax(log=False),
    "nn.log_softmax": _softmax(log=True),
    "concat": _lower_concat,
    "permute_dims": _lower_permute_dims,
    "nn.pad": _lower_pad,
    "strided_slice": _lower_strided_slice,
    "image.resize2d": _lower_resize2d,
    "nn.pixel_shuffle": _lower_pixel_shuffle,
    **dict.fromkeys(attributes.RESHAPES, _lower_reshape),
}

IDIOMS: dict[str, tuple[type[Node], dict[str, object]]] = {
    "lrn": (Lrn, {}),
    "channel_shuffle": (ChannelShuffle, {}),
    "hardswish": (Unary, {"kind": "hardswish"}),
    "hardsigmoid": (Unary, {"kind": "hardsigmoid"}),
}
