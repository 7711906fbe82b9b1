"""Pools: over windows, over parts of an image, over whole images."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from convoy.graph.ops import Pool2d, Reduce
from convoy.graph.shapes import find_blind_window
from convoy.ops.attributes import image_sides, pair
from convoy.ops.layouts import layouts, remedy, steps
from convoy.ops.operands import Operands
from convoy.ops.reader import Call, Reader
from convoy.ops.row import Check, Lowering, OpRow, nothing

Kind = Literal["max", "avg"]


def _check_windows(kind: Kind, data: str) -> Check:
    """A pool on windows needs this layout, and a pixel in every window."""

    def check(at: Reader, call: Call) -> str | None:
        attrs = call.attrs
        given = (attrs.layout, data, attrs.out_layout)
        if (reason := layouts(*given, remedy=remedy(at, call)) or steps(attrs)) is not None:
            return reason
        size, windows = (image_sides((at.dims(tensor) or ())[2:]) for tensor in (call.args[0], call))
        kernel, stride, dilation = pair(attrs.pool_size), pair(attrs.strides), pair(attrs.dilation)
        padded = kind == "avg" and bool(attrs.count_include_pad)
        sides = at.attributes.padding(call)
        blind = find_blind_window(size, windows, kernel, stride, dilation, sides, padded)
        return None if blind is None else f"expected a pixel in every window, got none in window {blind}"

    return check


def _check_layout(at: Reader, call: Call) -> str | None:
    return layouts(call.attrs.layout, "NCHW", call.attrs.out_layout, remedy=remedy(at, call))


def _check_adaptive(at: Reader, call: Call) -> str | None:
    if (wrong := _check_layout(at, call)) is not None:
        return wrong
    (height, width), (rows, columns) = ((at.dims(of) or ())[2:] for of in (call.args[0], call))
    if height % rows != 0 or width % columns != 0:
        return f"expected an output that divides {height}x{width}, got {rows}x{columns}"
    return None


def _windows(kind: Kind, pattern: str) -> Lowering:
    def lower_pool(at: Operands, call: Call) -> str:
        return at.build.windowed(
            Pool2d,
            at.tensor(call.args[0]),
            at.shape(call),
            kind=kind,
            kernel=pair(call.attrs.pool_size),
            stride=pair(call.attrs.strides),
            padding=at.attributes.padding(call),
            dilation=pair(call.attrs.dilation),
            count_include_pad=kind == "avg" and bool(call.attrs.count_include_pad),
            pattern=pattern,
        )

    return lower_pool


def _lower_adaptive(at: Operands, call: Call) -> str:
    return at.build.average_to(at.tensor(call.args[0]), at.shape(call))


def _whole(kind: Literal["mean", "max"]) -> Lowering:
    return lambda at, call: at.node(Reduce, call, kind=kind, axes=(2, 3))


_HEAVY = OpRow(images=True, heavy=True, open_sizes=True)


def _row(kind: Kind, n: int, check: Check = nothing, lower: Lowering | None = None) -> OpRow:
    name = f"nn.{kind}_pool{n}d"
    return replace(_HEAVY, relax=name, relay=name, cost="window", pool=kind, check=check, lower=lower)


def _rows(kind: Kind) -> tuple[OpRow, ...]:
    return (
        _row(kind, 1, _check_windows(kind, "NCW"), _windows(kind, f"{kind}_pool1d")),
        _row(kind, 2, _check_windows(kind, "NCHW"), _windows(kind, "")),
    )


_AREAS = replace(_HEAVY, cost="reduction", pool="area avg", check=_check_layout)
_ADAPTIVE = {n: f"nn.adaptive_avg_pool{n}d" for n in (1, 2, 3)}

ROWS = (
    *_rows("max"),
    *_rows("avg"),
    replace(_AREAS, relax=_ADAPTIVE[2], relay=_ADAPTIVE[2], check=_check_adaptive, lower=_lower_adaptive),
    *(OpRow(relax=_ADAPTIVE[n], relay=_ADAPTIVE[n], pool="area avg") for n in (1, 3)),
    replace(_AREAS, relay="nn.global_avg_pool2d", lower=_whole("mean")),
    replace(_AREAS, relay="nn.global_max_pool2d", pool="area max", lower=_whole("max")),
)
