"""A map in another size, by its nearest pixels or between them (``csrc/kernels/resize.h``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from convoy.codegen.writer import C_TYPES, Writer, fill_halo, joined, number, write_scale
from convoy.graph.coordinates import bilinear_weights, nearest_indices
from convoy.graph.graph import Graph
from convoy.graph.ops import Resize
from convoy.graph.quantised import same_numbers
from convoy.graph.sizes import is_open
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.kernel import KernelKind, always, stores
from convoy.kernels.note import make_note
from convoy.kernels.precision import Narrow
from convoy.kernels.quantize import scale_of
from convoy.kernels.values import Values
from convoy.options import Options
from convoy.plan.buffers import Array, Map
from convoy.plan.fuse import Fusion
from convoy.plan.step import Note, Scale, Step
from convoy.target import Target


@dataclass(frozen=True, kw_only=True)
class ResizeNearest(Step):
    x: Map
    y: Map | Array
    rows: tuple[int, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ResizeBilinear(Step):
    x: Map
    y: Map | Array
    rows: tuple[int, ...]
    row_weights: tuple[float, ...]
    columns: tuple[int, ...]
    column_weights: tuple[float, ...]
    scales: tuple[Scale, Scale] | None = None
    """What the bytes of x and y stand for."""


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
    steps: tuple[Scale, Scale] | None = None
    """What the bytes of x and y stand for."""


def _open_resize(
    note: Note, node: Resize, x: Map, y: Map, values: Values, steps: tuple[Scale, Scale] | None = None
) -> ResizeOpen:
    indices = [values.scratch_array(n, private=True, dtype="int32") for n in (y.height, y.width)]
    weights = [values.scratch_array(n, private=True) for n in (y.height, y.width)]
    return ResizeOpen(
        note=note, x=x, y=y, mode=node.mode, coordinates=node.coordinates, rounding=node.rounding,
        scales=node.scales, steps=steps, scratch=(*indices, *(weights if node.mode == "bilinear" else ())),
    )  # fmt: skip


def plan_resize(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Resize)
    note = make_note(fusion, graph)
    if not values.blocked[fusion.output]:
        yield _make_resize(note, node, values.map(node.inputs[0], None), values.define_array(fusion.output))
        return
    y = values.define_map(fusion.output)
    x = values.map(node.inputs[0], y.dtype == "bfloat16")
    if is_open((x.height, x.width, y.height, y.width)):
        yield _open_resize(note, node, x, y, values)
        return
    yield _make_resize(note, node, x, y)


def _makes_map(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> bool:
    """What is a result of the region and nothing else reads is row-major at once, where sizes are known."""
    sizes = graph.shape(fusion.anchor.inputs[0]), graph.shape(fusion.output)
    is_result = fusion.output in graph.outputs and not graph.consumers.get(fusion.output)
    return not is_result or is_open(sizes)


def _make_resize(
    note: Note, node: Resize, x: Map, y: Map | Array, scales: tuple[Scale, Scale] | None = None
) -> ResizeNearest | ResizeBilinear:
    height, width = (y.height, y.width) if isinstance(y, Map) else y.shape[2:]
    if node.mode == "nearest":
        return ResizeNearest(
            note=note, x=x, y=y,
            rows=_integers(nearest_indices(node, 0, x.height, height)),
            columns=_integers(nearest_indices(node, 1, x.width, width)),
        )  # fmt: skip
    rows, row_weights = bilinear_weights(node, 0, x.height, height)
    columns, column_weights = bilinear_weights(node, 1, x.width, width)
    return ResizeBilinear(
        note=note, x=x, y=y, rows=_integers(rows), row_weights=tuple(map(float, row_weights)),
        columns=_integers(columns), column_weights=tuple(map(float, column_weights)), scales=scales,
    )  # fmt: skip


def takes_bytes(fusion: Fusion, graph: Graph, target: Target, threads: int, options: Options) -> bool:
    """Nearest pixels keep their scale; what lies between pixels is of any."""
    node, quantize = fusion.anchor, fusion.quantize
    assert isinstance(node, Resize)
    x = fusion.bytes_of(node.inputs[0])
    if x is None or quantize is None:
        return False
    if graph.dtype(x.inputs[0]) != "uint8" or graph.dtype(fusion.output) != "uint8":
        return False
    return graph.scalar(x.inputs[1]) is not None and (
        node.mode == "bilinear" or same_numbers(quantize, x, graph)
    )


def plan_bytes(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Resize)
    made, quantize = fusion.bytes_of(node.inputs[0]), fusion.quantize
    assert made is not None
    assert quantize is not None
    scales = scale_of(made, graph), scale_of(quantize, graph)
    x, y, note = values.map(made.inputs[0]), values.define_map(fusion.output), make_note(fusion, graph)
    if is_open((x.height, x.width, y.height, y.width)):
        yield _open_resize(note, node, x, y, values, scales)
        return
    yield _make_resize(note, node, x, y, scales)


def _integers(indices: Iterable[Any]) -> tuple[int, ...]:
    return tuple(int(i) for i in indices)


def emit_resize_nearest(step: ResizeNearest, w: Writer) -> str:
    w.headers.add("resize")
    rows = w.table("int", [str(i) for i in step.rows])
    columns = w.table("int", [str(i) for i in step.columns])
    if isinstance(step.y, Array):
        return _emit_rows(step.x, step.y, w, f"cv_resize_nearest_rows({{}}, {rows}, {columns});\n")
    if step.y.dtype == "uint8":
        return f"{_byte_maps(step.x, step.y, w)}  cv_resize_nearest_bytes(t, y, x, {rows}, {columns});\n"
    return f"{w.maps(step.x, step.y)}  cv_resize_nearest(t, y, x, {rows}, {columns});\n"


def _emit_rows(x: Map, y: Array, w: Writer, call: str) -> str:
    """The call of a kernel whose result is row-major."""
    *_, height, width = y.shape
    return f"{w.source('x', x)}  {call.format(f't, {w.pointer(y)}, {height}, {width}, x')}"


def _byte_maps(x: Map, y: Map, w: Writer) -> str:
    return f"{w.bytes_map('x', x)}{w.bytes_map('y', y)}{fill_halo('y', y, w)}"


def emit_resize_open(step: ResizeOpen, w: Writer) -> str:
    w.headers |= {"resize", "resize_places"}
    text = w.maps(step.x, step.y) if step.steps is None else _byte_maps(step.x, step.y, w)
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
    if step.steps is not None and step.mode == "bilinear":
        order += [write_scale(scale) for scale in step.steps]
    kind = "" if step.steps is None else "_bytes"
    return f"{text}  cv_resize_{step.mode}{kind}(t, y, x, {joined(order)});\n"


def emit_resize_bilinear(step: ResizeBilinear, w: Writer) -> str:
    w.headers.add("resize")
    tables = [
        w.table("int", [str(i) for i in step.rows]),
        w.table("float", [number(v) for v in step.row_weights]),
        w.table("int", [str(i) for i in step.columns]),
        w.table("float", [number(v) for v in step.column_weights]),
    ]
    if isinstance(step.y, Array):
        return _emit_rows(step.x, step.y, w, f"cv_resize_bilinear_rows({{}}, {joined(tables)});\n")
    if step.scales is not None:
        tables += [write_scale(scale) for scale in step.scales]
        return f"{_byte_maps(step.x, step.y, w)}  cv_resize_bilinear_bytes(t, y, x, {joined(tables)});\n"
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
    wants_map=_makes_map,
    narrow=_knows_narrow,
)

BYTES = KernelKind(
    nodes=(Resize,), plan=plan_bytes, wants_map=always, dtypes=frozenset({"float32", "uint8", "int8"}),
    takes_bytes=takes_bytes,
)  # fmt: skip
