"""Which regions are computed by their caller alone."""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.codegen.emit import emit
from convoy.graph import Graph
from convoy.graph.ops import Conv2d, Unary
from convoy.graph.reference import run
from convoy.kernels.planner import make_plan
from convoy.kernels.registry import emit_step
from convoy.options import Options
from convoy.plan.estimate import images_worth_a_team
from convoy.target import Target

TARGET = Target("avx2")


def conv_relu(channels: int, size: int, batch: int | None = 1) -> Graph:
    b = Builder([1, channels, size, size], batch=batch)
    conv = b.add(Conv2d, "x0", b.weight(channels, channels, 3, 3), padding=(1, 1, 1, 1))
    return b.graph(b.add(Unary, conv, kind="relu"))


def launches(graph: Graph, threads: int) -> tuple[int, str]:
    plan = make_plan(graph, TARGET, Options(threads=threads))
    return plan.team_images, emit(plan, "region", emit_step)


def test_small_region_is_its_callers() -> None:
    # 8 channels of 6 x 6: 0.04 MFLOP
    images, text = launches(conv_relu(8, 6), 2)
    assert images > 1
    assert f"images < {images} ? 1 : 2" in text


def test_large_region_has_a_team() -> None:
    images, text = launches(conv_relu(64, 56), 2)
    assert images == 1
    assert "? 1 :" not in text


def test_one_thread_is_no_team() -> None:
    images, text = launches(conv_relu(8, 6), 1)
    assert images == 1
    assert "? 1 :" not in text


def test_more_threads_need_fewer_images() -> None:
    assert images_worth_a_team(1000.0, TARGET, 2) > images_worth_a_team(1000.0, TARGET, 8) > 1
    assert images_worth_a_team(1e9, TARGET, 2) == 1


@pytest.mark.slow
@pytest.mark.parametrize("images", [1, 3, 50])
def test_same_answer_alone_and_with_a_team(images: int) -> None:
    graph = conv_relu(8, 12, batch=None)
    plan = make_plan(graph, Target("portable"), Options(threads=2))
    assert 3 < plan.team_images < 50
    x = np.random.default_rng(0).standard_normal((images, 8, 12, 12)).astype(np.float32)
    (got,) = backend.load(graph, Target("portable"), Options(threads=2))(x)
    (want,) = run(graph, [x], np.float64)
    np.testing.assert_allclose(got, want, atol=1e-5)
