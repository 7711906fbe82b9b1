"""Resizes and samples of a grid: what Convoy has a kernel for, and where TVM's own rounding differs.

Convoy computes coordinates from exact integers, TVM in float32.  For bilinear samples that is an
error of rounding; the nearest pixel may be another one, and such a resize stays with TVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from convoy.graph.coordinates import clamped_coordinates, nearest_indices
from convoy.graph.ops import GridSample, Resize
from convoy.graph.sizes import Size
from convoy.ops.layouts import TURN_IT, layouts, remedy
from convoy.ops.operands import Operands
from convoy.ops.reader import Call, Reader
from convoy.ops.row import OpRow

INTERPOLATIONS = {"nearest_neighbor": "nearest", "linear": "bilinear"}
"""The graph's names of the ways to resize."""
UPSAMPLINGS = {"nearest_neighbor": "nearest", "bilinear": "bilinear"}
"""The same of Relay's upsampling."""
COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")

WHOLE_FACTORS = (1, 2, 4, 8)
"""By which sizes that are known at the call may grow to their nearest pixels."""

NEAR = np.float32(1e-5)
"""What TVM adds before it rounds down, and takes off before it rounds up."""

Indices = NDArray[np.int64]


def rounding(method: str, coordinates: str) -> str | None:
    """How nearest resize2d picks a pixel; None for ways Convoy does not know."""
    chosen = method or ("round" if coordinates == "align_corners" else "floor")
    return chosen if chosen in ROUNDINGS else None


def refuse_resize(
    attrs: Any, before: Sequence[object] | None, after: Sequence[object] | None
) -> str | None:
    """Why Convoy does not take a resize2d, or None.

    Parameters
    ----------
    before, after : Sequence[object] | None
        Shapes of the data and of the result, [N, C, H, W]; open dimensions are no integers.
    """
    layout, method = str(attrs.layout), str(attrs.method)
    coordinates = str(attrs.coordinate_transformation_mode)
    if layout != "NCHW":
        return f"expected data in NCHW, got {layout}; {TURN_IT}"
    if method not in INTERPOLATIONS:
        return f"expected nearest or linear interpolation, got {method}"
    if coordinates not in COORDINATES:
        return f"expected coordinates {', '.join(COORDINATES)}, got {coordinates}"
    if method != "nearest_neighbor":
        return None
    picked = rounding(str(attrs.rounding_method), coordinates)
    if picked is None:
        return f"expected rounding {', '.join(ROUNDINGS)}, got {str(attrs.rounding_method) or 'round'}"
    for size, output in zip((before or ())[2:], (after or ())[2:], strict=True):
        if (isinstance(size, Size) or isinstance(output, Size)) and (
            wrong := _refuse_open_nearest(coordinates, picked, size, output)
        ) is not None:
            return wrong
        if not (isinstance(size, int) and isinstance(output, int) and output > 0):
            continue  # open sizes are refused for themselves
        ours = nearest_pixels(coordinates, picked, size, output)
        if not all(
            np.array_equal(ours, theirs) for theirs in tvm_pixels(coordinates, picked, size, output)
        ):
            return f"TVM's float32 coordinates round to other pixels, from {size} to {output}"
    return None


def _refuse_open_nearest(coordinates: str, picked: str, size: object, output: object) -> str | None:
    """By a power of two, TVM's coordinates are exact, so that what holds for a few sizes holds for all."""
    factor = next((f for f in WHOLE_FACTORS if output == f * size), None)  # type: ignore[operator]
    if factor is None:
        return (
            f"expected a nearest resize by {WHOLE_FACTORS} where sizes are known at the call, got another"
        )
    for n in (1, 2, 3, 5, 8, 13):
        ours, theirs = (
            nearest_pixels(coordinates, picked, n, n * factor),
            tvm_pixels(coordinates, picked, n, n * factor),
        )
        if not all(np.array_equal(ours, pixels) for pixels in theirs):
            return f"TVM's float32 coordinates round to other pixels, by {factor}"
    return None


def nearest_pixels(coordinates: str, picked: str, size: int, output: int) -> Indices:
    """The pixels Convoy's kernel takes along one axis."""
    return nearest_indices(_node("nearest", coordinates, picked), 0, size, output)


def bilinear_places(coordinates: str, size: int, output: int) -> NDArray[np.float64]:
    """Where Convoy's kernel looks along one axis: the place between two pixels."""
    return clamped_coordinates(_node("bilinear", coordinates), 0, size, output)


def tvm_pixels(coordinates: str, picked: str, size: int, output: int) -> list[Indices]:
    """The pixels TVM takes: in two ways, since LLVM may or may not fuse a product with a sum."""
    if coordinates == "align_corners" and output == 1:
        return []  # 0/0 in TVM
    x = np.arange(output)
    if coordinates == "asymmetric" and picked == "floor" and output % size == 0:
        return [x // (output // size)]
    return [_round_like_tvm(at, picked, size) for at in _place_like_tvm(coordinates, size, output)]


def _place_like_tvm(coordinates: str, size: int, output: int) -> list[NDArray[np.float32]]:
    x = np.arange(output, dtype=np.float32)
    scale, half = np.float32(size) / np.float32(output), np.float32(0.5)
    match coordinates:
        case "align_corners":
            return [np.float32(size - 1) / np.float32(output - 1) * x]
        case "asymmetric":
            return [scale * x]
        case "pytorch_half_pixel" if output == 1:
            return [np.zeros(1, np.float32)]
    fused = (x + half).astype(np.float64) * np.float64(scale) - 0.5
    return [(x + half) * scale - half, fused.astype(np.float32)]


def _round_like_tvm(at: NDArray[np.float32], picked: str, size: int) -> Indices:
    half = np.float32(0.5)
    rounded = {
        "round_prefer_floor": np.ceil(at - half),
        "round_prefer_ceil": np.floor(at + half),
        "floor": np.floor(at + NEAR),
        "ceil": np.ceil(at - NEAR),
    }[picked]
    return np.asarray(np.clip(rounded.astype(np.int64), 0, size - 1))


def _node(mode: str, coordinates: str, picked: str = "floor") -> Resize:
    return Resize(
        inputs=("x",), output="y", mode=cast(Any, mode), coordinates=cast(Any, coordinates),
        rounding=cast(Any, picked),
    )  # fmt: skip


# Rows ----------------------------------------------------------------------------------------------


def _check_resize2d(at: Reader, call: Call) -> str | None:
    return refuse_resize(call.attrs, at.dims(call.args[0]), at.dims(call))


def _check_whole_scales(at: Reader, call: Call) -> str | None:
    """By a whole scale the nearest asymmetric resize of TVM's Relay always rounds down."""
    attrs = call.attrs
    if (attrs.method, attrs.coordinate_transformation_mode) != ("nearest_neighbor", "asymmetric"):
        return None
    before, after = at.dims(call.args[0]) or (), at.dims(call) or ()
    sides = zip(before[2:], after[2:], strict=True)
    whole = any(isinstance(b, int) and isinstance(a, int) and b and a % b == 0 for b, a in sides)
    given = str(attrs.rounding_method) or "floor"
    if whole and given != "floor":
        return f"expected rounding floor, as TVM's Relay has it by whole scales in any case, got {given}"
    return None


def _check_upsampling(at: Reader, call: Call) -> str | None:
    if call.attrs.method not in UPSAMPLINGS:
        return f"expected nearest or bilinear interpolation, got {call.attrs.method}"
    if call.attrs.align_corners and call.attrs.method == "nearest_neighbor":
        return f"expected rounding {', '.join(ROUNDINGS)}, got round, as align_corners has it"
    return layouts(call.attrs.layout, "NCHW", remedy=remedy(at, call))


def _lower_resize2d(at: Operands, call: Call) -> str:
    mode = INTERPOLATIONS[str(call.attrs.method)]
    coordinates = str(call.attrs.coordinate_transformation_mode)
    picked = rounding(str(call.attrs.rounding_method), coordinates)
    given = {"rounding": picked} if mode == "nearest" else {}
    return at.node(Resize, call, mode=mode, coordinates=coordinates, **given)


def _lower_upsampling(at: Operands, call: Call) -> str:
    coordinates = "align_corners" if call.attrs.align_corners else "asymmetric"
    return at.node(Resize, call, mode=UPSAMPLINGS[str(call.attrs.method)], coordinates=coordinates)


SAMPLES = ("nearest", "bilinear")


def _check_grid_sample(at: Reader, call: Call) -> str | None:
    if call.attrs.method not in SAMPLES:
        return f"expected nearest or bilinear samples, got {call.attrs.method}"
    return layouts(call.attrs.layout, "NCHW", remedy=remedy(at, call)) or _check_images(at, call)


def _check_images(at: Reader, call: Call) -> str | None:
    """A kernel runs once for each image, and a constant is alike for all of them."""
    images = (at.dims(call) or "?")[0]
    for arg in call.args:
        want, found = 1 if at.is_constant(arg) else images, (at.dims(arg) or "?")[0]
        if str(found) != str(want):
            what = "a constant" if at.is_constant(arg) else "data and places"
            return f"expected {what} along whose axis 0 is {want}, got {found}"
    return None


def _lower_grid_sample(at: Operands, call: Call) -> str:
    attrs = call.attrs
    given = {"mode": str(attrs.method), "padding": str(attrs.padding_mode)}
    return at.node(GridSample, call, *call.args, **given, corners=bool(attrs.align_corners))


ROWS = (
    OpRow(
        "image.resize2d",
        "image.resize2d",
        images=True,
        heavy=True,
        open_sizes=True,
        check=_check_resize2d,
        relay_check=_check_whole_scales,
        lower=_lower_resize2d,
    ),
    OpRow(
        "image.grid_sample",
        "image.grid_sample",
        images=True,
        heavy=True,
        open_sizes=True,
        takes_constants=True,
        check=_check_grid_sample,
        lower=_lower_grid_sample,
    ),
    OpRow(relay="nn.upsampling", images=True, heavy=True, check=_check_upsampling, lower=_lower_upsampling),
)
