"""What each op of Relay becomes in a ``Graph``: the tables of ``lower``."""

from __future__ import annotations

from typing import Literal

import numpy as np

from convoy.graph.ops import Binary, Lrn, MatMul, Reduce, Resize
from convoy.offload import lowerings
from convoy.offload.lowerings import ItemLowering, OpLowering
from convoy.offload.operands import Call, Operands
from convoy.ops import RELAY
from convoy.relay.attributes import RESHAPES
from convoy.relay.dataflow import op_name
from convoy.relay.patterns import UPSAMPLINGS


def _lower_product(at: Operands, call: Call) -> str:
    weight = at.array(call.args[1])
    weight = weight.reshape(weight.shape[-2:])  # that of a batch_matmul has an axis of length 1 in front
    if op_name(call) == "nn.dense" or call.attrs.transpose_b:
        weight = weight.T
    pattern = {"nn.dense": "dense", "nn.batch_matmul": "batch_matmul"}.get(op_name(call), "")
    names = (at.tensor(call.args[0]), at.build.constant(weight))
    return at.build.node(MatMul, names, at.shape(call), pattern=pattern)


def _lower_bias_add(at: Operands, call: Call) -> str:
    shape = at.shape(call)
    behind = (1,) * (len(shape) - 1 - at.axis(at.attributes.axis(call)))
    bias = at.build.constant(at.array(call.args[1]).reshape(-1, *behind))
    return at.build.node(Binary, (at.tensor(call.args[0]), bias), shape, kind="add")


def _global_pool(kind: Literal["mean", "max"]) -> OpLowering:
    return lambda at, call: at.node(Reduce, call, kind=kind, axes=(2, 3))


def _lower_variance(at: Operands, call: Call) -> str:
    """Mean of (x - mean)², times n/(n-1) where it is unbiased."""
    data, mean = (at.tensor(arg) for arg in call.args)
    shape, axes = at.build.shape_of(data), at.axes(at.attributes.axes(call))
    difference = at.build.node(Binary, (data, mean), shape, kind="sub")
    result = at.build.mean_square(difference, axes, bool(call.attrs.keepdims))
    if not call.attrs.unbiased:
        return result
    count = int(np.prod([shape[a] for a in axes]))
    factor = at.build.constant(np.full(1, count / (count - 1), np.float32))
    return at.build.node(Binary, (result, factor), at.shape(call), kind="mul")


def _lower_lrn(at: Operands, call: Call) -> str:
    numbers = {name: float(getattr(call.attrs, name)) for name in ("alpha", "beta", "bias")}
    return at.node(Lrn, call, size=int(call.attrs.size), **numbers)


def _lower_pad(at: Operands, call: Call) -> str:
    return lowerings.lower_pad(at, call, float(at.array(call.args[1]).reshape(())))


def _lower_upsampling(at: Operands, call: Call) -> str:
    coordinates = "align_corners" if call.attrs.align_corners else "asymmetric"
    return at.node(Resize, call, mode=UPSAMPLINGS[str(call.attrs.method)], coordinates=coordinates)


def _lower_depth_to_space(at: Operands, call: Call) -> str:
    blocks_first = str(call.attrs.mode) == "DCR"
    data = at.tensor(call.args[0])
    return at.build.depth_to_space(data, int(call.attrs.block_size), blocks_first=blocks_first)


ITEMS: dict[str, ItemLowering] = lowerings.ITEMS
OPS: dict[str, OpLowering] = {
    **lowerings.OPS,
    **lowerings.elementwise(RELAY),
    **dict.fromkeys(RESHAPES, lowerings.lower_reshape),
    "nn.dense": _lower_product,
    "nn.matmul": _lower_product,
    "nn.batch_matmul": _lower_product,
    "nn.leaky_relu": lowerings.lower_leaky_relu,
    "nn.bias_add": _lower_bias_add,
    "nn.global_avg_pool2d": _global_pool("mean"),
    "nn.global_max_pool2d": _global_pool("max"),
    "variance": _lower_variance,
    "nn.lrn": _lower_lrn,
    "concatenate": lowerings.lower_concat,
    "transpose": lowerings.lower_transpose,
    "layout_transform": lowerings.lower_transpose,
    "nn.pad": _lower_pad,
    "nn.upsampling": _lower_upsampling,
    "nn.depth_to_space": _lower_depth_to_space,
}
