"""A map in another size, by its nearest pixels or between them (``csrc/kernels/resize.h``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from convoy.codegen.writer import C_TYPES, Writer, joined, number
from convoy.graph.coordinates import bilinear_weights, nearest_indices
from convoy.graph.graph import Graph
from convoy.graph.ops import Resize
from convoy.graph.sizes import is_open
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.kernel import KernelKind, always, stores
from convoy.kernels.note import make_note
from convoy.kernels.precision import Narrow
from convoy.kernels.values import Values
from convoy.plan.buffers import Map
from convoy.plan.fuse import Fusion
from convoy.plan.step import Note, Step


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


@dataclass(frozen=True, kw_only=True)
class ResizeOpen(Step):
    """For sizes known at the call: each thread makes the tables (``resize_places.h``) in its scratch.

    They are indices of rows and of columns, and for bilinear samples their weights.
    """

    x: Map
    y: Map
    mode: Literal["nearest", "bilinear"]
    coordinates: str
    rounding: str
    scales: tuple[float, float] | None


def _open_resize(note: Note, node: Resize, x: Map, y: Map, values: Values) -> ResizeOpen:
    indices = [values.scratch_array(n, private=True, dtype="int32") for n in (y.height, y.width)]
    weights = [values.scratch_array(n, private=True) for n in (y.height, y.width)]
    return ResizeOpen(
        note=note, x=x, y=y, mode=node.mode, coordinates=node.coordinates, rounding=node.rounding,
        scales=node.scales, scratch=(*indices, *(weights if node.mode == "bilinear" else ())),
    )  # fmt: skip


def plan_resize(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Resize)
    y = values.define_map(fusion.output)
    x = values.map(node.inputs[0], y.dtype == "bfloat16")
    note = make_note(fusion, graph)
    if is_open((x.height, x.width, y.height, y.width)):
        yield _open_resize(note, node, x, y, values)
        return
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


def emit_resize_open(step: ResizeOpen, w: Writer) -> str:
    w.headers |= {"resize", "resize_places"}
    text = w.maps(step.x, step.y)
    scales = step.scales or (0.0, 0.0)
    tables = [f"table{i}" for i in range(len(step.scratch))]
    for name, array in zip(tables, step.scratch, strict=True):
        text += f"  {C_TYPES[array.dtype]} *{name} = {w.pointer(array)};\n"
    for axis, side in enumerate(("height", "width")):
        kind = f"CV_{step.coordinates.upper()}"
        text += f"  const cv_resized {side} = {{{kind}, x.{side}, y.{side}, {scales[axis]!r}}};\n"
        if step.mode == "nearest":
            rounding = f"CV_ROUND_{step.rounding.upper().removeprefix('ROUND_')}"
            text += f"  cv_resize_indices({tables[axis]}, &{side}, {rounding});\n"
        else:
            text += f"  cv_resize_weights({tables[axis]}, {tables[axis + 2]}, &{side});\n"
    order = tables if step.mode == "nearest" else [tables[i] for i in (0, 2, 1, 3)]
    return f"{text}  cv_resize_{step.mode}(t, y, x, {joined(order)});\n"


def emit_resize_bilinear(step: ResizeBilinear, w: Writer) -> str:
    w.headers.add("resize")
    tables = [
        w.table("int", [str(i) for i in step.rows]),
        w.table("float", [number(v) for v in step.row_weights]),
        w.table("int", [str(i) for i in step.columns]),
        w.table("float", [number(v) for v in step.column_weights]),
    ]
    return f"{w.maps(step.x, step.y)}  cv_resize_bilinear(t, y, x, {joined(tables)});\n"


def _knows_narrow(fusion: Fusion, graph: Graph, choices: Mapping[str, Choice]) -> Narrow:
    return Narrow() if is_open(graph.shape(fusion.output)) else stores(fusion, graph, choices)


KERNEL = KernelKind(
    nodes=(Resize,),
    plan=plan_resize,
    emitters={
        ResizeNearest: emit_resize_nearest,
        ResizeBilinear: emit_resize_bilinear,
        ResizeOpen: emit_resize_open,
    },
    wants_map=always,
    narrow=_knows_narrow,
)
