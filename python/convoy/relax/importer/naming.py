"""Names of ONNX nodes on what TVM makes of them, and checks of the shapes it gives to what there is."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm_ffi import structural_equal

from convoy.offload.names import stem
from convoy.relax.checks import check
from convoy.relax.dataflow import op_name
from convoy.relax.importer.sizes import Algebra
from convoy.relax.shortage import axes_of_pixels


def name_call(call: tvm.ir.Call, name: str) -> tvm.ir.Call:
    """The same call with ``name`` in its span: a result of the model loses its variable's name."""
    span = tvm.ir.Span(tvm.ir.SourceName(name), 0, 0, 0, 0)
    return tvm.ir.Call(call.op, list(call.args), call.attrs, call.ty_args, span)


class NamingBuilder(relax.BlockBuilder):  # type: ignore[misc]
    """A block builder whose calls carry the name of the ONNX node that is being converted.

    TVM takes a reshape for granted: with others than its elements it would read, or write, behind a tensor.
    Where no arithmetic shows that they are as many, a call checks it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.node = ""
        """Its name; empty: none is."""
        self.algebra = Algebra()
        """What is known of the open sizes."""
        self._checked: list[tuple[Any, Any]] = []
        """Numbers of elements that a call compares."""

    def emit(self, expr: Any, name_hint: str = "") -> relax.Var:
        # a builder's names are one set: a variable of this one would take it from the function
        hint = f"{name_hint}_" if name_hint == "main" else name_hint
        return self._emit_one(self._name(expr, {}), hint)

    def _emit_one(self, expr: Any, name_hint: str = "") -> relax.Var:
        made = super().emit(expr, name_hint)
        axes = axes_of_pixels(expr) if isinstance(expr, tvm.ir.Call) else set()
        for axis, size in enumerate(self.algebra.sizes(made) or () if axes else ()):
            if axis in axes:
                self.algebra.learn(size, f"axis {axis} of {stem(op_name(expr))} {self.node}")
        return made

    def normalize(self, expr: Any) -> Any:
        return super().normalize(self._name(expr, {}))

    def _name(self, expr: Any, known: dict[Any, Any]) -> Any:
        """``expr`` with the node's name on each call in it that has none; what is shared stays shared.

        Calls inside of it are emitted here: TVM does the same, but forgets their names.
        """
        if not self.node or expr in known:
            return known.get(expr, expr)
        made = expr
        if isinstance(expr, tvm.ir.Call) and isinstance(expr.op, tvm.ir.Op):
            args = [self._emit_inner(arg, known) for arg in expr.args]
            made = tvm.ir.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span)
            made = made if expr.span is not None else name_call(made, self.node)
            if op_name(made) == "reshape" and isinstance(made.args[1], relax.ShapeExpr):
                self._expect_elements(self.algebra.sizes(made.args[0]), made.args[1])
        elif isinstance(expr, relax.Tuple):
            made = relax.Tuple([self._emit_inner(field, known) for field in expr.fields])
        elif isinstance(expr, relax.TupleGetItem):
            made = relax.TupleGetItem(self._emit_inner(expr.tuple_value, known), expr.index)
        known[expr] = made
        return made

    def _emit_inner(self, expr: Any, known: dict[Any, Any]) -> Any:
        made = self._name(expr, known)
        if isinstance(made, tvm.ir.Call) and isinstance(made.op, tvm.ir.Op):
            made = known[expr] = self._emit_one(made)
        return made

    def _expect_elements(self, there: list[Any] | None, wanted: relax.ShapeExpr) -> None:
        """End a call of a reshape to more elements than there are, or to fewer."""
        sizes = list(map(self.algebra.simplify, wanted.values))
        if there is None or all(isinstance(d, int) for d in (*there, *sizes)):
            return
        pair = self.algebra.product(sizes), self.algebra.product(there)
        if self.algebra.same(*pair) or any(structural_equal(pair, known) for known in self._checked):
            return
        self._checked.append(pair)
        check(self, [pair[0]], [pair[1]])
