"""Indices and divisors that a run computes or is given: a call ends where one lies outside, or is 0.

TVM's kernels read and write wherever an index says, be it another's memory, and to divide a whole number
by 0 ends the process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tvm import relax, te, tirx
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.sym import Analyzer

from convoy.deploy.tensors import OUTSIDE, ZERO
from convoy.relax.dataflow import is_constant, number, op_name
from convoy.relax.rewriting import APART, rewriting

Bounds: TypeAlias = Sequence[tuple[Any, Any]]
"""For each place of the last axis of indices, or for all of them, the lowest and the end."""
FARTHEST = 1 << 20
"""Pixels that a corner of a box lies away, at most; NaN and infinities are farther."""
_INDEXING = frozenset({"take", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd"})
_DIVISORS = {"divide": 1, "floor_divide": 1, "mod": 1, "floor_mod": 1, "dynamic_strided_slice": 3}
"""Ops that divide, and by which of their arguments."""
_BOXES = frozenset({"vision.roi_align", "vision.roi_pool"})


def check_indices() -> Pass:
    """Pass that has indices checked before ops of TVM's read or write where they say."""
    return rewriting(_Checked, "convoy.check_indices")


@mutator
class _Checked(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, op: Call) -> Call:
        op = super().visit_call_(op)
        name = op_name(op)
        if name in _DIVISORS:
            return self.check_divisors(op, _DIVISORS[name])
        if name not in _INDEXING | _BOXES or any(t.ty.shape is None for t in op.args):
            return op
        indices, bounds = op.args[1], _bounds(name, op)
        if bounds is None:
            return op
        orders = _orders(name, op)
        if is_constant(indices) and _lie_within(indices.value.numpy(), bounds) and not orders:
            return op
        checked = self.builder_.call_te(
            _check,
            indices,
            [list(pair) for pair in bounds],
            [list(pair) for pair in orders],
            primfunc_name_hint="check_indices",
            primfunc_attrs=APART,
        )
        args = [op.args[0], self.builder_.emit(checked), *op.args[2:]]
        # to take in a mode that needs no check says nothing, while TVM warns of the other
        attrs = relax.op.take(*args, axis=op.attrs.axis, mode="clip").attrs if name == "take" else op.attrs
        return relax.Call(op.op, args, attrs, op.ty_args, op.span)

    def check_divisors(self, op: Call, at: int) -> Call:
        divisors = op.args[at]
        known = is_constant(divisors) and divisors.value.numpy().all()
        if known or divisors.ty.shape is None or "int" not in str(divisors.ty.dtype):
            return op
        checked = self.builder_.call_te(
            _check_divisors,
            divisors,
            primfunc_name_hint="check_divisors",
            primfunc_attrs=APART,
        )
        args = [self.builder_.emit(checked) if i == at else arg for i, arg in enumerate(op.args)]
        return relax.Call(op.op, args, op.attrs, op.ty_args, op.span)


def _bounds(name: str, call: Call) -> Bounds | None:
    """What indices have to lie within; None: the op checks them itself, or their places are open."""
    data, indices = (list(t.ty.shape.values) for t in call.args[:2])
    if name in _BOXES:
        return [(0, data[0]), *[(-FARTHEST, FARTHEST)] * 4]
    if name in ("gather_nd", "scatter_nd"):
        first, places = int(getattr(call.attrs, "batch_dims", 0)), number(indices[-1])
        return None if places is None else [(0, size) for size in data[first : first + int(places)]]
    if name == "take" and str(call.attrs.mode) != "fast":
        return None
    if call.attrs.axis is None:
        return [(0, math.prod(data, start=tirx.IntImm("int64", 1)))]
    size = data[int(call.attrs.axis)]
    return [(-size if name == "scatter_elements" else 0, size)]


def _orders(name: str, call: Call) -> list[tuple[Any, Any]]:
    """Sizes, each with one that it must not exceed, but for those of which this is certain."""
    data, indices, *updates = (list(t.ty.shape.values) for t in call.args)
    pairs: list[tuple[Any, Any]] = []
    if name in ("gather_elements", "scatter_elements"):
        axis = int(call.attrs.axis) % len(indices)
        pairs += [pair for a, pair in enumerate(zip(indices, data, strict=True)) if a != axis]
        pairs += [pair for shape in updates for pair in zip(indices, shape, strict=True)]
    if name == "gather_nd":
        batch = int(call.attrs.batch_dims)
        pairs += zip(indices[:batch], data[:batch], strict=True)
    known = Analyzer()
    return [(a, b) for a, b in pairs if not known.can_prove(a <= b)]


def _lie_within(indices: Any, bounds: Bounds) -> bool:
    ends = [number(size) for _, size in bounds]
    lowest = [number(low) if isinstance(low, tirx.Expr) else low for low, _ in bounds]
    if None in (*ends, *lowest):
        return False
    rows = indices.reshape(-1, len(bounds))
    return bool((rows >= lowest).all() and (rows < ends).all())


def _check(indices: te.Tensor, bounds: Sequence[Any], orders: Sequence[Any]) -> te.Tensor:
    """The same indices; the function ends with an error at one outside, or at sizes out of order."""
    count, dtype = len(bounds), str(indices.dtype)
    kind = dtype if "float" in dtype else "int64"

    def write(source: Any, result: Any) -> None:
        for smaller, larger in orders:
            with T.Assert(smaller <= larger, f"{OUTSIDE}; give others"):
                T.evaluate(0)
        with T.serial(0, _length(indices) // count) as row:
            for place, (low, end) in enumerate(bounds):
                at = row * count + place
                index = tirx.Cast(kind, source[at])
                inside = tirx.all(index >= tirx.Cast(kind, low), index < tirx.Cast(kind, end))
                with T.Assert(inside, f"{OUTSIDE}; give others"):
                    result[at] = source[at]

    return _copy(indices, write, "check_indices")


def _check_divisors(divisors: te.Tensor) -> te.Tensor:
    """The same divisors; the function ends with an error at a 0."""

    def write(source: Any, result: Any) -> None:
        with T.serial(0, _length(divisors)) as at, T.Assert(source[at] != 0, f"{ZERO}; give others"):
            result[at] = source[at]

    return _copy(divisors, write, "check_divisors")


def _length(x: te.Tensor) -> Any:
    return math.prod(x.shape, start=tirx.IntImm("int64", 1))


def _copy(x: te.Tensor, write: Callable[[Any, Any], None], name: str) -> te.Tensor:
    """A tensor like x, of which ``write(x, made)`` writes the statements."""

    def build(given: Any, made: Any) -> Any:
        with IRBuilder() as builder:
            with T.serial(0, 1):  # holds several statements; of TVM's own scope for that its LLVM warns
                write(T.buffer_proxy(given[0]), T.buffer_proxy(made[0]))
            return builder.get()

    return te.extern([x.shape], [x], build, dtype=str(x.dtype), name=name)
