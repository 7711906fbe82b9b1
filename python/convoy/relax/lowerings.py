"""What each op of Relax becomes in a ``Graph``: the tables of ``lower``."""

from __future__ import annotations

from convoy.graph.ops import MatMul
from convoy.offload import lowerings
from convoy.offload.lowerings import ItemLowering, OpLowering, unary
from convoy.offload.operands import Call, Operands
from convoy.ops import RELAX
from convoy.relax.attributes import RESHAPES


def _lower_matmul(at: Operands, call: Call) -> str:
    weight = at.build.constant(at.array(call.args[1]))
    return at.build.node(MatMul, (at.tensor(call.args[0]), weight), at.shape(call))


def _lower_pad(at: Operands, call: Call) -> str:
    return lowerings.lower_pad(at, call, float(call.attrs.pad_value))


def _lower_pixel_shuffle(at: Operands, call: Call) -> str:
    return at.build.depth_to_space(at.tensor(call.args[0]), int(call.attrs.upscale_factor))


def _lower_variance(at: Operands, call: Call) -> str:
    axes = at.axes(at.attributes.axes(call))
    centred = at.build.centred(at.tensor(call.args[0]), axes)
    return at.build.mean_square(centred, axes, bool(call.attrs.keepdims))


ITEMS: dict[str, ItemLowering] = lowerings.ITEMS
OPS: dict[str, OpLowering] = {
    **lowerings.OPS,
    **lowerings.elementwise(RELAX),
    **dict.fromkeys(RESHAPES, lowerings.lower_reshape),
    "matmul": _lower_matmul,
    "nn.relu6": unary("clip", 0.0, 6.0, pattern="relu6"),
    "nn.leakyrelu": lowerings.lower_leaky_relu,
    "nn.softplus": unary("softplus"),
    "variance": _lower_variance,
    "concat": lowerings.lower_concat,
    "permute_dims": lowerings.lower_transpose,
    "nn.pad": _lower_pad,
    "nn.pixel_shuffle": _lower_pixel_shuffle,
}
