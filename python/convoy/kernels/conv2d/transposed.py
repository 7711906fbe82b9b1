"""A transposed convolution: one direct convolution a phase, each writing every stride-th pixel.

One of bytes (``bytes.py``) is the same: a phase's sums begin at what x's zero point takes away of its taps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import gcd

from convoy.graph.dtypes import QUANTISED
from convoy.graph.graph import Graph
from convoy.graph.ops import ConvTranspose2d, Pair
from convoy.graph.sizes import bounds
from convoy.kernels.conv2d.bytes import make_requantizing, takes_conv2d
from convoy.kernels.conv2d.direct import direct_step, share_cycles
from convoy.kernels.conv2d.panels import Tap
from convoy.kernels.epilogue import make_epilogue
from convoy.kernels.kernel import KernelKind, always
from convoy.kernels.layout import ClearHalo
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.buffers import Map
from convoy.plan.fuse import Fusion
from convoy.plan.maps import NO_HALO
from convoy.plan.step import Epilogue, Note, Step

MakeEpilogue = Callable[[tuple[Tap, Tap]], Epilogue]
"""What becomes of the sums of a phase that has these taps."""


def plan_conv2d_transpose(fusion: Fusion, values: Values) -> Iterator[Step]:
    x = values.map(fusion.anchor.inputs[0])
    residual = values.map(fusion.residual) if fusion.residual else None
    y = values.define_map(fusion.output)
    epilogue = make_epilogue(fusion, y.channels, residual, values)
    yield from _plan_phases(fusion, values, fusion.anchor.inputs[1], x, y, lambda taps: epilogue)


def plan_bytes(fusion: Fusion, values: Values) -> Iterator[Step]:
    data, weight = (fusion.bytes_of(name) for name in fusion.anchor.inputs[:2])
    assert data is not None
    assert weight is not None
    x = values.bytes_map(data)
    residual = values.map(fusion.source(fusion.residual)) if fusion.residual else None
    y = values.define_map(fusion.output)

    def finish(taps: tuple[Tap, Tap]) -> Epilogue:
        return make_requantizing(fusion, data, weight, residual, values, taps)

    yield from _plan_phases(fusion, values, weight.inputs[0], x, y, finish)


def _plan_phases(
    fusion: Fusion, values: Values, constant: str, x: Map, y: Map, finish: MakeEpilogue
) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, ConvTranspose2d)
    note, choice = make_note(fusion, graph), values.choices[node.output]
    if y.halo != NO_HALO:
        yield ClearHalo(note=Note("clear", f"clear the halo of {fusion.output}"), y=y)
    phases = [
        (rows, columns, part)
        for rows in _phases(node, 0, graph)
        for columns in _phases(node, 1, graph)
        if _may_have_pixels(part := _phase_map(y, (rows[0], columns[0]), node.stride))
    ]
    products = [
        part.height * part.width * rows[1].count * columns[1].count for rows, columns, part in phases
    ]
    for phase, cycles in zip(phases, share_cycles(choice, products), strict=True):
        (phase_y, tap_y, pad_y, dilation_y), (phase_x, tap_x, pad_x, dilation_x), part = phase
        epilogue = finish((tap_y, tap_x))
        if isinstance(epilogue.residual, Map):
            part_residual = _phase_map(epilogue.residual, (phase_y, phase_x), node.stride)
            epilogue = replace(epilogue, residual=part_residual)
        yield direct_step(
            Note(note.op, f"{note.text}; phase {phase_y},{phase_x}"), constant, (tap_y, tap_x), x, part,
            epilogue, (1, 1), (dilation_y, dilation_x), (pad_y, pad_x), node.groups, True, values,
            values.threads, choice, cycles,
        )  # fmt: skip


def _may_have_pixels(m: Map) -> bool:
    """Where its sizes are open, one of no pixel is possible, too: its step writes nothing then."""
    return all(bounds(n)[1] > 0 for n in (m.height, m.width))


def _phases(node: ConvTranspose2d, axis: int, graph: Graph) -> Iterator[tuple[int, Tap, int, int]]:
    """For each phase of one axis: its taps, in the order a correlation reads them; pad; dilation.

    Output pixel o = stride·q + phase takes tap k from input pixel (o + pad - k·dilation) / stride
    where that divides; along k the input pixel falls, so the taps are taken backwards.
    """
    stride, dilation, pad = node.stride[axis], node.dilation[axis], node.padding[axis]
    kernel = graph.shape(node.inputs[1])[2 + axis]
    for phase in range(stride):
        used = [k for k in range(kernel) if (phase + pad - k * dilation) % stride == 0]
        if not used:
            yield phase, Tap(0, 1, 0), 0, 1
            continue
        first = (phase + pad - used[-1] * dilation) // stride
        step = stride // gcd(stride, dilation)
        yield phase, Tap(used[-1], -step, len(used)), -first, dilation // gcd(stride, dilation)


def _phase_map(m: Map, phase: Pair, stride: Pair) -> Map:
    """Every stride-th pixel of a map, from ``phase`` on."""
    return replace(
        m, offset=m.offset + phase[0] * m.row + phase[1] * m.step, halo=NO_HALO,
        height=-(-(m.height - phase[0]) // stride[0]), width=-(-(m.width - phase[1]) // stride[1]),
        row=m.row * stride[0], step=m.step * stride[1],
    )  # fmt: skip


KERNEL = KernelKind(nodes=(ConvTranspose2d,), plan=plan_conv2d_transpose, wants_map=always)

BYTES = KernelKind(
    nodes=(ConvTranspose2d,), plan=plan_bytes, wants_map=always, dtypes=frozenset({"float32", *QUANTISED}),
    takes_bytes=takes_conv2d,
)  # fmt: skip
