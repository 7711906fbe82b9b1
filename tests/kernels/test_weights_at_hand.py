"""Where the weights of dense layers are asked for ahead: not where they wait in L2."""

from __future__ import annotations

import pytest

from building import Builder
from convoy.graph import Graph
from convoy.graph.ops import MatMul
from convoy.kernels.matmul import Gemm
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.target import Target

TARGET = Target("avx2")
WIDTH = 256
LAYER = WIDTH * WIDTH * 4
"""Bytes."""


def layers(count: int) -> Graph:
    b = Builder([1, 1, WIDTH])
    x = "x0"
    for _ in range(count):
        x = b.add(MatMul, x, b.weight(WIDTH, WIDTH))
    return b.graph(x)


@pytest.mark.parametrize("threads", [1, 2])
def test_weights_are_asked_for_where_all_of_them_are_more_than_l2(threads: int) -> None:
    fit = threads * TARGET.l2_bytes // LAYER
    for count, far in ((fit, False), (fit + 1, True)):
        steps = make_plan(layers(count), TARGET, Options(threads=threads)).steps
        assert [step.far for step in steps if isinstance(step, Gemm)] == [far] * count
