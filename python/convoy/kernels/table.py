"""Whatever is computed of each byte by itself: a table of all 256 of them (``csrc/kernels/table.h``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from convoy.codegen.writer import Writer, fill_halo, number
from convoy.graph.dtypes import ARRAYS, QUANTISED, DType
from convoy.graph.graph import Graph
from convoy.graph.ops import Node, Quantize, Tensor
from convoy.graph.reference import run
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan import recipes
from convoy.plan.buffers import Array, Map
from convoy.plan.fuse import Fusion
from convoy.plan.recipes import Constants, Recipe
from convoy.plan.step import Step

ENTRIES = 256


@dataclass(frozen=True)
class Line:
    """``cv_table``'s: entry x is round(x * scale + shift) + zero, within bounds."""

    scale: float
    shift: float
    low: float
    high: float
    zero: int


@dataclass(frozen=True, kw_only=True)
class TableMap(Step):
    x: Map
    y: Map
    table: Array
    line: Line | None
    """On which the entries lie, if they do."""


@dataclass(frozen=True, kw_only=True)
class TableArray(Step):
    x: Array
    y: Array
    table: Array
    line: Line | None


def is_table(fusion: Fusion, graph: Graph) -> bool:
    """Bytes of one tensor and single numbers make bytes of its shape."""
    sources = {made.inputs[0] for made in fusion.dequantized}
    others = [name for name in fusion.reads if name not in sources]
    shapes = {graph.shape(node.output) for node in fusion.nodes}
    return (
        len(sources) == 1
        and len(shapes) == 1
        and {graph.dtype(name) for name in (*sources, fusion.output)} <= {*QUANTISED}
        and all(graph.scalar(name) is not None for name in others)
    )


def table_wants_map(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> bool:
    """Where its bytes are in blocks, so is what it makes of them."""
    return blocked.get(fusion.dequantized[0].inputs[0], False)


def plan_table(fusion: Fusion, values: Values) -> Iterator[Step]:
    source, graph = fusion.dequantized[0].inputs[0], values.graph
    types = graph.dtype(source), graph.dtype(fusion.output)
    recipe = PackTable(tuple(fusion.nodes), source, types, tuple(n for n in fusion.reads if n != source))
    table, note = values.weight(recipe, ENTRIES, dtype=types[1]), make_note(fusion, graph)
    line = find_line(recipe, graph.constants)
    if values.blocked[fusion.output]:
        x = values.map(source)
        yield TableMap(note=note, x=x, y=values.define_map(fusion.output), table=table, line=line)
    else:
        x_array = values.array(source)
        yield TableArray(note=note, x=x_array, y=values.define_array(fusion.output), table=table, line=line)


@dataclass(frozen=True)
class PackTable(Recipe):
    """What some nodes make of each byte, in the order of the bytes as unsigned ones."""

    nodes: tuple[Node, ...]
    source: str
    types: tuple[DType, DType]
    constants: tuple[str, ...]

    def pack(self, constants: Constants) -> recipes.Array:
        return self.compute(len(self.nodes), constants)

    def compute(self, count: int, constants: Constants) -> recipes.Array:
        """What the first nodes make of each byte, so many of them."""
        shape, nodes = (1, ENTRIES), self.nodes[:count]
        tensors = {self.source: Tensor(self.source, shape, self.types[0])}
        for name in self.constants:
            kind = next(dtype for dtype in ARRAYS if ARRAYS[dtype] == constants[name].dtype)
            tensors[name] = Tensor(name, constants[name].shape, kind)
        for node in nodes:
            kind = self.types[1] if isinstance(node, Quantize) else "float32"
            tensors[node.output] = Tensor(node.output, shape, kind)
        known = {name: constants[name] for name in self.constants}
        graph = Graph((self.source,), (nodes[-1].output,), nodes, tensors, known, 1)
        unsigned = np.arange(ENTRIES, dtype=np.uint8).reshape(shape)
        return run(graph, [unsigned.view(ARRAYS[self.types[0]])], np.float64)[0].reshape(-1)


def find_line(recipe: PackTable, constants: Constants) -> Line | None:
    """The line on which all entries lie exactly, in the kernel's float32; None if there is none."""
    if recipe.types != ("uint8", "uint8"):
        return None
    entries = recipe.pack(constants).astype(np.float64)
    quantize = recipe.nodes[-1]
    scale, zero = (constants[name].item() for name in quantize.inputs[1:])
    low, high = entries.min() - zero, entries.max() - zero
    with np.errstate(all="ignore"):
        steps = recipe.compute(len(recipe.nodes) - 1, constants) / scale
    inside = np.flatnonzero((entries > entries.min()) & (entries < entries.max()))
    if len(inside) < 2:
        return None
    first, last = inside[0], inside[-1]
    slope = np.float32((steps[last] - steps[first]) / (last - first))
    shift = np.float32(steps[first] - first * float(slope))
    made = np.arange(ENTRIES, dtype=np.float32) * slope + shift
    if not np.array_equal(np.clip(np.rint(made), low, high) + zero, entries):
        return None
    return Line(float(slope), float(shift), float(low), float(high), int(zero))


def emit_table_map(step: TableMap, w: Writer) -> str:
    return (
        f"{w.bytes_map('x', step.x)}{w.bytes_map('y', step.y)}{fill_halo('y', step.y, w)}"
        f"{_declare_table(step, w)}  cv_table_map(t, y, x, &table);\n"
    )


def emit_table_array(step: TableArray, w: Writer) -> str:
    x, y = (w.pointer_to_bytes(operand) for operand in (step.x, step.y))
    return f"{_declare_table(step, w)}  cv_table_bytes(t, {y}, {x}, &table, {step.x.size});\n"


def _declare_table(step: TableMap | TableArray, w: Writer) -> str:
    w.headers.add("table")
    line = ""
    if step.line is not None:
        on = step.line
        floats = ", ".join(map(number, (on.scale, on.shift, on.low, on.high)))
        line = f", 1, {floats}, {on.zero}"
    return f"  const cv_table table = {{{w.pointer_to_bytes(step.table)}{line}}};\n"


KERNEL = KernelKind(emitters={TableMap: emit_table_map, TableArray: emit_table_array})
