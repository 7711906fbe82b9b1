"""A part of a tensor: a range of its planes, or a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from convoy.graph.dtypes import MOVABLE
from convoy.graph.graph import Graph
from convoy.graph.ops import Slice
from convoy.kernels.copy import CopyChannels
from convoy.kernels.kernel import KernelKind, follows, stores
from convoy.kernels.layout import ClearHalo
from convoy.kernels.note import make_note
from convoy.kernels.transpose import TransposeArray
from convoy.kernels.values import Values
from convoy.plan.buffers import row_major
from convoy.plan.fuse import Fusion
from convoy.plan.maps import NO_HALO
from convoy.plan.step import Note, Step


def wants_map(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> bool:
    node = fusion.anchor
    assert isinstance(node, Slice)
    return node.axis == 1 and node.step == 1 and follows(fusion, graph, blocked)


def plan_slice(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Slice)
    if fusion.output in values.views and values.views[fusion.output].source == node.inputs[0]:
        values.define_map(fusion.output)
        return
    note = make_note(fusion, graph)
    if values.blocked[fusion.output]:
        y = values.define_map(fusion.output)
        x = values.map(node.inputs[0], y.dtype == "bfloat16")
        if y.halo != NO_HALO:
            yield ClearHalo(note=Note("clear", f"clear the halo of {fusion.output}"), y=y)
        yield CopyChannels(
            note=note, x=x, y=y, y_channel=0, x_channel=node.begin, count=node.end - node.begin
        )
        return
    x_array = values.array(node.inputs[0])
    strides = list(row_major(x_array.shape))
    start = node.begin * strides[node.axis]
    strides[node.axis] *= node.step
    yield TransposeArray(
        note=note, x=x_array, y=values.define_array(fusion.output), strides=tuple(strides), start=start
    )


KERNEL = KernelKind(nodes=(Slice,), plan=plan_slice, wants_map=wants_map, narrow=stores, dtypes=MOVABLE)
