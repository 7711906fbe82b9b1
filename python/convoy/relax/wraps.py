"""Whole numbers that wrap around, as ONNX Runtime's do, where a sum or product does not fit.

To TVM and LLVM it means nothing when one of theirs does not: of ``x - c``, c the least number, LLVM makes
``x | c``, and TVM ends at ``x * c``.  Computed with twice the bits and cut it means what it is, and LLVM
computes it with the bits that it has.

    a + b  =>  cast(wide(a) + wide(b) | 0)

Only what is computed of data is changed.  Places in tensors, lengths of loops, and conditions made of these
have no overflow, and TVM must see through them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import DataType, relax, tirx
from tvm.ir import Call, TensorLoad
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi import structural_map, structural_walk

from convoy.relax.dataflow import is_constant, op_name
from convoy.relax.rewriting import rewriting

_WIDER = {8: "int16", 16: "int32", 32: "int64", 64: "int128"}
"""What holds sums and products of numbers of so many bits."""
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul)
_SUMS = (tirx.Add, tirx.Sub)
_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def wrap_around(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """The same function; sums, differences and products of numbers that it reads wrap around.

    Products of bytes, and their sums, are left: they fit, and LLVM knows instructions for them.
    """
    bound: list[Any] = []

    def store(stored: Any) -> Any:
        value = _wrapped(stored.value, bound)
        if value.same_as(stored.value):
            return stored
        return tirx.BufferStore(stored.buffer, value, list(stored.indices), stored.span)

    def bind(binding: Any) -> Any:
        value = _wrapped(binding.value, bound)
        if _found(value, TensorLoad):
            bound.append(binding.var)
        return binding if value.same_as(binding.value) else tirx.Bind(binding.var, value, binding.span)

    return structural_map(function, ((tirx.BufferStore, store), (tirx.Bind, bind)), order="pre")


def find_least() -> Pass:
    """Pass that asks whether numbers of int32 are below the next to the least, not whether they are that.

    TVM asks whether a number less the other is 0, which it takes for what cannot be (0.27).
    """
    return rewriting(_Least, "convoy.find_least")


@mutator
class _Least(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, op: Call) -> Call:
        op = super().visit_call_(op)
        for at, least in enumerate(op.args):
            asked = _ASKED.get((op_name(op), at))
            if asked is not None and is_constant(least) and str(least.ty.dtype) == "int32":
                numbers = least.value.numpy()
                if numbers.shape == () and numbers == np.iinfo("int32").min:
                    return asked(op.args[1 - at], relax.const(numbers + 1, "int32"))
        return op


_ASKED = {
    ("equal", 0): relax.op.less,
    ("equal", 1): relax.op.less,
    ("not_equal", 0): relax.op.greater_equal,
    ("not_equal", 1): relax.op.greater_equal,
    ("greater_equal", 0): relax.op.less,
    ("less_equal", 1): relax.op.less,
}
"""What is asked of x and the next to the least, by the op and where the least stands."""


def _wrapped(value: Any, bound: list[Any]) -> Any:
    """A value that wraps around; what it reads is hidden meanwhile, with the places where it reads."""
    hidden: list[tuple[Any, Any]] = [(variable, variable) for variable in bound]

    def hide(load: Any) -> Any:
        hidden.append((tirx.Var(f"read{len(hidden)}", str(load.ty.dtype)), load))
        return hidden[-1][0]

    def show(variable: Any) -> Any:
        return next((load for name, load in hidden if name.same_as(variable)), variable)

    covered = structural_map(value, (TensorLoad, hide), order="pre")
    if not hidden:
        return value
    read = _Read([name for name, _ in hidden])
    widened = structural_map(
        covered,
        (
            (_ARITHMETIC, lambda op: _widen(op, read)),
            (tirx.FloorMod, _remainder),
            (_COMPARISONS, _compared),
        ),
    )
    if widened.same_as(covered):
        return value
    return structural_map(widened, (tirx.Var, show))


class _Read:
    """What an expression reads, and what is made of it.

    Fused ops share parts: what is known of one is kept, as a walk along all ways to it has no end.
    """

    def __init__(self, variables: Sequence[Any]) -> None:
        self._variables = {variable.__chandle__() for variable in variables}
        self._large: dict[tuple[int, int], tuple[bool, Any]] = {}
        """By address and bits; with the expression, whose address is nobody else's while it lives."""

    def within(self, expr: Any) -> bool:
        """Does it read any?"""
        return any(variable.__chandle__() in self._variables for variable in _found(expr, tirx.Var))

    def may_be_large(self, expr: Any, bits: int) -> bool:
        """Is it made of numbers whose products, or some sums of them, may not fit so many bits?

        Of places alone none is, and of bytes none in 32 bits.
        """
        address = expr.__chandle__(), bits
        if address not in self._large:
            self._large[address] = self._find_large(expr, bits), expr
        return self._large[address][0]

    def _find_large(self, expr: Any, bits: int) -> bool:
        if isinstance(expr, tirx.Var):
            return _is_wide(expr, bits) and expr.__chandle__() in self._variables
        if isinstance(expr, tirx.Cast):
            return _is_wide(expr.value, bits) and self.may_be_large(expr.value, bits)
        if isinstance(expr, tirx.Select):
            parts = [expr.true_value, expr.false_value]
        elif isinstance(expr, Call):
            parts = list(expr.args)
        else:
            sides = (getattr(expr, "a", None), getattr(expr, "b", None))
            parts = [part for part in sides if part is not None]
        return any(self.may_be_large(part, bits) for part in parts)


def _widen(op: Any, read: _Read) -> Any:
    dtype = str(op.ty.dtype)
    kind = DataType(dtype)
    sides = (op.a, op.b)
    if "int" not in dtype or kind.bits not in _WIDER or kind.lanes != 1:
        return op
    if not any(read.may_be_large(side, kind.bits) for side in sides):
        return op
    if any(isinstance(side, tirx.Mul) and read.within(side) for side in sides):
        return op  # as those of large numbers are cut by now, it is one of bytes
    wide = _WIDER[kind.bits]
    a, b = (_widened(side, type(op), wide) for side in sides)
    # TVM takes a cast for one that loses nothing, where it sees of what
    return tirx.Cast(dtype, tirx.bitwise_or(type(op)(a, b), tirx.IntImm(wide, 0)))


def _widened(number: Any, kind: type, wide: str) -> Any:
    """A number with so many bits: of a sum that was cut, for a sum, it is what that was cut from.

    To cut it once means the same, and TVM would take twice the time for each cut inside another.  Products,
    and many bytes, might not fit where they are added up.
    """
    cut: Any = number.value if isinstance(number, tirx.Cast) else None
    of_sum = isinstance(cut, tirx.BitwiseOr) and isinstance(cut.a, _SUMS) and str(cut.ty.dtype) == wide
    if kind in _SUMS and of_sum and wide != "int16":
        return cut.a
    return tirx.Cast(wide, _signed(number, DataType(str(number.ty.dtype)).bits))


def _signed(number: Any, bits: int) -> Any:
    """The same bits as a signed number: the product of two of them fits twice as many."""
    dtype = f"int{bits}"
    if isinstance(number, tirx.IntImm):
        least = -(1 << (bits - 1))
        return tirx.IntImm(dtype, (int(number) - least) % (1 << bits) + least)
    return number if str(number.ty.dtype) == dtype else tirx.Cast(dtype, number)


def _remainder(op: Any) -> Any:
    """The remainder of a division by the least number, which TVM would give the other sign."""
    dtype = str(op.ty.dtype)
    if not (
        isinstance(op.b, tirx.IntImm) and dtype in ("int8", "int16", "int32") and _is_least(op.b, dtype)
    ):
        return op
    return tirx.Cast(dtype, tirx.FloorMod(tirx.Cast("int64", op.a), tirx.IntImm("int64", int(op.b))))


def _compared(op: Any) -> Any:
    """A comparison of unsigned numbers, of which TVM takes one from the other: it ends where that is 0 - 3.

    That one is 0 may be seen only when TVM has put loops together, as those of ``x * 0 < 3``. LLVM makes it
    the comparison that it was.
    """
    dtype = str(op.a.ty.dtype)
    kind = DataType(dtype)
    if not dtype.startswith("uint") or kind.bits not in _WIDER or kind.lanes != 1:
        return op
    if any(isinstance(side, tirx.IntImm) and int(side) > np.iinfo("int64").max for side in (op.a, op.b)):
        return op  # TVM writes no such number of more bits
    a, b = (tirx.Cast(_WIDER[kind.bits], side) for side in (op.a, op.b))
    return type(op)(a, b)


def _is_least(number: Any, dtype: str) -> bool:
    return str(number.ty.dtype) == dtype and int(number) == int(tirx.min_value(dtype))


def _is_wide(expr: Any, bits: int) -> bool:
    return bool(DataType(str(expr.ty.dtype)).bits * 4 > bits)


def _found(expr: Any, kind: type) -> list[Any]:
    found: list[Any] = []
    structural_walk(expr, (kind, found.append))
    return found
