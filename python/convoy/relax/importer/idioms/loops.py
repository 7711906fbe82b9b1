"""Loops (``call_tir``) that a frontend generated for what is one Relax op.

A loop is recognised by making it again: the parameters are read from its body, the loop that
TVM generates for them is built, and only if both are structurally equal is it replaced.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx, topi

from convoy.relax.importer.idioms.definitions import Definitions


def raise_bound(call: Any, defined: Definitions) -> Any:
    """call_tir(a loop of max or min, (x, bound))  =>  maximum or minimum(x, bound)."""
    kind = next((k for k in ("maximum", "minimum") if call.args[0].name_hint.startswith(k)), None)
    if kind is None:
        return None
    loop, tensors = defined.module[call.args[0]], list(call.args[1].fields)
    operation = getattr(topi, kind)
    bound: Any = tensors[1] if len(tensors) == 2 else _find_bound(loop, kind)
    if bound is None or not _is_loop_of(loop, operation, *tensors[:1], bound):
        return None
    if isinstance(bound, float):
        bound = relax.const(bound, str(call.ty.dtype))
    return getattr(relax.op, kind)(tensors[0], bound)


def raise_pad(call: Any, defined: Definitions) -> Any:
    """call_tir(a loop that pads with a constant, (x,))  =>  nn.pad(x, widths, value)."""
    if not call.args[0].name_hint.startswith("pad") or len(call.args[1].fields) != 1:
        return None
    loop, x = defined.module[call.args[0]], call.args[1].fields[0]
    store = _innermost(loop)
    # if_then_else(inside, x[i - before, …], value)
    choice = getattr(store, "value", None)
    if not isinstance(choice, tvm.ir.Call) or len(choice.args) != 3:
        return None
    _, read, filling = choice.args
    if not hasattr(read, "indices") or not isinstance(filling, tirx.FloatImm):
        return None
    before = [_shift(index) for index in read.indices]
    sizes = zip(call.ty.shape.values, x.ty.shape.values, strict=True)
    grown = [_growth(out, size) for out, size in sizes]
    if any(n is None for n in (*before, *grown)):
        return None
    after = [g - b for g, b in zip(grown, before, strict=True) if g is not None and b is not None]
    value = float(filling.value)
    if min(after) < 0 or not _is_loop_of(loop, topi.nn.pad, x, before, after, value):
        return None
    widths = [w for pair in zip(before, after, strict=True) for w in pair]
    return relax.op.nn.pad(x, widths, "constant", value)


def _find_bound(loop: tirx.PrimFunc, kind: str) -> float | None:
    value: Any = getattr(_innermost(loop), "value", None)
    if not isinstance(value, tirx.Max if kind == "maximum" else tirx.Min):
        return None
    return float(value.b.value) if isinstance(value.b, tirx.FloatImm) else None


def _shift(index: Any) -> int | None:
    """d of an index i - d."""
    if isinstance(index, tirx.Var):
        return 0
    shifted = isinstance(index, tirx.Sub) and isinstance(index.b, tirx.IntImm)
    return int(index.b) if shifted else None


def _growth(out: Any, size: Any) -> int | None:
    if isinstance(out, tirx.IntImm) and isinstance(size, tirx.IntImm):
        return int(out) - int(size)
    return 0 if tvm_ffi.structural_equal(out, size) else None


def _is_loop_of(loop: tirx.PrimFunc, operation: Any, *arguments: Any) -> bool:
    """Is ``loop`` what TVM generates for ``operation(*arguments)``?"""
    builder = relax.BlockBuilder()
    inputs: list[Any] = []
    fresh: list[Any] = []
    for argument in arguments:
        if isinstance(argument, relax.Expr) and isinstance(argument.ty, relax.TensorType):
            inputs.append(relax.Var(f"x{len(inputs)}", argument.ty))
            fresh.append(inputs[-1])
        else:
            fresh.append(argument)
    with builder.function("again", inputs):
        builder.emit_func_output(builder.emit_te(operation, *fresh))
    module = builder.get()
    again = next(f for f in module.functions.values() if isinstance(f, tirx.PrimFunc))
    return bool(tvm_ffi.structural_equal(loop, again))


def _innermost(loop: tirx.PrimFunc) -> Any:
    """The statement inside all loops and blocks."""
    statement = loop.body
    while True:
        inner = getattr(statement, "block", None) or getattr(statement, "body", None)
        if inner is None:
            return statement
        statement = inner
