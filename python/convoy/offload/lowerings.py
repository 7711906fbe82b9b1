"""What an op that both TVMs have becomes in a ``Graph``.

A lowering gets the region's operands, to read and to append nodes, and the call; it returns the name of
the tensor it makes.  The tables hold the ops that both TVMs call alike; a door adds its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from convoy.graph.ops import (
    Binary,
    BinaryKind,
    Concat,
    Conv2d,
    ConvTranspose2d,
    GroupNorm,
    LayerNorm,
    Pad,
    Pool2d,
    Reduce,
    Resize,
    Softmax,
    Transpose,
    Unary,
    UnaryKind,
)
from convoy.offload.attributes import is_leaky, pair
from convoy.offload.operands import Call, Operands
from convoy.offload.resize import INTERPOLATIONS, rounding
from convoy.ops import OpRow

ItemLowering = Callable[[Operands, Call, int], str]
"""The last argument is the index of an item in the tuple that the op gives."""
OpLowering = Callable[[Operands, Call], str]

# Anchors -------------------------------------------------------------------------------------------


def _lower_conv(at: Operands, call: Call) -> str:
    weight = at.array(call.args[1])
    return at.build.windowed(
        Conv2d,
        at.tensor(call.args[0]),
        at.shape(call),
        weight if weight.ndim == 4 else weight[:, :, None, :],
        pattern="conv1d" * (weight.ndim == 3),
        stride=pair(call.attrs.strides),
        padding=at.attributes.padding(call),
        dilation=pair(call.attrs.dilation),
        groups=int(call.attrs.groups),
    )


def _lower_conv_transpose(at: Operands, call: Call) -> str:
    return at.build.windowed(
        ConvTranspose2d,
        at.tensor(call.args[0]),
        at.shape(call),
        at.array(call.args[1]),
        stride=pair(call.attrs.strides),
        padding=at.attributes.padding(call),
        output_padding=pair(call.attrs.output_padding),
        dilation=pair(call.attrs.dilation),
        groups=int(call.attrs.groups),
    )


# Items of tuples -----------------------------------------------------------------------------------


def _lower_batch_norm(at: Operands, call: Call, item: int) -> str:
    data, *rest = call.args
    gamma, beta, mean, variance = (at.array(arg).astype(np.float64) for arg in rest)
    return at.build.batch_norm(
        at.tensor(data),
        at.axis(at.attributes.axis(call)),
        gamma if call.attrs.scale else 1.0,
        beta if call.attrs.center else 0.0,
        mean,
        variance,
        float(call.attrs.epsilon),
    )


def _lower_split(at: Operands, call: Call, item: int) -> str:
    axis, begin, end, step = at.attributes.piece(call, item)
    return at.build.slices(at.tensor(call.args[0]), [(at.axis(axis), begin, end, step)])


def _lower_dropout(at: Operands, call: Call, item: int) -> str:
    return at.build.reshape(at.tensor(call.args[0]), at.shape(call.args[0]))


ITEMS: dict[str, ItemLowering] = {
    "nn.batch_norm": _lower_batch_norm,
    "nn.dropout": _lower_dropout,
    "split": _lower_split,
}

# Ops -----------------------------------------------------------------------------------------------


def unary(kind: UnaryKind, a: float = 0.0, b: float = 0.0, pattern: str = "") -> OpLowering:
    return lambda at, call: at.node(Unary, call, kind=kind, a=a, b=b, pattern=pattern)


def _binary(kind: BinaryKind) -> OpLowering:
    return lambda at, call: at.node(Binary, call, *call.args, kind=kind)


def _lower_clip(at: Operands, call: Call) -> str:
    bounds = at.attributes.bounds(call)
    assert bounds is not None, "checked by the pattern table"
    return at.node(Unary, call, kind="clip", a=bounds[0], b=bounds[1])


def lower_leaky_relu(at: Operands, call: Call) -> str:
    return at.node(Unary, call, kind="leaky_relu", a=float(call.attrs.alpha))


def _lower_prelu(at: Operands, call: Call) -> str:
    """max(x, 0) + slope · min(x, 0), where the channels' slopes differ."""
    slopes = at.array(call.args[1]).reshape(-1)
    if is_leaky(slopes):
        return at.node(Unary, call, kind="leaky_relu", a=float(slopes[0]), pattern="prelu")
    shape = at.shape(call)
    behind = (1,) * (len(shape) - 1 - at.axis(at.attributes.axis(call)))
    above = at.node(Unary, call, kind="relu")
    below = at.node(Unary, call, kind="clip", a=-np.inf, b=0.0)
    slope = at.build.constant(slopes.reshape(-1, *behind))
    below = at.build.node(Binary, (below, slope), shape, kind="mul")
    return at.build.node(Binary, (above, below), shape, kind="add")


def _lower_layer_norm(at: Operands, call: Call) -> str:
    """Axes that are not the last are brought there, and back."""
    shape, axes = at.shape(call), at.axes(at.attributes.norm_axes(call))
    perm = (*(axis for axis in range(len(shape)) if axis not in axes), *axes)
    moved = tuple(shape[axis] for axis in perm)
    data = at.build.transpose(at.tensor(call.args[0]), perm)
    given = {"axis": len(shape) - len(axes), "epsilon": float(call.attrs.epsilon)}
    normal = at.build.node(LayerNorm, (data, *_scales(at, call)), moved, **given)
    return at.build.transpose(normal, tuple(perm.index(axis) for axis in range(len(shape))))


def _scales(at: Operands, call: Call) -> list[str]:
    """gamma and beta of a norm, as far as it has them."""
    _, gamma, beta = call.args
    arrays = [at.array(gamma), at.array(beta)] if call.attrs.center else [at.array(gamma)]
    if not call.attrs.scale:
        arrays = [np.ones_like(arrays[0]), *arrays[1:]] if call.attrs.center else []
    return [at.build.constant(array) for array in arrays]


def _lower_group_norm(at: Operands, call: Call) -> str:
    return _normalized(at, call, int(call.attrs.num_groups), "")


def _lower_instance_norm(at: Operands, call: Call) -> str:
    return _normalized(at, call, at.shape(call)[1], "instance_norm")


def _normalized(at: Operands, call: Call, groups: int, pattern: str) -> str:
    """Groups of channels with all that lies behind them, which is an image here."""
    shape = at.shape(call)
    image = shape if len(shape) == 4 else (*shape[:2], 1, math.prod(shape[2:]))
    data = at.tensor(call.args[0])
    data = data if image == shape else at.build.reshape(data, image)
    given = {"groups": groups, "epsilon": float(call.attrs.epsilon), "pattern": pattern}
    normal = at.build.node(GroupNorm, (data, *_scales(at, call)), image, **given)
    return normal if image == shape else at.build.reshape(normal, shape)


def _pool(kind: Literal["max", "avg"], pattern: str = "") -> OpLowering:
    def lower_pool(at: Operands, call: Call) -> str:
        return at.build.windowed(
            Pool2d,
            at.tensor(call.args[0]),
            at.shape(call),
            kind=kind,
            kernel=pair(call.attrs.pool_size),
            stride=pair(call.attrs.strides),
            padding=at.attributes.padding(call),
            dilation=pair(call.attrs.dilation),
            count_include_pad=kind == "avg" and bool(call.attrs.count_include_pad),
            pattern=pattern,
        )

    return lower_pool


def _lower_adaptive_pool(at: Operands, call: Call) -> str:
    return at.build.average_to(at.tensor(call.args[0]), at.shape(call))


def _reduce(kind: Literal["mean", "sum", "max", "min"]) -> OpLowering:
    def lower_reduce(at: Operands, call: Call) -> str:
        axes = at.axes(at.attributes.axes(call))
        if not axes:
            return lower_reshape(at, call)
        return at.node(Reduce, call, kind=kind, axes=axes, keepdims=bool(call.attrs.keepdims))

    return lower_reduce


def _softmax(log: bool) -> OpLowering:
    return lambda at, call: at.node(Softmax, call, axis=at.axis(at.attributes.axis(call)), log=log)


def lower_concat(at: Operands, call: Call) -> str:
    axis, shape = at.axis(at.attributes.axis(call)), at.shape(call)
    return at.build.node(Concat, at.build.lifted(at.tensors(call.args[0]), shape), shape, axis=axis)


def lower_reshape(at: Operands, call: Call) -> str:
    return at.build.reshape(at.tensor(call.args[0]), at.shape(call))


def lower_transpose(at: Operands, call: Call) -> str:
    lifted = at.axes(at.attributes.permutation(call))
    return at.node(Transpose, call, perm=(*range(at.build.lift), *lifted))


def lower_pad(at: Operands, call: Call, value: float) -> str:
    widths = ((0, 0),) * at.build.lift + at.attributes.pad_widths(call)
    return at.node(Pad, call, widths=widths, value=value)


def _lower_strided_slice(at: Operands, call: Call) -> str:
    spans = at.attributes.slices(call)
    assert spans is not None, "checked by the pattern table"
    lifted = [(at.axis(axis), begin, end, step) for axis, begin, end, step in spans]
    return at.build.slices(at.tensor(call.args[0]), lifted)


def _lower_resize2d(at: Operands, call: Call) -> str:
    mode = INTERPOLATIONS[str(call.attrs.method)]
    coordinates = str(call.attrs.coordinate_transformation_mode)
    picked = rounding(str(call.attrs.rounding_method), coordinates)
    given = {"rounding": picked} if mode == "nearest" else {}
    return at.node(Resize, call, mode=mode, coordinates=coordinates, **given)


def elementwise(rows: Mapping[str, OpRow]) -> dict[str, OpLowering]:
    """The lowerings of ops that are one elementwise node, whatever their operands."""
    one = {name: unary(row.unary) for name, row in rows.items() if row.unary}
    return one | {name: _binary(row.binary) for name, row in rows.items() if row.binary}


OPS: dict[str, OpLowering] = {
    "nn.conv1d": _lower_conv,
    "nn.conv2d": _lower_conv,
    "nn.conv2d_transpose": _lower_conv_transpose,
    "clip": _lower_clip,
    "nn.prelu": _lower_prelu,
    "nn.layer_norm": _lower_layer_norm,
    "nn.group_norm": _lower_group_norm,
    "nn.instance_norm": _lower_instance_norm,
    "nn.max_pool2d": _pool("max"),
    "nn.avg_pool2d": _pool("avg"),
    "nn.max_pool1d": _pool("max", "max_pool1d"),
    "nn.avg_pool1d": _pool("avg", "avg_pool1d"),
    "nn.adaptive_avg_pool2d": _lower_adaptive_pool,
    "mean": _reduce("mean"),
    "sum": _reduce("sum"),
    "max": _reduce("max"),
    "min": _reduce("min"),
    "nn.softmax": _softmax(log=False),
    "nn.log_softmax": _softmax(log=True),
    "strided_slice": _lower_strided_slice,
    "image.resize2d": _lower_resize2d,
}
