"""The places of what is not zero, in loops of their own: TVM calls NumPy (0.27).

A library with such a call would need Python where it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from tvm import relax, te, tirx
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from convoy.relax.dataflow import op_name
from convoy.relax.local_functions import bindings_in
from convoy.relax.rewriting import rewriting
from convoy.relax.sizes import LATE


def find_places_in_loops() -> Pass:
    """Pass that writes out ``nonzero``: one loop counts, and one lists the places."""
    return rewriting(_Places, "convoy.find_places_in_loops")


@mutator
class _Places(PyExprMutator):  # type: ignore[misc]
    named: dict[relax.Var, tirx.Var]
    """What casts call the numbers of places."""
    number: tirx.Var | None = None
    """That of the one that is visited."""

    def visit_function_(self, op: relax.Function) -> relax.Function:
        # TVM loses a number that has two names, where a constant tells the number (0.27)
        casts = (binding for binding in bindings_in(op.body) if isinstance(binding, relax.MatchCast))
        self.named = {cast.value: size for cast in casts if isinstance(size := _last(cast.ty), tirx.Var)}
        return super().visit_function_(op)

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self.number = self.named.get(binding.var)
        super().visit_var_binding_(binding)
        self.number = None

    def visit_match_cast_(self, binding: relax.MatchCast) -> None:
        self.number = size if isinstance(size := _last(binding.ty), tirx.Var) else None
        super().visit_match_cast_(binding)
        self.number = None

    def visit_call_(self, op: Call) -> relax.Expr:
        op = super().visit_call_(op)
        if op_name(op) != "nonzero" or op.args[0].ty.shape is None:
            return op
        emit, (x,) = self.builder_.emit, op.args
        if x.ty.ndim == 0:
            x = emit(relax.op.reshape(x, [1]))
        count = emit(self.builder_.call_te(_count, x, primfunc_name_hint="count_places"))
        number = tirx.Var(LATE, "int64") if self.number is None else self.number
        self.builder_.match_cast(emit(relax.op.tensor_to_shape(count)), relax.ShapeType([number]))
        listed = emit(self.builder_.call_te(_list, x, number, primfunc_name_hint="list_places"))
        return relax.TupleGetItem(listed, 0)


def _last(type_: relax.Type) -> Any:
    """The length of the last axis of a tensor, if it says one."""
    return next(iter(list(getattr(getattr(type_, "shape", None), "values", None) or ())[-1:]), None)


def _count(x: te.Tensor) -> te.Tensor:
    def found(made: Any, places: Sequence[Any]) -> None:
        made[0][0] = made[0][0] + T.int64(1)

    return _for_each(x, [[1]], found, 0)[0]


def _list(x: te.Tensor, number: tirx.Var) -> list[te.Tensor]:
    """The places of each axis [axes, number], and how many there were, which a loop counts as it goes."""

    def found(made: Any, places: Sequence[Any]) -> None:
        listed, count = made
        for axis, place in enumerate(places):
            listed[axis * number + count[0]] = place.astype("int64")
        count[0] = count[0] + T.int64(1)

    return _for_each(x, [[len(x.shape), number], [1]], found, 1)


def _for_each(
    x: te.Tensor, shapes: Sequence[Any], found: Callable[[Any, Sequence[Any]], None], counter: int
) -> list[te.Tensor]:
    """Tensors of int64 that ``found`` writes at each place that is not zero, in order; one begins at 0.

    A loop for each axis: to divide by open sizes takes LLVM minutes.
    """

    def build(given: Any, made: Any) -> Any:
        with IRBuilder() as builder:
            data, *written = map(T.buffer_proxy, [*given, *made])
            with T.seq_scope():
                written[counter][0] = T.int64(0)
                with ExitStack() as loops:
                    places, at = [], tirx.IntImm("int64", 0)
                    for size in x.shape:
                        places.append(loops.enter_context(T.serial(0, size)))
                        at = at * size + places[-1]
                    element = data[at]
                    with T.If(_is_something(element, str(x.dtype))), T.Then():
                        found(written, places)
            return builder.get()

    made = te.extern(
        [list(shape) for shape in shapes], [x], build, dtype=["int64"] * len(shapes), name="places"
    )
    return [made] if isinstance(made, te.Tensor) else list(made)


def _is_something(element: Any, dtype: str) -> Any:
    """Whether it is not zero; with NaN, which is not, TVM's comparison says no."""
    if dtype == "bool":
        return element
    other = element != tirx.const(0, dtype)
    return tirx.any(other, tirx.isnan(element.astype("float32"))) if "float" in dtype else other
