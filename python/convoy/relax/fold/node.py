"""Calls of Relax as the folds see them."""

from __future__ import annotations

from tvm import relax
from tvm.ir import Expr, Var
from tvm.ir import Tuple as TupleExpr

from convoy.fold.node import Node, known_lengths
from convoy.relax.dataflow import dims, dtype, given_name, op_name


def read_node(value: Expr, var: Var) -> Node | None:
    """The call of an op that ``var`` is bound to; None for any other value."""
    name = op_name(value)
    if not name:
        return None
    first = value.args[0] if value.args else None
    args = list(first.fields) if isinstance(first, TupleExpr) else list(value.args)
    result = value.ty.fields[0] if isinstance(value.ty, relax.TupleType) and value.ty.fields else value.ty
    return Node(
        name=name,
        label=make_label(value, var),
        call=value,
        args=args,
        attrs=value.attrs,
        arg_shapes=[known_lengths(dims(argument)) for argument in args],
        arg_dtypes=[dtype(argument) for argument in args],
        shape=known_lengths(dims(result)),
        dtype=dtype(result),
    )


def make_label(value: Expr, var: Var) -> str:
    """How a report names a value, by its name in the model or else its variable: ``conv2d lv3``."""
    name = given_name(value) or var.name
    return f"{op_name(value).removeprefix('nn.') or type(value).__name__} {name}"
