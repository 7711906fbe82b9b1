"""Where the images of a batch lie in a tensor: along axis 0, joined there with others, or further in.

Transformers join the images with windows or heads, as [n * 64, 49, 96]; PyTorch's own modules have them
behind the sequence, as [197, n, 768].  A region sees such tensors image by image, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from tvm import relax, tirx
from tvm.sym import Analyzer
from tvm_ffi import structural_hash

from convoy.graph.sizes import Size
from convoy.relax.dataflow import Dataflow, dims, factor
from convoy.relax.sizes import Dim

FLAT = "flat"
"""The reading that has no images: axis 0 is a number, and like any other."""
OPEN = "open"
"""The same where axis 0 may be open, too."""

Move = Callable[[relax.Var], relax.Expr]


class Place(NamedTuple):
    """The images of a tensor, along an axis of which each has a part."""

    axis: int
    each: int
    """How much of that axis is of one image: 1 where they are not joined with anything."""
    images: Dim
    """How many images there are."""
    rows: int = 1
    """How much of ``each`` is in front of the images: of [20 * n, 64], 20 where n is the inner part."""

    @property
    def plain(self) -> bool:
        """Along an axis 0 of their own?"""
        return self.axis == 0 and self.each == 1


def image_readings(shape: Sequence[Dim]) -> frozenset[str]:
    """The ways in which an op on images reads data of this shape: axis 0 is theirs alone."""
    return frozenset({FLAT, OPEN} if shape[0] == 1 else {_label(shape[0])})


def reading_of(labels: frozenset[str]) -> str:
    """How a region reads axis 0 whose ops all allow these ways; image by image rather than with it open."""
    return "images" if FLAT not in labels and labels - {OPEN} else "flat"


def image_places(shape: Sequence[Dim], flow: Dataflow, rows: int = 1) -> dict[str, Place]:
    """The ways in which the axes of a tensor may be read as images, by their labels.

    An open length says for itself what it is a multiple of; a fixed one, and one further in, is of images
    only where the block reads a tensor that has as many along its axis 0.

    Parameters
    ----------
    rows : int
        See ``Place``.
    """
    lengths = [(axis, length) for axis, length in enumerate(shape) if not isinstance(length, int | Size)]
    if len(lengths) > 1:  # of several one is the images', in front if it is there; others are sizes
        batches = {_label(n) for n in flow.batches}
        lengths = [
            (axis, n) for axis, n in lengths if lengths[0][0] == 0 or _label(factor(n)[1]) in batches
        ]
        lengths = lengths[:1] if lengths and lengths[0][0] == 0 else lengths
    if len(lengths) > 1 or not shape:
        return {}
    if not lengths:
        counts = {n for n in (shape[0], *flow.batches) if isinstance(n, int) and n > 1}
        return {_label(n): Place(0, shape[0] // n, n) for n in counts if shape[0] % n == 0}
    axis, length = lengths[0]
    each, count = factor(length)
    found = {_label(count): Place(axis, each, count, rows)}
    if rows == 1:
        found[_label(length)] = Place(axis, 1, length)
    known = {_label(n) for n in flow.batches} if axis else found.keys()
    return {label: place for label, place in found.items() if label in known}


def place_of(shape: Sequence[Dim], count: Dim) -> Place | None:
    """Where ``count`` images lie in a tensor of a region; or None."""
    unit, base = factor(count)
    for axis, length in enumerate(shape):
        if isinstance(count, int) and isinstance(length, int):
            if axis == 0 and length % count == 0:
                return Place(0, length // count, count)
        elif not isinstance(count, int) and not isinstance(length, int):
            each, rest = factor(length)
            if _label(rest) == _label(base):
                return Place(axis, each // unit, count)
    return None


def rows_before(shape: Sequence[Dim], place: Place) -> int:
    """Elements before the images' axis, and in front of the images in it; a reshape may not change it."""
    return place.rows * prod(n for n in shape[: place.axis] if isinstance(n, int))


def bring_to_front(x: relax.Var, place: Place) -> list[relax.VarBinding]:
    """What makes of ``x`` a tensor whose images are along an axis 0 of their own."""
    apart, axis = _apart(x, place)
    order = [axis, *(other for other in range(len(apart)) if other != axis)]
    moves: list[Move] = []
    if place.each > 1:
        moves.append(lambda y: relax.op.reshape(y, apart))
    if axis > 0:
        moves.append(lambda y: relax.op.permute_dims(y, order))
    return _bind(x, moves)


def bring_back(front: relax.Var, place: Place, x: relax.Var) -> list[relax.VarBinding]:
    """What makes ``x`` of a tensor whose images are along an axis 0 of their own."""
    apart, axis = _apart(x, place)
    order = list(range(1, len(apart)))
    order.insert(axis, 0)
    moves: list[Move] = []
    if axis > 0:
        moves.append(lambda y: relax.op.permute_dims(y, order))
    if place.each > 1:
        moves.append(lambda y: relax.op.reshape(y, dims(x)))
    *before, last = _bind(front, moves)
    return [*before, relax.VarBinding(x, last.value)]


def _apart(x: relax.Var, place: Place) -> tuple[list[Dim], int]:
    """The shape with the images on an axis of their own, and that axis."""
    shape = dims(x) or ()
    before, behind = ([n] if n > 1 else [] for n in (place.rows, place.each // place.rows))
    apart = [*shape[: place.axis], *before, place.images, *behind, *shape[place.axis + 1 :]]
    return apart, place.axis + len(before)


def _bind(x: relax.Var, moves: Sequence[Move]) -> list[relax.VarBinding]:
    """One move after the other."""
    builder = relax.BlockBuilder()
    bindings: list[relax.VarBinding] = []
    for move in moves:
        value = builder.normalize(move(x))
        x = relax.DataflowVar(f"{x.name}_images", value.ty)
        bindings.append(relax.VarBinding(x, value))
    return bindings


def _label(length: Dim) -> str:
    if isinstance(length, int):
        return f"images {length}"
    simple = length if isinstance(length, tirx.Var) else Analyzer().simplify(length)
    text = simple.name if isinstance(simple, tirx.Var) else simple  # an expression is slow to write
    return f"images {text} #{structural_hash(simple):x}"
