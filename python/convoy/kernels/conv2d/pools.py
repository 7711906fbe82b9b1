"""Which pools are computed from the output tiles of a Winograd convolution.  Every one is a ``Decision``.

A 2x2 pool whose windows do not overlap has each of them whole in one tile, which is in L1 when it has been
computed.  That saves a pass over the convolution's result, and its memory where nobody else reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from convoy.graph.dtypes import BYTES
from convoy.graph.graph import Graph
from convoy.graph.messages import describe, origins
from convoy.graph.ops import Conv2d, Pool2d
from convoy.kernels.conv2d.choose import Choice
from convoy.plan.clock import seconds
from convoy.plan.fuse import Fusion
from convoy.report.decision import Report
from convoy.target import Target


@dataclass(frozen=True)
class TilePool:
    """A pool that is computed with the convolution it reads."""

    fusion: Fusion
    keeps: bool
    """The convolution's result is written too: others read it."""
    apart: float
    together: float
    """Estimated cycles of the busiest thread, for what one of them has and the other has not."""

    @property
    def pays(self) -> bool:
        return self.together < self.apart

    @property
    def reason(self) -> str:
        also = "; others read the convolution's result" if self.keeps else ""
        return (
            f"estimated kilocycles: by itself {self.apart / 1e3:.0f}, "
            f"from the tiles {self.together / 1e3:.0f}{also}"
        )


def estimate_pools(
    graph: Graph, fusions: Sequence[Fusion], choices: Mapping[str, Choice], target: Target, threads: int
) -> list[TilePool]:
    """The pools that tiles can compute."""
    tiled = {
        fusion.output
        for fusion in fusions
        if (choice := choices.get(fusion.anchor.output))
        and choice.schedule
        and choice.schedule.phases == 1  # else no window is in one tile
        and isinstance(fusion.anchor, Conv2d)
        and fusion.anchor.groups == 1
    }
    return [
        _estimate(fusion, graph, target, threads)
        for fusion in fusions
        if isinstance(fusion.anchor, Pool2d)
        and _is_halving(fusion.anchor)
        and fusion.anchor.inputs[0] in tiled
    ]


def choose_pools(pools: Sequence[TilePool]) -> dict[str, TilePool]:
    """Those estimated to pay, by the result of the convolution; the first one, where two read it."""
    return {pool.fusion.anchor.inputs[0]: pool for pool in reversed(pools) if pool.pays}


def report_pools(
    pools: Sequence[TilePool], chosen: Mapping[str, TilePool], target: Target, report: Report
) -> None:
    """A ``Decision`` for each that its estimates decided; a second reader of one convolution has none."""
    for pool in pools:
        node, cost = pool.fusion.anchor, seconds(min(pool.together, pool.apart), target)
        if pool in chosen.values():
            report.add(describe(node), "plan", "from winograd tiles", pool.reason, cost, origins(node))
        elif not pool.pays:
            report.add(
                describe(node), "plan", "apart from winograd tiles", pool.reason, cost, origins(node)
            )


def _is_halving(node: Pool2d) -> bool:
    return node.kernel == node.stride == (2, 2) and node.dilation == (1, 1) and node.padding == (0, 0, 0, 0)


def _estimate(fusion: Fusion, graph: Graph, target: Target, threads: int) -> TilePool:
    x = fusion.anchor.inputs[0]
    keeps = len(graph.consumers[x]) > 1 or x in graph.outputs
    _, channels, *size = graph.likely.shape(x)
    lines = -(-channels // target.lanes) * prod(size)
    passes = 1 if keeps else 2
    moved = passes * lines * target.lanes * BYTES[graph.dtype(x)] / target.cached_rate
    together = lines * target.direct.pool_tap / threads
    return TilePool(fusion, keeps, moved / threads + target.step, together)
