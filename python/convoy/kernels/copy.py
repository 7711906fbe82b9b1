"""Parts of a tensor, copied as they are (``csrc/kernels/channels.h``, ``tensor.h``)."""

from __future__ import annotations

from dataclasses import dataclass

from convoy.codegen.writer import Writer
from convoy.graph.dtypes import QUANTISED
from convoy.plan.buffers import Array, Map
from convoy.plan.step import Note, Step


@dataclass(frozen=True, kw_only=True)
class CopyChannels(Step):
    """y[y_channel + i] = x[x_channel + i] for i < count."""

    x: Map
    y: Map
    y_channel: int
    x_channel: int
    count: int


@dataclass(frozen=True, kw_only=True)
class CopyRows(Step):
    """y[i·y_stride + j] = x[i·x_stride + j] from ``y_start``, for rows × columns."""

    x: Array
    rows: int
    columns: int
    y_start: int
    y_stride: int
    x_stride: int


def copy_whole(note: Note, x: Array, y: Array) -> CopyRows:
    """The step that copies all of x."""
    return CopyRows(
        note=note, x=x, y=y, rows=1, columns=x.size, y_start=0, y_stride=x.size, x_stride=x.size
    )


def emit_copy_channels(step: CopyChannels, w: Writer) -> str:
    w.headers.add("channels")
    if step.y.dtype in QUANTISED:
        return (
            f"{w.bytes_map('x', step.x)}{w.bytes_map('y', step.y)}"
            f"  cv_copy_byte_channels(t, y, {step.y_channel}, x, {step.x_channel}, {step.count});\n"
        )
    return (
        f"{w.maps(step.x, step.y)}"
        f"  cv_copy_channels(t, y, {step.y_channel}, x, {step.x_channel}, {step.count});\n"
    )


def emit_copy_rows(step: CopyRows, w: Writer) -> str:
    w.headers.add("tensor")
    start = f" + {step.y_start}" if step.y_start != 0 else ""
    kind = "byte_rows" if step.y.dtype in QUANTISED else "rows"
    return (
        f"  cv_copy_{kind}(t, {w.pointer(step.y)}{start}, {step.y_stride}, {w.pointer(step.x)}, "
        f"{step.x_stride}, {step.rows}, {step.columns});\n"
    )
