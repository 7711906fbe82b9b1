"""How two answers are compared."""

from __future__ import annotations

import numpy as np
import pytest

from convoy.bench.accuracy import Difference, compare_outputs
from convoy.errors import ModelError
from convoy.options import Precision


def difference(ours: object, theirs: object) -> Difference:
    (found,) = compare_outputs(["y"], [np.float32(ours)], [np.float32(theirs)])
    return found


def test_the_error_is_relative_to_the_largest_output() -> None:
    found = difference([1.0, -99.0], [1.0, -100.0])
    assert (found.absolute, found.largest, found.relative) == (1.0, 100.0, 0.01)


def test_an_answer_in_bf16_passes_by_its_direction() -> None:
    # off by 1 % everywhere: past any bound of float32, and the same direction; an element with another sign
    # is not, nor is a NaN that the reference has not
    reference = np.arange(1.0, 65.0)
    assert difference(reference * 1.01, reference).passes(1e-4, "bf16")
    assert not difference(reference * 1.01, reference).passes(1e-4)
    turned = np.where(reference == 64.0, -reference, reference)
    assert not difference(turned, reference).passes(1e-4, "bf16")
    missing = np.where(reference == 64.0, np.nan, reference)
    assert not difference(missing, reference).passes(1e-4, "bf16")


def test_nan_and_infinity_at_the_same_places_agree() -> None:
    assert difference([np.nan, np.inf, 2.0], [np.nan, np.inf, 2.0]).relative == 0.0


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [([np.nan, 1.0], [1.0, 1.0]), ([1.0, 1.0], [np.nan, 1.0]), ([np.inf, 1.0], [-np.inf, 1.0])],
)
def test_nan_or_infinity_on_one_side_only_is_an_infinite_error(ours: object, theirs: object) -> None:
    assert difference(ours, theirs).relative == np.inf


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_what_is_finite_on_one_side_only_is_counted(precision: Precision) -> None:
    found = difference([np.nan, 1.0, np.inf, np.nan, 3.0], [1.0, 1.0, -np.inf, np.nan, np.inf])
    assert found.cosine == 1.0  # of what is finite on both
    wanted = "expected infinities and NaN where ONNX Runtime has them, got 3 of 5 numbers otherwise"
    assert found.problem(1e-4, precision) == wanted
    assert not difference([np.nan, 1.0], [np.nan, 1.0]).problem(1e-4, precision)


def test_any_value_where_all_are_zero_is_an_infinite_error() -> None:
    assert difference([1e-9], [0.0]).relative == np.inf
    assert difference([0.0], [0.0]).relative == 0.0


def test_other_shapes_and_other_numbers_of_outputs_are_errors() -> None:
    with pytest.raises(ModelError, match=r"expected shape \(2,\), got \(1,\)"):
        difference([1.0], [1.0, 2.0])
    with pytest.raises(ModelError, match="expected 1, got 0"):
        compare_outputs(["y"], [], [np.zeros(1, np.float32)])
