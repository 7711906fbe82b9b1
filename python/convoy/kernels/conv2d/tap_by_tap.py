"""The steps of a convolution tap by tap (``seen_taps.py``): direct ones, each of which adds to the sums."""

from __future__ import annotations

from collections.abc import Iterator

from convoy.graph.ops import Conv2d
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.conv2d.direct import DirectConv, direct_step, share_cycles
from convoy.kernels.conv2d.panels import Tap
from convoy.kernels.conv2d.seen_taps import list_taps
from convoy.kernels.values import Values
from convoy.plan.buffers import Map
from convoy.plan.step import Epilogue, Note


def tap_steps(
    note: Note, node: Conv2d, x: Map, y: Map, epilogue: Epilogue, values: Values
) -> Iterator[DirectConv]:
    """``y = bias``, and a pointwise convolution a tap that adds to it; the last has the epilogue."""
    choice, bare = Choice("direct", {}), Epilogue(epilogue.bias)

    def step(
        what: str, taps: tuple[Tap, Tap], x: Map, y: Map, epilogue: Epilogue, cycles: float | None
    ) -> DirectConv:
        return direct_step(
            Note(note.op, f"{note.text}; {what}"), node.inputs[1], taps, x, y, epilogue, node.stride,
            (1, 1), (0, 0), node.groups, False, values, values.threads, choice, cycles, adds=what != "bias",
        )  # fmt: skip

    none = Tap(0, 1, 0)
    yield step("bias", (none, none), x, y, bare, None)
    found = list_taps(node, values.graph)
    shares = share_cycles(values.choices[node.output], [len(t.rows) * len(t.columns) for t in found])
    for tap, cycles in zip(found, shares, strict=True):
        taps = Tap(tap.row, 1, 1), Tap(tap.column, 1, 1)
        ends = tap is found[-1]  # all outputs see the map through it
        yield step(
            f"tap {tap.row},{tap.column}", taps, tap.of_x(x, node), y if ends else tap.of_y(y),
            epilogue if ends else bare, cycles,
        )  # fmt: skip
