"""fold/constants.py: what is computed of constants, in float64 and rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_door import Expr, Function, Literal, make_node, node_of

from convoy.fold.constants import EVALUATED, Const, evaluate, multiply_into


def lookup(value: Expr) -> Const | None:
    return Const(value.dtype, value.array) if isinstance(value, Literal) else None


def compute(name: str, *args: Any, dtype: str = "float32", **attrs: Any) -> Const | None:
    f = Function(dtype, x=(2, 3))
    f.add(name, *(a if isinstance(a, str) else f.constant(a) for a in args), **attrs)
    return evaluate(node_of(f.bindings[-1][1]), lookup)


def test_arithmetic_is_in_double_precision() -> None:
    third = compute("divide", 1.0, 3.0)
    assert third is not None
    assert (third.dtype, float(third.array)) == ("float32", 1 / 3)  # not float32's
    large = compute("multiply", 60000.0, 60000.0, dtype="float16")
    assert large is not None
    assert np.isfinite(large.array)


def test_an_operand_that_is_no_constant() -> None:
    assert compute("add", "x", np.ones((2, 3))) is None
    assert compute("reshape", "x", shape=(3, 2)) is None
    assert compute("tanh", np.ones(3)) is None


def test_integers_are_left() -> None:
    assert compute("add", 1, 2, dtype="int32") is None


def test_moves_are_views() -> None:
    f = Function()
    weight = f.constant(np.arange(6.0).reshape(2, 3))
    for name, attrs, want in (
        ("reshape", {"shape": (3, 2)}, weight.array.reshape(3, 2)),
        ("permute_dims", {"axes": (1, 0)}, weight.array.T),
        ("permute_dims", {"axes": None}, weight.array.T),
    ):
        f.add(name, weight, **attrs)
        found = evaluate(node_of(f.bindings[-1][1]), lookup)
        assert found is not None
        np.testing.assert_array_equal(found.array, want)
        assert np.shares_memory(found.array, weight.array)


def test_a_move_to_an_unknown_shape_is_left() -> None:
    node = make_node("reshape", (2, 3), result=(None, 3))
    constant = Const("float32", np.ones((2, 3), np.float32))
    assert evaluate(node, lambda _: constant) is None
    known = make_node("reshape", (2, 3), result=(3, 2))
    assert evaluate(known, lambda _: constant) is not None


@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        ("OIHW", "HWIO", (3, 4, 2, 1)),
        ("HWIO", "OIHW", (4, 3, 1, 2)),
        ("OIHW", "OIHW4o", None),
        ("OIHW", "NCHW", None),
    ],
)
def test_layouts_of_letters_are_transposes(source: str, target: str, shape: tuple[int, ...] | None) -> None:
    array = np.zeros((1, 2, 3, 4), np.float32)
    node = make_node("layout_transform", array.shape, result=shape, src_layout=source, dst_layout=target)
    found = evaluate(node, lambda _: Const("float32", array))
    assert (None if found is None else found.array.shape) == shape


def test_a_layout_that_maps_indices_is_left() -> None:
    node = make_node("layout_transform", (2, 3), result=(3, 2), index_map="a function")
    assert evaluate(node, lambda _: Const("float32", np.ones((2, 3)))) is None


def test_all_that_is_named_is_evaluated() -> None:
    assert {"add", "sqrt", "rsqrt", "power", "permute_dims", "transpose", "broadcast_to"} <= set(EVALUATED)
    four = Const("float32", np.full((2, 2), 4.0, np.float32))
    for name, want in (("sqrt", 2.0), ("rsqrt", 0.5), ("negative", -4.0)):
        found = evaluate(make_node(name, (2, 2), result=(2, 2)), lambda _: four)
        assert found is not None
        np.testing.assert_array_equal(found.array, np.full((2, 2), want))


def test_a_product_is_rounded_once() -> None:
    weight = np.float32([1.0 + 2**-23, 3.0])
    factor = np.float64([1 / 3, 1 / 7])
    memory = np.empty(2, np.float32)
    multiply_into(memory, weight, factor)
    np.testing.assert_array_equal(memory, (weight.astype(np.float64) * factor).astype(np.float32))
    multiply_into(memory, weight, np.float64(1.0).reshape(()))
    np.testing.assert_array_equal(memory, weight)
