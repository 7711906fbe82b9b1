"""Calls of Relay as the folds see them."""

from __future__ import annotations

from tvm import ir, relay

from convoy.fold.node import Node, known_lengths
from convoy.relay.dataflow import dims, dtype, given_name, op_name, tensor_args


def read_node(call: relay.Call, number: int) -> Node | None:
    """The call of an op, the ``number``-th node of its function; None for any other call."""
    name = op_name(call)
    if not name:
        return None
    args = tensor_args(call)
    result = call.checked_type
    if isinstance(result, ir.TupleType) and len(result.fields):
        result = result.fields[0]
    return Node(
        name=name,
        label=make_label(call, number),
        call=call,
        args=args,
        attrs=call.attrs,
        arg_shapes=[known_lengths(dims(argument)) for argument in args],
        arg_dtypes=[dtype(argument) for argument in args],
        shape=known_lengths(dims(result)),
        dtype=dtype(result),
    )


def make_label(call: relay.Call, number: int) -> str:
    """How a report names a call, by its name in the model or else its number: ``conv2d %3``."""
    return f"{op_name(call).removeprefix('nn.')} {given_name(call) or f'%{number}'}"
