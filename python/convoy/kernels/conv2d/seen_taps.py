"""A convolution tap by tap: each tap is a pointwise convolution of the outputs that see the map through it.

    y = bias;  for each tap (r, s): y[through r, through s] += w[.., r, s] · x[what they see]

It pays where dilation and padding are wide, so that most taps see only padding from most of the outputs:
what a direct convolution multiplies by zeros is left out, and x needs no halo.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from convoy.graph.dtypes import BYTES
from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.graph.taps import outputs_through
from convoy.plan.buffers import Map
from convoy.plan.cost import direct_cycles
from convoy.plan.maps import NO_HALO, make_map
from convoy.target import Target


@dataclass(frozen=True)
class SeenTap:
    """A tap, and the rows and columns of the output that see the map through it: never none."""

    row: int
    column: int
    rows: range
    columns: range

    def of_y(self, y: Map) -> Map:
        """The outputs, a part of their map."""
        return _part(y, self.rows.start, self.columns.start, len(self.rows), len(self.columns))

    def of_x(self, x: Map, node: Conv2d) -> Map:
        """The input from the first value the tap sees on."""
        row, column = (
            through.start * node.stride[i] + tap * node.dilation[i] - node.padding[i]
            for i, (tap, through) in enumerate(((self.row, self.rows), (self.column, self.columns)))
        )
        return _part(x, row, column, x.height - row, x.width - column)


def _part(m: Map, row: int, column: int, height: int, width: int) -> Map:
    offset = m.offset + row * m.row + column * m.step
    return replace(m, offset=offset, height=height, width=width, halo=NO_HALO)


def list_taps(node: Conv2d, graph: Graph) -> tuple[SeenTap, ...]:
    """The taps through which outputs see the map, last the one through which all do, if there is one."""
    rows, columns = graph.shape(node.inputs[1])[2:]
    height, width = graph.shape(node.output)[2:]
    found = [
        SeenTap(r, s, seen_rows, seen_columns)
        for r in range(rows)
        for s in range(columns)
        if (seen_rows := outputs_through(node, graph, 0, r))
        and (seen_columns := outputs_through(node, graph, 1, s))
    ]
    whole = [t for t in found if len(t.rows) == height and len(t.columns) == width]
    return (*(t for t in found if t is not whole[0]), whole[0]) if whole else ()


def tap_cycles(node: Conv2d, graph: Graph, y: Map, target: Target, threads: int) -> float | None:
    """Estimated, of the busiest thread; None where no tap sees the map from every output."""
    taps = list_taps(node, graph)
    if not taps:
        return None
    return sum(_cycles(taps, node, graph, y, target, threads))


def _cycles(
    taps: Sequence[SeenTap], node: Conv2d, graph: Graph, y: Map, target: Target, threads: int
) -> Iterator[float]:
    out_channels, products = graph.shape(node.inputs[1])[:2]
    weight = BYTES[graph.dtype(node.inputs[1])]
    for tap in taps:
        part = make_map(0, y.channels, len(tap.rows), len(tap.columns), y.lanes, dtype=y.dtype)
        yield direct_cycles(part, products, out_channels * products * weight, target, threads)
        yield target.step + 2 * part.bytes / target.cached_rate / threads
