"""What a fusion costs as a member of a chain, row by row, and what it would cost by itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from convoy.graph.dtypes import DType
from convoy.graph.graph import Graph
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.registry import find_kernel
from convoy.kernels.strips.window import Window
from convoy.plan.fuse import Fusion
from convoy.plan.maps import image_shape, make_map
from convoy.target import Target

CLAMPS = ("relu", "clip")


@dataclass(frozen=True)
class Stage:
    """A fusion that can be a member of a chain."""

    fusion: Fusion
    position: int
    """In the running order of fusions."""
    sources: tuple[str, ...]
    """Inputs that another stage may make for it row by row."""
    window: Window
    x_height: int
    height: int
    x_row_bytes: int
    row_bytes: int
    """Bytes of one row of its input and of its result, all channels."""
    weight_bytes: int
    row_cycles: float
    """To compute a row of the result in a strip."""
    cycles: float
    """To compute all of it by itself, on one thread."""


def make_stage(
    position: int, fusion: Fusion, graph: Graph, blocked: Mapping[str, bool], choices: Mapping[str, Choice],
    target: Target, narrow: Collection[str] = (),
) -> Stage | None:  # fmt: skip
    """The fusion as a member of a chain; None where it cannot be one."""
    shape, member = image_shape(graph.shape(fusion.output)), find_kernel(fusion).member
    if not blocked[fusion.output] or shape is None or member is None:
        return None
    membership = member(fusion, graph, choices, target)
    if membership is None:
        return None
    _, height, width = shape
    y = make_map(0, *shape, target.lanes, dtype=_dtype(fusion.output, graph, narrow))
    activations = sum(act is not None and act.kind not in CLAMPS for act in (fusion.inner, fusion.outer))
    activation_cycles = activations * y.blocks * width * target.direct.activation
    x_shape = image_shape(graph.shape(membership.x))
    assert x_shape is not None
    x = make_map(0, *x_shape, target.lanes, dtype=_dtype(membership.x, graph, narrow))
    return Stage(
        fusion=fusion, position=position, window=membership.window,
        sources=tuple(n for n in membership.reads if blocked.get(n) and n != fusion.residual),
        x_height=x.height, height=height, x_row_bytes=x.bytes // x.height, row_bytes=y.bytes // height,
        weight_bytes=membership.weight_bytes, row_cycles=membership.row_cycles + activation_cycles,
        cycles=min(height * membership.row_cycles, membership.whole_cycles) + height * activation_cycles,
    )  # fmt: skip


def _dtype(name: str, graph: Graph, narrow: Collection[str]) -> DType:
    return "bfloat16" if name in narrow else graph.dtype(name)
