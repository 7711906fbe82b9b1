"""Who computes which image of a batch: each thread some of its own, all together those left over."""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Conv2d, MatMul, Pool2d, Reshape, Unary
from convoy.graph.reference import run
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.plan.plan import Plan
from convoy.target import host

BOUND = 1e-5
"""Error, of the largest output: there is a Winograd convolution."""


def network(batch: int | None) -> Graph:
    """Steps that split rows, steps that split channels, scratch of each thread; and products that take
    all images at once, whose sums depend on how many they are."""
    b = Builder([1, 16, 28, 28], batch=batch)
    x = b.add(Unary, b.add(Conv2d, "x0", b.weight(64, 16, 1, 1), b.weight(64)), kind="relu")
    x = b.add(Conv2d, x, b.weight(64, 64, 3, 3), b.weight(64), padding=(1, 1, 1, 1))
    x = b.add(Pool2d, x, kind="max", kernel=(2, 2), stride=(2, 2))
    x = b.add(Conv2d, x, b.weight(96, 64, 3, 3), stride=(2, 2))
    y = b.add(Reshape, x, shape=[1, 96 * 36])
    y = b.add(MatMul, y, b.weight(96 * 36, 32))
    return b.graph(x, b.add(MatMul, y, b.weight(32, 10), b.weight(10)))


def plan_of(batch: int | None, threads: int) -> Plan:
    return make_plan(network(batch), host(), Options(threads=threads))


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_image_has_the_bits_it_has_alone(threads: int) -> None:
    # of 7 images 3 threads take two each, and share the last; of 2 they share both
    region = backend.load(network(None), options=Options(threads=threads))
    images = np.random.default_rng(1).standard_normal((7, 16, 28, 28)).astype(np.float32)
    alone = np.concatenate([region(images[i : i + 1])[0] for i in range(7)])
    for count in (7, 1, 2, 3, 4, 6):  # the arena is dirty from the second on
        np.testing.assert_array_equal(region(images[:count])[0], alone[:count])


@pytest.mark.slow
@pytest.mark.parametrize("setting", [0, 1, 2, 4])
def test_a_team_smaller_or_larger_than_planned_computes_every_image(setting: int) -> None:
    graph = network(None)
    region = backend.load(graph, options=Options(threads=3))
    region.function.library.convoy_set_num_threads(setting)  # type: ignore[attr-defined]
    for count in (2, 3, 5):
        images = np.random.default_rng(count).standard_normal((count, 16, 28, 28)).astype(np.float32)
        for got, want in zip(region(images), run(graph, [images], np.float64), strict=True):
            assert np.abs(got - want).max() <= BOUND * np.abs(want).max()


@pytest.mark.parametrize(("batch", "arenas"), [(1, 1), (2, 1), (3, 3), (8, 3)])
def test_the_report_counts_an_arena_for_each_thread_with_images_of_its_own(batch: int, arenas: int) -> None:
    options = Options(threads=3)
    plan = plan_of(batch, 3)
    report = backend.generate(network(batch), "region", host(), options).report
    assert plan.thread_bytes > 0
    assert (plan.batch_bytes > 0) == (batch > 1)
    scratch = arenas * plan.arena_bytes + batch * plan.batch_bytes + 3 * plan.thread_bytes
    assert report.arena_bytes == scratch


def test_threads_share_a_single_image() -> None:
    source = backend.generate(network(1), "region", host(), Options(threads=2)).sources[0]
    assert not plan_of(1, 2).apart
    assert "run_image((cv_thread){0, 1}" not in source


def test_timed_steps_are_those_of_all_threads_together() -> None:
    # the planner's estimates are, too
    timed = backend.generate(network(8), "region", host(), Options(threads=2), timed=True).sources[0]
    plain = backend.generate(network(8), "region", host(), Options(threads=2)).sources[0]
    assert "run_image((cv_thread){0, 1}" in plain
    assert "run_image((cv_thread){0, 1}" not in timed
