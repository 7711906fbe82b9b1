"""Elementwise chains between bytes: the results of all 256 where they read one tensor, else in floats.

quantize(f(dequantize(x)))                       y = table[x]                 (``csrc/kernels/table.h``)
quantize(f(dequantize(x), dequantize(y), z))     a loop as for floats, which loads and stores bytes
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from convoy.codegen.writer import Writer, fill_halo
from convoy.graph.graph import Graph
from convoy.graph.ops import Binary, Node, Unary
from convoy.graph.reference import compute
from convoy.graph.sizes import is_open
from convoy.kernels.elementwise import (
    operands,
    plan_elementwise,
    wants_map,
)
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.options import Options
from convoy.plan import recipes
from convoy.plan.buffers import Array, Map
from convoy.plan.fuse import Fusion
from convoy.plan.recipes import Constants, Recipe
from convoy.plan.step import Step
from convoy.target import Target

BYTES = 256


@dataclass(frozen=True)
class PackTable(Recipe):
    """What nodes that follow one another make of each byte, in exact arithmetic."""

    source: str
    nodes: tuple[Node, ...]

    def pack(self, constants: Constants) -> recipes.Array:
        values = {self.source: np.arange(BYTES).astype(np.uint8)}
        for node in self.nodes:
            given = [values[n] if n in values else _exact(constants[n]) for n in node.inputs]
            values[node.output] = compute(node, given, (BYTES,))
        return values[self.nodes[-1].output]


def _exact(constant: recipes.Array) -> recipes.Array:
    one = constant.reshape(-1)
    return one.astype(np.float64) if one.dtype == np.float32 else one


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


def takes(fusion: Fusion, graph: Graph, target: Target, threads: int, options: Options) -> bool:
    """Whether bytes are uint8, of one scale each, and sizes known."""
    if is_open(graph.shape(fusion.output)):
        return False
    if fusion.quantize is not None and graph.dtype(fusion.output) != "uint8":
        return False
    return all(
        graph.dtype(node.inputs[0]) == "uint8"
        and node.inputs[0] not in graph.constants
        and graph.scalar(node.inputs[1]) is not None
        for node in fusion.dequantized
    )


def plan(fusion: Fusion, values: Values) -> Iterator[Step]:
    source = _only_source(fusion, values.graph)
    if source is None:
        yield from plan_elementwise(fusion, values)
        return
    note = make_note(fusion, values.graph)
    table = values.weight(PackTable(source, tuple(fusion.nodes)), BYTES, dtype="uint8")
    if values.blocked[fusion.output]:
        yield TableMap(note=note, x=values.map(source), y=values.define_map(fusion.output), table=table)
    else:
        x = values.array(source)
        yield TableArray(note=note, x=x, y=values.define_array(fusion.output), table=table)


def _only_source(fusion: Fusion, graph: Graph) -> str | None:
    """The tensor of bytes whose every byte becomes a byte; None where another is read, or floats made."""
    source, *others = operands(fusion)
    single = all(graph.scalar(name) is not None for name in others)
    return source if fusion.quantize and fusion.dequantized and single else None


def emit_table_map(step: TableMap, w: Writer) -> str:
    w.headers.add("table")
    return (
        f"{w.bytes_map('x', step.x)}{w.bytes_map('y', step.y)}{fill_halo('y', step.y, w)}"
        f"  cv_table_map(t, y, x, {w.pointer(step.table)});\n"
    )


def emit_table_array(step: TableArray, w: Writer) -> str:
    w.headers.add("table")
    return (
        f"  cv_table_bytes(t, {w.pointer(step.y)}, {w.pointer(step.x)}, {w.pointer(step.table)}, "
        f"{step.y.size});\n"
    )


KERNEL = KernelKind(
    nodes=(Unary, Binary),
    plan=plan,
    emitters={TableMap: emit_table_map, TableArray: emit_table_array},
    wants_map=wants_map,
    dtypes=frozenset({"float32", "uint8"}),
    takes_bytes=takes,
)
