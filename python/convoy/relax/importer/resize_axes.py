"""What a ``Resize`` makes of each axis: its inputs and the attributes that speak of sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.sym import Analyzer

from convoy.relax.dataflow import is_constant
from convoy.relax.importer.idioms.definitions import constant, static_shape
from convoy.relax.importer.late import expect_none, read_sizes
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.resize_open import OpenAxis
from convoy.relax.importer.resize_tables import Axis
from convoy.relax.importer.sizes import Algebra, Known
from convoy.relax.rewriting import nth

BATCH = 0
SPATIAL = 2
LONGEST = 2**31 - 1
"""No axis has more pixels, as no input has."""
EXACT = 2**8
"""Up to this numerator float32 holds every product of a scale with a size of up to 2^16."""


class OpenSize(Exception):
    """A size that has to be known is not; what is expected."""


def find_axes(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> list[Axis]:
    """The axes that are resized, those that stay as they are left out.

    Raises
    ------
    OpenSize
        If the size of one, or what it becomes, is known only at run time.
    NodeError
        If scales, sizes or the region do not fit the data.
    """
    numbers, before = _axis_numbers(inputs, attrs), inputs[0].ty.shape.values
    if (scales := _read_scales(inputs[2], numbers)) is not None:
        changed = {n: scale for n, scale in scales.items() if scale != 1}
        here = {n: _fixed(before[n], n) for n in changed}
        # as ONNX Runtime has it, in float32: 10 · 0.7 is 7
        after = {n: int(scale * np.float32(here[n])) for n, scale in changed.items()}
    else:
        wanted = _read_sizes(inputs[3], numbers, before)
        policy = attrs.get("keep_aspect_ratio_policy", b"stretch").decode()
        if policy == "stretch":
            wanted = {n: out for n, out in wanted.items() if not _same(out, before[n])}
        here = {n: _fixed(before[n], n) for n in wanted}
        after = {n: _fixed(out, n) for n, out in wanted.items()}
        _expect(min(after.values(), default=1) > 0, "positive sizes", str(list(after.values())))
        changed = {n: np.float32(out) / np.float32(max(here[n], 1)) for n, out in after.items()}
        if policy != "stretch":
            _expect(policy in ("not_larger", "not_smaller"), "not_larger or not_smaller", policy)
            scale = (min if policy == "not_larger" else max)(changed.values())
            changed = dict.fromkeys(changed, scale)
            after = {n: int(np.floor(scale * np.float32(d) + np.float32(0.5))) for n, d in here.items()}
    _expect(max(after.values(), default=0) <= LONGEST, "sizes below 2^31", str(list(after.values())))
    regions = _read_regions(inputs[1], attrs, numbers)
    if after == here:  # ONNX Runtime copies, whatever the scales
        return []
    return [Axis(n, here[n], after[n], changed[n], regions[n]) for n in sorted(changed)]


def find_open_axes(bb: Any, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> list[OpenAxis] | None:
    """The axes that are resized, of which a call knows the sizes; None if not even a call does."""
    numbers, before = _axis_numbers(inputs, attrs), bb.algebra.sizes(inputs[0])
    if before is None:
        return None
    algebra: Algebra = bb.algebra
    if inputs[2] is not None and not is_constant(inputs[2]):
        return _read_late_scales(bb, inputs[2], numbers, before)
    with suppress(OpenSize):
        if (scales := _read_scales(inputs[2], numbers)) is not None:
            after = _scale_sizes(bb, before, {n: scale for n, scale in scales.items() if scale != 1})
            return [OpenAxis(n, before[n], out, float(scales[n])) for n, out in after.items()]
        if attrs.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
            return None
        wanted = _read_sizes(inputs[3], numbers, before)
        return [
            OpenAxis(n, before[n], algebra.simplify(out), None)
            for n, out in wanted.items()
            if not algebra.same(algebra.simplify(out), before[n])
        ]
    return None


def _scale_sizes(bb: Any, before: Sequence[Any], scales: Mapping[int, np.float32]) -> dict[int, Any]:
    """What axes become by scales, as ONNX Runtime has it: in float32, where 90 · 1.3 is 116.

    An expression where that is exact.  Where it is rounded a call finds the size.
    """
    after: dict[int, Any] = {}
    for n, scale in scales.items():
        if isinstance(before[n], int):
            after[n] = int(scale * np.float32(before[n]))
        elif Fraction(float(scale)).numerator <= EXACT:
            after[n] = bb.algebra.round_down(bb.algebra.multiply(before[n], float(scale)))
    if rounded := [n for n in scales if after.get(n) is None]:
        by, sizes = constant(np.array([scales[n] for n in rounded])), [before[n] for n in rounded]
        scaled = bb.emit_te(_scale, by, relax.ShapeExpr(sizes), [*range(len(rounded))])
        after |= zip(rounded, read_sizes(bb, scaled, len(rounded)).values, strict=True)
    return {n: after[n] for n in scales}


def _read_late_scales(
    bb: Any, scales: Any, numbers: Sequence[int], before: Sequence[Any]
) -> list[OpenAxis] | None:
    """The axes by scales that only a run knows; it ends where one resizes images or channels."""
    if static_shape(scales) != [len(numbers)] or str(scales.ty.dtype) != "float32":
        return None
    places = [i for i, n in enumerate(numbers) if n >= SPATIAL]
    sizes = relax.ShapeExpr([before[numbers[i]] for i in places])
    expect_none(bb, bb.emit_te(_wrong_scales, scales, sizes, places))
    after = read_sizes(bb, bb.emit_te(_scale, scales, sizes, places), len(places)).values
    return [
        OpenAxis(numbers[i], before[numbers[i]], out, scales, i)
        for i, out in zip(places, after, strict=True)
    ]


def _scale(scales: te.Tensor, sizes: Any, places: Sequence[int]) -> te.Tensor:
    """As ONNX Runtime has it, in float32; none for what is not above 0."""
    made = [_scaled(scales, i, size) for i, size in zip(places, sizes, strict=True)]
    return te.compute(
        (len(places),), lambda i: tirx.max(nth(made, i), tirx.IntImm("int64", 0)), name="scaled"
    )


def _wrong_scales(scales: te.Tensor, sizes: Any, places: Sequence[int]) -> te.Tensor:
    """How many resize another axis, or leave nothing."""
    kept = [i for i in range(int(scales.shape[0])) if i not in places]
    wrong = [scales(i) != tirx.const(1, "float32") for i in kept]
    wrong += [_scaled(scales, i, size) < 1 for i, size in zip(places, sizes, strict=True)]
    return te.compute((1,), lambda _: sum(w.astype("int64") for w in wrong), name="wrong")


def _scaled(scales: te.Tensor, i: int, size: Any) -> Any:
    return (scales(i) * size.astype("float32")).astype("int64")


def scaled_sizes(algebra: Algebra, x: Any, scales: Known) -> relax.ShapeExpr | None:
    """What the axes of ``x`` become by scales that are computed from open sizes."""
    before = algebra.sizes(x)
    if before is None or len(before) != scales.elements.size:
        return None
    pairs = zip(before, scales.elements.flat, strict=True)
    after = [algebra.round_down(algebra.multiply(d, scale)) for d, scale in pairs]
    return None if any(size is None for size in after) else relax.ShapeExpr(after)


def _axis_numbers(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> list[int]:
    rank = inputs[0].ty.ndim
    return [int(a) % rank for a in attrs.get("axes", range(rank))]


def _read_scales(expr: Any, numbers: Sequence[int]) -> dict[int, np.float32] | None:
    """The scale of each axis; None if none are given."""
    if expr is None:
        return None
    if not is_constant(expr):
        raise OpenSize("scales that are constants")
    scales = expr.value.numpy().ravel().astype(np.float32)
    if not len(scales):
        return None
    _expect(len(scales) == len(numbers), f"{len(numbers)} scales", str(len(scales)))
    _expect(bool((scales > 0).all() and np.isfinite(scales).all()), "scales above 0", str(scales.tolist()))
    return dict(zip(numbers, scales, strict=True))


def _read_sizes(expr: Any, numbers: Sequence[int], before: Sequence[Any]) -> dict[int, Any]:
    """The size of each axis, an integer or an expression."""
    if expr is not None and is_constant(expr):
        sizes = [int(n) for n in expr.value.numpy().ravel()]
    elif isinstance(expr, relax.ShapeExpr):
        sizes = list(expr.values)
    else:
        raise OpenSize("sizes or scales that are constants")
    _expect(len(sizes) == len(numbers), f"{len(numbers)} sizes", str(len(sizes)))
    wanted = dict(zip(numbers, sizes, strict=True))
    if BATCH in wanted and not isinstance(before[BATCH], int | tirx.IntImm):
        # exporters write the batch they saw; nobody mixes images
        del wanted[BATCH]
    return wanted


def _read_regions(
    roi: Any, attrs: Mapping[str, Any], numbers: Sequence[int]
) -> dict[int, tuple[float, float]]:
    whole = dict.fromkeys(numbers, (0.0, 1.0))
    if attrs.get("coordinate_transformation_mode", b"half_pixel") != b"tf_crop_and_resize" or roi is None:
        return whole
    if not is_constant(roi):
        raise OpenSize("a region (roi) that is a constant")
    given, count = roi.value.numpy().ravel(), len(numbers)
    if not len(given):
        return whole
    _expect(len(given) == 2 * count, f"a region (roi) of {2 * count} numbers", str(len(given)))
    return {n: (float(given[i]), float(given[i + count])) for i, n in enumerate(numbers)}


def _fixed(dim: Any, number: int) -> int:
    if not isinstance(dim, int | tirx.IntImm):
        raise OpenSize(f"a fixed size of axis {number}")
    return int(dim)


def _same(a: Any, b: Any) -> bool:
    return bool(Analyzer().can_prove_equal(a, b))


def _expect(legal: bool, expected: str, got: str) -> None:
    if not legal:
        raise NodeError(f"expected {expected}, got {got}", "export the model again")
