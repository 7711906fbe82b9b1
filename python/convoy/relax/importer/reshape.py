"""Reshape, Flatten, Expand and Tile by sizes that are numbers or expressions of open sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from convoy.relax.checks import check
from convoy.relax.dataflow import is_constant
from convoy.relax.importer.agree import cast, stretch
from convoy.relax.importer.idioms.definitions import constant
from convoy.relax.importer.late import expect_least, name_sizes
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.sizes import Algebra, is_late

_AGAIN = "export the model again"


def read_whole(expr: Any) -> list[Any] | None:
    """The whole numbers and expressions of a vector or scalar; None if only a run knows them."""
    if isinstance(expr, relax.ShapeExpr):
        return [int(v) if hasattr(v, "value") else v for v in expr.values]
    if expr is not None and is_constant(expr):
        return [int(v) for v in np.asarray(expr.value.numpy()).ravel()]
    return None


def convert_reshape(bb: Any, inputs: Any, attrs: dict[str, Any]) -> Any:
    """To sizes of which one may be -1 (what is left), and some 0 (as before)."""
    x, wanted = inputs[0], read_whole(inputs[1])
    shape = bb.algebra.sizes(x) if isinstance(x.ty, relax.TensorType) else None
    if wanted is None or shape is None or (is_constant(x) and all(isinstance(d, int) for d in wanted)):
        return None
    if attrs.get("allowzero", 0) and any(isinstance(d, int) and d == 0 for d in wanted):
        if any(isinstance(d, int) and d < 0 for d in wanted):
            raise NodeError(f"expected no -1 beside a 0 that is one, got {wanted}", _AGAIN)
        return _nothing(bb, x, wanted)
    if all(isinstance(d, int) for d in (*shape, *wanted)):
        return None
    target = list(wanted)
    if not attrs.get("allowzero", 0):
        for i, d in enumerate(target):
            if isinstance(d, int) and d == 0:
                if i >= len(shape):
                    raise NodeError(f"expected a 0 where the data has an axis, got {wanted}", _AGAIN)
                target[i] = shape[i]
    if any(is_late(d) and not bb.algebra.at_least(d, 0) for d in target):
        return _reshape_late(bb, x, target, shape, zeros=bool(attrs.get("allowzero", 0)))
    open_at = [i for i, d in enumerate(target) if isinstance(d, int) and d == -1]
    if len(open_at) > 1 or any(isinstance(d, int) and d < -1 for d in target):
        raise NodeError(f"expected one -1 at most, got {wanted}", _AGAIN)
    for i in open_at:
        rest = [d for j, d in enumerate(target) if j != i]
        target[i] = bb.algebra.share(shape, rest)
        if target[i] is None:
            raise NodeError(f"expected a shape that fits {shape}, got {wanted}", _AGAIN)
    return relax.op.reshape(x, relax.ShapeExpr(bb.algebra.fit(target, shape)))


def _reshape_late(bb: Any, x: Any, target: Sequence[Any], shape: Sequence[Any], *, zeros: bool) -> Any:
    """To sizes that data say: a -1 and a 0 among them mean what they mean in a constant."""
    one, total = tirx.IntImm("int64", 1), _whole(bb.algebra.product(shape))
    kept = [
        d if i < len(shape) and not zeros else None for i, d in enumerate([*shape, *target[len(shape) :]])
    ]
    sizes = [
        w if before is None else tirx.Select(tirx.EQ(w, _whole(0)), _whole(before), w)
        for w, before in zip(map(_whole, target), kept, strict=False)
    ]
    rest = one
    for size in sizes:
        rest = rest * tirx.Select(tirx.EQ(size, _whole(-1)), one, size)
    left = tirx.floordiv(total, tirx.max(rest, one))
    found = name_sizes(
        bb, [tirx.max(tirx.Select(tirx.EQ(d, _whole(-1)), left, d), _whole(0)) for d in sizes]
    )
    sizes = [d if isinstance(d, int) and d > 0 else named for d, named in zip(target, found, strict=True)]
    return relax.op.reshape(x, relax.ShapeExpr(sizes))


def _whole(number: Any) -> Any:
    return tirx.IntImm("int64", number) if isinstance(number, int) else number


def _nothing(bb: Any, x: Any, shape: list[Any]) -> Any:
    """No elements of ``x``, in a shape of which a length is 0.

    TVM's reshape reads a 0 as a length of ``x``; a file with a constant without elements cannot be loaded.
    """
    flat = bb.normalize(relax.op.reshape(x, (-1,)))
    none = bb.normalize(relax.op.strided_slice(flat, [0], [0], [0]))
    for _ in shape[shape.index(0) + 1 :]:
        none = bb.normalize(relax.op.expand_dims(none, -1))
    return relax.op.broadcast_to(none, relax.ShapeExpr(shape))


def convert_flatten(bb: Any, inputs: Any, attrs: dict[str, Any]) -> Any:
    """To two axes."""
    shape = bb.algebra.sizes(inputs[0])
    axis = attrs.get("axis", 1)
    if shape is None or not -len(shape) <= axis <= len(shape):
        return None
    axis += len(shape) if axis < 0 else 0
    product = bb.algebra.product
    return relax.op.reshape(inputs[0], relax.ShapeExpr([product(shape[:axis]), product(shape[axis:])]))


def convert_expand(bb: Any, inputs: Any, attrs: dict[str, Any]) -> Any:
    """To sizes that broadcast with the data's."""
    x, wanted = inputs[0], read_whole(inputs[1])
    shape = bb.algebra.sizes(x)
    if wanted is None or shape is None:
        return None
    if all(isinstance(d, int) for d in (*shape, *wanted)):
        return None
    expect_least(bb, [d for d in wanted if is_late(d)])
    x, shape, wanted = _stretch_open(bb, x, shape, wanted)
    target = broadcast_sizes(bb.algebra, shape, wanted)
    _expect_to_broadcast(bb, target, wanted)
    behind = target[len(target) - len(shape) :]
    given = [d if isinstance(d, int) and d == 1 else t for d, t in zip(shape, behind, strict=True)]
    if not all(bb.algebra.same(d, g) for d, g in zip(shape, given, strict=True)):
        x = cast(bb, x, given)
    return x if len(target) == len(shape) and given == target else _broadcast(x, target)


def _stretch_open(bb: Any, x: Any, shape: list[Any], wanted: list[Any]) -> tuple[Any, list[Any], list[Any]]:
    """The data and what is wanted, with one size where either may be the longer one: a run says which.

    Data of an open size may be a single element, too, where a number is wanted.
    """
    wanted, whole = list(wanted), {}
    for back in range(1, min(len(shape), len(wanted)) + 1):
        d, w = shape[-back], wanted[-back]
        fixed = isinstance(w, int) and w not in (1, -1)
        if isinstance(d, int) or not (fixed or is_late(w)) or bb.algebra.same(d, w):
            continue
        (size,) = [w] if fixed else name_sizes(bb, [tirx.Select(tirx.EQ(w, _whole(1)), d, w)])
        wanted[-back] = whole[len(shape) - back] = size
    if whole:
        x = stretch(bb, x, shape, whole)
        shape = [whole.get(axis, d) for axis, d in enumerate(shape)]
    return x, shape, wanted


def _expect_to_broadcast(bb: Any, target: Sequence[Any], wanted: Sequence[Any]) -> None:
    """End a call of which a size is neither 1 nor that of the data, for TVM reads on behind the data."""
    pairs = zip(target[len(target) - len(wanted) :], wanted, strict=True)
    fixed = [(_whole(d), w) for d, w in pairs if isinstance(d, int) and not isinstance(w, int)]
    if fixed:
        given = [tirx.Select(tirx.EQ(w, tirx.IntImm("int64", 1)), d, w) for d, w in fixed]
        check(bb, given, [int(d) for d, _ in fixed])


def _broadcast(x: Any, target: Sequence[Any]) -> Any:
    return relax.op.broadcast_to(x, relax.ShapeExpr(list(target)))


def broadcast_sizes(algebra: Algebra, shape: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """The sizes of data of a shape that is expanded to ``wanted``."""
    rank = max(len(shape), len(wanted))
    target = []
    for d, w in zip(
        [1] * (rank - len(shape)) + list(shape), [1] * (rank - len(wanted)) + list(wanted), strict=True
    ):
        if isinstance(d, int) and d == 1:
            target.append(w)
        elif isinstance(w, int) and w in (1, -1):
            target.append(d)
        elif isinstance(d, int) and isinstance(w, int) and d != w:
            raise NodeError(f"expected sizes to which {list(shape)} expands, got {list(wanted)}", _AGAIN)
        else:
            target.append(d if isinstance(d, int) or algebra.same(d, w) else w)
    return target


def _written(sizes: Sequence[Any]) -> list[int | None]:
    """Sizes that are numbers; None for others, as symbols compare to expressions."""
    return [size if isinstance(size, int) else None for size in sizes]


def _repeat(bb: Any, x: Any, shape: Sequence[int], times: Sequence[int]) -> Any:
    """A tensor so many times along each axis, repeated along one in front of it: a region does that."""
    apart = [n for d, t in zip(shape, times, strict=True) for n in ((1, d) if t > 1 < d else (d,))]
    wide = [n for d, t in zip(shape, times, strict=True) for n in ((t, d) if t > 1 < d else (d * t,))]
    repeated = relax.op.broadcast_to(bb.normalize(relax.op.reshape(x, apart)), wide)
    joined = [d * t for d, t in zip(shape, times, strict=True)]
    return relax.op.reshape(bb.normalize(repeated), joined)


def convert_tile(bb: Any, inputs: Any, attrs: dict[str, Any]) -> Any:
    """By open numbers of times; what only repeats axes of length 1 is an Expand."""
    x, times = inputs[0], read_whole(inputs[1])
    shape = bb.algebra.sizes(x)
    if times is None:
        return None
    fixed = all(isinstance(t, int) for t in times)
    if fixed:  # the frontend takes no shape for numbers
        inputs[1] = constant(np.array(times, np.int64))
    if shape is None:
        return None
    if len(times) != len(shape):
        raise NodeError(f"expected {len(shape)} numbers of times, got {len(times)}", _AGAIN)
    expect_least(bb, [t for t in times if is_late(t)])
    if all(1 in (d, t) for d, t in zip(_written(shape), _written(times), strict=True)):
        target = [t if isinstance(d, int) and d == 1 else d for d, t in zip(shape, times, strict=True)]
        return x if _written(times) == [1] * len(times) else _broadcast(x, target)
    joined = [bb.algebra.multiply(t, d) for t, d in zip(times, shape, strict=True)]
    if fixed and all(isinstance(n, int) and n > 0 for n in (*shape, *times)):
        return _repeat(bb, x, shape, times)
    if fixed:
        return None

    def compute(x: Any, sizes: Any) -> Any:
        def pick(*at: Any) -> Any:
            return x(*(tirx.floormod(i, d) for i, d in zip(at, x.shape, strict=True)))

        return te.compute(list(sizes), pick, name="tile_open")

    return bb.emit_te(compute, x, relax.ShapeExpr(joined), primfunc_name_hint="tile_open")
