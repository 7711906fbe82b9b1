"""Loops (``call_tir``) that a frontend generated for what is one Relax op.

A loop is recognised by making it again: the parameters are read from its body, the loop that
TVM generates for them is built, and only if both are structurally equal is it replaced.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import relax, tirx, topi

from .scope import Scope


def raise_bound(call: Any, scope: Scope) -> Any:
    """call_tir(a loop of max or min, (x, bound))  =>  maximum or minimum(x, bound)."""
    kind = next((k for k in ("maximum", "minimum") if call.args[0].name_hint.startswith(k)), None)
    if kind is None:
        return None
    loop, tensors = scope.module[call.args[0]], list(call.args[1].fields)
    operation = getattr(topi, kind)
    bound: Any = tensors[1] if len(tensors) == 2 else _find_bound(loop, kind)
    if bound is None or not _is_loop_of(loop, operation, *tensors[:1], bound):
        return None
    if isinstance(bound, float):
        bound = relax.const(bound, str(call.ty.dtype))
    return getattr(relax.op, kind)(tensors[0], bound)


def raise_pad(call: Any, scope: Scope) -> Any:
    """call_tir(a loop that pads with a constant, (x,))  =>  nn.pad(x, widths, value)."""
    if not call.args[0].name_hint.startswith("pad") or len(call.args[1].fields) != 1:
        return None
    loop, x = scope.module[call.args[0]], call.args[1].fields[0]
    choice = _first(
        loop, lambda n: isinstance(n, tirx.Call) and n.op.same_as(tvm.ir.Op.get("tirx.if_then_else"))
    )
    store = _first(loop, lambda n: isinstance(n, tirx.BufferStore))
    if choice is None or store is None or not isinstance(choice.args[2], tirx.FloatImm):
        return None
    value = float(choice.args[2].value)
    before = [_offset(to, at) for to, at in zip(store.indices, choice.args[1].indices, strict=True)]
    sizes = zip(call.ty.shape.values, x.ty.shape.values, strict=True)
    grown = [tvm.arith.Analyzer().simplify(out - size) for out, size in sizes]
    if any(b is None for b in before) or not all(isinstance(g, tirx.IntImm) for g in grown):
        return None
    after = [int(g) - int(b) for g, b in zip(grown, before, strict=True) if b is not None]
    if min(after) < 0 or not _is_loop_of(loop, topi.nn.pad, x, before, after, value):
        return None
    widths = [w for pair in zip(before, after, strict=True) for w in pair]
    return relax.op.nn.pad(x, widths, "constant", value)


def _find_bound(loop: tirx.PrimFunc, kind: str) -> float | None:
    node = _first(loop, lambda n: isinstance(n, tirx.Max if kind == "maximum" else tirx.Min))
    return float(node.b.value) if node is not None and isinstance(node.b, tirx.FloatImm) else None


def _offset(to: Any, at: Any) -> int | None:
    difference = tvm.arith.Analyzer().simplify(to - at)
    return int(difference) if isinstance(difference, tirx.IntImm) else None


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


def _first(loop: tirx.PrimFunc, wanted: Any) -> Any:
    found: list[Any] = []
    tirx.stmt_functor.post_order_visit(loop.body, lambda n: found.append(n) if wanted(n) else None)
    return found[0] if found else None
