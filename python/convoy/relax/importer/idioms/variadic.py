"""Sum, Max, Min and Mean of several tensors: no stacking, one binary op per further tensor.

Stacked they are by ``stack``, or by a concat of tensors that are one long there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from tvm import relax

from convoy.relax.dataflow import number
from convoy.relax.importer.idioms.definitions import Definitions


def raise_sum(call: Any, defined: Definitions) -> Any:
    """sum(stack(a, b, c, axis=0), axis=0)  =>  add(add(a, b), c)."""
    return _unstack(call, defined, relax.op.add)


def raise_max(call: Any, defined: Definitions) -> Any:
    """max(stack(a, b, axis=0), axis=0)  =>  maximum(a, b)."""
    return _unstack(call, defined, relax.op.maximum)


def raise_min(call: Any, defined: Definitions) -> Any:
    """min(stack(a, b, axis=0), axis=0)  =>  minimum(a, b)."""
    return _unstack(call, defined, relax.op.minimum)


def raise_mean(call: Any, defined: Definitions) -> Any:
    """mean(stack(a, b, axis=0), axis=0)  =>  multiply(add(a, b), 1/2)."""
    total = _unstack(call, defined, relax.op.add) if "float" in str(call.ty.dtype) else None
    if total is None:
        return None
    count = len(_stacked(call, defined) or ())
    return relax.op.multiply(total, relax.const(1.0 / count, str(call.ty.dtype)))


def _unstack(call: Any, defined: Definitions, combine: Callable[[Any, Any], Any]) -> Any:
    tensors = _stacked(call, defined)
    return None if tensors is None or len(tensors) < 2 else reduce(combine, tensors)


def _stacked(call: Any, defined: Definitions) -> list[Any] | None:
    """The tensors stacked on an axis that ``call`` reduces away, before they were broadcast."""
    rank = call.args[0].ty.ndim
    if call.attrs.axis is None or len(call.attrs.axis) != 1 or call.attrs.keepdims or rank < 1:
        return None
    axis = int(call.attrs.axis[0]) % rank
    if (joined := defined.call(call.args[0], "concat")) is not None:
        return _joined(joined, axis, rank, defined)
    stack = defined.call(call.args[0], "stack")
    if stack is None or int(stack.attrs.axis or 0) % rank != axis:
        return None
    tensors = list(defined.value(stack.args[0]).fields)
    if len(tensors) > 1:
        # Binary ops broadcast by themselves, as long as some tensor has the full shape.
        narrow = [defined.call(t, "broadcast_to") for t in tensors]
        full = [n is None for n in narrow]
        if any(full):
            tensors = [t if n is None else n.args[0] for t, n in zip(tensors, narrow, strict=True)]
    return tensors


def _joined(concat: Any, axis: int, rank: int, defined: Definitions) -> list[Any] | None:
    """The tensors of a concat without this axis, if each is one long along it."""
    fields = getattr(defined.value(concat.args[0]), "fields", ())
    at = 0 if concat.attrs.axis is None else int(concat.attrs.axis) % rank
    if at != axis or any(field.ty.shape is None or number(field.ty.shape[axis]) != 1 for field in fields):
        return None
    tensors = []
    for field in fields:
        longer = defined.call(field, "expand_dims")
        added = [] if longer is None else [int(a) % rank for a in longer.attrs.axis]
        tensors.append(longer.args[0] if added == [axis] else relax.op.squeeze(field, axis))
    return tensors
