"""Channels of groups in turns (``csrc/kernels/channels.h``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convoy.codegen.writer import Writer, fill_halo
from convoy.graph.dtypes import MOVABLE, QUANTISED
from convoy.graph.ops import ChannelShuffle
from convoy.kernels.kernel import KernelKind, always, stores
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.buffers import Map
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step


@dataclass(frozen=True, kw_only=True)
class ShuffleMap(Step):
    x: Map
    y: Map
    groups: int


def plan_shuffle(fusion: Fusion, values: Values) -> Iterator[Step]:
    node = fusion.anchor
    assert isinstance(node, ChannelShuffle)
    y = values.define_map(fusion.output)
    x = values.map(node.inputs[0], y.dtype == "bfloat16")
    yield ShuffleMap(note=make_note(fusion, values.graph), x=x, y=y, groups=node.groups)


def emit_shuffle(step: ShuffleMap, w: Writer) -> str:
    w.headers.add("channels")
    if step.y.dtype in QUANTISED:
        return (
            f"{w.bytes_map('x', step.x)}{w.bytes_map('y', step.y)}{fill_halo('y', step.y, w)}"
            f"  cv_shuffle_byte_channels(t, y, x, {step.groups});\n"
        )
    return f"{w.maps(step.x, step.y)}  cv_channel_shuffle(t, y, x, {step.groups});\n"


KERNEL = KernelKind(
    nodes=(ChannelShuffle,), plan=plan_shuffle, emitters={ShuffleMap: emit_shuffle}, wants_map=always,
    narrow=stores, dtypes=MOVABLE,
)  # fmt: skip
