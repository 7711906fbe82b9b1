"""The mean of bytes, of exact sums: of a map a pool, of axes in a row ``csrc/kernels/reduce_bytes.h``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from convoy.codegen.writer import Writer, write_scale
from convoy.graph.graph import Graph
from convoy.graph.ops import Reduce
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.pool import Pool
from convoy.kernels.quantize import scale_of
from convoy.kernels.reduce import wants_map
from convoy.kernels.values import Values
from convoy.options import Options
from convoy.plan.buffers import Array
from convoy.plan.fuse import Fusion
from convoy.plan.maps import NO_HALO, image_shape
from convoy.plan.step import IDENTITY, Scale, Step
from convoy.target import Target


@dataclass(frozen=True, kw_only=True)
class MeanBytes(Step):
    """Over the middle axis of [outer, axis, inner]."""

    x: Array
    y: Array
    scales: tuple[Scale, Scale]
    """What the bytes of x and y stand for."""
    outer: int
    axis: int
    inner: int


def takes_mean(fusion: Fusion, graph: Graph, target: Target, threads: int, options: Options) -> bool:
    """Means over neighbouring axes, where something else rounds them."""
    node, quantize = fusion.anchor, fusion.quantize
    assert isinstance(node, Reduce)
    x = fusion.bytes_of(node.inputs[0])
    if x is None or quantize is None or node.kind != "mean":
        return False
    if graph.dtype(x.inputs[0]) != "uint8" or graph.dtype(fusion.output) != "uint8":
        return False
    empty = 0 in graph.shape(node.inputs[0])
    neighbours = node.axes == tuple(range(node.axes[0], node.axes[-1] + 1))
    return graph.scalar(x.inputs[1]) is not None and neighbours and not empty


def plan_mean(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Reduce)
    made, quantize = fusion.bytes_of(node.inputs[0]), fusion.quantize
    assert made is not None
    assert quantize is not None
    note, scales = make_note(fusion, graph), (scale_of(made, graph), scale_of(quantize, graph))
    shape = graph.shape(node.inputs[0])
    if values.blocked[fusion.output]:
        image = image_shape(shape)
        assert image is not None
        yield Pool(
            note=note, x=values.map(made.inputs[0]), y=values.define_map(fusion.output), reduction="avg",
            kernel=image[1:], stride=(1, 1), dilation=(1, 1), padding=NO_HALO, count_include_pad=False,
            outer=IDENTITY, scales=scales,
        )  # fmt: skip
        return
    first, last = node.axes[0], node.axes[-1]
    yield MeanBytes(
        note=note, x=values.array(made.inputs[0]), y=values.define_array(fusion.output), scales=scales,
        outer=math.prod(shape[:first]), axis=math.prod(shape[first : last + 1]),
        inner=math.prod(shape[last + 1 :]),
    )  # fmt: skip


def emit_mean(step: MeanBytes, w: Writer) -> str:
    w.headers.add("reduce_bytes")
    x_scale, y_scale = map(write_scale, step.scales)
    return (
        f"  cv_mean_bytes(t, {w.pointer_to_bytes(step.y)}, {w.pointer_to_bytes(step.x)}, {step.outer}, "
        f"{step.axis}, {step.inner},\n                {x_scale}, {y_scale});\n"
    )


KERNEL = KernelKind(
    nodes=(Reduce,), plan=plan_mean, emitters={MeanBytes: emit_mean}, wants_map=wants_map,
    dtypes=frozenset({"float32", "uint8"}), takes_bytes=takes_mean,
)  # fmt: skip
