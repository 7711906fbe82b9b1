"""The steps of a convolution under the algorithm chosen for it: tiles, chunks, shares.

- depthwise: one filter a channel, ``kernels/conv2d_depthwise.h``;
- direct: everything else, ``kernels/conv2d_direct.h``, on a blocked input, or on a planar one where
  blocks would be mostly padding (the three channels of a first layer), with a wide kernel by Winograd's
  algorithm along its rows, ``kernels/conv2d_winograd_rows.h``;
- tap by tap: a direct convolution for each tap, where most taps see only padding, ``plan/tap_by_tap.py``;
- Winograd: 3x3, stride 1, where its estimate is lower, ``kernels/conv2d_winograd.h``;
- transposed: one direct convolution per phase, each writing every stride-th pixel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import gcd

from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d, ConvTranspose2d, MatMul, Pair, Unary
from convoy.graph.rules import op_name
from convoy.plan.algorithm import Choice, planar_pays
from convoy.plan.fuse import Group
from convoy.plan.recipes import PackConv, PackDepthwise, PackRowPoints, Tap
from convoy.plan.row_points import BLOCKS, OUT, ROOM, RowPoints
from convoy.plan.steps import (
    IDENTITY,
    Activation,
    Array,
    ClearHalo,
    DepthwiseConv,
    DirectConv,
    Epilogue,
    Map,
    Operand,
    RowProducts,
    TransformRows,
    WinogradConv,
)
from convoy.plan.tap_by_tap import list_taps
from convoy.plan.tiles import (
    choose_grouped_tiling,
    choose_planar_tiling,
    choose_tiling,
    cut_blocks,
    cut_chunks,
    cut_points,
    cut_row,
    cut_tiles,
    group_blocks,
    panel_size,
    shares_blocks,
)
from convoy.plan.values import NO_HALO, Values
from convoy.plan.winograd import Schedule, count_register_tiles, count_tiles
from convoy.target import Target

PANEL_SHARE = 8
"""A panel of weights takes at most this part of L2: the input and the output pass through it too."""
AHEAD_TILES = 4
"""Of a thread: while so many tiles use one panel they ask for all of the next (CV_CONV2D_ASK_EVERY)."""
AHEAD_GAIN = 3
"""A value of x that a thread need not read is worth so many weights that come ahead of time: 1024 to 256
channels of 14x14, 1.3 weights a value, take 8 to 12 % less with shared pixels, 256 to 1024 up to 4 % more
(2026-11-21)."""
DEPTHWISE_PIXELS = 16
"""Of a depthwise tile: more only makes it longer to compile."""


def activation(node: Unary | None) -> Activation:
    """The epilogue form of a unary node; relu is a clamp without upper bound."""
    if node is None:
        return IDENTITY
    if node.kind == "relu":
        return Activation("clip", 0.0, float("inf"))
    if node.kind == "hardswish":
        return Activation("hardswish", 1 / 6, 0.5)
    return Activation(node.kind, node.a, node.b)


def make_epilogue(group: Group, channels: int, residual: Operand | None, values: Values) -> Epilogue:
    bias = values.vector(group.bias, channels, 4 * values.lanes)
    return Epilogue(bias, activation(group.inner), residual, activation(group.outer))


def describe(group: Group, graph: Graph) -> str:
    """One line for comments and reports: ``conv2d [..] * [..] + bias + residual, clip -> [..]; name``."""
    anchor = group.anchor
    text = op_name(anchor)
    text += " " + str(list(graph.shape(anchor.inputs[0])))
    if isinstance(anchor, (Conv2d, ConvTranspose2d, MatMul)):
        text += " * " + str(list(graph.shape(anchor.inputs[1])))
    text += " + bias" * bool(group.bias)
    text += f", {group.inner.kind}" if group.inner else ""
    text += " + residual" * bool(group.residual)
    text += f", {group.outer.kind}" if group.outer else ""
    text += " -> " + str(list(graph.shape(group.output)))
    return f"{text}; {anchor.origin}" if anchor.origin else text


def plan_conv2d(group: Group, values: Values, target: Target, threads: int, whole: bool = True) -> None:
    """Append the steps of a convolution; ``whole``: all of its map at once, not strip by strip, so that its
    tiles need not end with the rows, and a pointwise one may take its maps as one row."""
    node, graph = group.anchor, values.graph
    assert isinstance(node, Conv2d)
    out_channels, _, *kernel = graph.shape(node.inputs[1])
    algorithm = values.choices[node.output].algorithm
    if algorithm == "direct" and planar_pays(
        node, graph, target, values.blocked.get(node.inputs[0], False)
    ):
        x = values.planar(node.inputs[0])
    else:
        x = values.map(node.inputs[0])
    residual = values.map(group.residual) if group.residual else None
    y = values.define_map(group.output)
    epilogue = make_epilogue(group, out_channels, residual, values)
    note = describe(group, graph)
    pad = node.padding[:2]
    if algorithm == "depthwise":
        w = values.weight(
            PackDepthwise(node.inputs[1], values.lanes), y.blocks * kernel[0] * kernel[1] * values.lanes
        )
        values.steps.append(
            DepthwiseConv(
                note=note, x=x, w=Array(w, 0, (y.blocks, *kernel, values.lanes)), y=y, epilogue=epilogue,
                kernel=(kernel[0], kernel[1]), stride=node.stride, dilation=node.dilation, pad=pad,
                rows=cut_row(y.width, min(DEPTHWISE_PIXELS, target.accumulators + 2 - kernel[1])),
            )
        )  # fmt: skip
        return
    schedule = values.choices[node.output].schedule
    if schedule is not None:
        values.steps.append(winograd_step(note, node, x, y, epilogue, schedule, values))
        return
    if algorithm == "tap by tap":
        _plan_tap_by_tap(note, node, x, y, epilogue, values, target, threads)
        return
    taps = (Tap(0, 1, kernel[0]), Tap(0, 1, kernel[1]))
    if whole and _is_pointwise(node, kernel) and x.lanes > 1 and _all_flat(x, y, residual):
        x, y = x.as_row(), y.as_row()
        if isinstance(residual, Map):
            epilogue = replace(epilogue, residual=residual.as_row())
    step = direct_step(
        note, node.inputs[1], taps, x, y, epilogue, node.stride, node.dilation, pad,
        node.groups, False, values, target, threads, values.choices[node.output], whole,
    )  # fmt: skip
    points = values.choices[node.output].row_points
    if points is not None and x.lanes == 1:
        step = replace(step, in_rows=_row_products(node, points, step, values, target))
    values.steps.append(step)


def _plan_tap_by_tap(
    note: str, node: Conv2d, x: Map, y: Map, epilogue: Epilogue, values: Values, target: Target,
    threads: int,
) -> None:  # fmt: skip
    """Append ``y = bias``, and a pointwise convolution a tap that adds to it; the last has the epilogue."""
    choice = Choice("direct", {})
    bare = Epilogue(epilogue.bias, IDENTITY, None, IDENTITY)

    def add(what: str, taps: tuple[Tap, Tap], x: Map, y: Map, epilogue: Epilogue) -> None:
        step = direct_step(
            f"{note}; {what}", node.inputs[1], taps, x, y, epilogue, node.stride, (1, 1), (0, 0),
            node.groups, False, values, target, threads, choice,
        )  # fmt: skip
        values.steps.append(replace(step, adds=what != "bias"))

    none = Tap(0, 1, 0)
    add("bias", (none, none), x, y, bare)
    *others, whole = list_taps(node, values.graph)
    for tap in others:
        taps = Tap(tap.row, 1, 1), Tap(tap.column, 1, 1)
        add(f"tap {tap.row},{tap.column}", taps, tap.of_x(x, node), tap.of_y(y), bare)
    taps = Tap(whole.row, 1, 1), Tap(whole.column, 1, 1)
    add(f"tap {whole.row},{whole.column}", taps, whole.of_x(x, node), y, epilogue)


def _row_products(
    node: Conv2d, points: RowPoints, step: DirectConv, values: Values, target: Target
) -> RowProducts:
    """What ``step`` multiplies along the rows of V, after the step that makes V."""
    x, lanes = step.x, values.lanes
    tiles = -(-step.y.width // OUT)
    rows = x.halo[0] + x.height + x.halo[2]
    row = tiles * points.stride * ROOM
    v = Map(
        values.scratch_array(x.channels * rows * row).buffer, x.halo[0] * row, x.channels, x.height,
        step.y.width, 1, rows * row, row, points.step, (x.halo[0], 0, x.halo[2], 0),
    )  # fmt: skip
    checks = values.scratch_array(x.channels * rows)
    values.steps.append(
        TransformRows(
            note=f"points of the rows of {node.inputs[0]}", x=x, y=v, checks=checks, points=points,
            tiles=tiles, pad_left=step.pad[1],
        )
    )  # fmt: skip
    products = step.kernel[0] * points.stride * points.points
    run = group_blocks(step.y.channels, x.channels, 1, lanes, 1)
    chunks = cut_chunks(step.y.channels, x.channels, 1, cut_blocks(run, BLOCKS), lanes, 1, products)
    size = panel_size(chunks, products, 1, lanes)
    recipe = PackRowPoints(node.inputs[1], chunks, lanes, points)
    return RowProducts(
        points, v, Array(values.weight(recipe, size), 0, (size,)), checks, chunks,
        cut_points(step.y.width, target),
    )  # fmt: skip


def _is_pointwise(node: Conv2d, kernel: list[int]) -> bool:
    return kernel == [1, 1] and node.stride == (1, 1) and not any(node.padding)


def _all_flat(*maps: Map | Operand | None) -> bool:
    return all(m is None or (isinstance(m, Map) and m.flat and m.halo == NO_HALO) for m in maps)


def plan_conv2d_transpose(group: Group, values: Values, target: Target, threads: int) -> None:
    """Append one direct convolution per phase: output pixels that use the same taps."""
    node, graph = group.anchor, values.graph
    assert isinstance(node, ConvTranspose2d)
    out_channels = graph.shape(group.output)[1]
    x = values.map(node.inputs[0])
    residual = values.map(group.residual) if group.residual else None
    y = values.define_map(group.output)
    epilogue = make_epilogue(group, out_channels, residual, values)
    note = describe(group, graph)
    if y.halo != NO_HALO:
        values.steps.append(ClearHalo(note=f"clear the halo of {group.output}", y=y))
    for phase_y, tap_y, pad_y, dilation_y in _phases(node, 0, graph):
        for phase_x, tap_x, pad_x, dilation_x in _phases(node, 1, graph):
            part = _phase_map(y, (phase_y, phase_x), node.stride)
            if part.height < 1 or part.width < 1:
                continue
            part_epilogue = epilogue
            if isinstance(residual, Map):
                part_residual = _phase_map(residual, (phase_y, phase_x), node.stride)
                part_epilogue = replace(epilogue, residual=part_residual)
            values.steps.append(
                direct_step(
                    f"{note}; phase {phase_y},{phase_x}", node.inputs[1], (tap_y, tap_x), x, part,
                    part_epilogue, (1, 1), (dilation_y, dilation_x), (pad_y, pad_x), node.groups, True,
                    values, target, threads, values.choices[node.output],
                )
            )  # fmt: skip


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


def direct_step(
    note: str, constant: str, taps: tuple[Tap, Tap], x: Map, y: Map, epilogue: Epilogue, stride: Pair,
    dilation: Pair, pad: Pair, groups: int, transposed: bool, values: Values, target: Target, threads: int,
    choice: Choice, whole: bool = True,
) -> DirectConv:  # fmt: skip
    """A direct convolution with its tiling, packed weights and split between threads."""
    run = group_blocks(y.channels, x.channels, groups, values.lanes, x.lanes)
    height = 1 if x.lanes == 1 else y.height
    if choice.tile is not None:
        tiling = cut_tiles(y.width, run, choice.tile[0], min(choice.tile[1], run))
    elif x.lanes == 1:
        tiling = choose_planar_tiling(y.width, run, target, taps[1].count, stride[1])
    elif groups == 1:
        tiling = choose_tiling(y.width, run, target, height, whole)
    else:
        tiling = choose_grouped_tiling(
            y.width, y.channels, x.channels, groups, values.lanes, x.lanes, target, height, whole
        )
    count = taps[0].count * taps[1].count
    chunks = cut_chunks(
        y.channels, x.channels, groups, cut_blocks(run, tiling.blocks), values.lanes, x.lanes, count,
        target.l2_bytes // PANEL_SHARE // 4,
    )  # fmt: skip
    shared = shares_blocks(y.channels, x.channels, groups, values.lanes, x.lanes)
    size = panel_size(chunks, count, x.lanes, values.lanes)
    recipe = PackConv(constant, chunks, values.lanes, x.lanes, groups, taps, transposed)
    tiles = -(-y.height // (tiling.tile_rows or y.height)) * sum(tiling.rows.tiles)
    split_chunks = choice.split_chunks
    if split_chunks is None:
        split_chunks = _split_chunks(size, x, y, tiles, threads)
    rows_read = max(tiling.tile_rows, 1) * max(min(stride[0], taps[0].count), 1)  # 1x1 passes over others
    tile_input = rows_read * max(tiling.rows.pixels) * stride[1] * x.channels
    return DirectConv(
        note=note, x=x, w=Array(values.weight(recipe, size), 0, (size,)), y=y, epilogue=epilogue,
        kernel=(taps[0].count, taps[1].count), stride=stride, dilation=dilation, pad=pad, chunks=chunks,
        group=(x.channels // groups, y.channels // groups) if shared else (0, 0),
        blocks=(tiling.blocks, chunks[-1].blocks), tile_rows=tiling.tile_rows, rows=tiling.rows,
        tiles_per_block=max(1, min(tiles, target.l2_bytes // 2 // 4 // tile_input)),
        split_chunks=split_chunks,
    )  # fmt: skip


def winograd_step(
    note: str, node: Conv2d, x: Map, y: Map, epilogue: Epilogue, s: Schedule, values: Values
) -> WinogradConv:
    """The step of a convolution under a schedule."""
    lanes = values.lanes
    full, tail = divmod(y.blocks, s.blocks)
    chunks = cut_chunks(
        y.channels, x.channels, 1, (s.blocks,) * full + (tail,) * (tail > 0), lanes, lanes, 9
    )
    size = panel_size(chunks, 9, lanes, lanes)
    recipe = PackConv(node.inputs[1], chunks, lanes, lanes, 1, (Tap(0, 1, 3), Tap(0, 1, 3)))
    v, u, m = s.sizes(x, y)
    shared_v = s.share in ("chunks", "streamed")
    stored = (values.scratch_array(u, private=s.share != "resident"),) if u else ()
    return WinogradConv(
        note=note, x=x, w=Array(values.weight(recipe, size), 0, (size,)), y=y, epilogue=epilogue,
        pad=node.padding[:2], chunk_count=len(chunks), blocks=(s.blocks, chunks[-1].blocks),
        tiles=count_tiles(y, s.out), groups=s.groups, room=s.room, split_chunks=shared_v,
        pixels=tuple(sorted(count_register_tiles(s, y), reverse=True)) if s.slab else (s.pixels,),
        slab=s.slab, resident=s.share == "resident", out=s.out, last=s.last_tile(y.height, y.width),
        scratch=(
            values.scratch_array(v, private=not shared_v),
            *stored,
            values.scratch_array(m, private=True),
        ),
    )  # fmt: skip


def _split_chunks(weights: int, x: Map, y: Map, tiles: int, threads: int) -> bool:
    """Threads share what there is more of, weights or pixels.

    Who shares pixels reads all weights, which come ahead of time where a panel serves tiles enough; who
    shares weights reads all of x, half of it from another core's cache, and waits for it.
    """
    read, written = (m.blocks * m.height * m.width * m.lanes for m in (x, y))
    return weights > (AHEAD_GAIN * read if tiles >= AHEAD_TILES * threads else read + written)
