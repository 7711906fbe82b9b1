"""Convolutions and pools of volumes [N, C, D, H, W]; ``graph/volumes.py`` makes images of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

from convoy.graph.builder import FIX_SHAPE
from convoy.graph.ops import Pair, Sides
from convoy.graph.shapes import find_blind_window
from convoy.ops.layouts import layouts, remedy, steps
from convoy.ops.operands import Operands
from convoy.ops.reader import Call, Reader
from convoy.ops.row import Check, Cost, Lowering, OpRow, Pool


class Window(NamedTuple):
    """What an op on windows does along the depth, and what it does in a slice."""

    depth: tuple[int, int, int, int]
    """Stride, padding in front and behind, dilation."""
    stride: Pair
    padding: Sides
    dilation: Pair


def _three(values: Iterable[Any]) -> tuple[int, int, int]:
    found = [int(value) for value in values]
    return (found[0],) * 3 if len(found) == 1 else (found[0], found[1], found[2])


def read_window(attrs: Any) -> Window:
    """Strides, padding and dilation of an op; one number, or three, may stand for all sides."""
    sides = [int(side) for side in attrs.padding]
    front, top, left, back, bottom, right = sides * (6 // len(sides))
    stride, dilation = _three(attrs.strides), _three(attrs.dilation)
    return Window(
        (stride[0], front, back, dilation[0]), stride[1:], (top, left, bottom, right), dilation[1:]
    )


MOST_SLICES = 512
"""In the data or in the result of an op: each slice is a kernel of its own."""


def _wrong_depths(at: Reader, *volumes: Any) -> str | None:
    """Each slice is a kernel of its own, so their number is known, and not too large."""
    for depth in (_depth(at, of) for of in volumes):
        if not isinstance(depth, int):
            return f"expected a known depth, got an open one; {FIX_SHAPE}"
        if depth > MOST_SLICES:
            return f"expected at most {MOST_SLICES} slices in depth, got {depth}"
    return None


# Convolutions --------------------------------------------------------------------------------------


def _place(call: Call, kernel: int, depth: int) -> Callable[[int], list[int]]:
    """For a slice of the result, the tap in depth that each slice of the data meets, or -1."""
    stride, front, _, dilation = read_window(call.attrs).depth
    transposed = _is_transposed(call)

    def place(d: int) -> list[int]:
        reach = [d + front - i * stride if transposed else i + front - d * stride for i in range(depth)]
        return [o // dilation if o % dilation == 0 and 0 <= o // dilation < kernel else -1 for o in reach]

    return place


def _is_transposed(call: Call) -> bool:
    return hasattr(call.attrs, "output_padding")


def _check_conv(weight_layout: str) -> Check:
    """Every slice of the result meets a slice of the data; else it is padding alone."""

    def check(at: Reader, call: Call) -> str | None:
        attrs = call.attrs
        given = (attrs.data_layout, "NCDHW", attrs.out_layout, attrs.kernel_layout, weight_layout)
        if (wrong := layouts(*given, remedy=remedy(at, call)) or steps(attrs)) is not None:
            return wrong
        if (wrong := _wrong_depths(at, call.args[1], call.args[0], call)) is not None:
            return wrong
        kernel, depth, made = (_depth(at, of) for of in (call.args[1], call.args[0], call))
        place = _place(call, kernel, depth)
        blind = next((d for d in range(made) if max(place(d)) < 0), None)
        return None if blind is None else f"expected data at every depth, got none at depth {blind}"

    return check


def _depth(at: Reader, of: Any) -> int:
    return _sides(at, of)[0]


def _sides(at: Reader, of: Any) -> tuple[int, ...]:
    """Depth, height and width."""
    return tuple((at.dims(of) or (0,) * 5)[2:])


def _lower_conv(at: Operands, call: Call) -> str:
    window, weight = read_window(call.attrs), at.array(call.args[1])
    data, shape = at.tensor(call.args[0]), at.shape(call)
    transposed = _is_transposed(call)
    more = {"output_padding": _three(call.attrs.output_padding)[1:]} if transposed else {}
    return at.build.volumes.convolve(
        data,
        weight,
        shape[2],
        _place(call, weight.shape[2], at.build.shape_of(data)[2]),
        (*shape[:2], *shape[3:]),
        transposed=transposed,
        groups=int(call.attrs.groups),
        stride=window.stride,
        padding=window.padding,
        dilation=window.dilation,
        **more,
    )


# Pools ---------------------------------------------------------------------------------------------


def _check_pool(kind: Literal["max", "avg"]) -> Check:
    def check(at: Reader, call: Call) -> str | None:
        attrs = call.attrs
        given = (attrs.layout, "NCDHW", attrs.out_layout)
        if (wrong := layouts(*given, remedy=remedy(at, call)) or steps(attrs)) is not None:
            return wrong
        if (wrong := _wrong_depths(at, call.args[0], call)) is not None:
            return wrong
        window, kernel = read_window(attrs), _three(attrs.pool_size)
        size, made = (_sides(at, of) for of in (call.args[0], call))
        padded = kind == "avg" and bool(attrs.count_include_pad)
        stride, front, back, dilation = window.depth
        sides = (window.stride, window.dilation, window.padding, padded)
        blind = find_blind_window(size[1:], made[1:], kernel[1:], *sides)
        if blind is None:  # along the depth, as along the height of an image one pixel wide
            sides = ((stride, 1), (dilation, 1), (front, 0, back, 0), padded)
            blind = find_blind_window((size[0], 1), (made[0], 1), (kernel[0], 1), *sides)
        return None if blind is None else f"expected a pixel in every window, got none in window {blind}"

    return check


def _pool(kind: Literal["max", "avg"]) -> Lowering:
    def lower_pool(at: Operands, call: Call) -> str:
        attrs, shape, data = call.attrs, at.shape(call), at.tensor(call.args[0])
        window, kernel = read_window(attrs), _three(attrs.pool_size)
        stride, front, back, dilation = window.depth
        depth = at.build.shape_of(data)[2]
        padded = kind == "avg" and bool(attrs.count_include_pad)
        reached = [[d * stride - front + k * dilation for k in range(kernel[0])] for d in range(shape[2])]
        inside = [[i for i in taps if 0 <= i < depth] for taps in reached]
        within = [sum(-front <= i < depth + back for i in taps) for taps in reached]
        return at.build.volumes.pool(
            data,
            kind,
            inside,
            within if padded else [len(taps) for taps in inside],
            (*shape[:2], *shape[3:]),
            kernel=kernel[1:],
            stride=window.stride,
            padding=window.padding,
            dilation=window.dilation,
            count_include_pad=padded,
        )

    return lower_pool


# Rows ----------------------------------------------------------------------------------------------


def _row(name: str, cost: Cost, check: Check, lower: Lowering, pool: Pool | None = None) -> OpRow:
    return OpRow(
        name,
        name,
        images=True,
        heavy=True,
        open_sizes=True,
        constants={} if pool else {1: "weight"},
        cost=cost,
        pool=pool,
        check=check,
        lower=lower,
    )


ROWS = (
    _row("nn.conv3d", "convolution", _check_conv("OIDHW"), _lower_conv),
    _row("nn.conv3d_transpose", "transposed", _check_conv("IODHW"), _lower_conv),
    _row("nn.max_pool3d", "window", _check_pool("max"), _pool("max"), pool="max"),
    _row("nn.avg_pool3d", "window", _check_pool("avg"), _pool("avg"), pool="avg"),
)
