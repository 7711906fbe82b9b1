"""The steps of a convolution under the algorithm chosen for it (``choose.py``).

- depthwise: filters for each channel, or groups of a few channels;
- tap by tap: a direct convolution for each tap, where most taps see only padding;
- Winograd: 3x3, stride 1, where its estimate is lower; also of wide groups, one after the other;
- direct: everything else, on a blocked input, or on a planar one where blocks would be mostly padding (the
  three channels of a first layer), with a wide kernel by Winograd's algorithm along its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from convoy.graph.dtypes import BYTES
from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.kernels.conv2d.choose import Choice, planar_pays
from convoy.kernels.conv2d.depthwise import DepthwiseConv, depthwise_step, emit_depthwise
from convoy.kernels.conv2d.direct import DirectConv, direct_step, emit_direct_conv
from convoy.kernels.conv2d.panels import Tap
from convoy.kernels.conv2d.row_products import (
    MultiplyRows,
    TransformRows,
    emit_multiply_rows,
    emit_transform_rows,
    row_steps,
)
from convoy.kernels.conv2d.tap_by_tap import tap_steps
from convoy.kernels.conv2d.winograd import WinogradConv, emit_winograd, winograd_step
from convoy.kernels.epilogue import make_epilogue
from convoy.kernels.kernel import KernelKind, Membership, always
from convoy.kernels.note import make_note
from convoy.kernels.precision import Narrow
from convoy.kernels.strips.window import Window
from convoy.kernels.values import Values
from convoy.plan.buffers import Map
from convoy.plan.fuse import Fusion
from convoy.plan.maps import NO_HALO
from convoy.plan.step import Step
from convoy.plan.tiles import choose_tiling
from convoy.target import Target


def plan_conv2d(fusion: Fusion, values: Values) -> Iterator[Step]:
    return _plan(fusion, values, values.threads, whole=True)


def plan_member(fusion: Fusion, values: Values) -> Iterator[Step]:
    """Strip by strip: its tiles end with the rows, and its maps are not one row."""
    return _plan(fusion, values, 1, whole=False)


def _plan(fusion: Fusion, values: Values, threads: int, whole: bool) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Conv2d)
    out_channels, _, *kernel = graph.shape(node.inputs[1])
    choice = values.choices[node.output]
    blocked = values.blocked.get(node.inputs[0], False)
    planar = choice.algorithm == "direct" and planar_pays(node, graph, values.target, blocked)
    knows = convolution_narrow(fusion, graph, values.choices)
    x = (
        values.planar(node.inputs[0])
        if planar
        else values.map(node.inputs[0], _either(node.inputs[0], knows))
    )
    residual = values.map(fusion.residual, _either(fusion.residual, knows)) if fusion.residual else None
    y = values.define_map(fusion.output)
    epilogue = make_epilogue(fusion, out_channels, residual, values)
    note = make_note(fusion, graph)
    if choice.algorithm == "depthwise":
        yield depthwise_step(note, node, x, y, epilogue, values)
        return
    if choice.schedule is not None:
        yield winograd_step(note, node, x, y, epilogue, values.pools.get(fusion.output), values)
        return
    if choice.algorithm == "tap by tap":
        yield from tap_steps(note, node, x, y, epilogue, values)
        return
    if whole and not planar and is_pointwise(node, kernel) and all_flat(x, y, residual):
        x, y = x.as_row(), y.as_row()
        epilogue = replace(epilogue, residual=residual and residual.as_row())
    step = direct_step(
        note, node.inputs[1], (Tap(0, 1, kernel[0]), Tap(0, 1, kernel[1])), x, y, epilogue, node.stride,
        node.dilation, node.padding[:2], node.groups, False, values, threads, choice,
        choice.chosen_cycles or None, whole, kept=whole and _reads_by_channels(fusion.output, values),
    )  # fmt: skip
    if choice.row_points is not None and planar:
        yield from row_steps(node, choice.row_points, step, values)
    else:
        yield step


def convolution_narrow(fusion: Fusion, graph: Graph, choices: Mapping[str, Choice]) -> Narrow:
    """What its kernel knows of bfloat16."""
    node, choice = fusion.anchor, choices[fusion.anchor.output]
    x = node.inputs[0]
    added = (fusion.residual,) if fusion.residual else ()
    if choice.algorithm == "tap by tap" or choice.row_points is not None:
        return Narrow()
    few_rounded = choice.schedule is not None and choice.schedule.rounds and choice.few > 0
    if choice.bfloat16 or few_rounded:  # few outputs are computed directly
        return Narrow(reads=added, multiplies=(x,), makes=True)
    if choice.algorithm == "depthwise" or (choice.schedule is not None and not choice.few):
        return Narrow(reads=(x, *added), makes=True)
    return Narrow(reads=tuple(name for name in added if name != x), makes=True)


def _either(name: str, knows: Narrow) -> bool | None:
    """Whether it reads a map as it was made (None), or in bfloat16, or in float32."""
    return None if name in knows.reads else name in knows.multiplies


def is_pointwise(node: Conv2d, kernel: Sequence[int]) -> bool:
    """Does each pixel of its result come of the same pixel?"""
    return list(kernel) == [1, 1] and node.stride == (1, 1) and node.padding == (0, 0, 0, 0)


def _reads_by_channels(name: str, values: Values) -> bool:
    """Whether only depthwise convolutions read a tensor, whose threads share blocks of channels."""
    readers = values.graph.consumers[name]
    choices = [values.choices.get(node.output) for node in readers if isinstance(node, Conv2d)]
    apart = all(choice is not None and choice.algorithm == "depthwise" for choice in choices)
    return apart and 0 < len(choices) == len(readers)


def all_flat(*maps: Map | None) -> bool:
    """Can all maps be taken for one row?"""
    return all(m is None or (m.flat and m.halo == NO_HALO) for m in maps)


def convolution_member(
    fusion: Fusion, graph: Graph, choices: Mapping[str, Choice], target: Target
) -> Membership | None:
    """A depthwise or direct convolution, row by row; others do not go by rows."""
    node, algorithm = fusion.anchor, choices[fusion.anchor.output].algorithm
    assert isinstance(node, Conv2d)
    if algorithm in ("winograd", "tap by tap"):
        return None
    channels, group_in, kh, kw = graph.shape(node.inputs[1])
    *_, height, width = graph.shape(fusion.output)
    window = Window(node.stride[0], node.padding[0], (kh - 1) * node.dilation[0])
    blocks, taps = -(-channels // target.lanes), group_in * kh * kw
    weight_bytes = blocks * target.lanes * taps * BYTES[graph.dtype(node.inputs[1])]
    x, whole = node.inputs[0], inf
    if algorithm == "depthwise":
        row = blocks * width * (taps * target.direct.depthwise_tap + 1)
    else:
        products = taps / target.direct.efficiency / (2 if choices[fusion.anchor.output].bfloat16 else 1)
        row = products * choose_tiling(width, blocks, target).cycles
        if window.one_row and kw == 1:  # it may take the map as one row
            whole = products * choose_tiling(height * width, blocks, target).cycles
        else:
            whole = products * choose_tiling(width, blocks, target, height).cycles * height
    return Membership(window, x, (x,), row, whole, weight_bytes)


KERNEL = KernelKind(
    nodes=(Conv2d,),
    plan=plan_conv2d,
    emitters={
        DirectConv: emit_direct_conv,
        TransformRows: emit_transform_rows,
        MultiplyRows: emit_multiply_rows,
        WinogradConv: emit_winograd,
        DepthwiseConv: emit_depthwise,
    },
    wants_map=always,
    narrow=convolution_narrow,
    member=convolution_member,
    plan_member=plan_member,
)
