"""What a fusion costs as a member of a chain, row by row, and what it would cost by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from convoy.graph.graph import Graph
from convoy.graph.ops import Binary, Conv2d, Pool2d, Unary
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.strips.window import Window, row_window
from convoy.plan.fuse import Fusion
from convoy.plan.maps import image_shape, operand_role
from convoy.plan.tiles import choose_tiling
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
    target: Target,
) -> Stage | None:  # fmt: skip
    """The fusion as a member of a chain; None where it cannot be one."""
    node, shape = fusion.anchor, image_shape(graph.shape(fusion.output))
    if not blocked[fusion.output] or shape is None:
        return None
    channels, height, width = shape
    vectors = -(-channels // target.lanes) * width
    window = row_window(fusion, graph)
    if isinstance(node, Conv2d):
        if choices[node.output].algorithm in ("winograd", "tap by tap"):
            return None
        reads: tuple[str, ...] = (node.inputs[0],)
        depthwise = choices[node.output].algorithm == "depthwise"
        work = _convolution(graph.shape(node.inputs[1]), height, width, depthwise, window, target)
    elif isinstance(node, Pool2d):
        reads = (node.inputs[0],)
        work = _Work(vectors * node.kernel[0] * node.kernel[1] * target.direct.pool_tap)
    elif isinstance(node, (Unary, Binary)):
        out = graph.shape(fusion.output)
        reads = tuple(n for n in fusion.reads if operand_role(graph.shape(n), out) == "map")
        work = _Work(vectors * (len(fusion.nodes) + len(reads)) * target.direct.elementwise)
    else:
        return None
    activations = sum(act is not None and act.kind not in CLAMPS for act in (fusion.inner, fusion.outer))
    activation_cycles = activations * vectors * target.direct.activation
    x = image_shape(graph.shape(fusion.output if isinstance(node, (Unary, Binary)) else node.inputs[0]))
    assert x is not None
    lane_bytes = target.lanes * 4
    return Stage(
        fusion=fusion, position=position, window=window,
        sources=tuple(n for n in reads if blocked.get(n) and n != fusion.residual),
        x_height=x[1], height=height, x_row_bytes=-(-x[0] // target.lanes) * x[2] * lane_bytes,
        row_bytes=vectors * lane_bytes, weight_bytes=work.weight_bytes,
        row_cycles=work.row_cycles + activation_cycles,
        cycles=min(height * work.row_cycles, work.whole_cycles) + height * activation_cycles,
    )  # fmt: skip


@dataclass(frozen=True)
class _Work:
    """What an anchor costs, without its epilogue."""

    row_cycles: float
    whole_cycles: float = inf
    """By itself, where it need not go row by row."""
    weight_bytes: int = 0


def _convolution(
    weight: Sequence[int], height: int, width: int, depthwise: bool, window: Window, target: Target
) -> _Work:
    """A direct convolution with results of so many rows and columns."""
    channels, group_in, kh, kw = weight
    blocks = -(-channels // target.lanes)
    weight_bytes = blocks * target.lanes * group_in * kh * kw * 4
    if depthwise:
        taps = group_in * kh * kw
        return _Work(blocks * width * (taps * target.direct.depthwise_tap + 1), weight_bytes=weight_bytes)
    products = group_in * kh * kw / target.direct.efficiency
    row = products * choose_tiling(width, blocks, target).cycles
    if window.one_row and kw == 1:  # it may take the map as one row
        whole = products * choose_tiling(height * width, blocks, target).cycles
    else:
        whole = products * choose_tiling(width, blocks, target, height).cycles * height
    return _Work(row, whole, weight_bytes)
