"""Sum, Max, Min and Mean of several tensors: no stacking, one binary op per further tensor."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from tvm import relax

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
    total = _unstack(call, defined, relax.op.add)
    if total is None:
        return None
    count = len(_stacked(call, defined) or ())
    return relax.op.multiply(total, relax.const(1.0 / count, str(call.ty.dtype)))


def _unstack(call: Any, defined: Definitions, combine: Callable[[Any, Any], Any]) -> Any:
    tensors = _stacked(call, defined)
    return None if tensors is None or len(tensors) < 2 else reduce(combine, tensors)


def _stacked(call: Any, defined: Definitions) -> list[Any] | None:
    """The tensors stacked on a new axis 0 that ``call`` reduces away, before they were broadcast."""
    if call.attrs.axis is None or [int(a) for a in call.attrs.axis] != [0] or call.attrs.keepdims:
        return None
    stack = defined.call(call.args[0], "stack")
    if stack is None or int(stack.attrs.axis or 0) != 0:
        return None
    tensors = list(defined.value(stack.args[0]).fields)
    if len(tensors) > 1:
        # Binary ops broadcast by themselves, as long as some tensor has the full shape.
        narrow = [defined.call(t, "broadcast_to") for t in tensors]
        full = [n is None for n in narrow]
        if any(full):
            tensors = [t if n is None else n.args[0] for t, n in zip(tensors, narrow, strict=True)]
    return tensors
