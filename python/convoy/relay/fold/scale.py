"""The fold of scales over a Relay function: its nodes read front to back, its decisions written.

Relay has no variables for what a call computes: a node of the old function is its own name, and
``bind`` says which expression stands for it in the new one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tvm import relay

from convoy.fold.affine import Vector
from convoy.fold.constants import Array, Const, evaluate
from convoy.fold.node import Node
from convoy.fold.scale import FoldScales
from convoy.relay.dataflow import constant, op_name, operands, post_order, renewed, with_args, with_body
from convoy.relay.fold.computed import read_filled
from convoy.relay.fold.constants import literal, product, read_literal, write_constant
from convoy.relay.fold.node import read_node
from convoy.report.decision import Report


class ScaleWalk:
    """One function's walk; ``convoy.fold.scale`` decides."""

    def __init__(self, report: Report) -> None:
        self.folds = FoldScales(self, report)
        self.uses: Counter[relay.Expr] = Counter()
        self.constants: dict[relay.Expr, Const] = {}
        self._new: dict[relay.Expr, relay.Expr] = {}
        """What stands for the nodes of the old function."""
        self._projections: dict[relay.Expr, Counter[int]] = {}
        self._twins: dict[relay.Expr, relay.Expr] = {}
        """For an item of a batch norm written again, the node where it was written first."""

    def rewrite(self, function: relay.Function) -> relay.Function:
        """The same function, folded; the very same object if nothing changed."""
        nodes = list(post_order(function.body))
        self._survey(nodes)
        for number, node in enumerate(nodes):
            self._visit(node, number)
        self._force(function.body)
        return with_body(function, self.operand(function.body))

    # What the fold reads and writes: see ``convoy.fold.scale.Door``.

    def constant(self, value: relay.Expr) -> Const | None:
        if isinstance(value, relay.Constant) and value not in self.constants:
            if str(value.data.dtype) == "bfloat16":  # which NumPy does not have
                return None
            self.constants[value] = read_literal(value)
        return self.constants.get(value)

    def only_projected(self, value: relay.Expr) -> bool:
        counts = self._projections.get(value, Counter()).values()
        return sum(counts) == self.uses[value] and all(n == 1 for n in counts)

    def operand(self, value: relay.Expr) -> relay.Expr:
        if value not in self._new:
            if value in self.constants:
                self._new[value] = write_constant(self.constants[value])
            elif isinstance(value, relay.Tuple):
                self._new[value] = self._rebuilt_tuple(value)
            else:
                return value
        return self._new[value]

    def rebuilt(self, call: relay.Call) -> relay.Call:
        args = [self.operand(argument) for argument in call.args]
        same = all(new.same_as(old) for new, old in zip(args, call.args, strict=True))
        return call if same else with_args(call, args)

    def with_args(self, node: Node, args: Sequence[relay.Expr]) -> relay.Call:
        return with_args(node.call, args)

    def product(self, array: Array, factor: Vector, dtype: str) -> relay.Expr:
        return product(array, factor, dtype)

    def binary(self, name: str, x: relay.Expr, constant: Array, like: Node) -> relay.Call:
        attrs, operand = None, literal(constant, like.dtype)
        wide = [axis for axis, n in enumerate(constant.shape) if n != 1]
        if name == "add" and wide and _has_a_zero_scale(x):
            # TVM's FoldScaleAxis would divide an add's constant by the scale, but knows no bias_add
            name, operand = "nn.bias_add", literal(constant.reshape(-1), like.dtype)
            axis = wide[0] - constant.ndim + len(like.shape or constant.shape)
            attrs = relay.nn.bias_add(x, operand, axis).attrs
        return relay.Call(relay.op.get(name), [x, operand], attrs, None, like.call.span)

    def bind(
        self, value: relay.Expr, var: relay.Expr | None = None, near: relay.Expr | None = None
    ) -> relay.Expr:
        if var is not None:
            self._new[var] = value
        return value

    # The walk.

    def _survey(self, nodes: Sequence[relay.Expr]) -> None:
        """Count the reads of every node; what a tuple holds is read as often as the tuple."""
        items: dict[tuple[relay.Expr, int], relay.Expr] = {}
        for node in nodes:
            if isinstance(node, relay.TupleGetItem) and op_name(node.tuple_value) == "nn.batch_norm":
                first = items.setdefault((node.tuple_value, node.index), node)
                if not first.same_as(node):
                    self._twins[node] = first
        self.uses[nodes[-1]] = 1
        for node in reversed(nodes):
            if node in self._twins:
                self.uses[self._twins[node]] += self.uses[node]
                continue
            for operand in operands(node):
                self.uses[operand] += self.uses[node] if isinstance(node, relay.Tuple) else 1
            if isinstance(node, relay.TupleGetItem):
                self._projections.setdefault(node.tuple_value, Counter())[node.index] += 1

    def _visit(self, node: relay.Expr, number: int) -> None:
        if isinstance(node, relay.Tuple):
            return  # a concatenation may take its fields one by one
        if isinstance(node, relay.TupleGetItem):
            if self._is_identity(node.tuple_value):
                self._pass_on(node, node.tuple_value.args[0])
                return
            first = self._twins.get(node)
            if first is not None and node.tuple_value in self.folds.norms:
                if (constant := self.constant(first)) is not None:
                    self.constants[node] = constant
                else:
                    self._new[node] = self.operand(first)
                return
            if self.folds.interpret_item(node, node.tuple_value, node.index):
                return
        elif isinstance(node, relay.Call) and (read := read_node(node, number)) is not None:
            if self._is_identity(node):
                return
            constant = read_filled(node) or evaluate(read, self.constant)
            if constant is not None:
                self.constants[node] = constant
                return
            if self.folds.interpret(node, read):
                return
        self._keep(node)

    def _is_identity(self, call: relay.Expr) -> bool:
        """Is this a dropout, which does nothing at inference, and of which only the first item is read?"""
        if op_name(call) != "nn.dropout" or self.uses[call] != 1:
            return False
        return self._projections.get(call) == Counter({0: 1})

    def _pass_on(self, node: relay.Expr, source: relay.Expr) -> None:
        """``node`` is another name of ``source``."""
        if (constant := self.constant(source)) is not None:
            self.constants[node] = constant
        elif not self.folds.interpret_alias(node, source):
            self._force(source)
            self._new[node] = self.operand(source)
            if source in self.folds.shared:
                self.folds.shared[node] = self.folds.shared[source]

    def _keep(self, node: relay.Expr) -> None:
        """A node no fold understands: as it stands, of its operands as they are now."""
        for operand in operands(node):
            self._force(operand)
        new = {operand: self.operand(operand) for operand in operands(node)}
        self._new[node] = renewed(node, new, lambda _, call: call, lambda function: function)

    def _force(self, value: relay.Expr) -> None:
        """Nothing below ``value`` is held back any more."""
        if isinstance(value, relay.Tuple):
            for field in value.fields:
                self._force(field)
        else:
            self.folds.force(value)

    def _rebuilt_tuple(self, value: relay.Tuple) -> relay.Expr:
        fields = [self.operand(field) for field in value.fields]
        same = all(new.same_as(old) for new, old in zip(fields, value.fields, strict=True))
        return value if same else relay.Tuple(fields, value.span)


def _has_a_zero_scale(x: relay.Expr) -> bool:
    """Is this a multiply by a constant some of which is zero?"""
    factors = [constant(argument) for argument in x.args] if op_name(x) == "multiply" else []
    return any(factor is not None and not factor.all() for factor in factors)
