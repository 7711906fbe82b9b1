"""graph/scaled.py: matrices of few bits are known by their numbers; others are left."""

from __future__ import annotations

import numpy as np
import pytest

from convoy.graph.scaled import Scaled, find_scaled
from quantising import matrix_of_bits

random = np.random.default_rng(7)


def floats(found: Scaled) -> np.ndarray:
    k = len(found.integers)
    each = (np.repeat(array, found.block, axis=0)[:k] for array in (found.zeros, found.scales))
    zeros, scales = (array.astype(np.float32) for array in each)
    return (found.integers.astype(np.float32) - zeros) * scales


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    ("k", "n", "block", "bits"),
    [(128, 40, 32, 4), (100, 9, 16, 4), (300, 5, 128, 8), (64, 33, 64, 4), (77, 8, 77, 8), (40, 3, 256, 4)],
)
def test_a_matrix_of_few_bits_is_found(k, n, block, bits, half, zeros) -> None:
    weight = matrix_of_bits(k, n, block, bits, zeros, half)
    found = find_scaled(weight)
    assert found is not None
    assert found.bits == bits
    assert found.block == min(block, k)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    assert low <= found.integers.min() <= found.integers.max() <= high
    np.testing.assert_allclose(floats(found), weight, rtol=2.0**-22)
    assert (floats(found) == weight).mean() > 0.99  # a short block may be multiples of more than its scale


def test_columns_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convoy.graph.scaled.CHUNK", 256)
    weight = matrix_of_bits(128, 41, 32, 4, zeros=True)
    found = find_scaled(weight)
    assert found is not None
    np.testing.assert_array_equal(floats(found), weight)


def test_nothing_but_zeros_is_of_few_bits() -> None:
    found = find_scaled(np.zeros((64, 32), np.float32))
    assert found is not None
    assert not floats(found).any()


@pytest.mark.parametrize("shape", [(64, 32), (1, 5), (16, 1), (512, 300)])
def test_random_floats_are_left(shape: tuple[int, int]) -> None:
    weight = random.standard_normal(shape).astype(np.float32)
    assert find_scaled(weight) is None or min(shape) == 1  # one number is a multiple of itself


@pytest.mark.parametrize("value", [0.0123, np.inf, np.nan])
def test_a_matrix_with_one_other_number_is_left(value: float) -> None:
    weight = matrix_of_bits(256, 48, 32, 4)
    weight[131, 29] = value
    assert find_scaled(weight) is None


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_a_matrix_without_numbers_is_left(shape: tuple[int, int]) -> None:
    assert find_scaled(np.zeros(shape, np.float32)) is None


def test_blocks_of_other_lengths_are_left() -> None:
    assert find_scaled(matrix_of_bits(120, 16, 24, 4)) is None


def test_more_bits_than_eight_are_left() -> None:
    assert find_scaled(matrix_of_bits(64, 16, 32, 9)) is None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e-45, 1e-40, 2e37])
def test_the_smallest_and_the_largest_floats_are_no_trouble(scale: float) -> None:
    weight = random.integers(-8, 8, (64, 8)).astype(np.float32) * np.float32(scale)
    found = find_scaled(weight)
    assert found is not None
    np.testing.assert_array_equal(floats(found), weight)
