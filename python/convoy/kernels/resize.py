"""A map in another size, by its nearest pixels or between them (``csrc/kernels/resize.h``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from convoy.codegen.writer import Writer, joined, number
from convoy.graph.coordinates import bilinear_weights, nearest_indices
from convoy.graph.ops import Resize
from convoy.kernels.kernel import KernelKind, always
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.buffers import Map
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step


@dataclass(frozen=True, kw_only=True)
class ResizeNearest(Step):
    x: Map
    y: Map
    rows: tuple[int, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ResizeBilinear(Step):
    x: Map
    y: Map
    rows: tuple[int, ...]
    row_weights: tuple[float, ...]
    columns: tuple[int, ...]
    column_weights: tuple[float, ...]


def plan_resize(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Resize)
    x = values.map(node.inputs[0])
    y = values.define_map(fusion.output)
    note = make_note(fusion, graph)
    if node.mode == "nearest":
        yield ResizeNearest(
            note=note, x=x, y=y,
            rows=_integers(nearest_indices(node, 0, x.height, y.height)),
            columns=_integers(nearest_indices(node, 1, x.width, y.width)),
        )  # fmt: skip
        return
    rows, row_weights = bilinear_weights(node, 0, x.height, y.height)
    columns, column_weights = bilinear_weights(node, 1, x.width, y.width)
    yield ResizeBilinear(
        note=note, x=x, y=y, rows=_integers(rows), row_weights=tuple(map(float, row_weights)),
        columns=_integers(columns), column_weights=tuple(map(float, column_weights)),
    )  # fmt: skip


def _integers(indices: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(i) for i in indices)


def emit_resize_nearest(step: ResizeNearest, w: Writer) -> str:
    w.headers.add("resize")
    rows = w.table("int", [str(i) for i in step.rows])
    columns = w.table("int", [str(i) for i in step.columns])
    return f"{w.maps(step.x, step.y)}  cv_resize_nearest(t, y, x, {rows}, {columns});\n"


def emit_resize_bilinear(step: ResizeBilinear, w: Writer) -> str:
    w.headers.add("resize")
    tables = [
        w.table("int", [str(i) for i in step.rows]),
        w.table("float", [number(v) for v in step.row_weights]),
        w.table("int", [str(i) for i in step.columns]),
        w.table("float", [number(v) for v in step.column_weights]),
    ]
    return f"{w.maps(step.x, step.y)}  cv_resize_bilinear(t, y, x, {joined(tables)});\n"


KERNEL = KernelKind(
    nodes=(Resize,),
    plan=plan_resize,
    emitters={ResizeNearest: emit_resize_nearest, ResizeBilinear: emit_resize_bilinear},
    wants_map=always,
)
