"""What a measured search chooses from: the likely ways to compute one convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.graph.sizes import is_open
from convoy.kernels.conv2d.choose import Choice, choose_algorithm, winograd_tiles
from convoy.kernels.conv2d.schedules import Out, schedules
from convoy.options import Options
from convoy.plan.maps import image_shape, make_map
from convoy.plan.tiles import rank_tilings
from convoy.target import Target

TILES = 2
"""Register tiles of a direct convolution beside the estimated one."""
SCHEDULES = 2
"""Schedules tried for each size of Winograd tile."""


def list_candidates(
    node: Conv2d, graph: Graph, target: Target, threads: int, options: Options, blocked: bool
) -> dict[str, Choice]:
    """Choices by a name that tells them apart; the estimated one, ``estimated``, first.

    ``blocked``: the input is in blocks.  Nothing for a convolution that there is only one way to compute,
    or whose sizes only a call gives: no map of those sizes can be timed.
    """
    if is_open((graph.shape(node.inputs[0]), graph.shape(node.output))):
        return {}
    first = choose_algorithm(node, graph, target, threads, options, blocked)
    if first.algorithm == "depthwise":
        return {}
    outs = winograd_tiles(node, graph, target, options) if node.groups == 1 else ()
    if outs:
        return {"estimated": first, **_winograd(node, graph, target, threads, first, outs)}
    return {"estimated": first, **_direct(node, graph, target, first)}


def _direct(node: Conv2d, graph: Graph, target: Target, first: Choice) -> dict[str, Choice]:
    _, _, height, width = graph.shape(node.output)
    pointwise = graph.shape(node.inputs[1])[2:] == (1, 1) and node.stride == (1, 1)
    blocks = -(-graph.shape(node.output)[1] // node.groups // target.lanes)
    row, rows = (height * width, 1) if pointwise else (width, height)
    _, *others = rank_tilings(row, blocks, target, rows)
    plain = Choice("direct", first.cycles)
    found = {} if first.algorithm == "direct" and not first.row_points else {"direct": plain}
    for tiling in [t for t in others if t.tile_rows == 1][:TILES]:
        tile = (max(tiling.rows.pixels), tiling.blocks)
        found[f"direct {tile[0]}x{tile[1]}"] = replace(plain, tile=tile)
    for split, name in ((False, "tiles"), (True, "chunks")):
        found[f"direct, share {name}"] = replace(plain, split_chunks=split)
    return found


def _winograd(
    node: Conv2d, graph: Graph, target: Target, threads: int, first: Choice, outs: Sequence[Out]
) -> dict[str, Choice]:
    shapes = image_shape(graph.shape(node.inputs[0])), image_shape(graph.shape(node.output))
    assert shapes[0] is not None
    assert shapes[1] is not None
    x, y = make_map(0, *shapes[0], target.lanes), make_map(0, *shapes[1], target.lanes)
    found = {} if first.algorithm == "direct" else {"direct": Choice("direct", first.cycles)}
    for out in outs:
        found_schedules = schedules(x, y, out, target, threads, node.dilation)
        ranked = sorted(found_schedules, key=lambda s: s.cycles)
        for s in ranked[:SCHEDULES]:
            if s != first.schedule:
                name = f"winograd {s.variant} {s.pixels}x{s.blocks}, {s.portions} portions, share {s.share}"
                found[name] = Choice("winograd", first.cycles, s)
    return found
