"""Between layouts and types: pack a tensor into a map, unpack it, convert a map, clear its halo."""

from __future__ import annotations

from dataclasses import dataclass

from convoy.codegen.writer import Writer, fill_halo, joined, write_scale
from convoy.graph.dtypes import QUANTISED
from convoy.plan.buffers import Array, Map
from convoy.plan.step import Scale, Step


@dataclass(frozen=True, kw_only=True)
class Pack(Step):
    """Row-major → blocked, or planar where y.lanes is 1.  ``strides`` of channel, row, column."""

    x: Array
    y: Map
    strides: tuple[int, int, int]
    scale: Scale | None = None
    """Bytes are made of floats by it; None: of bytes, or nothing is quantised."""


@dataclass(frozen=True, kw_only=True)
class Unpack(Step):
    """Blocked → row-major."""

    x: Map
    y: Array
    strides: tuple[int, int, int]
    scale: Scale | None = None
    """Floats are made of bytes by it; None: bytes, or nothing is dequantised."""


@dataclass(frozen=True, kw_only=True)
class Convert(Step):
    """A map → the same of the other type: float32 or bfloat16."""

    x: Map
    y: Map


@dataclass(frozen=True, kw_only=True)
class ClearHalo(Step):
    """Zeros around a map whose pixels are written in parts; of bytes their zero point."""

    y: Map


def emit_pack(step: Pack, w: Writer) -> str:
    if step.y.dtype in QUANTISED:
        w.headers.add("layout_bytes")
        kernel, x, scale = "cv_pack_bytes", w.pointer_to_bytes(step.x), ""
        if step.scale is not None:
            kernel, x, scale = "cv_pack_floats", w.pointer(step.x), f", {write_scale(step.scale)}"
        return (
            f"{w.bytes_map('y', step.y)}"
            f"  {kernel}(t, y, {step.y.lanes}, {step.y.zero}, {x}, {joined(step.strides)}{scale});\n"
        )
    w.headers.add("layout")
    kernel = "cv_pack_planar" if step.y.lanes == 1 else "cv_pack"
    return f"{w.result('y', step.y)}  {kernel}(t, y, {w.pointer(step.x)}, {joined(step.strides)});\n"


def emit_unpack(step: Unpack, w: Writer) -> str:
    if step.x.dtype in QUANTISED:
        w.headers.add("layout_bytes")
        kernel, y, scale = "cv_unpack_bytes", w.pointer_to_bytes(step.y), ""
        if step.scale is not None:
            kernel, y, scale = "cv_unpack_floats", w.pointer(step.y), f", {write_scale(step.scale)}"
        return (
            f"{w.bytes_map('x', step.x)}"
            f"  {kernel}(t, {y}, {joined(step.strides)}, x, {step.x.lanes}{scale});\n"
        )
    w.headers.add("layout")
    return f"{w.source('x', step.x)}  cv_unpack(t, {w.pointer(step.y)}, {joined(step.strides)}, x);\n"


def emit_convert(step: Convert, w: Writer) -> str:
    w.headers.add("layout")
    return f"{w.maps(step.x, step.y)}  cv_convert(t, y, x);\n"


def emit_clear_halo(step: ClearHalo, w: Writer) -> str:
    if step.y.dtype in QUANTISED:
        return w.bytes_map("y", step.y) + fill_halo("y", step.y, w)
    w.headers.add("layout")
    return f"{w.result('y', step.y)}  cv_map_clear_halo(t, y);\n"
