"""Resize, of any rank, along any axes.

``relax.image.resize2d`` knows output sizes but no scales, four of ONNX's seven ways to find a place in
the input, and neither antialiasing nor regions; and TVM rounds its coordinates in its own way.  So it is
written where it gives the very pixels ONNX Runtime takes, in TVM and in Convoy's kernels; everything else
becomes, axis by axis, a sum of as many ``take`` as there are pixels to weigh, by tables of constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np
from tvm import relax

from convoy.ops.resize import (
    COORDINATES,
    ROUNDINGS,
    WHOLE_FACTORS,
    bilinear_places,
    nearest_pixels,
    tvm_pixels,
)
from convoy.relax.importer.idioms.definitions import constant
from convoy.relax.importer.late import expect_least
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.resize_axes import OpenSize, find_axes, find_open_axes
from convoy.relax.importer.resize_open import OpenAxis, resize_open
from convoy.relax.importer.resize_tables import BEFORE_11, NEAREST, Axis, Sampling, Table, make_table
from convoy.relax.importer.resize_tables import COORDINATES as ONNX_COORDINATES
from convoy.relax.importer.sizes import is_late

METHODS = {"nearest": "nearest_neighbor", "linear": "linear"}
OPEN_BY_SIZES = {
    ("linear", "half_pixel"),
    ("linear", "pytorch_half_pixel"),
}
"""TVM 0.27 cannot compile the others, or takes other pixels: from 14 to 32, number 16 copies number 7,
and 6 in ONNX Runtime, whose scale is a float."""
OPEN_BY_SCALES = {
    *(
        ("nearest", c, f"round_prefer_{r}")
        for c in ("half_pixel", "pytorch_half_pixel")
        for r in ("floor", "ceil")
    ),
    ("nearest", "asymmetric", "floor"),
    *OPEN_BY_SIZES,
    ("linear", "asymmetric"),
}
"""Ways by whole scales: no coordinate lies between two pixels, or TVM takes care."""
FLOATS = ("float16", "float32", "float64")
CLOSE = 1e-6
"""Distance in the input's pixels of two places, at most, that mean the same."""


def convert_resize(bb: relax.BlockBuilder, inputs: Any, attrs: dict[str, Any]) -> Any:
    """What ONNX Runtime computes.

    Raises
    ------
    NodeError
        For what is no Resize of ONNX, or has open sizes that must be known.
    """
    sampling = _read_sampling(attrs)
    if not isinstance(inputs[0].ty.shape, relax.ShapeExpr):
        raise NodeError("expected data of known sizes, got some that only a run can tell")
    x, dtype = inputs[0], str(inputs[0].ty.dtype)
    whole = sampling.mode == "nearest"
    if not (whole or dtype in FLOATS or (sampling.mode == "linear" and not sampling.antialias)):
        how = f"{sampling.mode}, antialias" if sampling.antialias else sampling.mode
        raise NodeError(f"expected floats to resize by {how}, got {dtype}", "cast to float32 before it")
    try:
        axes = find_axes(inputs, attrs)
    except OpenSize as error:
        return _convert_open(bb, inputs, attrs, sampling, error)
    if empty := [axis.number for axis in axes if axis.output == 0]:  # by scales that leave nothing
        outputs = {axis.number: axis.output for axis in axes}
        shape = [outputs.get(n, d) for n, d in enumerate(x.ty.shape.values)]
        none = bb.normalize(relax.op.strided_slice(x, empty, [0] * len(empty), [0] * len(empty)))
        return relax.op.reshape(none, shape)
    sampling = _name_rounding(sampling, [bool(axis.scale < 1) for axis in axes])
    tables = {axis.number: make_table(axis, sampling) for axis in axes}
    tables = {axis.number: tables[axis.number] for axis in axes if not _copies(axis, tables[axis.number])}
    if not tables:
        return x
    if _is_resize2d(x, sampling, axes, tables):
        outputs = {axis.number: axis.output for axis in axes}
        return _resize2d(x, [outputs.get(n, d) for n, d in enumerate(x.ty.shape.values)][2:], sampling)
    # ONNX Runtime computes in float32, and cuts off what a type cannot hold
    wide = x if whole or dtype in ("float32", "float64") else bb.normalize(relax.op.astype(x, "float32"))
    for axis in sorted(axes, key=lambda axis: axis.output / axis.size):  # the fewest pixels first
        if axis.number in tables:
            wide = bb.normalize(_sample(wide, axis.number, tables[axis.number]))
    made = wide if str(wide.ty.dtype) == dtype else relax.op.astype(wide, dtype)
    return _fill_outside(bb.normalize(made), tables, attrs.get("extrapolation_value", 0.0))


def _read_sampling(attrs: dict[str, Any]) -> Sampling:
    return Sampling(
        _read_word(attrs, "mode", "nearest", ("nearest", "linear", "cubic")),
        _read_word(attrs, "coordinate_transformation_mode", "half_pixel", ONNX_COORDINATES),
        _read_word(attrs, "nearest_mode", "round_prefer_floor", NEAREST),
        attrs.get("cubic_coeff_a", -0.75),
        bool(attrs.get("exclude_outside", 0)),
        bool(attrs.get("antialias", 0)),
    )


def _read_word(attrs: dict[str, Any], name: str, default: str, words: Sequence[str]) -> str:
    given = str(attrs.get(name, default.encode()).decode())
    if given not in words:
        raise NodeError(f"expected {name} {', '.join(words)}, got {given}", "export the model again")
    return given


def _copies(axis: Axis, table: Table) -> bool:
    pixels = np.arange(axis.size)
    return table.weights is None and not table.outside.any() and np.array_equal(table.indices[0], pixels)


def _name_rounding(sampling: Sampling, shrinks: Sequence[bool]) -> Sampling:
    """The rounding before opset 11 by a name TVM knows, where it is the same on all axes."""
    if sampling.rounding != BEFORE_11 or len(set(shrinks)) > 1:
        return sampling
    return replace(sampling, rounding="ceil" if any(shrinks) else "floor")


def _sample(x: Any, axis: int, table: Table) -> Any:
    parts = [relax.op.take(x, constant(row), axis=axis, mode="clip") for row in table.indices]
    if table.weights is not None:
        behind = (1,) * (x.ty.ndim - axis - 1)
        weights = table.weights.astype(str(x.ty.dtype)).reshape(len(parts), -1, *behind)
        parts = [relax.op.multiply(p, constant(w)) for p, w in zip(parts, weights, strict=True)]
    return reduce(relax.op.add, parts)


def _fill_outside(x: Any, tables: dict[int, Table], value: float) -> Any:
    shape = [len(tables[n].outside) if n in tables else 1 for n in range(x.ty.ndim)]
    mask = np.zeros(shape, bool)
    for number, table in tables.items():
        mask |= table.outside.reshape(-1, *(1,) * (x.ty.ndim - number - 1))
    if not mask.any():
        return x
    return relax.op.where(constant(mask), constant(np.array(value, str(x.ty.dtype))), x)


def _resize2d(x: Any, sizes: list[Any], sampling: Sampling) -> Any:
    return relax.op.image.resize2d(
        x,
        size=relax.ShapeExpr(sizes),
        layout="NCHW",
        method=METHODS[sampling.mode],
        coordinate_transformation_mode=sampling.coordinates,
        rounding_method=sampling.rounding,
    )


def _is_resize2d(x: Any, sampling: Sampling, axes: list[Axis], tables: dict[int, Table]) -> bool:
    """Does resize2d take the same pixels, whoever computes it?"""
    known = sampling.mode in METHODS and sampling.coordinates in COORDINATES and not sampling.antialias
    if not known or x.ty.ndim != 4 or str(x.ty.dtype) != "float32" or min(tables) < 2:
        return False
    return all(_is_same(axis, sampling, tables.get(axis.number)) for axis in axes)


def _is_same(axis: Axis, sampling: Sampling, table: Table | None) -> bool:
    coordinates, size, output = sampling.coordinates, axis.size, axis.output
    if output < 1 or (coordinates == "align_corners" and output == 1):
        return False
    if sampling.mode == "linear":
        wanted = np.arange(output) if table is None else _places(table)
        return bool(np.abs(bilinear_places(coordinates, size, output) - wanted).max() < CLOSE * size)
    if sampling.rounding not in ROUNDINGS:
        return False
    pixels = np.arange(output) if table is None else table.indices[0]
    rule = (coordinates, sampling.rounding, size, output)
    return all(np.array_equal(taken, pixels) for taken in (nearest_pixels(*rule), *tvm_pixels(*rule)))


def _places(table: Table) -> Any:
    """Where a linear table looks: the mean of its pixels."""
    assert table.weights is not None
    return (table.indices * table.weights.astype(np.float64)).sum(0)


def _grows_whole(bb: Any, axis: OpenAxis) -> bool:
    """Is a size so many times the one before, whatever that is?  No float rounds then."""
    return any(bb.algebra.same(axis.output, axis.size * factor) for factor in WHOLE_FACTORS)


def _convert_open(bb: Any, inputs: Any, attrs: dict[str, Any], sampling: Sampling, error: OpenSize) -> Any:
    """By sizes that are known only at run time resize2d is right where the scale is their quotient.

    TVM's float32 coordinates are a table nobody has seen then, so it must not matter how they round.
    """
    x, axes = inputs[0], find_open_axes(bb, inputs, attrs)
    if all(not isinstance(axis.scale, relax.Expr) for axis in axes or []):
        sampling = _name_rounding(sampling, [(axis.scale or 1) < 1 for axis in axes or []])
    how = [sampling.mode, sampling.coordinates]
    if sampling.mode == "nearest":
        how.append(sampling.rounding)
    if axes is None:
        raise NodeError(f"expected {error} to resize by {', '.join(how)}, got others")
    if not axes:
        return x
    # what is antialiased is divided by its sizes
    expect_least(bb, [axis.output for axis in axes if is_late(axis.output) or sampling.antialias], 1)
    expect_least(bb, [axis.size for axis in axes], 1)
    plain = x.ty.ndim == 4 and str(x.ty.dtype) == "float32" and not sampling.antialias
    plain = plain and all(axis.number > 1 and axis.whole for axis in axes)
    closed = sampling.mode == "nearest" and any(  # TVM 0.27 cannot compile it
        isinstance(axis.output, int) and not isinstance(axis.size, int) for axis in axes
    )
    by_scales = any(axis.scale is not None for axis in axes) or all(map(partial(_grows_whole, bb), axes))
    if plain and not closed and tuple(how) in (OPEN_BY_SCALES if by_scales else OPEN_BY_SIZES):
        after = {axis.number: axis.output for axis in axes}
        return _resize2d(x, [after.get(n, d) for n, d in enumerate(x.ty.shape.values)][2:], sampling)
    dtype = str(x.ty.dtype)
    if sampling.mode == "nearest" or dtype in ("float32", "float64"):
        return resize_open(bb, x, axes, sampling)
    wide = bb.emit(relax.op.astype(x, "float32"))
    return relax.op.astype(resize_open(bb, wide, axes, sampling), dtype)
