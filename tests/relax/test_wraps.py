"""Sums, products and powers of whole numbers that do not fit wrap around, as ONNX Runtime's do."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator
from tvm import te, tirx
from tvm.ir import TensorLoad
from tvm_ffi import structural_equal, structural_walk

import convoy
from convoy.relax import wraps
from convoy.relax.wraps import wrap_around

SIGNED = [
    "y = Sub (x, least)", "y = Add (x, least)", "y = Mul (x, least)", "y = Neg (x)",
    "a = Sub (x, least) y = Sub (a, least)", "a = Sub (least, x) y = Abs (a)",
    "a = Add (x, most) y = Mul (a, most)", "a = Sub (x, least) y = Div (a, most)",
    "a = Sub (x, least) y = Max (a, five)", "a = Add (x, five) y = Mod (a, most)",
    "a = Add (x, five) y = Mod (a, least)", "y = Mod (x, least)", "a = Neg (x) y = Min (a, five)",
    "a = Sub (x, x) b = Sub (a, five) y = Mul (b, least)", "a = Mul (x, none) y = Sub (a, five)",
    "y = Pow (x, five)", "a = Add (x, most) b = Add (a, most) y = Sub (b, least)",
    "a = Mul (x, most) b = Add (a, most) c = Sub (least, b) y = Mul (c, x)",
]  # fmt: skip
UNSIGNED = [
    "y = Sub (x, five)", "a = Sub (five, x) y = Mul (a, most)", "y = Mul (x, most)", "y = Add (x, x)",
    "a = Mul (x, none) y = Sub (a, five)", "a = Sub (x, five) y = Max (a, five)", "y = Pow (x, five)",
    "a = Sub (five, x) b = Sub (a, most) y = Add (b, x)",
]  # fmt: skip
NOTHING = ["Mul (x, none)", "Sub (x, x)", "Min (x, none)", "BitwiseXor (x, x)", "Mod (x, one)"]
"""What TVM knows to be 0 in the end."""
COMPARED = ["Less (a, five)", "Greater (five, a)", "LessOrEqual (five, a)", "GreaterOrEqual (a, five)",
            "Less (five, a)", "Equal (a, five)"]  # fmt: skip


def make(body: str, dtype: str, gives: str = "") -> onnx.ModelProto:
    bounds = np.iinfo(dtype)
    constants = {"least": bounds.min, "most": bounds.max, "five": 5, "none": 0, "one": 1}
    given = ", ".join(f"{dtype} {name} = {{{number}}}" for name, number in constants.items())
    head = f'<ir_version: 9, opset_import: ["": 18]> g ({dtype}[9] x) => ({gives or dtype}[9] y)'
    return onnx.parser.parse_model(f"{head} <{given}> {{ {body} }}")


def edges(dtype: str) -> np.ndarray:
    bounds = np.iinfo(dtype)
    numbers = [0, 1, 3, bounds.max, bounds.min, bounds.max - 1, bounds.max // 2 + 1, bounds.min // 2, 7]
    return np.array(numbers, dtype)


def compute(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    (found,) = convoy.Runner(convoy.compile(model)).run([x])
    return np.asarray(found)


@pytest.mark.parametrize(
    ("dtype", "body"),
    [
        *product(("int8", "int16", "int32", "int64"), SIGNED),
        *product(("uint8", "uint16", "uint32", "uint64"), UNSIGNED),
    ],
)
def test_what_does_not_fit_wraps_around(body: str, dtype: str) -> None:
    model, x = make(body, dtype), edges(dtype)
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_array_equal(compute(model, x), wanted)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int32"])
@pytest.mark.parametrize(
    "body",
    [
        *product(NOTHING[:1], COMPARED),
        *product(NOTHING[1:], COMPARED[:1]),
        *product(["Sub (x, five)", "Mul (x, most)"], COMPARED),
    ],
    ids=" ".join,
)
def test_numbers_without_a_sign_are_compared(body: tuple[str, str], dtype: str) -> None:
    # a is 0, and a < 5 was 0 - 5 to TVM, which ended there; or it wraps around
    number, asked = body
    model, x = make(f"a = {number} y = {asked}", dtype, gives="bool"), edges(dtype)
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_array_equal(compute(model, x), wanted)


@pytest.mark.parametrize("body", [body for body in SIGNED if "Pow" not in body])
def test_it_is_what_onnx_runtime_gives(body: str) -> None:
    model, x = make(body, "int64"), edges("int64")
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(compute(model, x), wanted)


ASKED = ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint32", "uint64"])
def test_numbers_are_compared_with_the_least_and_the_largest(dtype: str) -> None:
    model, x = make("y = Identity (x)", dtype), edges(dtype)
    for op in ASKED:
        for name, inputs in {"l": ("x", "least"), "m": ("most", "x"), "n": ("least", "x")}.items():
            made = f"{op}{name}"
            model.graph.node.add().CopyFrom(onnx.helper.make_node(op, inputs, [made]))
            kind = onnx.helper.make_tensor_value_info(made, onnx.TensorProto.BOOL, [9])
            model.graph.output.add().CopyFrom(kind)
    found = convoy.Runner(convoy.compile(model)).run([x])
    wanted = ReferenceEvaluator(model).run(None, {"x": x})
    for value, got, want in zip(model.graph.output, found, wanted, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=value.name)


def function(dtype: str, value: Any, *, made: str = "compute") -> tirx.PrimFunc:
    x, y = (te.placeholder((8,), dtype, name) for name in "xy")
    return te.create_prim_func([x, y, te.compute((4,), lambda i: value(x, y, i), name=made)])


def places(of: tirx.PrimFunc) -> list[Any]:
    """All places where a function reads, and where it writes."""
    found: list[Any] = []
    structural_walk(of, ((TensorLoad, tirx.BufferStore), lambda node: found.extend(node.indices)))
    return found


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int64", lambda x, y, i: x[i * 2 + 1]),
        ("int64", lambda x, y, i: x[tirx.max(y[i], 0) + i * 2]),
        ("int64", lambda x, y, i: tirx.if_then_else(i + 1 < 3, x[i + 1], x[i])),
        ("int64", lambda x, y, i: tirx.Select(x[i] > 0, i * 3 + 2, i - 1)),
        ("int32", lambda x, y, i: tirx.Cast("int64", i) * 3 + 2),
        ("int8", lambda x, y, i: tirx.Cast("int32", x[i]) * tirx.Cast("int32", y[i])),
        ("bool", lambda x, y, i: tirx.Cast("int64", x[i]) + tirx.Cast("int64", y[i])),
        ("float32", lambda x, y, i: x[i] * y[i + 1] + x[i]),
    ],
)
def test_places_and_what_fits_stay_as_they_were(dtype: str, value: Any) -> None:
    before = function(dtype, value)
    assert wrap_around(before).same_as(before)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint32", "uint64"])
def test_only_what_is_computed_of_data_is_changed(dtype: str) -> None:
    before = function(dtype, lambda x, y, i: x[i * 2 + 1] * y[tirx.min(i + 3, 7)] + x[7 - i])
    after = wrap_around(before)
    assert not structural_equal(before, after)
    for old, new in zip(places(before), places(after), strict=True):
        assert str(old) == str(new)


@pytest.mark.parametrize(("dtype", "cuts"), [("int64", 1), ("uint32", 1), ("int8", 17)])
def test_a_sum_of_many_numbers_is_cut_once(dtype: str, cuts: int) -> None:
    """TVM takes twice the time for each cut within another; two bytes do not hold any number of bytes."""
    x = te.placeholder((18,), dtype, name="x")
    total = sum((x[i] for i in range(2, 10)), start=x[0] - x[1])
    total = sum((x[i] for i in range(11, 18)), start=total - x[10])
    wrapped = wrap_around(te.create_prim_func([x, te.compute((1,), lambda _: total, name="y")]))
    found: list[Any] = []
    structural_walk(wrapped.body, (tirx.BitwiseOr, found.append))
    assert len(found) == cuts


@pytest.mark.parametrize("depth", [20, 40])
def test_each_part_of_a_deep_expression_is_looked_at_once_or_twice(depth: int, monkeypatch) -> None:
    """A detector's lists of boxes are thousands of parts: to look at all below each took minutes."""
    looked_at: list[Any] = []
    find_large = wraps._Read._find_large

    def count(read: Any, expr: Any, bits: int) -> bool:
        looked_at.append(expr)
        return find_large(read, expr, bits)

    monkeypatch.setattr(wraps._Read, "_find_large", count)
    x = te.placeholder((4,), "int32", "x")

    def value(i: Any) -> Any:
        found = x[i]
        for number in range(depth):
            found = tirx.Select(x[number % 4] > 3, x[number % 4] - 5, found + 1)
        return found

    wrap_around(te.create_prim_func([x, te.compute((4,), value)]))
    assert 0 < len(looked_at) < 16 * depth


def test_sums_of_products_of_bytes_stay_as_they_were() -> None:
    a, b = (te.placeholder((4, 4), "int8", name) for name in "ab")
    k = te.reduce_axis((0, 4))

    def product(i: Any, j: Any) -> Any:
        return te.sum(a[i, k].astype("int32") * b[k, j].astype("int32"), k)

    before = te.create_prim_func([a, b, te.compute((4, 4), product)])
    assert wrap_around(before).same_as(before)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 13, 39, 40])
def test_a_power_that_fits_is_exact(exponent: int) -> None:
    text = f"""<ir_version: 9, opset_import: ["": 18]>
        g (int64[2] x, int64 e) => (int64[2] y, int64[2] z) <int64 known = {{{exponent}}}> {{
            y = Pow (x, e) z = Pow (x, known) }}"""
    found = convoy.Runner(convoy.compile(onnx.parser.parse_model(text))).run(
        [np.array([3, -3]), np.array(exponent)]
    )
    wanted = np.array([3, -3]) ** exponent
    for one in found:
        np.testing.assert_array_equal(one, wanted)


@pytest.mark.parametrize("given", [True, False])
def test_a_mean_fits_where_the_sum_does_not(given: bool) -> None:
    axes = "" if given else ", int64[1] axes"
    text = f"""<ir_version: 9, opset_import: ["": 18]>
        g (int32[2, 4] x{axes}) => (int32[2] y) {"<int64[1] axes = {1}>" if given else ""} {{
            y = ReduceMean <keepdims = 0> (x, axes) }}"""
    model = onnx.parser.parse_model(text)
    most = np.iinfo("int32").max
    x = np.array([[most, most - 2, most, most], [-most, -most, -5, -most]], "int32")
    inputs = {"x": x} if given else {"x": x, "axes": np.array([1])}
    found = np.asarray(convoy.Runner(convoy.compile(model)).run(list(inputs.values()))[0])
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    np.testing.assert_array_equal(found, wanted)
