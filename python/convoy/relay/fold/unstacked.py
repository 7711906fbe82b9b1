"""Dense layers that TVM's CombineParallelDense made one batch_matmul of, by themselves again.

    stack(x, …, x) → batch_matmul with stack(w0, …, wn) → elementwise → split → squeeze

becomes ``dense(x, wi)``, and what followed, for each piece.  A batch_matmul of several weights would stay
with TVM, where Convoy takes dense layers.
"""

from __future__ import annotations

import numpy as np
from tvm import relay

from convoy.relay.dataflow import constant, op_name
from convoy.relay.fold.constants import literal
from convoy.relay.lets import rebuild_open

_ELEMENTWISE = frozenset(
    {"add", "subtract", "multiply", "divide", "maximum", "minimum", "nn.relu", "tanh", "sigmoid", "clip"}
)


def unstack(function: relay.Function) -> relay.Function:
    """The same function with a dense layer for each piece of a batch_matmul of stacked operands.

    Weights are literals, as ``compute_constants`` leaves them.
    """

    def change(_: relay.Call, call: relay.Call) -> relay.Expr:
        found = _split_piece(call)
        piece = None if found is None else _piece(*found)
        return call if piece is None else piece

    return rebuild_open(function, change)


def _split_piece(call: relay.Call) -> tuple[relay.Expr, int, int] | None:
    """What is split along axis 0 into how many pieces, and which of them ``call`` squeezes."""
    if op_name(call) != "squeeze" or call.attrs.axis is None or [int(a) for a in call.attrs.axis] != [0]:
        return None
    item = call.args[0]
    if not isinstance(item, relay.TupleGetItem) or op_name(item.tuple_value) != "split":
        return None
    split = item.tuple_value
    sections = split.attrs.indices_or_sections
    if int(split.attrs.axis) != 0 or not hasattr(sections, "value"):  # else it is a list of places
        return None
    return split.args[0], int(sections), int(item.index)


def _piece(value: relay.Expr, count: int, index: int) -> relay.Expr | None:
    """The piece of ``value`` along axis 0, without that axis; None if it is not made of stacked pieces."""
    name = op_name(value)
    if isinstance(value, relay.Constant):
        return _literal_piece(value, count, index)
    if name == "stack":
        fields = value.args[0].fields if isinstance(value.args[0], relay.Tuple) else []
        return fields[index] if int(value.attrs.axis) == 0 and len(fields) == count else None
    if name == "nn.batch_matmul":
        data, weight = (_piece(arg, count, index) for arg in value.args)
        turned = value.attrs.transpose_b and not value.attrs.transpose_a
        if data is None or not isinstance(weight, relay.Constant) or not turned:
            return None
        return relay.nn.dense(data, weight, out_dtype=str(value.attrs.out_dtype))
    if name not in _ELEMENTWISE:
        return None
    args = [_piece(arg, count, index) for arg in value.args]
    if any(arg is None for arg in args):
        return None
    return relay.Call(value.op, args, value.attrs, value.type_args, value.span)


def _literal_piece(value: relay.Constant, count: int, index: int) -> relay.Expr | None:
    array = constant(value)
    assert array is not None
    if array.ndim < 3:  # broadcast over the axis of the pieces
        return value
    if array.ndim > 3 or array.shape[0] not in (1, count):
        return None
    return literal(np.asarray(array[index if array.shape[0] == count else 0]), str(value.data.dtype))
