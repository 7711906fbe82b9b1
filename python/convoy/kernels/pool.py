"""The maximum or mean of windows of pixels (``csrc/kernels/pool.h``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from convoy.codegen.writer import Writer, activation, joined
from convoy.graph.graph import Graph
from convoy.graph.ops import Pair, Pool2d, Sides
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.epilogue import make_activation
from convoy.kernels.kernel import KernelKind, Membership, always, stores
from convoy.kernels.note import make_note
from convoy.kernels.strips.window import Window
from convoy.kernels.values import Values
from convoy.plan.buffers import Map
from convoy.plan.fuse import Fusion
from convoy.plan.step import Activation, Step
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


def emit_pool(step: Pool, w: Writer) -> str:
    w.headers.add("pool")
    padding: tuple[object, ...] = step.padding
    storage = "static const"
    if w.cut is not None:  # windows of an inner strip do not reach above the image
        padding, storage = ("s->above", *step.padding[1:]), "const"
    return (
        f"  {storage} cv_pool c = {{{joined(step.kernel)}, {joined(step.stride)}, {joined(step.dilation)}, "
        f"{joined(padding)}, {int(step.count_include_pad)}, {activation(step.outer)}}};\n"
        f"{w.source('x', step.x, inside=True)}{w.result('y', step.y)}"
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
