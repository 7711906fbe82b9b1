"""Activations written out: bounds, SiLU, GELU, HardSigmoid."""

from __future__ import annotations

import math
from typing import Any

import tvm_ffi
from tvm import relax

from convoy.graph.idioms import Activation, find_activation, find_line, is_hardswish
from convoy.relax.importer.idioms.definitions import Definitions, op_name

INFINITY = math.inf

_OPS = {"silu": relax.op.nn.silu, "gelu": relax.op.nn.gelu, "gelu_tanh": relax.op.nn.gelu_tanh}


def raise_relu(call: Any, defined: Definitions) -> Any:
    """maximum(x, 0)  =>  nn.relu(x)."""
    split = _tensor_and_scalar(call, defined)
    if split is None or split[1] != 0.0 or "float" not in str(call.ty.dtype):
        return None
    return relax.op.nn.relu(split[0])


def raise_relu_from_clip(call: Any, defined: Definitions) -> Any:
    """clip(x, 0, inf)  =>  nn.relu(x);  clip(x, -inf, inf)  =>  x."""
    low, high = defined.scalar(call.args[1]), defined.scalar(call.args[2])
    if high != INFINITY:
        return None
    if low == -INFINITY:
        return call.args[0]
    return relax.op.nn.relu(call.args[0]) if low == 0.0 else None


def raise_clip(call: Any, defined: Definitions) -> Any:
    """minimum(maximum(x, low), high), in either order, and minimum(relu(x), high)  =>  clip."""
    outer = _tensor_and_scalar(call, defined)
    if outer is None or "float" not in str(call.ty.dtype):
        return None
    inner = defined.value(outer[0])
    other = "maximum" if op_name(call) == "minimum" else "minimum"
    if op_name(inner) == other:
        split = _tensor_and_scalar(inner, defined)
    elif op_name(inner) == "nn.relu" and other == "maximum":
        split = (inner.args[0], 0.0)
    else:
        split = None
    if split is None:
        return None
    low, high = (split[1], outer[1]) if other == "maximum" else (outer[1], split[1])
    # With low > high the order of the two would matter.
    return relax.op.clip(split[0], low, high) if low <= high else None


def raise_activation(call: Any, defined: Definitions) -> Any:
    """multiply(x, sigmoid(x))  =>  nn.silu(x), and what else of ``graph/idioms.py`` is an op of Relax."""
    found = find_activation(call, defined)
    if found is None or found.kind not in _OPS or not _same_type(found.x, call):
        return None
    return _OPS[found.kind](found.x)


def raise_hardsigmoid(call: Any, defined: Definitions) -> Any:
    """clip(p(x), low, high)·k, p linear, low·k = 0, high·k = 1  =>  clip(x·a + b, 0, 1).

    With a second factor x it is HardSwish: x·clip(x + 3, 0, 6)/6  =>  x·clip(x/6 + 1/2, 0, 1).
    Already in that form it is left alone.
    """
    found = find_line(call, defined, merged=True)
    if found is None or not _same_type(found.x, call) or _is_canonical(found, defined):
        return None
    a, b = (1 / 6, 1 / 2) if is_hardswish(found) else (found.a, found.b)  # merged with a line, and rounded
    gate = relax.op.clip(_line(found.x, a, b), 0, 1)
    return relax.op.multiply(found.x, gate) if found.gated else gate


def _same_type(x: Any, call: Any) -> bool:
    """No broadcast in between: x has the shape and dtype of the result."""
    return bool(tvm_ffi.structural_equal(x.ty, call.ty))


def _line(x: Any, a: float, b: float) -> Any:
    dtype = str(x.ty.dtype)
    return relax.op.add(relax.op.multiply(x, relax.const(a, dtype)), relax.const(b, dtype))


def _is_canonical(found: Activation, defined: Definitions) -> bool:
    """clip(add(multiply(x, a), b), 0, 1): tensors first, numbers second."""
    clip = defined.value(found.curve)
    add = defined.call(clip.args[0], "add")
    multiply = defined.call(add.args[0], "multiply") if add is not None else None
    return (
        multiply is not None
        and defined.same(multiply.args[0], found.x)
        and defined.scalar(clip.args[2]) == 1.0
        and defined.scalar(add.args[1]) is not None
        and defined.scalar(multiply.args[1]) is not None
    )


def _tensor_and_scalar(call: Any, defined: Definitions) -> tuple[Any, float] | None:
    for x, other in ((call.args[0], call.args[1]), (call.args[1], call.args[0])):
        number = defined.scalar(other)
        if number is not None and defined.scalar(x) is None and other.ty.ndim <= x.ty.ndim:
            return x, number
    return None
