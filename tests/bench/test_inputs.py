"""Seeded inputs for a model: what cannot be made is said in one line."""

from __future__ import annotations

import pytest

from command import tiny_model
from convoy.bench.inputs import seeded_inputs
from convoy.errors import ModelError


def test_an_input_there_is_no_memory_for() -> None:
    for size in ((1 << 31) - 1, (1 << 63) - 1):
        with pytest.raises(ModelError, match=r"input x: expected a shape there is memory for, got \["):
            seeded_inputs(tiny_model(batch=size))


def test_the_same_seed_gives_the_same_input() -> None:
    first, second = (seeded_inputs(tiny_model(batch=2), seed=3)["x"] for _ in range(2))
    assert first.shape == (2, 3, 8, 8)
    assert (first == second).all()
