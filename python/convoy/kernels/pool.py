"""The maximum or mean of windows of pixels (``csrc/kernels/pool.h``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from convoy.codegen.writer import Writer, activation, fill_halo, joined, write_scale
from convoy.graph.dtypes import QUANTISED
from convoy.graph.graph import Graph
from convoy.graph.ops import Pair, Pool2d, Sides
from convoy.graph.quantised import same_numbers
from convoy.graph.sizes import is_open
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.epilogue import make_activation
from convoy.kernels.kernel import KernelKind, Membership, always, stores
from convoy.kernels.note import make_note
from convoy.kernels.quantize import scale_of
from convoy.kernels.strips.window import Window
from convoy.kernels.values import Values
from convoy.options import Options
from convoy.plan.buffers import Map
from convoy.plan.fuse import Fusion
from convoy.plan.step import Activation, Scale, Step
from convoy.target import Target


@dataclass(frozen=True, kw_only=True)
class Pool(Step):
    x: Map
    y: Map
    reduction: Literal["max", "avg"]
    kernel: Pair
    stride: Pair
    dilation: Pair
    padding: Sides
    count_include_pad: bool
    outer: Activation
    scales: tuple[Scale, Scale] | None = None
    """What the bytes of x and y stand for, where these are averaged."""


def make_pool(fusion: Fusion, values: Values) -> Pool:
    """The step of a pool."""
    node = fusion.anchor
    assert isinstance(node, Pool2d)
    x = values.map(node.inputs[0], None)
    return Pool(
        note=make_note(fusion, values.graph), x=x, y=values.define_map(fusion.output), reduction=node.kind,
        kernel=node.kernel, stride=node.stride, dilation=node.dilation, padding=node.padding,
        count_include_pad=node.count_include_pad, outer=make_activation(fusion.outer),
    )  # fmt: skip


def plan_pool(fusion: Fusion, values: Values) -> Iterator[Step]:
    yield make_pool(fusion, values)


def takes_pool(fusion: Fusion, graph: Graph, target: Target, threads: int, options: Options) -> bool:
    """Maxima keep their scale; means are of any."""
    node, quantize = fusion.anchor, fusion.quantize
    assert isinstance(node, Pool2d)
    x = fusion.bytes_of(node.inputs[0])
    if x is None or quantize is None:
        return False
    if graph.dtype(x.inputs[0]) != "uint8" or graph.dtype(fusion.output) != "uint8":
        return False
    scaled = graph.scalar(x.inputs[1]) is not None
    return scaled if node.kind == "avg" else fusion.outer is None and same_numbers(quantize, x, graph)


def plan_bytes(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Pool2d)
    made, quantize = fusion.bytes_of(node.inputs[0]), fusion.quantize
    assert made is not None
    assert quantize is not None
    x = values.map(made.inputs[0])
    yield Pool(
        note=make_note(fusion, graph), x=x, y=values.define_map(fusion.output), reduction=node.kind,
        kernel=node.kernel, stride=node.stride, dilation=node.dilation, padding=node.padding,
        count_include_pad=node.count_include_pad, outer=make_activation(fusion.outer),
        scales=(scale_of(made, graph), scale_of(quantize, graph)) if node.kind == "avg" else None,
    )  # fmt: skip


def emit_pool(step: Pool, w: Writer) -> str:
    bytes_ = step.y.dtype in QUANTISED
    w.headers.add("pool_bytes" if bytes_ else "pool")
    padding: tuple[object, ...] = step.padding
    storage = "const" if is_open((step.kernel, padding)) else "static const"
    if w.cut is not None:  # windows of an inner strip do not reach above the image
        padding, storage = ("s->above", *step.padding[1:]), "const"
    window = (
        f"  {storage} cv_pool c = {{{joined(step.kernel)}, {joined(step.stride)}, {joined(step.dilation)}, "
        f"{joined(padding)}, {int(step.count_include_pad)}, {activation(step.outer)}}};\n"
    )
    if bytes_:
        scales = "".join(f", {write_scale(scale)}" for scale in step.scales or ())
        return (
            f"{window}{w.bytes_map('x', step.x)}{w.bytes_map('y', step.y)}{fill_halo('y', step.y, w)}"
            f"  cv_{step.reduction}_pool_bytes(t, &c, x, y{scales});\n"
        )
    return (
        f"{window}{w.source('x', step.x, inside=True)}{w.result('y', step.y)}"
        f"  cv_{step.reduction}_pool(t, &c, x, y);\n"
    )


def pool_member(fusion: Fusion, graph: Graph, choices: Mapping[str, Choice], target: Target) -> Membership:
    node = fusion.anchor
    assert isinstance(node, Pool2d)
    _, channels, _, width = graph.shape(fusion.output)
    vectors = -(-channels // target.lanes) * width
    return Membership(
        window=Window(node.stride[0], node.padding[0], (node.kernel[0] - 1) * node.dilation[0]),
        x=node.inputs[0], reads=(node.inputs[0],),
        row_cycles=vectors * node.kernel[0] * node.kernel[1] * target.direct.pool_tap,
    )  # fmt: skip


KERNEL = KernelKind(
    nodes=(Pool2d,), plan=plan_pool, emitters={Pool: emit_pool}, wants_map=always, narrow=stores,
    member=pool_member, plan_member=plan_pool,
)  # fmt: skip

BYTES = KernelKind(
    nodes=(Pool2d,), plan=plan_bytes, wants_map=always, dtypes=frozenset({"float32", *QUANTISED}),
    takes_bytes=takes_pool,
)  # fmt: skip
