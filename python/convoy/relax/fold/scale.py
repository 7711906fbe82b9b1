"""The fold of scales over a Relax function: its bindings read, its decisions written."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import IRModule
from tvm.ir import Call, Expr, Op, TupleGetItem, Var

from convoy.fold.affine import Vector
from convoy.fold.constants import Array
from convoy.fold.node import Node
from convoy.fold.scale import FoldScales
from convoy.relax.fold.constants import literal, product
from convoy.relax.fold.node import read_node
from convoy.relax.fold.walk import Walk
from convoy.report.decision import Report


class ScaleWalk(Walk):
    """One function's walk; ``convoy.fold.scale`` decides."""

    def __init__(self, module: IRModule, report: Report) -> None:
        super().__init__(module)
        self.folds = FoldScales(self, report)

    def held(self) -> list[Var]:
        return self.folds.held()

    def force(self, var: Var) -> None:
        self.folds.force(var)

    def let_go(self) -> None:
        self.folds.keep_norms()

    def interpret(self, var: Var, value: Expr) -> bool:
        if isinstance(value, TupleGetItem):
            return self.folds.interpret_item(var, value.tuple_value, value.index)
        if isinstance(value, Var):
            return self.folds.interpret_alias(var, value)
        node = read_node(value, var)
        return node is not None and self.folds.interpret(var, node)

    def operand(self, value: Expr) -> Expr:
        return self.inline(value)

    def rebuilt(self, call: Call) -> Expr:
        return self.inline(call)

    def with_args(self, node: Node, args: Sequence[Expr]) -> Call:
        call = node.call
        return Call(call.op, list(args), call.attrs, call.ty_args, call.span, call.ty)

    def product(self, array: Array, factor: Vector, dtype: str) -> Expr:
        return product(array, factor, dtype)

    def binary(self, name: str, x: Expr, constant: Array, like: Node) -> Call:
        operand = literal(np.asarray(constant), like.dtype)
        return Call(Op.get(f"relax.{name}"), [x, operand], span=like.call.span, ret_ty=x.ty)
