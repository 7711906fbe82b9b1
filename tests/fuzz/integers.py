"""Kernels of bytes wherever there is one, for small maps too, on which floats are quicker.

Of convolutions that Winograd's algorithm in integers can compute every other one is its.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any
from unittest.mock import patch

from convoy.graph import Graph
from convoy.graph.ops import Conv2d, ConvTranspose2d
from convoy.kernels import integers, matmul_bytes
from convoy.kernels.conv2d import bytes as conv2d_bytes
from convoy.kernels.conv2d import choose as conv2d_choices
from convoy.kernels.conv2d.choose import Choice, choose_bytes
from convoy.kernels.matmul_bytes import matmul_cycles
from convoy.target import Target
from instruction_sets import of_free_winograd


@contextmanager
def integers_wherever_there_are(wanted: bool = True) -> Iterator[None]:
    """Within it, convolutions and products of bytes multiply them, whatever that costs."""

    def choose(
        node: Conv2d | ConvTranspose2d, graph: Graph, target: Target, *given: Any, **named: Any
    ) -> Choice:
        if target.winograd.shorts < inf and sum(node.output.encode()) % 2:
            target = of_free_winograd(target)
        choice = choose_bytes(node, graph, target, *given, **named)
        return replace(choice, int8=choice.int8 or f"{choice.algorithm} int8" in choice.cycles)

    def cycles(*given: Any) -> dict[str, float]:
        return {**matmul_cycles(*given), "matmul int8": 0.0}

    with (
        patch.object(conv2d_bytes, "choose_bytes", choose if wanted else choose_bytes),
        patch.object(conv2d_choices, "choose_bytes", choose if wanted else choose_bytes),
        patch.object(integers, "choose_bytes", choose if wanted else choose_bytes),
        patch.object(matmul_bytes, "matmul_cycles", cycles if wanted else matmul_cycles),
    ):
        yield
