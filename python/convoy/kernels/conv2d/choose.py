"""Which algorithm computes each convolution, by estimated time.  Every choice is a ``Decision``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, prod
from typing import Literal

from convoy.graph.dtypes import cell_elements
from convoy.graph.graph import Graph
from convoy.graph.messages import describe, origins
from convoy.graph.ops import Conv2d, ConvTranspose2d, Dequantize, Pair
from convoy.graph.sizes import is_open
from convoy.kernels.conv2d.exact import is_exact
from convoy.kernels.conv2d.quads import (
    DEPTHWISE_KERNEL_WIDTH,
    depthwise_bytes_cycles,
    find_quads,
    own_filters_cycles,
)
from convoy.kernels.conv2d.row_points import RowPoints, find_row_points, row_cycles
from convoy.kernels.conv2d.schedules import (
    LEAST_GAIN,
    OPEN_OUT,
    OUTS,
    Out,
    Schedule,
    choose_open_schedule,
    choose_schedule,
    in_cells,
    streamed_cycles,
)
from convoy.kernels.conv2d.seen_taps import tap_cycles
from convoy.options import Options
from convoy.plan.buffers import Map
from convoy.plan.clock import seconds
from convoy.plan.cost import conversion_cycles, depthwise_cycles, direct_cycles
from convoy.plan.fuse import Fusion
from convoy.plan.maps import group_of, make_map
from convoy.report.decision import Report
from convoy.target import Target

LEAST_CHANNELS = 16
"""The fewest channels of a Winograd convolution: with fewer, nothing pays for its transforms."""

COPIED_TAPS = 32
"""Taps, as if all read nothing but padding, for which a map in blocks is copied to planes."""


@dataclass(frozen=True)
class Choice:
    """``cycles`` of each algorithm that was considered; ``schedule`` where Winograd won."""

    algorithm: Literal["direct", "winograd", "depthwise", "tap by tap"]
    cycles: Mapping[str, float]
    schedule: Schedule | None = None
    tile: Pair | None = None
    """Pixels and output blocks of a direct convolution's register tile; None: of the fewest cycles."""
    few: int = 0
    """Outputs of a channel, up to which the direct convolution is faster than the Winograd schedule, where
    their number is known at the call."""
    streams: bool = False
    """Two rows and columns of Winograd tiles are computed with U streamed, where a call has as many."""
    split_chunks: bool | None = None
    """Whether threads share a direct convolution's chunks, or its tiles; None: whichever seems better."""
    row_points: RowPoints | None = None
    """Set where Winograd's algorithm along the rows of a planar x is faster than the direct convolution."""
    bfloat16: bool = False
    """The direct convolution multiplies bfloat16."""
    int8: bool = False
    """It multiplies bytes."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each candidate, where they were measured."""

    @property
    def name(self) -> str:
        """The algorithm and its variant."""
        if self.row_points is not None:
            return self.row_points.variant
        if self.schedule is not None:
            return f"winograd {self.schedule.variant}"
        return f"{self.algorithm}{' bf16' * self.bfloat16}{' int8' * self.int8}"

    @property
    def chosen_cycles(self) -> float:
        """Estimated; 0 where there was nothing to choose from."""
        if self.row_points is not None:
            return self.cycles[self.row_points.variant]
        return self.schedule.cycles if self.schedule else self.cycles.get(self.name, 0.0)

    @property
    def reason(self) -> str:
        if self.measured:
            times = [f"{name} {1e3 * seconds:.3f}" for name, seconds in self.measured.items()]
            return f"measured ms: {', '.join(times)}"
        if not self.cycles:
            return "each channel has filters of its own"
        return describe_estimates(self.cycles)


def describe_estimates(cycles: Mapping[str, float]) -> str:
    """What was compared."""
    return (
        f"estimated kilocycles: {', '.join(f'{name} {count / 1e3:.0f}' for name, count in cycles.items())}"
    )


def choose_algorithms(
    graph: Graph,
    fusions: Sequence[Fusion],
    blocked: Mapping[str, bool],
    target: Target,
    threads: int,
    options: Options,
    measured: Mapping[str, Choice],
) -> dict[str, Choice]:
    """The choice for each convolution, by the name of its output: the measured one, else the estimated."""
    found: dict[str, Choice] = {}
    # What rounds more moves more bytes that are near a tie.
    of_bytes = replace(options, accuracy="fast") if options.accuracy == "fastest" else options
    for fusion in fusions:
        node = fusion.anchor
        if isinstance(node, Conv2d | ConvTranspose2d) and fusion.of_bytes:
            found[node.output] = (
                choose_bytes(node, graph, target, threads, of_bytes, fusion.quantize is not None)
                if fusion.bytes_of(node.inputs[1])
                else choose_algorithm(node, graph, target, threads, of_bytes, blocked=True)
            )
        elif isinstance(node, (Conv2d, ConvTranspose2d)):
            found[node.output] = measured.get(node.output) or choose_algorithm(
                node, graph, target, threads, options, blocked.get(node.inputs[0], False)
            )
    return found


def choose_bytes(
    node: Conv2d | ConvTranspose2d, graph: Graph, target: Target, threads: int, options: Options,
    whole: bool = True,
) -> Choice:  # fmt: skip
    """Whether a convolution of bytes multiplies them, or floats that it makes of them.

    ``whole``: what it makes are bytes, too.
    """
    likely = graph.likely
    x, y = (make_map(0, *_image(name, likely), target.lanes) for name in (node.inputs[0], node.output))
    cell = cell_elements("uint8")
    shape = graph.shape(node.inputs[1])
    inputs = x.channels // node.groups
    if node.groups > 1:
        inputs = -(-inputs // target.lanes) * target.lanes
    products = -(-inputs // cell) * prod(shape[2:]) * (1.0 if target.dots else target.direct.bytes_apart)
    if isinstance(node, ConvTranspose2d):
        products /= prod(node.stride)  # the taps of one phase
    cycles = {"direct int8": direct_cycles(y, products, prod(shape), target, threads)}
    floats = choose_algorithm(node, graph, target, threads, options, blocked=True)
    converted = conversion_cycles(x.size, y.size, target) / threads + 2 * target.step
    name = f"{floats.name} with conversions"
    quads = find_quads(node, shape) if isinstance(node, Conv2d) else None
    if floats.algorithm == "depthwise" and not floats.cycles and quads is None:
        return floats
    if floats.algorithm == "depthwise" and not floats.cycles:
        of_bytes, of_floats = own_filters_cycles(y, shape, target, threads)
        cycles = {"depthwise int8": of_bytes, name: of_floats + converted}
        return replace(floats, cycles=cycles, int8=of_bytes <= cycles[name])
    cycles[name] = floats.chosen_cycles + converted
    if isinstance(node, Conv2d) and quads is not None and _groups_share_vectors(node, shape, target):
        cycles["depthwise int8"] = depthwise_bytes_cycles(y, shape, quads, target, threads)
        if cycles["depthwise int8"] < cycles["direct int8"]:
            return Choice("depthwise", cycles, int8=cycles["depthwise int8"] <= cycles[name])
    exact = _schedule_exact(node, graph, x, y, target, threads) if whole else None
    if exact is not None:
        cycles[f"winograd {exact.variant}"] = exact.cycles
        if exact.cycles * LEAST_GAIN < min(cycles["direct int8"], cycles[name]):
            return Choice("winograd", cycles, exact, int8=True)
    return Choice("direct", cycles, int8=cycles["direct int8"] <= cycles[name])


def _schedule_exact(
    node: Conv2d | ConvTranspose2d, graph: Graph, x: Map, y: Map, target: Target, threads: int
) -> Schedule | None:
    """By Winograd's algorithm in integers, where it is exact: whatever a user accepts."""
    if target.winograd.shorts == inf or node.groups > 1 or not _suits_winograd(node, graph, target):
        return None
    data, weight = (graph.producer[name] for name in node.inputs[:2])
    assert isinstance(data, Dequantize)
    assert isinstance(weight, Dequantize)
    if not is_exact(data, weight, graph):
        return None
    if is_open(graph.shape(node.inputs[0])):
        return choose_open_schedule(in_cells(x), y, 4, target, threads, exact=True)
    return choose_schedule(in_cells(x), y, 4, target, threads, node.dilation, exact=True)


def choose_algorithm(
    node: Conv2d | ConvTranspose2d, graph: Graph, target: Target, threads: int, options: Options,
    blocked: bool,
) -> Choice:  # fmt: skip
    """The algorithm with the lowest estimate among those that can compute ``node``.

    ``blocked``: its input is in blocks.  Where sizes are known at the call it is the one for likely sizes,
    among those that know others.
    """
    fixed = not is_open(graph.shape(node.inputs[0]))
    graph = graph.likely
    x = make_map(0, *_image(node.inputs[0], graph), target.lanes)
    y = make_map(0, *_image(node.output, graph), target.lanes)
    kernel = graph.shape(node.inputs[1])
    *_, kh, kw = kernel
    weight_bytes = graph.tensors[node.inputs[1]].bytes
    if isinstance(node, Conv2d) and _has_own_filters(node, kernel, target):
        return Choice("depthwise", {})
    if isinstance(node, Conv2d) and _groups_share_vectors(node, kernel, target):
        cycles = {
            "direct": direct_cycles(y, target.lanes * kh * kw, weight_bytes, target, threads),
            "depthwise": depthwise_cycles(node, y, kernel, target, threads),
        }
        pays = cycles["depthwise"] * LEAST_GAIN < cycles["direct"]
        return Choice("depthwise" if pays else "direct", cycles)
    products = x.channels / node.groups * kh * kw
    if isinstance(node, ConvTranspose2d):
        products /= prod(node.stride)  # the taps of one phase
    cycles = {"direct": direct_cycles(y, products, weight_bytes, target, threads)}
    outs = winograd_tiles(node, graph, target, options, fixed)
    schedules = [_schedule(node, x, y, out, target, threads, fixed) for out in outs]
    cycles |= {schedule.variant: schedule.cycles for schedule in schedules}
    best = min(schedules, key=lambda s: s.cycles * (LEAST_GAIN if s.out == 6 else 1), default=None)
    planar = isinstance(node, Conv2d) and planar_pays(node, graph, target, blocked)
    by_taps = None
    if isinstance(node, Conv2d) and not planar and fixed:
        by_taps = tap_cycles(node, graph, y, target, threads)
    if by_taps is not None:
        cycles["tap by tap"] = by_taps
    narrow = isinstance(node, Conv2d) and not planar and multiplies_bfloat16(node, graph, target)
    if narrow:
        inputs = x.channels // node.groups
        cells = -(-inputs // 2) / inputs
        cycles["direct bf16"] = direct_cycles(y, products * cells, weight_bytes // 2, target, threads)
    whole = min(cycles["direct"], cycles.get("direct bf16", inf))
    exact = min(whole, by_taps or inf)
    if best is not None and best.cycles * LEAST_GAIN < exact:
        grouped = node.groups > 1
        few = 0 if fixed or grouped else _count_few(best.out, x, y, products, weight_bytes, target, threads)
        streams = not (fixed or grouped) and _streams(best, x, y, products, weight_bytes, target, threads)
        return Choice("winograd", cycles, best, few=few, streams=streams)
    if by_taps is not None and by_taps * LEAST_GAIN < whole:
        return Choice("tap by tap", cycles)
    if narrow:
        return Choice("direct", cycles, bfloat16=True)
    if isinstance(node, Conv2d) and planar and options.accuracy != "direct":
        points = find_row_points(node, graph, target)
        if points is not None:
            cycles[points.variant] = row_cycles(node, graph, points, target, threads)
            if cycles[points.variant] * LEAST_GAIN < cycles["direct"]:
                return Choice("direct", cycles, row_points=points)
    return Choice("direct", cycles)


def _schedule(
    node: Conv2d | ConvTranspose2d, x: Map, y: Map, out: Out, target: Target, threads: int, fixed: bool
) -> Schedule:
    """By Winograd's algorithm.

    Of each of several groups, which threads compute together, or in turns, each alone.
    """
    groups = node.groups
    x, y = group_of(x, groups, 0), group_of(y, groups, 0)

    def choose(threads: int) -> Schedule:
        if fixed:
            return choose_schedule(x, y, out, target, threads, node.dilation)
        return choose_open_schedule(x, y, out, target, threads)

    found = choose(threads)
    if groups == 1:
        return found
    alone = choose(1)
    together = replace(found, cycles=groups * (found.cycles + target.barrier))
    in_turns = replace(alone, cycles=-(-groups // threads) * alone.cycles, alone=True)
    return min(in_turns, together, key=lambda s: s.cycles)


def multiplies_bfloat16(node: Conv2d, graph: Graph, target: Target) -> bool:
    """Whether it multiplies bfloat16 as a direct convolution of a map: of several pixels."""
    pixels = graph.shape(node.inputs[0])[2:]
    return target.bfloat16 and pixels != (1, 1)


def _has_own_filters(node: Conv2d, kernel: Sequence[int], target: Target) -> bool:
    """Whether a depthwise kernel computes it: a filter for each channel, or as many as permuting suits."""
    out_channels, group, _, kw = kernel
    filters = out_channels // node.groups
    permutes = target.isa != "portable" and target.lanes % filters == 0
    return group == 1 < node.groups and kw <= DEPTHWISE_KERNEL_WIDTH and (filters == 1 or permutes)


def _count_few(
    out: Out, x: Map, y: Map, products: float, weight_bytes: int, target: Target, threads: int
) -> int:
    """Outputs of the largest square map on which the direct convolution is faster, of those up to y."""
    few = 0
    for side in range(1, min(y.height, y.width) + 1):
        small_x, small_y = (make_map(0, m.channels, side, side, m.lanes) for m in (x, y))
        tiled = choose_open_schedule(small_x, small_y, out, target, threads).cycles
        if tiled * LEAST_GAIN < direct_cycles(small_y, products, weight_bytes, target, threads):
            break
        few = side * side
    return few


def _groups_share_vectors(node: Conv2d, kernel: Sequence[int], target: Target) -> bool:
    """Whether a vector holds several whole groups, and one instruction permutes it.

    Then a depthwise kernel goes through the channels of all groups at once; each has as many in as out.
    """
    out_channels, group, _, kw = kernel
    fits = 1 < group < target.lanes and target.lanes % group == 0 and out_channels == node.groups * group
    return fits and target.isa != "portable" and kw <= DEPTHWISE_KERNEL_WIDTH


def planar_pays(node: Conv2d, graph: Graph, target: Target, blocked: bool) -> bool:
    """Whether a direct convolution reads its input as planes: blocks of it would be mostly padding.

    A map that was made in blocks is copied for many taps, each of which reads the padding, too.
    """
    channels = graph.shape(node.inputs[0])[1]
    padded = -(-channels // target.lanes) * target.lanes
    if blocked and prod(graph.shape(node.inputs[1])[2:]) * (padded - channels) < COPIED_TAPS * padded:
        return False
    return node.groups == 1 and padded > target.direct.planar_gain * channels


def winograd_tiles(
    node: Conv2d | ConvTranspose2d, graph: Graph, target: Target, options: Options, fixed: bool = True
) -> tuple[Out, ...]:
    """The tiles by which Winograd's algorithm can compute this convolution, and the user accepts it.

    ``fixed``: the size of its maps is known before the call.
    """
    if not _suits_winograd(node, graph, target) or not (fixed or node.dilation == (1, 1)):
        return ()
    return tuple(out for out in OUTS[options.accuracy] if fixed or out <= OPEN_OUT)


def _suits_winograd(node: Conv2d | ConvTranspose2d, graph: Graph, target: Target) -> bool:
    """Whether it can; each of several groups has to be whole blocks of channels."""
    if isinstance(node, ConvTranspose2d):
        return False
    out_channels, in_channels, *kernel = graph.shape(node.inputs[1])
    group_out = out_channels // node.groups
    whole = node.groups == 1 or in_channels % target.lanes == group_out % target.lanes == 0
    plain = node.stride == (1, 1) and whole
    enough = min(in_channels, group_out) >= LEAST_CHANNELS
    return kernel == [3, 3] and plain and enough


def report_choices(choices: Mapping[str, Choice], graph: Graph, target: Target, report: Report) -> None:
    """A ``Decision`` for each choice."""
    for name, choice in choices.items():
        cost = min(choice.measured.values(), default=seconds(choice.chosen_cycles, target))
        node = graph.producer[name]
        report.add(describe(node), "plan", choice.name, choice.reason, cost or None, origins(node))


def _image(name: str, graph: Graph) -> tuple[int, int, int]:
    _, channels, height, width = graph.shape(name)
    return channels, height, width


def _streams(
    s: Schedule, x: Map, y: Map, products: float, weight_bytes: int, target: Target, threads: int
) -> bool:
    """Whether two rows and columns of tiles, where a call has as many, are computed with U streamed."""
    side = 2 * s.out - 1
    small_x, small_y = (make_map(0, m.channels, side, side, m.lanes) for m in (x, y))
    tiled = choose_open_schedule(small_x, small_y, s.out, target, threads).cycles
    least = min(tiled, direct_cycles(small_y, products, weight_bytes, target, threads))
    return streamed_cycles(s, small_x, small_y, target, threads) * LEAST_GAIN < least
