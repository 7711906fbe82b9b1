"""Range: numbers a step apart.  How many they are is an expression of open sizes, or a run counts them.

The frontend subtracts in int64, where the distance from the least to the largest number does not fit, and
floats in their own type (TVM 0.27).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from convoy.relax.dataflow import is_constant
from convoy.relax.importer.idioms.definitions import constant
from convoy.relax.importer.late import FARTHEST, expect_near, expect_none, read_sizes
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.reshape import read_whole
from convoy.relax.importer.sizes import LARGEST
from convoy.relax.importer.sizes.spaced import spaced

_MOST = 2**62
"""What is counted at most; more than any memory has place for."""


def convert_range(bb: Any, inputs: Any, attrs: dict[str, Any]) -> Any:
    """Numbers from the first on, a step apart, that the limit is beyond.

    Raises
    ------
    NodeError
        For a constant step of 0, and for constants of which there would be too many or no number.
    """
    given = inputs[:3]
    if all(map(is_constant, given)):
        return _known(given)
    expect_near(bb, [value for i in given if isinstance(i, relax.ShapeExpr) for value in i.values])
    dtype = attrs["tvm_custom"].get("dtype") or next(str(i.ty.dtype) for i in given if _is_tensor(i))
    made = _by_sizes(bb, given, dtype)
    return made if made is not None else _counted(bb, [_tensor(bb, i, dtype) for i in given], dtype)


def _known(given: Sequence[Any]) -> Any:
    numbers = [i.value.numpy() for i in given]
    if any(n.size != 1 for n in numbers):
        raise NodeError("expected one number each as start, limit and step, got more", "give it alone")
    made = spaced(*numbers)
    if made is None:
        said = ", ".join(str(n.item()) for n in numbers)
        raise NodeError(
            f"expected a step that is not 0 and at most 2^31 numbers, got start, limit and step {said}",
            "correct them",
        )
    return constant(made)


def _by_sizes(bb: Any, given: Sequence[Any], dtype: str) -> Any:
    """Upwards, by whole numbers, as many as an expression of sizes says; None of others."""
    if any(is_constant(i) and not _is_whole(i.value.numpy()) for i in given):
        return None
    numbers = [read_whole(i) for i in given]
    if any(n is None or len(n) != 1 for n in numbers):
        return None
    start, limit, step = (n[0] for n in numbers if n is not None)
    if not isinstance(step, int) or not 1 <= step <= LARGEST:
        return None
    if any(isinstance(n, int) and abs(n) > FARTHEST for n in (start, limit)):
        return None
    if not bb.algebra.at_least(bb.algebra.subtract(limit, start), 0):
        limit = bb.algebra.most(limit, start)
    values = [n if isinstance(n, int) else relax.prim_value(n) for n in (start, limit, step)]
    made = relax.op.arange(*values, "int64")
    return made if dtype == "int64" else relax.op.astype(bb.emit(made), dtype)


def _is_whole(numbers: Any) -> bool:
    return bool(np.all(np.isfinite(numbers)) and np.all(numbers == np.floor(numbers)))


def _is_tensor(number: Any) -> bool:
    return isinstance(number, relax.Expr) and isinstance(number.ty, relax.TensorType)


def _tensor(bb: Any, number: Any, dtype: str) -> Any:
    """A scalar."""
    if isinstance(number, relax.ShapeExpr):
        number = bb.emit(relax.op.shape_to_tensor(number))
    if number.ty.ndim:
        number = bb.emit(relax.op.reshape(number, ()))
    return _tensor_of(bb, number, dtype)


def _tensor_of(bb: Any, x: Any, dtype: str) -> Any:
    return x if str(x.ty.dtype) == dtype else bb.emit(relax.op.astype(x, dtype))


def _counted(bb: Any, numbers: Sequence[Any], dtype: str) -> Any:
    """As many as a run counts; a call ends where that is no number."""
    parts = _float_parts if "float" in dtype else _whole_parts
    start, _, step = numbers

    def count(start: te.Tensor, limit: te.Tensor, step: te.Tensor) -> te.Tensor:
        return te.compute((1,), lambda _: parts(start(), limit(), step())[0], name="spaced")

    def fault(start: te.Tensor, limit: te.Tensor, step: te.Tensor) -> te.Tensor:
        return te.compute((1,), lambda _: parts(start(), limit(), step())[1], name="faults")

    expect_none(bb, bb.emit_te(fault, *numbers))
    length = read_sizes(bb, bb.emit_te(count, *numbers), 1).values[0]
    places = bb.emit(relax.op.arange(0, relax.prim_value(length), 1, "int64"))
    wide = "float64" if "float" in dtype else dtype  # of floats a distance may be infinite, and no number
    places, step, start = (_tensor_of(bb, i, wide) for i in (places, step, start))
    made = relax.op.add(bb.emit(relax.op.multiply(places, step)), start)
    return made if wide == dtype else relax.op.astype(bb.emit(made), dtype)


def _whole_parts(start: Any, limit: Any, step: Any) -> tuple[Any, Any]:
    """How many whole numbers there are, and whether that is none; the distance is one of 64 bits."""
    start, limit, step = (n.astype("int64") for n in (start, limit, step))
    up, none = step > 0, tirx.const(0, "int64")
    low, high = (tirx.Select(up, *n) for n in ((start, limit), (limit, start)))
    pace = tirx.Select(up, step, none - step).astype("uint64")
    one = tirx.const(1, "uint64")
    whole = tirx.div(high.astype("uint64") - low.astype("uint64") - one, tirx.max(pace, one))
    count = tirx.min(whole, tirx.const(_MOST, "uint64")).astype("int64") + 1
    fault = tirx.Select(step == 0, tirx.const(1, "int64"), none)
    return tirx.Select(tirx.all(low < high, step != 0), count, none), fault


def _float_parts(start: Any, limit: Any, step: Any) -> tuple[Any, Any]:
    """The same of floats, counted in doubles."""
    start, limit, step = (n.astype("float64") for n in (start, limit, step))
    parts, most = tirx.ceil((limit - start) / step), tirx.const(float(_MOST), "float64")
    is_number = tirx.all(parts < most, parts > -most)
    held = tirx.Select(is_number, tirx.max(parts, tirx.const(0.0, "float64")), tirx.const(0.0, "float64"))
    # TVM would turn the comparisons of a Not around, which NaN fails, too
    return held.astype("int64"), tirx.Select(is_number, tirx.const(0, "int64"), tirx.const(1, "int64"))
