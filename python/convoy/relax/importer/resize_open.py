"""Resize of axes whose sizes are known only when a model runs: its tables are computed then.

``relax.image.resize2d`` is written where it gives the pixels ONNX Runtime takes whatever the sizes are;
everything else becomes ``take`` by tables, as in ``resize.py``, that a loop fills at each call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.resize_tables import BEFORE_11, TIE, Sampling

Expr = Any
Row = tuple[Callable[[Expr], Expr], Callable[[Expr], Expr] | None]
"""One tap, by the place in the input: the pixel before it is clipped, and its weight."""


@dataclass(frozen=True)
class OpenAxis:
    """One axis that is resized; sizes are whole numbers or expressions."""

    number: int
    size: Any
    output: Any
    scale: Any
    """A number, a vector of those that a run knows, or None: the quotient of the sizes."""
    place: int = 0
    """Where in the vector it is."""

    @property
    def whole(self) -> bool:
        """Is the scale the quotient of the sizes?"""
        return self.scale is None or (isinstance(self.scale, float) and self.scale == int(self.scale))


def resize_open(bb: Any, x: Any, axes: Sequence[OpenAxis], sampling: Sampling) -> Any:
    """What ONNX Runtime computes, axis by axis.

    Raises
    ------
    NodeError
        For what ``_beyond`` names.
    """
    if how := _beyond(axes, sampling):
        raise NodeError(f"expected sizes that are known to resize by {how}, got open ones")
    others = [n for axis in axes for n in (axis.size, axis.output)] if all(map(_may_copy, axes)) else []
    for axis in axes:
        behind = (1,) * (x.ty.ndim - axis.number - 1)
        given = [relax.ShapeExpr([axis.size, axis.output, *others])]
        given += [axis.scale] if isinstance(axis.scale, relax.Expr) else []
        if sampling.antialias and sampling.mode != "nearest":
            x = _resize_antialiased(bb, x, axis, sampling, given)
            continue
        parts = []
        for pixel, weight in _rows(sampling):
            index = bb.emit_te(_index(axis, sampling, pixel), *given)
            part = bb.emit(relax.op.take(x, index, axis=axis.number, mode="clip"))
            if weight is not None:
                share = _share(axis, sampling, weight, behind, str(x.ty.dtype))
                part = bb.emit(relax.op.multiply(part, bb.emit_te(share, *given)))
            parts.append(part)
        x = reduce(lambda a, b: bb.emit(relax.op.add(a, b)), parts)
    return x


def _beyond(axes: Sequence[OpenAxis], sampling: Sampling) -> str:
    """The way to resize, where sizes have to be known for it; else nothing."""
    how = f"{sampling.mode}, {sampling.coordinates}"
    if sampling.coordinates == "tf_crop_and_resize":
        return how
    if not sampling.antialias:
        return f"{how}, exclude_outside" if sampling.exclude_outside else ""
    # TVM 0.27 cannot compile the table
    fed = any(isinstance(axis.scale, relax.Expr) and not isinstance(axis.size, int) for axis in axes)
    return f"{how}, antialias, by scales of a call" if fed else ""


def _resize_antialiased(bb: Any, x: Any, axis: OpenAxis, sampling: Sampling, given: Sequence[Any]) -> Any:
    """Where an axis shrinks, the kernel is stretched by as much: as many taps as a call's sizes take."""
    taps, n = _Taps(axis, sampling), axis.number
    begins, raw = bb.emit_te(taps.begins, *given), bb.emit_te(taps.weights, *given)

    def shares(raw: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, raw.shape[1]))
        total = te.compute((raw.shape[0],), lambda o: te.sum(raw[o, k], axis=k), name="total")
        none = tirx.const(0, "float64")
        whole = te.compute(
            raw.shape, lambda o, k: raw[o, k] / tirx.Select(total[o] == none, none + 1, total[o])
        )
        return te.compute(raw.shape, lambda o, k: whole[o, k].astype(str(x.ty.dtype)), name="shares")

    def pixels(begins: te.Tensor, raw: te.Tensor, sizes: Any) -> te.Tensor:
        last = sizes[0] - 1

        def at(o: Expr, k: Expr) -> Expr:
            return tirx.max(tirx.min(begins[o] + k, last), tirx.IntImm("int64", 0))

        return te.compute(raw.shape, at, name="pixels")

    def resize(x: te.Tensor, found: te.Tensor, shares: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, shares.shape[1]))
        none = tirx.const(0, x.dtype)

        def at(*place: Expr) -> Expr:
            share, here = shares[place[n], k], (*place[:n], found[place[n], k], *place[n + 1 :])
            # a tap of nothing would show by 0 · ∞
            return te.sum(tirx.Select(share == none, none, share * x(*here)), axis=k)

        return te.compute((*x.shape[:n], shares.shape[0], *x.shape[n + 1 :]), at, name="resized")

    found = bb.emit_te(pixels, begins, raw, given[0])
    return bb.emit_te(resize, x, found, bb.emit_te(shares, raw))


@dataclass(frozen=True)
class _Taps:
    """The pixels that an antialiased output pixel weighs, as ``resize_tables`` has them."""

    axis: OpenAxis
    sampling: Sampling

    @property
    def reach(self) -> int:
        """How far the kernel goes to either side, before it is stretched."""
        return 1 if self.sampling.mode == "linear" else 2

    def count(self, sizes: Sequence[Expr]) -> Expr:
        """The most of them: a scale is no less than the quotient of the sizes."""
        size, output, scale = sizes[0], sizes[1], self.axis.scale
        if isinstance(scale, float):
            return 2 * self.reach * max(math.ceil(1 / scale), 1) + 2
        shrinks = tirx.max(tirx.floordiv(size + output - 1, output), tirx.IntImm("int64", 1))
        return 2 * self.reach * shrinks + 2

    def begins(self, sizes: Any, scale: Any = None) -> te.Tensor:
        return te.compute((sizes[1],), lambda o: self._range(o, sizes, scale)[0], name="begins")

    def weights(self, sizes: Any, scale: Any = None) -> te.Tensor:
        """Before they are divided by their sum: float64 [output, taps]."""

        def at(o: Expr, k: Expr) -> Expr:
            begin, end, center, stretch = self._range(o, sizes, scale)
            pixel, none = begin + k, tirx.const(0, "float64")
            away = (pixel.astype("float64") - center.astype("float64") + 0.5) / stretch.astype("float64")
            weight = self._kernel(tirx.abs(away))
            counts = pixel < end
            if self.sampling.exclude_outside:
                counts = tirx.all(counts, pixel >= 0, pixel < sizes[0])
            return tirx.Select(counts, weight, none)

        return te.compute((sizes[1], self.count(sizes)), at, name="weights")

    def _range(self, o: Expr, sizes: Any, given: Any) -> tuple[Expr, Expr, Expr, Expr]:
        """Pixels from and to, the centre, and how much the kernel is stretched."""
        one, half = _single(1), _single(0.5)
        # between pixels and not clipped, as of cubic
        center = _place(o, self.axis, replace(self.sampling, mode="cubic"), sizes, given) + half
        stretch = tirx.max(one / _scale(self.axis, sizes, given), one)
        support = _single(self.reach) * stretch
        begin, end = (
            tirx.floor(side + half).astype("int64") for side in (center - support, center + support)
        )
        return begin, end, center, stretch

    def _kernel(self, d: Expr) -> Expr:
        none = tirx.const(0, "float64")
        if self.sampling.mode == "linear":
            return tirx.max(tirx.const(1, "float64") - d, none)
        return _cubic(d, self.sampling.cubic)


def _may_copy(axis: OpenAxis) -> bool:
    """May a scale other than 1 leave the size as it is?  3 · 1.3 is 3."""
    return isinstance(axis.scale, relax.Expr) or (axis.scale is not None and 1 < axis.scale < 2)


def _index(axis: OpenAxis, sampling: Sampling, pixel: Callable[[Expr], Expr]) -> Any:
    def compute(sizes: Any, scale: Any = None) -> Any:
        def at(o: Expr) -> Expr:
            found = pixel(_place(o, axis, sampling, sizes, scale)).astype("int64")
            return tirx.max(tirx.min(found, sizes[0] - 1), tirx.IntImm("int64", 0))

        return te.compute((sizes[1],), at, name="pixels")

    return compute


def _share(axis: OpenAxis, sampling: Sampling, weight: Any, behind: Sequence[int], dtype: str) -> Any:
    def compute(sizes: Any, scale: Any = None) -> Any:
        def at(o: Expr, *_: Expr) -> Expr:
            return weight(_place(o, axis, sampling, sizes, scale)).astype(dtype)

        return te.compute((sizes[1], *behind), at, name="shares")

    return compute


def _place(o: Expr, axis: OpenAxis, sampling: Sampling, sizes: Sequence[Expr], given: Any) -> Expr:
    """The place in the input of an output pixel, in float32 and as ``resize_tables`` has it.

    ``sizes`` are the axis's before and after, and where all may stay as they are then those of all axes:
    ONNX Runtime copies where they do, whatever the scales.
    """
    size, output, *others = sizes
    x, s, n = (tirx.nearbyint(v.astype("float32")) for v in (o, size, output))
    """Whole already; TVM 0.27 fails to bound a quotient of floats that it sees through."""
    scale = _scale(axis, sizes, given)
    match sampling.coordinates:
        case "asymmetric":
            place = x / scale
        case "half_pixel":
            place = (x + _single(0.5)) / scale - _single(0.5)
        case "pytorch_half_pixel":
            place = tirx.Select(output == 1, x, (x + _single(0.5)) / scale - _single(0.5))
        case "tf_half_pixel_for_nn":
            place = (x + _single(0.5)) / scale
        case "align_corners":
            place = tirx.Select(output == 1, x, x * (s - _single(1)) / tirx.max(n - _single(1), _single(1)))
        case _:
            offset = s / _single(2) * (_single(1) - n / (scale * s))
            place = offset + (x + _single(0.5)) / scale - _single(0.5)
    kept = scale == _single(1)
    if others:
        kept = tirx.any(kept, tirx.all(*map(tirx.EQ, others[::2], others[1::2])))
    place = tirx.Select(kept, x, place)
    if sampling.mode == "linear":
        return tirx.max(tirx.min(place, s - _single(1)), _single(0))
    return place if sampling.mode == "cubic" else _nearest(place, scale, sampling.rounding)


def _scale(axis: OpenAxis, sizes: Sequence[Expr], given: Any) -> Expr:
    """In float32; ``given`` are those that a run knows."""
    if given is not None:
        return given(axis.place)
    if isinstance(axis.scale, float):
        return _single(axis.scale)
    s, n = (tirx.nearbyint(size.astype("float32")) for size in sizes[:2])
    return n / s if axis.scale is None else axis.scale


def _nearest(at: Expr, scale: Expr, rounding: str) -> Expr:
    away = tirx.Select(at < _single(0), tirx.ceil(at - _single(0.5)), tirx.floor(at + _single(0.5)))
    half = tirx.abs(at - (tirx.trunc(at) + _single(0.5))) <= _single(float(TIE))
    match rounding:
        case "round_prefer_floor":
            return tirx.Select(half, tirx.floor(at), away)
        case "round_prefer_ceil":
            return tirx.Select(half, tirx.ceil(at), away)
        case "floor":
            return tirx.floor(at)
        case "ceil":
            return tirx.ceil(at)
    assert rounding == BEFORE_11, rounding
    return tirx.Select(scale < _single(1), tirx.ceil(at), tirx.trunc(at))


def _rows(sampling: Sampling) -> list[Row]:
    if sampling.mode == "nearest":
        return [(lambda at: at, None)]
    if sampling.mode == "linear":  # the last pixel half and half, or all of it: the same
        return [
            (tirx.floor, lambda at: _single(1) - (at - tirx.floor(at))),
            (lambda at: tirx.floor(at) + _single(1), lambda at: at - tirx.floor(at)),
        ]
    return [_cubic_row(tap, sampling.cubic) for tap in range(-1, 3)]


def _cubic_row(tap: int, a: float) -> Row:
    def weight(at: Expr) -> Expr:
        d = tirx.abs(at - tirx.floor(at) - _single(tap))
        return _cubic(d, a)

    return lambda at: tirx.floor(at) + _single(tap), weight


def _cubic(d: Expr, a: float) -> Expr:
    """Keys' kernel at a distance: 1 at 0, nothing from 2 on; in the type of the distance."""

    def number(value: float) -> Expr:
        return tirx.const(value, d.ty.dtype)

    near = (number(a + 2) * d - number(a + 3)) * d * d + number(1)
    far = (((d - number(5)) * d + number(8)) * d - number(4)) * number(a)
    return tirx.Select(d <= number(1), near, tirx.Select(d < number(2), far, number(0)))


def _single(value: float) -> Expr:
    return tirx.const(float(np.float32(value)), "float32")
