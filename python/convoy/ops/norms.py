"""What normalizes its data: batch, layer, RMS, group and instance norm, LRN and softmax."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from convoy.graph.ops import GroupNorm, LayerNorm, Lrn, Softmax
from convoy.ops.attributes import from_zero
from convoy.ops.operands import Operands
from convoy.ops.reader import Call, Reader
from convoy.ops.row import Lowering, OpRow

# Checks --------------------------------------------------------------------------------------------


def _check_batch_norm(at: Reader, call: Call) -> str | None:
    if getattr(call.attrs, "training", False):
        return "expected inference, got training=True, which uses the statistics of the batch"
    return None


def _check_order(at: Reader, call: Call) -> str | None:
    ndim = len(at.dims(call.args[0]) or ())
    axes = [from_zero(int(axis), ndim) for axis in call.attrs.axes]
    return None if axes == sorted(axes) else f"expected axes in ascending order, got {axes}"


def _check_layer_norm(at: Reader, call: Call) -> str | None:
    return _check_order(at, call) or _check_flags(at, call)


def _check_flags(at: Reader, call: Call) -> str | None:
    """By TVM's documents gamma or beta does not count without its flag; Relax's kernels use both (0.27)."""
    for flag, position, neutral in (("scale", 1, 1.0), ("center", 2, 0.0)):
        array = at.constant(call.args[position])
        if not getattr(call.attrs, flag) and (array is None or (array != neutral).any()):
            return f"expected {flag}, or {neutral:g} in its place, got {flag}=False and other numbers"
    return None


def _check_norm(at: Reader, call: Call) -> str | None:
    channels, axes = at.attributes.axis(call), at.attributes.norm_axes(call)
    if channels == 1 and axes == tuple(range(2, len(at.dims(call.args[0]) or ()))):
        return None
    found = f"axis {channels} and {list(axes)}"
    return f"expected channels on axis 1 and means over all axes behind, got {found}"


def _check_lrn(at: Reader, call: Call) -> str | None:
    return None if call.attrs.axis == 1 else f"expected normalization along axis 1, got {call.attrs.axis}"


# Lowerings -----------------------------------------------------------------------------------------


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


def _lower_layer_norm(at: Operands, call: Call) -> str:
    return _last_axes(at, call, _scales(at, call))


def _lower_rms_norm(at: Operands, call: Call) -> str:
    gamma = at.build.constant(at.array(call.args[1]))
    return _last_axes(at, call, [gamma], centred=False, pattern="rms_norm")


def _last_axes(at: Operands, call: Call, scales: list[str], **given: Any) -> str:
    """Axes that are not the last are brought there, and back."""
    shape, axes = at.shape(call), at.axes(at.attributes.norm_axes(call))
    perm = (*(axis for axis in range(len(shape)) if axis not in axes), *axes)
    moved = tuple(shape[axis] for axis in perm)
    data = at.build.transpose(at.tensor(call.args[0]), perm)
    given |= {"axis": len(shape) - len(axes), "epsilon": float(call.attrs.epsilon)}
    normal = at.build.node(LayerNorm, (data, *scales), moved, **given)
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


def _lower_lrn(at: Operands, call: Call) -> str:
    numbers = {name: float(getattr(call.attrs, name)) for name in ("alpha", "beta", "bias")}
    return at.node(Lrn, call, size=int(call.attrs.size), **numbers)


def _softmax(log: bool) -> Lowering:
    return lambda at, call: at.node(Softmax, call, axis=at.axis(at.attributes.axis(call)), log=log)


# Rows ----------------------------------------------------------------------------------------------


def _both(name: str, base: OpRow, lower: Lowering | None = None) -> OpRow:
    return replace(base, relax=name, relay=name, lower=lower)


_SCALED = OpRow(constants={1: "gamma", 2: "beta"})
_BATCH = OpRow(
    open_sizes=True,
    axis_zero="axis",
    constants={1: "gamma", 2: "beta", 3: "mean", 4: "variance"},
    check=_check_batch_norm,
    item=_lower_batch_norm,
)
_LAYER = replace(_SCALED, axis_zero="norm axes", open_sizes=True, relax_check=_check_layer_norm)
_GROUP = replace(_SCALED, images=True, open_sizes=True, check=_check_norm, relax_check=_check_flags)

ROWS = (
    _both("nn.batch_norm", _BATCH),
    _both("nn.layer_norm", _LAYER, _lower_layer_norm),
    OpRow(
        "nn.rms_norm",
        axis_zero="norm axes",
        constants={1: "gamma"},
        check=_check_order,
        lower=_lower_rms_norm,
    ),
    _both("nn.group_norm", _GROUP, _lower_group_norm),
    _both("nn.instance_norm", _GROUP, _lower_instance_norm),
    OpRow(relay="nn.lrn", images=True, heavy=True, check=_check_lrn, lower=_lower_lrn),
    _both("nn.softmax", OpRow(axis_zero="axis", open_sizes=True), _softmax(log=False)),
    _both("nn.log_softmax", OpRow(axis_zero="axis", open_sizes=True), _softmax(log=True)),
)
