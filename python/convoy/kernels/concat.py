"""Tensors side by side: those that were not computed in their place are copied there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from convoy.graph.dtypes import MOVABLE
from convoy.graph.graph import Graph
from convoy.graph.ops import Concat
from convoy.kernels.copy import CopyChannels, CopyRows
from convoy.kernels.kernel import KernelKind, follows, stores
from convoy.kernels.layout import ClearHalo
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.fuse import Fusion
from convoy.plan.maps import NO_HALO
from convoy.plan.step import Note, Step


def wants_map(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> bool:
    node = fusion.anchor
    assert isinstance(node, Concat)
    return node.axis == 1 and follows(fusion, graph, blocked)


def plan_concat(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Concat)
    note = make_note(fusion, graph)
    if values.blocked[fusion.output]:
        yield from _copy_channels(note, node, values)
        return
    y = values.define_array(fusion.output)
    shape = graph.shape(fusion.output)
    inner = math.prod(shape[node.axis + 1 :])
    begin = 0
    for name in node.inputs:
        columns = graph.shape(name)[node.axis] * inner
        if columns != 0:
            yield CopyRows(
                note=note, x=values.array(name), y=y, rows=math.prod(shape[: node.axis]),
                columns=columns, y_start=begin, y_stride=shape[node.axis] * inner, x_stride=columns,
            )  # fmt: skip
        begin += columns


def _copy_channels(note: Note, node: Concat, values: Values) -> Iterator[Step]:
    copied = [name for name in node.inputs if not _in_place(name, node, values)]
    y = values.define_map(node.output)
    if copied and y.halo != NO_HALO:
        yield ClearHalo(note=Note("clear", f"clear the halo of {node.output}"), y=y)
    channel = 0
    for name in node.inputs:
        count = values.graph.shape(name)[1]
        if name in copied:
            yield CopyChannels(
                note=note, x=values.map(name, y.dtype == "bfloat16"), y=y, y_channel=channel, x_channel=0,
                count=count,
            )  # fmt: skip
        channel += count


def _in_place(name: str, concat: Concat, values: Values) -> bool:
    return name in values.views and values.views[name].source == concat.output


KERNEL = KernelKind(nodes=(Concat,), plan=plan_concat, wants_map=wants_map, narrow=stores, dtypes=MOVABLE)
