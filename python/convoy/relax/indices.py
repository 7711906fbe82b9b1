"""Indices, divisors and sizes that a run computes or is given: a call ends where one lies outside, or is 0.

TVM's kernels read and write wherever an index says, be it another's memory, and to divide a whole number
by 0 ends the process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from tvm import relax, te, tirx
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import tirx as T
from tvm.sym import Analyzer
from tvm_ffi import structural_equal

from convoy.deploy.tensors import OUTSIDE
from convoy.relax.checks import NEEDED, check_extents
from convoy.relax.dataflow import is_constant, number, op_name
from convoy.relax.divisors import DIVISORS, check_divisors
from convoy.relax.rewriting import APART, length, nth, rewriting, write_loops

Bounds: TypeAlias = Sequence[tuple[Any, Any]]
"""For each place of the last axis of indices, or for all of them, the lowest and the end."""
FARTHEST = 1 << 20
"""Pixels that a corner of a box lies away, at most; NaN and infinities are farther."""
_INDEXING = frozenset({"take", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd"})
_TUPLES = frozenset({"index_tensor", "index_put"})
"""Ops of several tensors of indices, one an axis."""
_BOXES = frozenset({"vision.roi_align", "vision.roi_pool"})


def check_indices() -> Pass:
    """Pass that has indices checked before ops of TVM's read or write where they say."""
    return rewriting(_Checked, "convoy.check_indices")


@mutator
class _Checked(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, op: Call) -> Call:
        name = op_name(op)
        if name in NEEDED:
            check_extents(self.builder_, op, name)
        op = super().visit_call_(op)
        if name == "dynamic_strided_slice" and op.args[0].ty.shape is not None:
            op = self.order_bounds(op)
        if name in DIVISORS:
            return check_divisors(self.builder_, op, name)
        if name in _TUPLES:
            return self.check_tuple(op)
        if name not in _INDEXING | _BOXES or any(t.ty.shape is None for t in op.args):
            return op
        indices, bounds = op.args[1], _bounds(name, op)
        if bounds is None:
            return op
        orders = _orders(name, op)
        args = list(op.args)
        if not (is_constant(indices) and _lie_within(indices.value.numpy(), bounds) and not orders):
            counted = self.counted_from_the_end(indices, bounds)
            if counted is None:
                args[1] = self.check(indices, bounds, orders)
            else:
                args[1] = self.check(counted, [(-bounds[0][1], bounds[0][1])], orders, wrap=True)
        elif name != "take":
            return op
        # to take in a mode that needs no check says nothing, while TVM warns of the other
        attrs = relax.op.take(*args, axis=op.attrs.axis, mode="clip").attrs if name == "take" else op.attrs
        return relax.Call(op.op, args, attrs, op.ty_args, op.span)

    def order_bounds(self, op: Call) -> Call:
        """A slice that ends before it starts has nothing in it; TVM makes a length below 0 of it (0.27)."""
        x, start, end, step = op.args
        ends = self.builder_.call_te(
            _order,
            start,
            end,
            step,
            list(x.ty.shape.values),
            primfunc_name_hint="bounds",
            primfunc_attrs=APART,
        )
        return relax.Call(op.op, [x, start, self.builder_.emit(ends), step], op.attrs, op.ty_args, op.span)

    def check_tuple(self, op: Call) -> Call:
        """An index below 0 counts from the end, which ``index_tensor`` does not know (0.27)."""
        data, indices = op.args[:2]
        if data.ty.shape is None or not isinstance(indices, relax.Tuple):
            return op
        fields = []
        for size, field in zip(data.ty.shape.values, indices.fields, strict=False):
            known = is_constant(field) and _lie_within(field.value.numpy(), [(0, size)])
            open_ = field.ty.shape is None or "int" not in str(field.ty.dtype)
            fields.append(field if known or open_ else self.check(field, [(-size, size)], [], wrap=True))
        args = [data, relax.Tuple(fields), *op.args[2:]]
        return relax.Call(op.op, args, op.attrs, op.ty_args, op.span)

    def counted_from_the_end(self, indices: Any, bounds: Bounds) -> Any:
        """The i of where(i < 0, i + size, i), with the size of the only axis they are of; else None."""
        size = number(bounds[0][1])
        where = self.made_by("where", indices)
        if len(bounds) > 1 or size is None or where is None:
            return None
        less, plus = (
            self.made_by(name, arg) for name, arg in zip(("less", "add"), where.args, strict=False)
        )
        i = where.args[2]
        if not structural_equal(where.ty, i.ty):  # a constant of more axes gives it more
            return None
        for made, constant in ((less, 0), (plus, size)):
            if made is None or not made.args[0].same_as(i) or not is_constant(made.args[1]):
                return None
            if (made.args[1].value.numpy() != constant).any():
                return None
        return i

    def made_by(self, name: str, value: Any) -> Call | None:
        """The call of this op that makes a variable's value, if one does."""
        made = self.lookup_binding(value) if isinstance(value, relax.Var) else None
        return made if isinstance(made, Call) and op_name(made) == name else None

    def check(self, indices: Any, bounds: Bounds, orders: Sequence[Any], *, wrap: bool = False) -> Any:
        checked = self.builder_.call_te(
            _check,
            indices,
            [list(pair) for pair in bounds],
            [list(pair) for pair in orders],
            wrap,
            primfunc_name_hint="check_indices",
            primfunc_attrs=APART,
        )
        return self.builder_.emit(checked)


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


def _order(start: te.Tensor, end: te.Tensor, step: te.Tensor, sizes: Sequence[Any]) -> te.Tensor:
    """The ends of a slice, none of them before its start."""

    def at(i: Any) -> Any:
        size = nth(sizes, i)
        first, last = (tirx.Select(n < 0, n + size, n) for n in (start(i), end(i)))
        wrong = tirx.Select(step(i) > 0, last < first, last > first)
        return tirx.Select(wrong, start(i), end(i))

    return te.compute((len(sizes),), at, name="bounds")


def _check(indices: te.Tensor, bounds: Sequence[Any], orders: Sequence[Any], wrap: bool) -> te.Tensor:
    """The same indices, with ``wrap`` none below 0.

    The function ends with an error at one outside, or at sizes out of order.
    """
    count, dtype = len(bounds), str(indices.dtype)
    kind = dtype if "float" in dtype else "int64"

    def write(source: Any, result: Any) -> None:
        for smaller, larger in orders:
            with T.Assert(smaller <= larger, f"{OUTSIDE}; give others"):
                T.evaluate(0)
        with T.serial(0, length(indices) // count) as row:
            for place, (low, end) in enumerate(bounds):
                at = row * count + place
                index = tirx.Cast(kind, source[at])
                inside = tirx.all(index >= tirx.Cast(kind, low), index < tirx.Cast(kind, end))
                with T.Assert(inside, f"{OUTSIDE}; give others"):
                    behind = source[at] + tirx.Cast(dtype, end)
                    result[at] = tirx.Select(source[at] < 0, behind, source[at]) if wrap else source[at]

    return write_loops([indices], indices.shape, write, "check_indices")
