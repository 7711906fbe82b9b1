"""Whatever is computed of each byte by itself: a table of all 256 of them (``csrc/kernels/table.h``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from convoy.codegen.writer import Writer, fill_halo
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


@dataclass(frozen=True, kw_only=True)
class TableMap(Step):
    x: Map
    y: Map
    table: Array


@dataclass(frozen=True, kw_only=True)
class TableArray(Step):
    x: Array
    y: Array
    table: Array


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
    if values.blocked[fusion.output]:
        x = values.map(source)
        yield TableMap(note=note, x=x, y=values.define_map(fusion.output), table=table)
    else:
        x_array = values.array(source)
        yield TableArray(note=note, x=x_array, y=values.define_array(fusion.output), table=table)


@dataclass(frozen=True)
class PackTable(Recipe):
    """What some nodes make of each byte, in the order of the bytes as unsigned ones."""

    nodes: tuple[Node, ...]
    source: str
    types: tuple[DType, DType]
    constants: tuple[str, ...]

    def pack(self, constants: Constants) -> recipes.Array:
        shape = (1, ENTRIES)
        tensors = {self.source: Tensor(self.source, shape, self.types[0])}
        for name in self.constants:
            kind = next(dtype for dtype in ARRAYS if ARRAYS[dtype] == constants[name].dtype)
            tensors[name] = Tensor(name, constants[name].shape, kind)
        for node in self.nodes:
            kind = self.types[1] if isinstance(node, Quantize) else "float32"
            tensors[node.output] = Tensor(node.output, shape, kind)
        known = {name: constants[name] for name in self.constants}
        last = self.nodes[-1].output
        graph = Graph((self.source,), (last,), self.nodes, tensors, known, 1)
        unsigned = np.arange(ENTRIES, dtype=np.uint8).reshape(shape)
        return run(graph, [unsigned.view(ARRAYS[self.types[0]])], np.float64)[0].reshape(-1)


def emit_table_map(step: TableMap, w: Writer) -> str:
    w.headers.add("table")
    return (
        f"{w.bytes_map('x', step.x)}{w.bytes_map('y', step.y)}{fill_halo('y', step.y, w)}"
        f"  cv_table_map(t, y, x, {w.pointer_to_bytes(step.table)});\n"
    )


def emit_table_array(step: TableArray, w: Writer) -> str:
    w.headers.add("table")
    x, y, table = (w.pointer_to_bytes(operand) for operand in (step.x, step.y, step.table))
    return f"  cv_table_bytes(t, {y}, {x}, {table}, {step.x.size});\n"


KERNEL = KernelKind(emitters={TableMap: emit_table_map, TableArray: emit_table_array})
