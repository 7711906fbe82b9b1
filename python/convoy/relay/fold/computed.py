"""Constants that are expressions become literals, so that ``fold_scales`` finds them.

Weights cast from float16, cut out of a larger tensor, put together or normalized: TVM's FoldConstant
computes them. What ``convoy.fold.constants`` evaluates is left to it, as that is in float64: the
``sqrt(variance + epsilon)`` of a batch norm written out must not be rounded here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import IRModule, ir, relay

from convoy.fold.constants import EVALUATED, Const
from convoy.relay.dataflow import dims, dtype, op_name, operands, post_order, rebuild_body, with_body
from convoy.relay.fold.constants import literal

_FILLED = {"ones": 1, "zeros": 0}
"""FoldConstant leaves ops without operands: their literals would only be larger."""


def compute_constants(function: relay.Function) -> relay.Function:
    """The same function, its constant expressions computed but for those ``fold_scales`` evaluates."""
    found = list(_constant_nodes(function.body))
    wanted = [node for node in found if _is_computed(node)]
    if not wanted:
        return function
    computed = _compute(wanted)
    return with_body(function, rebuild_body(function.body, lambda _, call: call, new=computed))


def read_filled(call: relay.Call) -> Const | None:
    """The array that ``ones`` or ``zeros`` fills, written back as it came; None for any other call."""
    if op_name(call) not in _FILLED or call.args:
        return None
    shape = [length for length in dims(call) or () if isinstance(length, int)]
    if len(shape) != len(call.checked_type.shape):
        return None
    value = np.asarray(_FILLED[op_name(call)], dtype(call))
    return Const(dtype(call), np.broadcast_to(value, shape), call)


def _constant_nodes(body: relay.Expr) -> Sequence[relay.Expr]:
    """The nodes that depend on literals only, in running order."""
    found: dict[relay.Expr, None] = {}
    for node in post_order(body):
        read = operands(node)
        composed = op_name(node) or isinstance(node, relay.Tuple | relay.TupleGetItem)
        if composed and read:
            constant = all(operand in found for operand in read)
        else:
            constant = isinstance(node, relay.Constant) or (
                bool(composed) and read_filled(node) is not None
            )
        if constant:
            found[node] = None
    return list(found)


def _is_computed(node: relay.Expr) -> bool:
    """Is this a tensor made by an op that ``fold_scales`` does not evaluate?"""
    if not isinstance(node.checked_type, ir.TensorType) or dtype(node) == "bfloat16":  # NumPy has none
        return False
    return isinstance(node, relay.TupleGetItem) or op_name(node) not in ("", *EVALUATED, *_FILLED)


def _compute(wanted: Sequence[relay.Expr]) -> dict[relay.Expr, relay.Expr]:
    """The literal each of these nodes is, for those that FoldConstant knows."""

    def fill(old: relay.Call, new: relay.Call) -> relay.Expr:
        filled = read_filled(old)
        return new if filled is None else literal(filled.array, filled.dtype)

    body = rebuild_body(relay.Tuple(list(wanted)), fill)
    module = relay.transform.InferType()(IRModule.from_expr(relay.Function([], body)))
    module = relay.transform.SimplifyInference()(module)  # FoldConstant cannot compute a batch norm
    results = relay.transform.FoldConstant(fold_qnn=True)(module)["main"].body
    fields = zip(wanted, results.fields, strict=True)
    return {node: result for node, result in fields if isinstance(result, relay.Constant)}
