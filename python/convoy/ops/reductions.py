"""Means, sums, extremes and variances over axes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from convoy.graph.ops import Binary, Reduce
from convoy.ops.attributes import elements
from convoy.ops.operands import Operands
from convoy.ops.reader import Call, Reader
from convoy.ops.row import Lowering, OpRow

Kind = Literal["mean", "sum", "max", "min"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Those that are one node of a graph."""


def _check_variance(at: Reader, call: Call) -> str | None:
    axes, shape = at.attributes.axes(call), at.dims(call.args[0]) or ()
    if not axes:
        return "expected axes to take the variance over, got none"
    if getattr(call.attrs, "unbiased", False) and elements([shape[axis] for axis in axes]) < 2:
        return "expected several numbers for an unbiased variance, got one"
    return None


def _reduce(kind: Kind) -> Lowering:
    def lower_reduce(at: Operands, call: Call) -> str:
        axes = at.axes(at.attributes.axes(call))
        if not axes:
            return at.build.reshape(at.tensor(call.args[0]), at.shape(call))
        return at.node(Reduce, call, kind=kind, axes=axes, keepdims=bool(call.attrs.keepdims))

    return lower_reduce


def _lower_variance(at: Operands, call: Call) -> str:
    """Mean of (x - mean)², times n/(n-1) where it is unbiased; Relay gives the mean, Relax does not."""
    data, axes = at.tensor(call.args[0]), at.axes(at.attributes.axes(call))
    shape = at.build.shape_of(data)
    if len(call.args) > 1:
        data = at.build.node(Binary, (data, at.tensor(call.args[1])), shape, kind="sub")
    else:
        data = at.build.centred(data, axes)
    result = at.build.mean_square(data, axes, bool(call.attrs.keepdims))
    if not getattr(call.attrs, "unbiased", False):
        return result
    count = math.prod(shape[axis] for axis in axes)
    factor = at.build.constant(np.full(1, count / (count - 1), np.float32))
    return at.build.node(Binary, (result, factor), at.shape(call), kind="mul")


def _both(name: str, lower: Lowering) -> OpRow:
    return OpRow(name, name, cost="reduction", axis_zero="axes", open_sizes=True, lower=lower)


ROWS = (
    *(_both(kind, _reduce(kind)) for kind in KINDS),
    replace(_both("variance", _lower_variance), check=_check_variance),
)
