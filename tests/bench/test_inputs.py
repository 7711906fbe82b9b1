"""Seeded inputs for a model: what cannot be made is said in one line."""

from __future__ import annotations

import pytest

from command import tiny_model
from convoy.bench.inputs import seeded_inputs
from convoy.errors import ModelError
from convoy.options import shape_option


def test_an_input_there_is_no_memory_for() -> None:
    for size in ((1 << 31) - 1, (1 << 63) - 1):
        with pytest.raises(ModelError, match=r"input x: expected a shape there is memory for, got \["):
            seeded_inputs(tiny_model(batch=size))


def test_the_same_seed_gives_the_same_input() -> None:
    first, second = (seeded_inputs(tiny_model(batch=2), seed=3)["x"] for _ in range(2))
    assert first.shape == (2, 3, 8, 8)
    assert (first == second).all()


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        (["n", "s"], "1x16"),
        ([None, 3, None, None], "1x3x224x224"),
        ([0, 1, 0, 0], "1x1x224x224"),
        (["n", 8, "t"], "1x8x16"),
        ([2, "c", 32, "w"], "2x3x32x224"),
        ([None], "1"),
        ([], "1"),
        ([1, "h", "w", 3], "1x224x224x3"),
        (("n", "h", "w", 1), "1x224x224x1"),
    ],
)
def test_the_shape_of_a_remedy_fits_the_input(sizes: list[object], text: str) -> None:
    assert shape_option("x", sizes) == f"--shape x={text}"


def test_a_remedy_is_fit_for_a_shell() -> None:
    assert shape_option("in put:0", [1]) == "--shape 'in put:0=1'"
