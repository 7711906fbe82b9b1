"""Mean, sum, maximum or minimum over axes (``csrc/kernels/reduce.h``, ``csrc/kernels/extremes.h``)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from convoy.codegen.writer import Writer
from convoy.graph.graph import Graph
from convoy.graph.ops import Reduce
from convoy.graph.views import Shape
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.precision import Narrow
from convoy.kernels.strided import write_sum_of_nothing
from convoy.kernels.transpose import permute
from convoy.kernels.values import Values
from convoy.plan.buffers import Array, Map, Operand
from convoy.plan.fuse import Fusion
from convoy.plan.maps import image_shape
from convoy.plan.step import Note, Step, is_few

Reduction = Literal["mean", "sum", "max", "min"]
_PARTS = 32
"""Parts of which a whole tensor's extremes are found, for threads to share."""
_FEW = 1024
"""Elements of which either extreme is found by itself, as a step more takes longer."""


@dataclass(frozen=True, kw_only=True)
class ReduceMap(Step):
    """Over height and width."""

    x: Map
    y: Map
    reduction: Reduction


@dataclass(frozen=True, kw_only=True)
class ReduceArray(Step):
    """Over the middle axis of [outer, axis, inner]."""

    x: Array
    y: Array
    reduction: Reduction
    outer: int
    axis: int
    inner: int

    @property
    def unshared(self) -> bool:
        return self.outer == self.inner == 1 and is_few(self.axis)


@dataclass(frozen=True, kw_only=True)
class Extremes(Step):
    """The greatest and the least numbers of a map's channels, or of as many parts as ``y`` has numbers."""

    x: Operand
    y: Operand
    least: Operand

    @property
    def reads(self) -> tuple[Operand, ...]:
        return (self.x,)

    @property
    def writes(self) -> tuple[Operand, ...]:
        return self.y, self.least


def wants_map(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> bool:
    node = fusion.anchor
    assert isinstance(node, Reduce)
    x = graph.shape(node.inputs[0])
    return len(x) == 4 and node.axes == (2, 3) and image_shape(x) is not None


def plan_reduce(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Reduce)
    note = make_note(fusion, graph)
    if values.blocked[fusion.output]:
        x = values.map(node.inputs[0], None)
        yield ReduceMap(note=note, x=x, y=values.define_map(fusion.output), reduction=node.kind)
        return
    if values.is_array(fusion.output):  # made beside the other extreme
        return
    shape = graph.shape(node.inputs[0])
    if (other := _find_other_extreme(node, graph)) is not None:
        both = Note(note.op, f"{note.text} and {other.origin or other.kind}")
        yield from _plan_extremes(both, sorted((node, other), key=lambda n: n.kind), values)
        return
    if _is_of_map(node, shape, values):
        x = values.map(node.inputs[0], None)
        each = values.scratch_map(x.channels)
        yield ReduceMap(note=note, x=x, y=each, reduction=node.kind)
        yield ReduceArray(
            note=note, x=Array(each.buffer, each.offset, (x.channels,), "float32"),
            y=values.define_array(fusion.output), reduction=node.kind, outer=1, axis=x.channels, inner=1,
        )  # fmt: skip
        return
    x_array = values.array(node.inputs[0])
    first, last = node.axes[0], node.axes[-1]
    if node.axes != tuple(range(first, last + 1)):  # bring the reduced axes to the end
        kept = [i for i in range(len(shape)) if i not in node.axes]
        perm = (*kept, *node.axes)
        shape = tuple(shape[p] for p in perm)
        moved = permute(note, x_array, values.scratch_array(*shape), perm)
        yield moved
        x_array = moved.y
        first, last = len(kept), len(shape) - 1
    yield ReduceArray(
        note=note, x=x_array, y=values.define_array(fusion.output), reduction=node.kind,
        outer=math.prod(shape[:first]), axis=math.prod(shape[first : last + 1]),
        inner=math.prod(shape[last + 1 :]),
    )  # fmt: skip


def _find_other_extreme(node: Reduce, graph: Graph) -> Reduce | None:
    """The minimum of all that a node is the maximum of, or the other way around."""
    sought = {"max": "min", "min": "max"}.get(node.kind)
    size = graph.tensors[node.inputs[0]].size
    if graph.tensors[node.output].size != 1 or (isinstance(size, int) and size < _FEW):
        return None
    for other in graph.consumers[node.inputs[0]]:
        if isinstance(other, Reduce) and other.kind == sought and other.axes == node.axes:
            return other
    return None


def _plan_extremes(note: Note, pair: Sequence[Reduce], values: Values) -> Iterator[Step]:
    """The maximum and the minimum in one pass: of each thread's parts, or channels, and then of these."""
    (name,) = {node.inputs[0] for node in pair}
    if values.blocked[name]:
        x = values.map(name)
        highest, lowest = values.scratch_map(x.channels), values.scratch_map(x.channels)
        yield Extremes(note=note, x=x, y=highest, least=lowest)
        parts = [Array(m.buffer, m.offset, (x.channels,), "float32") for m in (highest, lowest)]
    else:
        parts = [values.scratch_array(_PARTS), values.scratch_array(_PARTS)]
        yield Extremes(note=note, x=values.array(name), y=parts[0], least=parts[1])
    for node, of in zip(pair, parts, strict=True):
        last = Note(note.op, f"{node.kind} of {of.shape[0]} parts; {node.origin}")
        y = values.define_array(node.output)
        yield ReduceArray(note=last, x=of, y=y, reduction=node.kind, outer=1, axis=of.shape[0], inner=1)


def _is_of_map(node: Reduce, shape: Shape, values: Values) -> bool:
    """Whether it is the maximum or minimum of all of a map: first of each channel, where it lies."""
    whole = len(shape) == 4 and node.axes == (1, 2, 3)
    return whole and node.kind in ("max", "min") and values.blocked[node.inputs[0]]


def emit_reduce_map(step: ReduceMap, w: Writer) -> str:
    w.headers.add("reduce")
    return f"{w.maps(step.x, step.y)}  cv_reduce_map(t, CV_{step.reduction.upper()}, x, y);\n"


def emit_extremes(step: Extremes, w: Writer) -> str:
    w.headers.add("extremes")
    if isinstance(step.x, Map):
        assert isinstance(step.y, Map)
        assert isinstance(step.least, Map)
        maps = w.maps(step.x, step.y) + w.beside("least", step.least)
        return f"{maps}  cv_extremes_map(t, y, least, x);\n"
    assert isinstance(step.y, Array)
    operands = ", ".join(w.pointer(operand) for operand in (step.y, step.least, step.x))
    return f"  cv_extremes_pieces(t, {operands}, {math.prod(step.x.shape)}, {step.y.shape[0]});\n"


def emit_reduce_array(step: ReduceArray, w: Writer) -> str:
    w.headers.add("reduce")
    none = write_sum_of_nothing(step.axis, step.y, w) if step.reduction == "sum" else ""
    operands = f"{w.pointer(step.y)}, {w.pointer(step.x)}"
    sizes = f"{step.outer}, {step.axis}, {step.inner}"
    return f"{none}  cv_reduce_plain(t, CV_{step.reduction.upper()}, {operands}, {sizes});\n"


def _knows_narrow(fusion: Fusion, graph: Graph, choices: Mapping[str, Choice]) -> Narrow:
    return Narrow(reads=fusion.reads)


KERNEL = KernelKind(
    nodes=(Reduce,),
    plan=plan_reduce,
    emitters={
        ReduceMap: emit_reduce_map,
        ReduceArray: emit_reduce_array,
        Extremes: emit_extremes,
    },
    wants_map=wants_map,
    narrow=_knows_narrow,
)
