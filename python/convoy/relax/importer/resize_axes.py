"""What a ``Resize`` makes of each axis: its inputs and the attributes that speak of sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.sym import Analyzer

from convoy.relax.dataflow import is_constant
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.resize_tables import Axis

BATCH = 0


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
        _expect(0 not in after.values(), "at least one pixel", "none, by scales that small")
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
    regions = _read_regions(inputs[1], attrs, numbers)
    if after == here:  # ONNX Runtime copies, whatever the scales
        return []
    return [Axis(n, here[n], after[n], changed[n], regions[n]) for n in sorted(changed)]


def find_open_sizes(inputs: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any] | None:
    """H and W of the result of [N, C, H, W], as expressions, if each by its input is the scale of its axis.

    None if the scale is something else, or other axes are resized too.
    """
    numbers, before = _axis_numbers(inputs, attrs), inputs[0].ty.shape.values
    after = list(before)
    if (scales := _read_scales(inputs[2], numbers)) is not None:
        if any(scale != int(scale) for scale in scales.values()):
            return None
        for n, scale in scales.items():
            after[n] = before[n] * int(scale)
    elif attrs.get("keep_aspect_ratio_policy", b"stretch") != b"stretch":
        return None
    else:
        after = [_read_sizes(inputs[3], numbers, before).get(n, d) for n, d in enumerate(before)]
    return after[2:] if all(_same(after[n], before[n]) for n in (0, 1)) else None


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
    if BATCH in wanted and not isinstance(before[BATCH], tirx.IntImm):
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
