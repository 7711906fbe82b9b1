"""Convolutions of maps of bytes: by their definition, in int32 (``csrc/kernels/conv2d_direct.h``).

    y = quantize(outer(inner(dequantize(x) * dequantize(w) + bias) + residual))

Sums begin at what x's zero point takes away, -zero · Σ w, and become floats once they are whole
(``csrc/kernels/requantize.h``).  Maps are uint8, weights int8; zero points of weights are 0.

Where Winograd's algorithm is faster, in floats, its tiles are made of bytes and make bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from convoy.graph.dtypes import range_of
from convoy.graph.fusion import output_axis
from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d, ConvTranspose2d, Dequantize
from convoy.graph.weights import channel_axis
from convoy.kernels.computed_scales import compute_scales
from convoy.kernels.conv2d.choose import choose_algorithm, choose_bytes, planar_pays
from convoy.kernels.conv2d.convolution import all_flat, is_pointwise
from convoy.kernels.conv2d.depthwise import depthwise_bytes_step
from convoy.kernels.conv2d.direct import direct_step
from convoy.kernels.conv2d.panels import Tap, take_filters
from convoy.kernels.conv2d.quads import find_quads
from convoy.kernels.conv2d.winograd import winograd_step
from convoy.kernels.epilogue import make_activation
from convoy.kernels.kernel import KernelKind, always
from convoy.kernels.note import make_note
from convoy.kernels.quantize import numbers
from convoy.kernels.values import Values
from convoy.options import Options
from convoy.plan.buffers import Map, Operand
from convoy.plan.fuse import Fusion
from convoy.plan.recipes import Array, Constants, Recipe
from convoy.plan.step import IDENTITY, Activation, Epilogue, Requantize, Step
from convoy.target import Target

MOST_PRODUCTS = 1 << 15
"""The most of a sum, so that int32 holds it wherever it begins: each is below 2^15."""
CLAMPS = ("relu", "clip")


def takes_conv2d(fusion: Fusion, graph: Graph, target: Target, threads: int, options: Options) -> bool:
    """Convolutions of either kind."""
    node = fusion.anchor
    assert isinstance(node, Conv2d | ConvTranspose2d)
    if not multiplies_bytes(fusion, graph):
        return _tiles_bytes(fusion, graph, target, threads, options)
    choice = choose_bytes(node, graph, target, threads, options, fusion.quantize is not None)
    return choice.int8 and not (fusion.held and choice.algorithm == "depthwise")


def multiplies_bytes(fusion: Fusion, graph: Graph) -> bool:
    """Whether the kernel computes this fusion."""
    node = fusion.anchor
    assert isinstance(node, Conv2d | ConvTranspose2d)
    w = fusion.bytes_of(node.inputs[1])
    if w is None or not _reads_and_makes_bytes(fusion, graph):
        return False
    if graph.dtype(w.inputs[0]) != "int8" or graph.constants[w.inputs[2]].any():
        return False
    if w.axis != channel_axis(node):
        return False
    if fusion.held and not all(act is None or act.kind in CLAMPS for act in (fusion.inner, fusion.outer)):
        return False
    if fusion.held and _added(fusion) is None:
        return False
    return graph.tensors[node.inputs[1]].size <= MOST_PRODUCTS * graph.shape(node.output)[1]


def _reads_and_makes_bytes(fusion: Fusion, graph: Graph) -> bool:
    """Whether its maps are bytes of one scale, but for a result or residual that is floats."""
    x, added = fusion.bytes_of(fusion.anchor.inputs[0]), _added(fusion)
    if x is None:
        return False
    maps = [x, added] if added else [x]
    if any(graph.dtype(made.inputs[0]) != "uint8" or graph.scalar(made.inputs[1]) is None for made in maps):
        return False
    return fusion.quantize is None or graph.dtype(fusion.output) == "uint8"


def _tiles_bytes(fusion: Fusion, graph: Graph, target: Target, threads: int, options: Options) -> bool:
    """Whether Winograd's algorithm makes bytes of bytes, with weights that are floats."""
    node = fusion.anchor
    if not isinstance(node, Conv2d) or node.inputs[1] not in graph.constants or node.groups > 1:
        return False
    if fusion.quantize is None or fusion.held is not None or not _reads_and_makes_bytes(fusion, graph):
        return False
    schedule = choose_algorithm(node, graph, target, threads, options, blocked=True).schedule
    return schedule is not None and not schedule.rounds


def _added(fusion: Fusion) -> Dequantize | None:
    return fusion.bytes_of(fusion.residual) if fusion.residual else None


def plan_conv2d(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Conv2d)
    data, weight = (fusion.bytes_of(name) for name in node.inputs[:2])
    assert data is not None
    *_, kh, kw = graph.shape(node.inputs[1])
    choice, note = values.choices[node.output], make_note(fusion, graph)
    blocked = values.blocked.get(data.inputs[0], False)
    planar = (
        choice.algorithm == "direct" and not blocked and planar_pays(node, graph, values.target, blocked)
    )
    x = values.cells_map(data) if planar else values.bytes_map(data)
    residual: Map | None = None
    if fusion.residual is not None:
        residual = values.map(fusion.source(fusion.residual))
    y = values.define_map(fusion.output)
    epilogue = make_requantizing(fusion, data, weight, residual, values)
    if choice.schedule is not None:
        integers = weight.inputs[0] if weight else ""
        yield winograd_step(note, node, x, y, epilogue, None, values, numbers(data, graph)[1], integers)
        return
    assert weight is not None
    if choice.algorithm == "depthwise":
        quads = find_quads(node, (kh, kw))
        assert quads is not None
        yield depthwise_bytes_step(note, node, weight.inputs[0], quads, x, y, epilogue, values)
        return
    if not planar and is_pointwise(node, (kh, kw)) and all_flat(x, y, residual):
        x, y = x.as_row(), y.as_row()
        epilogue = replace(epilogue, residual=residual and residual.as_row())
    yield direct_step(
        note, weight.inputs[0], (Tap(0, 1, kh), Tap(0, 1, kw)), x, y, epilogue,
        node.stride, node.dilation, node.padding[:2], node.groups, False, values, values.threads, choice,
        choice.chosen_cycles or None,
    )  # fmt: skip


def make_requantizing(
    fusion: Fusion, data: Dequantize, weight: Dequantize | None, residual: Operand | None, values: Values,
    taps: tuple[Tap, Tap] | None = None,
) -> Epilogue:  # fmt: skip
    """What becomes of a fusion's sums: of products of the bytes of ``data`` with those of ``weight``.

    Without it they are of steps from the zero point of ``data`` with weights that are floats.  ``taps``:
    those of a phase of a transposed convolution.
    """
    graph, node = values.graph, fusion.anchor
    channels = graph.shape(node.output)[output_axis(node, graph)]
    padded = -(-channels // (4 * values.lanes)) * 4 * values.lanes
    inner, outer = make_activation(fusion.inner), make_activation(fusion.outer)
    x_scale, x_zero = numbers(data, graph)
    y_scale, y_zero, low, high = 1.0, 0, float("-inf"), float("inf")
    last = outer if fusion.residual else inner
    if fusion.quantize is not None:
        y_scale, y_zero = numbers(fusion.quantize, graph)
        least, most = range_of(graph.dtype(fusion.output))
        low, high = float(least - y_zero), float(most - y_zero)
    elif last.kind == "clip":
        low, high = last.a, last.b
        inner, outer = (inner if fusion.residual else IDENTITY), IDENTITY
    residual_scale = residual_shift = 0.0
    added = _added(fusion)
    if added is not None:
        residual_scale, residual_zero = numbers(added, graph)
        residual_shift = -residual_zero * residual_scale
    plain = (
        fusion.quantize is not None
        and (fusion.residual is None or added is not None)
        and (fusion.residual is None or fusion.held is not None or inner == IDENTITY)
        and last.kind in ("identity", "clip")
    )
    unit, sum_unit = 1 / y_scale, 1.0  # what a sum is made in
    held_low = held_high = held_unit = 0.0
    if plain:
        low, high = _bound(last, low, high, y_scale)
        residual_scale, residual_shift = residual_scale / y_scale, residual_shift / y_scale
        sum_unit, unit = y_scale, 1.0
        if fusion.held is not None:
            sum_unit, held_zero = numbers(fusion.held[0], graph)
            least, most = range_of(graph.dtype(fusion.held[0].output))
            held_low, held_high = _bound(inner, least - held_zero, most - held_zero, sum_unit)
            held_unit = sum_unit / y_scale
        inner = outer = IDENTITY
    scale: Recipe = PackRepeated(x_scale / sum_unit, padded)
    begins = values.vector((), channels, padded)
    if weight is not None:
        start: Recipe = PackStart(weight.inputs[0], weight.axis, x_zero, padded)
        if taps is not None:
            assert isinstance(node, ConvTranspose2d)
            start = PackPhaseStart(weight.inputs[0], node.groups, taps, x_zero, padded)
        begins = values.weight(start, padded, dtype="int32")
        scale = PackScaled((weight.inputs[1],), channels, padded, x_scale / sum_unit)
    shift = PackScaled(tuple(fusion.bias), channels, padded, 1 / sum_unit)
    scales = values.weight(scale, padded), values.weight(shift, padded)
    if fusion.scale is not None:
        scales = compute_scales(fusion, *scales, 1 / sum_unit, channels, values)
    requantize = Requantize(
        *scales, low, high, y_zero,
        floats=fusion.quantize is None, residual_scale=residual_scale, residual_shift=residual_shift,
        unit=unit, plain=plain, held=fusion.held is not None, held_low=held_low, held_high=held_high,
        held_unit=held_unit,
    )  # fmt: skip
    return Epilogue(begins, inner, residual, outer, requantize)


def _bound(act: Activation, low: float, high: float, scale: float) -> tuple[float, float]:
    """The bounds of a byte, and of a clamp before it, in steps of its scale."""
    return (max(low, act.a / scale), min(high, act.b / scale)) if act.kind == "clip" else (low, high)


@dataclass(frozen=True)
class PackStart(Recipe):
    """Where sums begin: -zero · Σ w of each output channel, zero-padded."""

    constant: str
    axis: int
    """That of output channels."""
    zero: int
    padded: int

    def pack(self, constants: Constants) -> Array:
        return _start(np.moveaxis(constants[self.constant], self.axis, 0), self.zero, self.padded)


@dataclass(frozen=True)
class PackPhaseStart(Recipe):
    """The same of a phase of a transposed convolution, which has some of the taps."""

    constant: str
    groups: int
    taps: tuple[Tap, Tap]
    zero: int
    padded: int

    def pack(self, constants: Constants) -> Array:
        w = take_filters(constants[self.constant], self.groups, self.taps, transposed=True)
        return _start(w, self.zero, self.padded)


def _start(w: Array, zero: int, padded: int) -> Array:
    sums = w.reshape(len(w), int(np.prod(w.shape[1:]))).sum(axis=1, dtype=np.int64)
    start = np.zeros(padded, np.int32)
    start[: len(w)] = -zero * sums
    return start


@dataclass(frozen=True)
class PackScaled(Recipe):
    """The sum of float32 constants times ``factor``, zero-padded.

    They have ``size`` values, or some that are repeated: one, or those of each group.
    """

    constants: tuple[str, ...]
    size: int
    padded: int
    factor: float

    def pack(self, constants: Constants) -> Array:
        total = np.zeros(self.padded, np.float64)
        for name in self.constants:
            total[: self.size] += np.resize(constants[name], self.size)
        return (total * self.factor).astype(np.float32)


@dataclass(frozen=True)
class PackRepeated(Recipe):
    """A float32, ``count`` times."""

    value: float
    count: int

    def pack(self, constants: Constants) -> Array:
        return np.full(self.count, self.value, np.float32)


KERNEL = KernelKind(
    nodes=(Conv2d,),
    plan=plan_conv2d,
    wants_map=always,
    dtypes=frozenset({"float32", "uint8", "int8"}),
    takes_bytes=takes_conv2d,
)
