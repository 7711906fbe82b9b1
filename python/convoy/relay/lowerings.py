"""What each op becomes in a ``Graph``: the tables of ``lower``.

An entry gets the lowering at work, for its operands and to append nodes, and the call; it returns
the name of the tensor it makes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from tvm import relay

from convoy.graph.ops import (
    Binary,
    BinaryKind,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Lrn,
    MatMul,
    Pad,
    Pool2d,
    Reduce,
    Resize,
    Softmax,
    Transpose,
    Unary,
    UnaryKind,
)
from convoy.offload import elementwise
from convoy.offload.reasons import INTERPOLATIONS
from convoy.relay import attributes
from convoy.relay.patterns import UPSAMPLINGS

if TYPE_CHECKING:
    from convoy.relay.lower import Lowering

Array = NDArray[Any]

# Anchors -------------------------------------------------------------------------------------------


def _lower_conv(at: Lowering, call: relay.Call, bias: Array | None) -> str:
    weight = at.array(call.args[1])
    return at.build.windowed(
        Conv2d,
        at.tensor(call.args[0]),
        at.shape(call),
        weight if weight.ndim == 4 else weight[:, :, None, :],
        bias,
        stride=attributes.pair(call.attrs.strides),
        padding=attributes.padding(call),
        dilation=attributes.pair(call.attrs.dilation),
        groups=int(call.attrs.groups),
    )


def _lower_conv_transpose(at: Lowering, call: relay.Call, bias: Array | None) -> str:
    return at.build.windowed(
        ConvTranspose2d,
        at.tensor(call.args[0]),
        at.shape(call),
        at.array(call.args[1]),
        bias,
        stride=attributes.pair(call.attrs.strides),
        padding=attributes.padding(call),
        output_padding=attributes.pair(call.attrs.output_padding),
        dilation=attributes.pair(call.attrs.dilation),
        groups=int(call.attrs.groups),
    )


def _lower_product(at: Lowering, call: relay.Call, bias: Array | None) -> str:
    weight = at.array(call.args[1])
    weight = weight.reshape(weight.shape[-2:])  # that of a batch_matmul has an axis of length 1 in front
    if call.op.name == "nn.dense" or call.attrs.transpose_b:
        weight = weight.T
    names = [at.build.constant(array) for array in (weight, bias) if array is not None]
    return at.build.node(MatMul, (at.tensor(call.args[0]), *names), at.shape(call))


ANCHORS: dict[str, Callable[[Lowering, relay.Call, Array | None], str]] = {
    "nn.conv1d": _lower_conv,
    "nn.conv2d": _lower_conv,
    "nn.conv2d_transpose": _lower_conv_transpose,
    "nn.dense": _lower_product,
    "nn.matmul": _lower_product,
    "nn.batch_matmul": _lower_product,
}

# Items of tuples -----------------------------------------------------------------------------------


def _lower_batch_norm(at: Lowering, call: relay.Call, item: int) -> str:
    data, *rest = call.args
    gamma, beta, mean, variance = (at.array(arg).astype(np.float64) for arg in rest)
    return at.build.batch_norm(
        at.tensor(data),
        at.axes([attributes.axis(call)])[0],
        gamma if call.attrs.scale else 1.0,
        beta if call.attrs.center else 0.0,
        mean,
        variance,
        float(call.attrs.epsilon),
    )


def _lower_split(at: Lowering, call: relay.Call, item: int) -> str:
    axis, begin, end, step = attributes.piece(call, item)
    return at.build.slices(at.tensor(call.args[0]), [(axis + at.build.lift, begin, end, step)])


def _lower_dropout(at: Lowering, call: relay.Call, item: int) -> str:
    return at.build.reshape(at.tensor(call.args[0]), at.shape(call.args[0]))


ITEMS: dict[str, Callable[[Lowering, relay.Call, int], str]] = {
    "nn.batch_norm": _lower_batch_norm,
    "nn.dropout": _lower_dropout,
    "split": _lower_split,
}

# Ops -----------------------------------------------------------------------------------------------

OpLowering = Callable[["Lowering", relay.Call], str]


def _unary(kind: UnaryKind) -> OpLowering:
    return lambda at, call: at.node(Unary, call, kind=kind)


def _binary(kind: BinaryKind) -> OpLowering:
    return lambda at, call: at.node(Binary, call, *call.args, kind=kind)


def _lower_clip(at: Lowering, call: relay.Call) -> str:
    return at.node(Unary, call, kind="clip", a=float(call.attrs.a_min), b=float(call.attrs.a_max))


def _lower_leaky_relu(at: Lowering, call: relay.Call) -> str:
    return at.node(Unary, call, kind="leaky_relu", a=float(call.attrs.alpha))


def _lower_prelu(at: Lowering, call: relay.Call) -> str:
    return at.node(Unary, call, kind="leaky_relu", a=attributes.one_slope(call))


def _lower_bias_add(at: Lowering, call: relay.Call) -> str:
    shape = at.shape(call)
    behind = (1,) * (len(shape) - 1 - at.axes([attributes.axis(call)])[0])
    bias = at.build.constant(at.array(call.args[1]).reshape(-1, *behind))
    return at.build.node(Binary, (at.tensor(call.args[0]), bias), shape, kind="add")


def _pool(kind: Literal["max", "avg"]) -> OpLowering:
    def lower_pool(at: Lowering, call: relay.Call) -> str:
        return at.build.windowed(
            Pool2d,
            at.tensor(call.args[0]),
            at.shape(call),
            kind=kind,
            kernel=attributes.pair(call.attrs.pool_size),
            stride=attributes.pair(call.attrs.strides),
            padding=attributes.padding(call),
            dilation=attributes.pair(call.attrs.dilation),
            count_include_pad=kind == "avg" and bool(call.attrs.count_include_pad),
        )

    return lower_pool


def _global_pool(kind: Literal["mean", "max"]) -> OpLowering:
    return lambda at, call: at.node(Reduce, call, kind=kind, axes=(2, 3))


def _lower_adaptive_pool(at: Lowering, call: relay.Call) -> str:
    return at.build.average_to(at.tensor(call.args[0]), at.shape(call))


def _reduce(kind: Literal["mean", "sum", "max", "min"]) -> OpLowering:
    def lower_reduce(at: Lowering, call: relay.Call) -> str:
        axes = at.axes(attributes.axes(call))
        if not axes:
            return _lower_reshape(at, call)
        return at.node(Reduce, call, kind=kind, axes=axes, keepdims=bool(call.attrs.keepdims))

    return lower_reduce


def _lower_variance(at: Lowering, call: relay.Call) -> str:
    """Mean of (x - mean)², times n/(n-1) where it is unbiased."""
    data, mean = (at.tensor(arg) for arg in call.args)
    shape, axes = at.build.shape_of(data), at.axes(attributes.axes(call))
    difference = at.build.node(Binary, (data, mean), shape, kind="sub")
    square = at.build.node(Unary, (difference,), shape, kind="square")
    kept = bool(call.attrs.keepdims)
    result = at.build.node(Reduce, (square,), at.shape(call), kind="mean", axes=axes, keepdims=kept)
    if not call.attrs.unbiased:
        return result
    count = int(np.prod([shape[a] for a in axes]))
    factor = at.build.constant(np.full(1, count / (count - 1), np.float32))
    return at.build.node(Binary, (result, factor), at.shape(call), kind="mul")


def _softmax(log: bool) -> OpLowering:
    return lambda at, call: at.node(Softmax, call, axis=at.axes([attributes.axis(call)])[0], log=log)


def _lower_lrn(at: Lowering, call: relay.Call) -> str:
    numbers = {name: float(getattr(call.attrs, name)) for name in ("alpha", "beta", "bias")}
    return at.node(Lrn, call, size=int(call.attrs.size), **numbers)


def _lower_concatenate(at: Lowering, call: relay.Call) -> str:
    names = tuple(at.tensors(call.args[0]))
    axis = at.axes([attributes.axis(call)])[0]
    return at.build.node(Concat, names, at.shape(call), axis=axis)


def _lower_reshape(at: Lowering, call: relay.Call) -> str:
    return at.build.reshape(at.tensor(call.args[0]), at.shape(call))


def _lower_transpose(at: Lowering, call: relay.Call) -> str:
    lifted = at.axes(attributes.permutation(call))
    return at.node(Transpose, call, perm=(*range(at.build.lift), *lifted))


def _lower_pad(at: Lowering, call: relay.Call) -> str:
    widths = ((0, 0),) * at.build.lift + attributes.pad_widths(call)
    return at.node(Pad, call, widths=widths, value=float(at.array(call.args[1]).reshape(())))


def _lower_strided_slice(at: Lowering, call: relay.Call) -> str:
    spans = attributes.slices(call) or ()
    lifted = [(axis + at.build.lift, begin, end, step) for axis, begin, end, step in spans]
    return at.build.slices(at.tensor(call.args[0]), lifted)


def _lower_resize2d(at: Lowering, call: relay.Call) -> str:
    mode = INTERPOLATIONS[str(call.attrs.method)]
    coordinates = str(call.attrs.coordinate_transformation_mode)
    rounding = {"rounding": attributes.rounding(call)} if mode == "nearest" else {}
    return at.node(Resize, call, mode=mode, coordinates=coordinates, **rounding)


def _lower_upsampling(at: Lowering, call: relay.Call) -> str:
    coordinates = "align_corners" if call.attrs.align_corners else "asymmetric"
    return at.node(Resize, call, mode=UPSAMPLINGS[str(call.attrs.method)], coordinates=coordinates)


def _lower_depth_to_space(at: Lowering, call: relay.Call) -> str:
    blocks_first = str(call.attrs.mode) == "DCR"
    data = at.tensor(call.args[0])
    return at.build.depth_to_space(data, int(call.attrs.block_size), blocks_first=blocks_first)


OPS: dict[str, OpLowering] = {
    **{name: _unary(kind) for name, kind in elementwise.UNARY.items()},
    **{name: _binary(kind) for name, kind in elementwise.BINARY.items()},
    "clip": _lower_clip,
    "nn.leaky_relu": _lower_leaky_relu,
    "nn.prelu": _lower_prelu,
    "nn.bias_add": _lower_bias_add,
    "nn.max_pool2d": _pool("max"),
    "nn.avg_pool2d": _pool("avg"),
    "nn.max_pool1d": _pool("max"),
    "nn.avg_pool1d": _pool("avg"),
    "nn.global_avg_pool2d": _global_pool("mean"),
    "nn.global_max_pool2d": _global_pool("max"),
    "nn.adaptive_avg_pool2d": _lower_adaptive_pool,
    "mean": _reduce("mean"),
    "sum": _reduce("sum"),
    "max": _reduce("max"),
    "min": _reduce("min"),
    "variance": _lower_variance,
    "nn.softmax": _softmax(log=False),
    "nn.log_softmax": _softmax(log=True),
    "nn.lrn": _lower_lrn,
    "concatenate": _lower_concatenate,
    "transpose": _lower_transpose,
    "nn.pad": _lower_pad,
    "strided_slice": _lower_strided_slice,
    "image.resize2d": _lower_resize2d,
    "nn.upsampling": _lower_upsampling,
    "nn.depth_to_space": _lower_depth_to_space,
    **dict.fromkeys(attributes.RESHAPES, _lower_reshape),
}
