"""A region's name is made of all that decides its code, and of no estimate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Conv2d, Pool2d, Softmax, Unary
from convoy.options import Options
from convoy.target import Target

TARGET = Target("avx2")


def network() -> Graph:
    b = Builder([1, 32, 24, 24])
    x = b.add(Conv2d, "x0", b.weight(32, 32, 3, 3), b.weight(32), padding=(1, 1, 1, 1))
    x = b.add(Pool2d, b.add(Unary, x, kind="relu"), kind="max", kernel=(2, 2), stride=(2, 2))
    return b.graph(b.add(Softmax, x, axis=1))


def name(graph: Graph, target: Target = TARGET, threads: int = 2) -> str:
    return backend.generate(graph, None, target, Options(threads=threads)).symbol


def test_estimates_are_no_part_of_the_name() -> None:
    first = backend.generate(network(), None, TARGET, Options(threads=2))
    dear = replace(TARGET, cached_rate=7.0, step=11.0, clock=1e9)
    again = backend.generate(network(), None, dear, Options(threads=2))
    assert first.report.estimates != again.report.estimates
    assert first.symbol == again.symbol


def test_caches_and_cores_are_no_part_of_the_name_where_they_decide_nothing() -> None:
    assert name(network()) == name(network(), replace(TARGET, l2_bytes=TARGET.l2_bytes + 4096, cores=7))


def test_what_decides_the_code_is() -> None:
    graph = network()
    weight = next(iter(graph.constants))
    other = replace(graph, constants={**graph.constants, weight: np.ones_like(graph.constants[weight])})
    names = [
        name(graph),
        name(graph, threads=1),
        name(graph, Target("portable")),
        name(graph, replace(TARGET, l2_bytes=32 << 10)),  # which makes smaller slabs
        name(replace(graph, batch=None)),
        name(other),
    ]
    assert len(set(names)) == len(names)
