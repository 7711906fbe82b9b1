"""What the sizes of a node's data ask of its other arguments, where they are known.

TVM's frontend computes something of some that mean nothing: a mirror image of more than there is reads
memory behind the tensor.  Others end the build in words that name no node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax

from convoy.relax.importer.axes import check_listed
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.reshape import read_whole

Sizes = Sequence[Any]
Attributes = dict[str, Any]

_AGAIN = "export the model again"
_ALONG_AN_AXIS = frozenset({"ArgMax", "ArgMin", "Split", "TopK"})
"""Ops whose ``axis`` nobody else compares with the axes of their data."""


def check_arguments(bb: Any, op: str, inputs: Any, attrs: Attributes) -> None:
    """Look at the arguments of a node beside its data.

    Raises
    ------
    NodeError
        For those that mean nothing, whatever a call brings.
    """
    sizes = _sizes(bb, inputs[0]) if inputs else None
    if sizes is None:
        return
    if op in _ALONG_AN_AXIS and "axis" in attrs:
        check_listed([attrs["axis"]], len(sizes))
    if op in _CHECKS:
        _CHECKS[op](bb, sizes, inputs, attrs)


def _sizes(bb: Any, x: Any) -> Sizes | None:
    tensor = x is not None and isinstance(x.ty, relax.TensorType)
    return bb.algebra.sizes(x) if tensor else None


def _numbers(expr: Any) -> list[int] | None:
    """Whole numbers that are known before a call."""
    found = read_whole(expr)
    return found if found is not None and all(isinstance(n, int) for n in found) else None


def _check_cumulative(bb: Any, sizes: Sizes, inputs: Any, attrs: Attributes) -> None:
    check_listed(_numbers(inputs[1]) or (), len(sizes))


def _check_grid(bb: Any, sizes: Sizes, inputs: Any, attrs: Attributes) -> None:
    grid, axes = _sizes(bb, inputs[1]) or [None], len(sizes) - 2
    if isinstance(grid[-1], int) and grid[-1] != axes:
        raise NodeError(f"expected a grid of {axes} coordinates for each pixel, got {grid[-1]}", _AGAIN)
    if isinstance(grid[0], int) and isinstance(sizes[0], int) and grid[0] != sizes[0]:
        raise NodeError(f"expected a grid of as many images as x has, {sizes[0]}, got {grid[0]}", _AGAIN)


def _check_pad(bb: Any, sizes: Sizes, inputs: Any, attrs: Attributes) -> None:
    pads, axes = _numbers(inputs[1]), [*range(len(sizes))]
    if inputs[3] is not None:
        listed = _numbers(inputs[3]) or []
        check_listed(listed, len(sizes))
        axes = [axis % len(sizes) for axis in listed]
    if pads is None or attrs.get("mode", b"constant") != b"reflect" or len(pads) != 2 * len(axes):
        return
    for axis, widths in zip(axes, zip(pads, pads[len(axes) :], strict=False), strict=False):
        size, widest = sizes[axis], max(widths)
        if isinstance(size, int) and widest >= max(size, 1):
            raise NodeError(
                f"expected a mirror image of at most {max(size - 1, 0)} along axis {axis}, got {widest}",
                "pad less, or by another mode",
            )


def _check_slopes(bb: Any, sizes: Sizes, inputs: Any, attrs: Attributes) -> None:
    slopes = _sizes(bb, inputs[1]) or []
    pairs = zip(reversed(slopes), reversed(sizes), strict=False)
    known = [(n, size) for n, size in pairs if isinstance(n, int) and isinstance(size, int)]
    if any(n != size and 1 not in (n, size) for n, size in known):
        raise NodeError(f"expected slopes that broadcast with {[*sizes]}, got {[*slopes]}", _AGAIN)


def _check_split(bb: Any, sizes: Sizes, inputs: Any, attrs: Attributes) -> None:
    size, parts = sizes[attrs.get("axis", 0)], _numbers(inputs[1])
    if parts is not None and isinstance(size, int) and (sum(parts) != size or min(parts, default=0) < 0):
        raise NodeError(f"expected parts of {size} in all, got {parts}", _AGAIN)


def _check_squeeze(bb: Any, sizes: Sizes, inputs: Any, attrs: Attributes) -> None:
    axes = _numbers(inputs[1])
    for axis in axes or ():
        if -len(sizes) <= axis < len(sizes) and isinstance(sizes[axis], int) and sizes[axis] != 1:
            raise NodeError(f"expected axes of length 1, got axis {axis} of {sizes[axis]}", _AGAIN)


def _check_tile(bb: Any, sizes: Sizes, inputs: Any, attrs: Attributes) -> None:
    repeats = read_whole(inputs[1])
    if repeats is not None and len(repeats) != len(sizes):
        raise NodeError(f"expected a repeat for each of {len(sizes)} axes, got {repeats}", _AGAIN)


def _check_top(bb: Any, sizes: Sizes, inputs: Any, attrs: Attributes) -> None:
    size, count = sizes[attrs.get("axis", -1)], _numbers(inputs[1])
    if count and isinstance(size, int) and not 0 <= count[0] <= size:
        raise NodeError(f"expected k up to {size}, the length of its axis, got {count[0]}", _AGAIN)


_CHECKS: dict[str, Callable[[Any, Sizes, Any, Attributes], None]] = {
    "CumSum": _check_cumulative,
    "GridSample": _check_grid,
    "PRelu": _check_slopes,
    "Pad": _check_pad,
    "Split": _check_split,
    "Squeeze": _check_squeeze,
    "Tile": _check_tile,
    "TopK": _check_top,
}
