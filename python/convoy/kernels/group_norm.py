"""Group normalisation, and that of each channel (``csrc/kernels/group_norm.h``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convoy.codegen.writer import Writer, activation, number
from convoy.graph.ops import GroupNorm
from convoy.graph.sizes import smallest
from convoy.kernels.epilogue import make_activation
from convoy.kernels.kernel import KernelKind, follows
from convoy.kernels.layer_norm import scale_pointers, scales
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.buffers import Array, Map
from convoy.plan.fuse import Fusion
from convoy.plan.step import Activation, Step

PIECE_PIXELS = 1024
"""Pixels of a block in a piece, which is summed twice, the second time from L2 at worst."""
SUMS = 3
"""CV_GROUP_SUMS: vectors for each piece of a block."""


@dataclass(frozen=True, kw_only=True)
class GroupNormArray(Step):
    """x and y are [groups, size, pixels]."""

    x: Array
    gamma: Array | None
    beta: Array | None
    groups: int
    size: int
    pixels: int
    epsilon: float
    outer: Activation


@dataclass(frozen=True, kw_only=True)
class GroupSums(Step):
    """What ``GroupNormMap`` needs to know of all of x before it begins."""

    x: Map
    y: Array
    """[pieces, blocks, SUMS, lanes]"""
    pieces: int


@dataclass(frozen=True, kw_only=True)
class GroupNormMap(Step):
    x: Map
    y: Map
    sums: Array
    gamma: Array | None
    beta: Array | None
    pieces: int
    size: int
    epsilon: float
    outer: Activation


def plan_group_norm(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, GroupNorm)
    _, channels, height, width = graph.shape(node.output)
    note, outer, size = make_note(fusion, graph), make_activation(fusion.outer), channels // node.groups
    gamma, beta = scales(node, values)
    if not values.blocked[fusion.output]:
        yield GroupNormArray(
            note=note, x=values.array(node.inputs[0]), gamma=gamma, beta=beta,
            y=values.define_array(fusion.output), groups=node.groups, size=size, pixels=height * width,
            epsilon=node.epsilon, outer=outer,
        )  # fmt: skip
        return
    x = values.map(node.inputs[0])
    pieces = smallest(-(-height * width // PIECE_PIXELS), height * width if x.flat else height)
    sums = values.scratch_array(pieces, x.blocks, SUMS, x.lanes)
    yield GroupSums(note=note, x=x, y=sums, pieces=pieces)
    yield GroupNormMap(
        note=note, x=x, y=values.define_map(fusion.output), sums=sums, pieces=pieces, gamma=gamma,
        beta=beta, size=size, epsilon=node.epsilon, outer=outer,
    )  # fmt: skip


def emit_group_norm_array(step: GroupNormArray, w: Writer) -> str:
    w.headers.add("group_norm")
    return (
        f"  const cv_activation outer = {activation(step.outer)};\n"
        f"  cv_group_norm_plain(t, {w.pointer(step.y)}, {w.pointer(step.x)}, "
        f"{scale_pointers(step.gamma, step.beta, w)}, {step.groups}, {step.size}, {step.pixels}, "
        f"{number(step.epsilon)}, outer);\n"
    )


def emit_group_sums(step: GroupSums, w: Writer) -> str:
    w.headers.add("group_norm")
    w.declare(f'_Static_assert(CV_GROUP_SUMS == {SUMS}, "other memory for the sums of groups");')
    return f"{w.source('x', step.x)}  cv_group_sums(t, {w.pointer(step.y)}, x, {step.pieces});\n"


def emit_group_norm_map(step: GroupNormMap, w: Writer) -> str:
    return (
        f"  const cv_activation outer = {activation(step.outer)};\n"
        f"{w.maps(step.x, step.y)}  cv_group_norm_map(t, y, x, {w.pointer(step.sums)}, {step.pieces}, "
        f"{scale_pointers(step.gamma, step.beta, w)}, {step.size}, {number(step.epsilon)}, outer);\n"
    )


KERNEL = KernelKind(
    nodes=(GroupNorm,),
    plan=plan_group_norm,
    emitters={
        GroupNormArray: emit_group_norm_array,
        GroupSums: emit_group_sums,
        GroupNormMap: emit_group_norm_map,
    },
    wants_map=follows,
)
