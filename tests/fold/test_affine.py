"""fold/affine.py: what is an affine map per channel, and how two of them are one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_door import NORM, Expr, Function, Literal, Var, node_of

from convoy.fold.affine import IDENTITY, Affine, batch_norm, recognise
from convoy.fold.constants import Const

X = (2, 3, 4, 5)
VALUES = np.array([0.5, -2.0, 3.0])


def lookup(value: Expr) -> Const | None:
    return Const(value.dtype, value.array) if isinstance(value, Literal) else None


def read(name: str, *args: Any, **attrs: Any) -> tuple[Var, Affine] | None:
    """What a call of x and constants is recognised as."""
    f = Function(x=X)
    f.add(name, *(a if isinstance(a, str) else f.constant(a) for a in args), **attrs)
    found = recognise(node_of(f.bindings[-1][1]), lookup)
    assert found is None or found[0] is f.inputs["x"]
    return found


def per_channel(values: Any) -> np.ndarray:
    return np.reshape(values, (-1, 1, 1))


@pytest.mark.parametrize(
    ("call", "scale", "shift"),
    [
        (("add", "x", per_channel(VALUES)), [1, 1, 1], VALUES),
        (("add", per_channel(VALUES), "x"), [1, 1, 1], VALUES),
        (("subtract", "x", per_channel(VALUES)), [1, 1, 1], -VALUES),
        (("subtract", per_channel(VALUES), "x"), [-1, -1, -1], VALUES),
        (("multiply", per_channel(VALUES), "x"), VALUES, [0, 0, 0]),
        (("divide", "x", per_channel(VALUES)), 1 / VALUES, [0, 0, 0]),
    ],
    ids=lambda call: call[0] if isinstance(call, tuple) else "",
)
def test_arithmetic_with_a_constant_per_channel(call: tuple, scale: Any, shift: Any) -> None:
    found = read(*call)
    assert found is not None
    assert found[1].axis == 1
    np.testing.assert_array_equal(found[1].scale, scale)
    np.testing.assert_array_equal(found[1].shift, shift)


def test_the_axis_is_the_one_along_which_a_constant_varies() -> None:
    for shape, axis in (((5,), 3), ((4, 1), 2), ((3, 1, 1), 1), ((1, 3, 1, 1), 1), ((2, 1, 1, 1), 0)):
        found = read("add", "x", np.ones(shape))
        assert found is not None
        assert found[1].axis == axis
    for shape in ((), (1,), (1, 1, 1, 1)):
        found = read("multiply", "x", np.full(shape, 2.0))
        assert found is not None
        assert (found[1].axis, found[1].scale.shape) == (None, ())


def test_a_bias_runs_along_the_axis_it_names() -> None:
    for axis in (1, -3):
        found = read("nn.bias_add", "x", VALUES, axis=axis)
        assert found is not None
        assert found[1].axis == 1


def test_negative_is_a_scale() -> None:
    found = read("negative", "x")
    assert found is not None
    assert (found[1].scale, found[1].shift, found[1].axis) == (-1.0, 0.0, None)


@pytest.mark.parametrize(
    "call",
    [
        ("divide", per_channel(VALUES), "x"),  # 1 / x is no map
        ("multiply", "x", "x"),
        ("add", "x", np.ones((4, 5))),  # varies along two axes
        ("add", "x", np.ones((1, 1, 1, 1, 1))),  # adds a dimension
        ("divide", "x", np.zeros(())),
        ("add", "x", np.float32(np.inf)),
        ("nn.relu", "x"),
    ],
    ids=str,
)
def test_what_is_no_map(call: tuple) -> None:
    with np.errstate(all="ignore"):
        assert read(*call) is None


def test_a_constant_that_makes_the_result_wider_is_none() -> None:
    f = Function(x=(2, 1, 4, 5))
    f.add("add", "x", f.constant(per_channel(VALUES)))
    assert recognise(node_of(f.bindings[-1][1]), lookup) is None


def test_two_maps_are_one_after_the_other() -> None:
    first, second = Affine(1, VALUES, VALUES + 1), Affine(1, VALUES + 2, VALUES - 3)
    both = first.then(second)
    assert both is not None
    x = np.arange(3.0)
    np.testing.assert_allclose(
        both.scale * x + both.shift, second.scale * (first.scale * x + first.shift) + second.shift
    )
    scalar = Affine(None, np.array(2.0), np.array(1.0)).then(first)
    assert scalar is not None
    assert scalar.axis == 1
    assert first.then(Affine(2, VALUES, VALUES)) is None
    identity = IDENTITY.then(IDENTITY)
    assert identity is not None
    assert identity.trivial


def test_parts_of_a_map() -> None:
    affine = Affine(1, VALUES, VALUES + 1)
    assert affine.scales
    assert affine.shifts
    assert not affine.only_shift().scales
    assert not affine.only_scale().shifts
    np.testing.assert_array_equal(affine.part(1, 3).scale, VALUES[1:])
    assert IDENTITY.part(1, 3).trivial
    assert affine.along(3).axis == 3
    assert IDENTITY.along(3).axis is None


PARAMETERS = {
    "gamma": [1.5, -2.0, 0.0], "beta": [0.5, 1.0, 2.0],
    "mean": [0.1, -3.0, 2.0], "variance": [4.0, 0.5, 1e-8],
}  # fmt: skip


def read_norm(x: tuple[int, ...] = X, **changes: Any) -> Affine | str:
    """What a batch norm is read as; a parameter may be given, or be the name of an input."""
    f = Function(x=x, run_time=(3,))
    attrs = {key: value for key, value in changes.items() if key in NORM}
    given = {**PARAMETERS, **{key: value for key, value in changes.items() if key in PARAMETERS}}
    values = [value if isinstance(value, str) else f.constant(value) for value in given.values()]
    f.norm("x", *values, **attrs)
    return batch_norm(node_of(f.bindings[0][1]), lookup)


@pytest.mark.parametrize("axis", [1, -3])
def test_a_batch_norm_in_float64(axis: int) -> None:
    affine = read_norm(axis=axis)
    assert isinstance(affine, Affine)
    gamma, beta, mean, variance = (
        np.asarray(np.float32(p), np.float64) for p in map(np.array, PARAMETERS.values())
    )
    assert affine.axis == 1
    np.testing.assert_array_equal(affine.scale, gamma / np.sqrt(variance + 1e-5))
    np.testing.assert_array_equal(affine.shift, beta - mean * affine.scale)


def test_a_batch_norm_that_uses_no_gamma_or_beta() -> None:
    affine = read_norm(scale=False, center=False, gamma="run_time", beta="run_time")
    assert isinstance(affine, Affine)
    np.testing.assert_allclose(
        affine.scale, 1 / np.sqrt(np.array(PARAMETERS["variance"]) + 1e-5), rtol=1e-6
    )
    np.testing.assert_allclose(affine.shift, -np.array(PARAMETERS["mean"]) * affine.scale, rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"training": True}, "expected inference, got training=True"),
        ({"variance": "run_time"}, "expected a constant variance, got a run-time value"),
        ({"gamma": "run_time"}, "expected a constant gamma, got a run-time value"),
        ({"variance": [1.0, -1.0, 1.0]}, "expected finite parameters"),
        ({"mean": [0.0, np.nan, 0.0]}, "expected finite parameters"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_batch_norm_that_is_no_map(changes: dict, reason: str) -> None:
    found = read_norm(**changes)
    assert isinstance(found, str)
    assert found.startswith(reason)
