"""Axes that a call is fed, or that it computes of its data: Squeeze, Unsqueeze, and what reductions ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, tirx

from convoy.relax.importer.agree import cast
from convoy.relax.importer.late import expect_none, read_sizes
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.reshape import read_whole
from convoy.relax.rewriting import nth


class LateAxes:
    """Some of a number of axes; a call ends where one does not exist, or is listed twice if ``once``.

    Parameters
    ----------
    axes : Any
        A vector of whole numbers, from the end where they are below 0.
    none_means_all : bool
        What is meant where the vector has no elements.
    """

    def __init__(self, bb: Any, axes: Any, rank: int, *, once: bool, none_means_all: bool = False) -> None:
        self.bb = bb
        self.rank = rank
        self.listed = bb.emit_te(_count, axes, rank, none_means_all)
        """How often each axis is."""
        expect_none(bb, bb.emit_te(_faults, axes, self.listed, once))

    def reduce(self, sizes: Sequence[Any]) -> relax.ShapeExpr:
        """The sizes where those of the axes are 1."""
        kept = self.bb.emit_te(_reduced, self.listed, relax.ShapeExpr(list(sizes)))
        return read_sizes(self.bb, kept, self.rank)

    def leave_out(self, sizes: Sequence[Any], count: int) -> relax.ShapeExpr:
        """The sizes without those of the ``count`` axes."""
        left = self.rank - count
        if not left:
            return relax.ShapeExpr([])
        return read_sizes(
            self.bb, self.bb.emit_te(_left, self.listed, relax.ShapeExpr(list(sizes)), left), left
        )

    def put_in(self, sizes: Sequence[Any]) -> relax.ShapeExpr:
        """The sizes with a 1 at each of the axes."""
        if not sizes:
            return relax.ShapeExpr([1] * self.rank)
        made = self.bb.emit_te(_spread, self.listed, relax.ShapeExpr(list(sizes)))
        return read_sizes(self.bb, made, self.rank)

    def expect_ones(self, sizes: Sequence[Any]) -> None:
        """End the call where the size of an axis is not 1."""
        expect_none(self.bb, self.bb.emit_te(_longer, self.listed, relax.ShapeExpr(list(sizes))))


def _whole(value: int) -> Any:
    return tirx.IntImm("int64", value)


def _one_or(condition: Any) -> Any:
    return tirx.Select(condition, _whole(1), _whole(0))


def _count(axes: te.Tensor, rank: int, none_means_all: bool) -> te.Tensor:
    length = axes.shape[0].astype("int64")
    turn = te.reduce_axis((0, length + 1), name="turn")  # one more: TVM begins no sum without terms

    def at(i: Any) -> Any:
        place = tirx.if_then_else(
            turn < length, axes(tirx.min(turn, tirx.max(length - 1, _whole(0)))).astype("int64"), i
        )
        found = tirx.any(place == i, place + rank == i)
        empty = tirx.all(length == 0, tirx.const(none_means_all))
        return te.sum(_one_or(tirx.Select(turn < length, found, empty)), axis=turn)

    return te.compute((rank,), at, name="listed")


def _faults(axes: te.Tensor, listed: te.Tensor, once: bool) -> te.Tensor:
    """Axes that are there no more often than others are not."""
    rank, length = int(listed.shape[0]), axes.shape[0].astype("int64")
    total = sum((listed(_whole(i)) for i in range(rank)), _whole(0))
    wrong = _one_or(tirx.all(length > 0, total != length))
    if once:
        wrong = sum((_one_or(listed(_whole(i)) > 1) for i in range(rank)), wrong)
    return te.compute((1,), lambda _: wrong, name="faults")


def _reduced(listed: te.Tensor, sizes: Any) -> te.Tensor:
    return te.compute(
        listed.shape, lambda i: tirx.Select(listed(i) > 0, _whole(1), nth(sizes, i)), name="reduced"
    )


def _left(listed: te.Tensor, sizes: Any, left: int) -> te.Tensor:
    places = _places(listed)

    def at(i: Any) -> Any:
        made = _whole(0)
        for axis, (place, size) in enumerate(zip(places, sizes, strict=True)):
            here = tirx.all(listed(_whole(axis)) == 0, place == i)
            made = tirx.Select(here, size.astype("int64"), made)
        return made

    return te.compute((left,), at, name="left")


def _spread(listed: te.Tensor, sizes: Any) -> te.Tensor:
    places = _places(listed)

    def at(i: Any) -> Any:
        return tirx.Select(listed(i) > 0, _whole(1), nth(sizes, nth(places, i)))

    return te.compute(listed.shape, at, name="spread")


def _longer(listed: te.Tensor, sizes: Any) -> te.Tensor:
    wrong = _whole(0)
    for axis, size in enumerate(sizes):
        wrong += _one_or(tirx.all(listed(_whole(axis)) > 0, size != 1))
    return te.compute((1,), lambda _: wrong, name="longer")


def _places(listed: te.Tensor) -> list[Any]:
    """For each axis, how many before it are not listed."""
    places = [_whole(0)]
    for i in range(int(listed.shape[0]) - 1):
        places.append(places[-1] + _one_or(listed(_whole(i)) == 0))
    return places


def convert_squeeze(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Axes of open sizes, and axes that a call lists: it checks that they are 1."""
    x, given = inputs[0], inputs[1] if len(inputs) > 1 else None
    sizes = bb.algebra.sizes(x) if isinstance(x.ty, relax.TensorType) else None
    axes = attrs.get("axes") if given is None else read_whole(given)
    if sizes is None:
        return None
    if given is None and axes is None:
        if all(isinstance(d, int) for d in sizes):
            return None
        named = ", ".join(str(d) for d in sizes if not isinstance(d, int))
        raise NodeError(
            f"expected axes where sizes are open, as any of them may be 1, got none beside {named}"
        )
    if axes is None:
        sizes, given, count = _read(bb, x, given)
        if count > len(sizes):
            raise NodeError(f"expected no more than {len(sizes)} axes, got {count}", "list each once")
        late = LateAxes(bb, given, len(sizes), once=True)
        late.expect_ones(sizes)
        return relax.op.reshape(x, late.leave_out(sizes, count))
    if not all(-len(sizes) <= a < len(sizes) for a in axes):
        raise NodeError(f"expected axes of the {len(sizes)} that there are, got {[*axes]}", "correct them")
    gone = {int(a) % len(sizes) for a in axes}  # ONNX Runtime takes an axis that is listed twice
    x = cast(bb, x, [1 if a in gone and not isinstance(d, int) else d for a, d in enumerate(sizes)])
    return relax.op.squeeze(x, sorted(gone))


def check_listed(axes: Sequence[int], rank: int) -> None:
    """Axes of a tensor of so many, each of them once.

    Raises
    ------
    NodeError
        For others.
    """
    within = all(-rank <= axis < rank for axis in axes)
    if not within or len({axis % rank for axis in axes}) < len(axes):
        raise NodeError(
            f"expected axes of the {rank} that there are, each once, got {[*axes]}", "correct them"
        )


def convert_unsqueeze(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Axes that a call lists; the frontend's own conversion for others."""
    x, axes = inputs[0], inputs[1] if len(inputs) > 1 else None
    if axes is None or not isinstance(x.ty, relax.TensorType):
        return None
    if (listed := read_whole(axes)) is not None:
        check_listed(listed, x.ty.ndim + len(listed))
        return relax.op.expand_dims(x, listed)
    sizes, axes, count = _read(bb, x, axes)
    return relax.op.reshape(x, LateAxes(bb, axes, len(sizes) + count, once=True).put_in(sizes))


def _read(bb: Any, x: Any, axes: Any) -> tuple[list[Any], Any, int]:
    """The sizes of x, the axes, and how many there are."""
    sizes, listed = bb.algebra.sizes(x), bb.algebra.sizes(axes)
    if listed == []:  # a number for the one axis: ONNX wants a vector, ONNX Runtime takes it, too
        return sizes, bb.emit(relax.op.reshape(axes, [1])), 1
    count = listed[0] if listed is not None and len(listed) == 1 else None
    if not isinstance(count, int):
        raise NodeError(
            "expected a known number of axes, as many as the result has more or less, got an open one"
        )
    return sizes, axes, count
