"""Arithmetic on open sizes is done while a model is imported: no int64 tensor is computed when it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, tirx

import convoy
from convoy.errors import ConvoyError, ModelError
from convoy.relax.importer import load
from convoy.relax.importer.sizes import Algebra, fold_node, known_array, known_numbers
from convoy.relax.importer.sizes.algebra import Ratio

h, w = (tirx.Var(name, "int64") for name in "hw")
node = helper.make_node


@pytest.fixture
def algebra() -> Algebra:
    made = Algebra()
    made.bind([h, w])
    return made


def test_a_product_of_sizes_divides(algebra: Algebra) -> None:
    # the -1 of a Reshape
    assert algebra.same(algebra.share([1, 64, h, w], [64, 1]), h * w)
    assert algebra.same(algebra.share([h, 12, w, 64], [h * 12, 64]), w)
    assert algebra.share([4, 6], [3]) == 8
    assert algebra.share([4, 6], [5]) is None


def test_a_shape_fits_its_data_where_quotients_are_rounded_down(algebra: Algebra) -> None:
    # the length after a convolution of 8 by steps of 8, as torch writes it: (h - 8) / 8 + 1
    written = algebra.add(algebra.divide(algebra.subtract(h, 8), 8), 1)
    length = algebra.simplify(tirx.floordiv(h - 8, 8) + 1)
    assert not algebra.same(written, length)  # of h = 4 they are 1 and 0
    first, *rest = algebra.fit([w, algebra.multiply(written, written), 3], [w, 3, length, length])
    assert (first, rest[-1]) == (w, 3)
    assert algebra.same(rest[0], algebra.multiply(length, length))
    assert algebra.share([w, length, 128], [w, written, 32]) == 4
    assert algebra.fit([w, written], [w, h]) == [w, written]  # the twin: another count either way


def test_a_quotient_is_a_whole_number_where_it_always_is(algebra: Algebra) -> None:
    doubled = algebra.multiply(Ratio(h, 1), 2.0)
    assert algebra.same(algebra.round_down(doubled), h * 2)
    assert algebra.same(algebra.divide(algebra.multiply(h, 4), 2), h * 2)
    half = algebra.multiply(Ratio(h, 1), 0.5)
    assert algebra.same(algebra.round_down(half), tirx.floordiv(h, 2))
    assert algebra.same(algebra.round_up(half), tirx.floordiv(h + 1, 2))
    assert algebra.cut_off(half) is not None


def test_the_larger_of_two_ratios_is_one(algebra: Algebra) -> None:
    # the padding of SAME, as exporters write it in floats: max((⌈h / 2⌉ - 1) · 2 + 3 - h, 0)
    rows = algebra.round_up(algebra.divide(Ratio(h, 1), 2.0))
    missing = algebra.subtract(algebra.add(algebra.multiply(Ratio(rows, 1), 2.0), 1.0), Ratio(h, 1))
    total = algebra.most(missing, 0.0)
    assert algebra.same(algebra.cut_off(total), tirx.floordiv(h + 1, 2) * 2 + 1 - h)
    half = algebra.divide(total, 2.0)
    assert algebra.same(algebra.cut_off(algebra.most(half, 2.0)), 2)
    assert algebra.most(Ratio(h, 1), float(np.float32(0.7))) is None  # the twin: float32 rounds that


def test_what_float32_would_round_is_left_to_a_run(algebra: Algebra) -> None:
    # 10 · 0.7 is 7 in float32, and less by the fraction that 0.7 is there
    assert algebra.multiply(Ratio(h, 1), float(np.float32(0.7))) is None


def test_a_comparison_is_known_only_if_it_always_holds(algebra: Algebra) -> None:
    assert algebra.compare("Equal", h, -1) is False
    assert algebra.compare("GreaterOrEqual", h, 1) is True
    assert algebra.compare("Equal", h, 1) is None
    assert algebra.compare("Less", h, w) is None


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "expected"),
    [
        ("Gather", [[1, 3, h, w], [2, -1]], {}, [h, w]),
        ("Slice", [[1, 3, h, w], [-2], [2**63 - 1]], {}, [h, w]),
        ("Slice", [[1, 3, h, w], [-1], [-5], [0], [-1]], {}, [w, h, 3, 1]),
        ("Concat", [[1, 2], [h]], {"axis": 0}, [1, 2, h]),
        ("Unsqueeze", [[h], [0]], {}, [[h]]),
        ("Cast", [[h]], {"to": TensorProto.INT32}, [h]),
        ("Mul", [[h, w], [2]], {}, [h * 2, w * 2]),
        ("Div", [[h], [2]], {}, [tirx.floordiv(h, 2)]),
        ("Sub", [[h], [h]], {}, [0]),
        ("Max", [[h], [1]], {}, [h]),
        ("Clip", [[h, 5, w], [1], [4]], {}, [tirx.min(h, 4), 4, tirx.min(w, 4)]),
        ("Clip", [[h]], {"min": -2}, [h]),
        ("ReduceProd", [[h, w, 2]], {"keepdims": 0}, h * w * 2),
        ("Expand", [[h], [3]], {}, [h, h, h]),
        ("Flatten", [[h, w]], {"axis": 0}, [h, w]),
        ("Transpose", [[h, w]], {}, [h, w]),
        ("OneHot", [[1], [3], [1, h]], {}, [[1, h, 1]]),
        ("OneHot", [[-1, 7], [2], [0, h]], {"axis": 0}, [[0, 0], [h, 0]]),
        ("Tile", [[h, 2], [2]], {}, [h, 2, h, 2]),
        ("Sum", [[h], [w], [2]], {}, [h + w + 2]),
        ("GatherElements", [[1, h, w], [-1, 1]], {}, [w, h]),
        ("ScatterElements", [[1, h, 5], [-1], [w]], {}, [1, h, w]),
        ("ScatterElements", [[1, h, 5], [0], [w]], {"reduction": b"none"}, [w, h, 5]),
        ("CumSum", [[h, w, 2], [0]], {}, [h, h + w, h + w + 2]),
        ("CumSum", [[h, w, 2], [0]], {"exclusive": 1, "reverse": 1}, [w + 2, 2, 0]),
    ],
)
def test_ops_on_sizes(
    op: str, inputs: Sequence[object], attributes: dict[str, object], expected: object, algebra: Algebra
) -> None:
    given = [known_numbers(list(i), (len(i),), "int64") for i in inputs]  # type: ignore[call-overload]
    (made,) = fold_node(op, attributes, given, 1, algebra) or [None]
    assert made is not None
    wanted = np.array(expected, object) if isinstance(expected, list) else np.array([expected], object)
    for found, right in zip(made.elements.flat, wanted.flat, strict=True):
        assert algebra.same(found, right)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Gather", [[1, h], [2]], {}),
        ("Slice", [[1, h], [0], [h]], {}),
        ("Concat", [[1], [h]], {"axis": 3}),
        ("Div", [[h], [0]], {}),
        ("Equal", [[h], [1]], {}),
        ("Where", [[h], [1], [2]], {}),
        ("Reshape", [[1, h], [3]], {}),
        ("Erf", [[h]], {}),
        ("ReduceSum", [[1, h], [7]], {}),
        ("OneHot", [[h], [3], [1, w]], {}),
        ("OneHot", [[1], [h], [1, w]], {}),
        ("OneHot", [[1], [0], [1, w]], {}),
        ("Tile", [[h], [600]], {}),
        ("Tile", [[h], [w]], {}),
        ("GatherElements", [[1, h], [2]], {}),
        ("ScatterElements", [[1, h], [1], [w]], {"reduction": b"add"}),
        ("CumSum", [[1, h], [1]], {}),
    ],
)
def test_what_no_arithmetic_says_is_left(
    op: str, inputs: Sequence[object], attributes: dict[str, object], algebra: Algebra
) -> None:
    given = [known_numbers(list(i), (len(i),), "int64") for i in inputs]  # type: ignore[call-overload]
    assert fold_node(op, attributes, given, 1, algebra) is None


def test_rows_of_sizes_are_turned(algebra: Algebra) -> None:
    # PyTorch's exporter turns the widths of a Pad so, which it has in pairs
    pairs = known_numbers([1, h, 2, w], (2, 2), "int64")
    (made,) = fold_node("Transpose", {"perm": [1, 0]}, [pairs], 1, algebra) or []
    assert [str(e) for e in made.elements.flat] == ["1", "2", "h", "w"]


def test_a_size_takes_the_place_of_another(algebra: Algebra) -> None:
    # shape[2], shape[0] = w, h
    places = known_numbers([2, 0], (2, 1), "int64")
    given = [known_numbers([1, 3, 5], (3,), "int64"), places, known_numbers([w, h], (2,), "int64")]
    (made,) = fold_node("ScatterND", {}, given, 1, algebra) or []
    assert [str(e) for e in made.elements.flat] == ["h", "3", "w"]
    assert fold_node("ScatterND", {"reduction": b"mul"}, given, 1, algebra) is None


def test_repeats_of_an_open_batch_stay_related(count_ops, run_tvm, run_onnx, rng) -> None:
    # torch.repeat_interleave(q, windows // batch, dim=0), as PyTorch writes it
    text = """network (float[n, 1, 4] q, float[n, 8] x) => (float[a, b] y) {
        windows = Reshape(x, pairs)
        shape = Shape(windows)
        many = Gather(shape, zero)
        images = Shape(q)
        few = Gather(images, zero)
        each = Div(many, few)
        times = Concat<axis = 0>(one, each)
        hot = OneHot(one, four, times)
        flat = Reshape(hot, all)
        apart = Unsqueeze(q, one)
        tiled = Tile(apart, flat)
        joined = Reshape(tiled, rows)
        y = Mul(joined, windows)
    }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    model.graph.output[0].type.tensor_type.ClearField("shape")
    constants = {"pairs": [-1, 4], "zero": [0], "one": [1], "four": [4], "all": [-1], "rows": [-1, 4]}
    model.graph.initializer.extend(numpy_helper.from_array(np.array(v), n) for n, v in constants.items())
    module = load(model)
    ops = count_ops(module)
    assert not {"arange", "equal"} & set(ops)
    assert ops["tensor_to_shape"] == ops["call_tir"] == 1  # of the check that there is an image
    batch = module["main"].params[0].ty.shape.values[0]
    assert Algebra().same(module["main"].ret_ty.shape.values[0], batch * 2)
    for images in (1, 3):
        q, x = (rng.standard_normal(shape).astype("float32") for shape in ((images, 1, 4), (images, 8)))
        np.testing.assert_allclose(run_tvm(module, q, x)[0], run_onnx(model, q, x)[0], rtol=1e-6)


def test_what_is_missing_to_a_multiple(algebra: Algebra) -> None:
    missing = algebra.modulo(algebra.subtract(8, algebra.modulo(h, 8)), 8)
    whole = algebra.add(h, missing)
    assert str(whole) == "(h + T.int64(7)) // T.int64(8) * T.int64(8)"  # and no division by -8
    assert algebra.same(algebra.multiply(algebra.divide_whole(whole, 4), 4), whole)
    assert algebra.widest(missing) == 7
    half = algebra.divide_whole(missing, 2)
    assert algebra.same(algebra.add(algebra.add(h, half), algebra.subtract(missing, half)), whole)


RESTS = [
    (tirx.floormod(h, 4), 3),
    (h - tirx.floordiv(h, 2) * 2, 1),
    (tirx.floordiv(h + 1, 2) - tirx.floordiv(h, 2) + 2, 3),
    (tirx.floordiv(h + 3, 8) - tirx.floordiv(h + 7, 8) + 1, 1),
    (-tirx.floormod(h, 4), None),
    (h, None),
]


@pytest.mark.parametrize(("value", "most"), [(3, 3), (-1, None), *RESTS])
def test_the_most_that_a_rest_is(value: Any, most: int | None, algebra: Algebra) -> None:
    assert algebra.widest(value) == most


def test_a_shape_and_a_tensor_without_elements_are_joined(algebra: Algebra) -> None:
    parts = [known_numbers([h, w], (2,), "int64"), known_array(np.zeros(0, np.int64))]
    made = fold_node("Concat", {"axis": 0}, parts, 1, algebra)
    assert made is not None
    assert made[0].elements.shape == (2,)


def heads(batch: object, length: object) -> onnx.ModelProto:
    """x [B, T, 24] as heads [B, T, 3, 8] -> [B, 3, T, 8] -> [B·3, T, 8], by shapes an exporter computes."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["b"]),
        node("Gather", ["s", "one"], ["t"]),
        node("Unsqueeze", ["b", "axes"], ["b1"]),
        node("Unsqueeze", ["t", "axes"], ["t1"]),
        node("Concat", ["b1", "t1", "heads", "size"], ["apart"], axis=0),
        node("Reshape", ["x", "apart"], ["a"]),
        node("Transpose", ["a"], ["p"], perm=[0, 2, 1, 3]),
        node("Mul", ["b", "three"], ["b3"]),
        node("Unsqueeze", ["b3", "axes"], ["b31"]),
        node("Concat", ["b31", "t1", "size"], ["joined"], axis=0),
        node("Reshape", ["p", "joined"], ["j"]),
        node("Cast", ["t"], ["tf"], to=TensorProto.FLOAT),
        node("Div", ["j", "tf"], ["y"]),
    ]
    constants = {"zero": 0, "one": 1, "three": 3, "axes": [0], "heads": [3], "size": [8]}
    graph = helper.make_graph(
        nodes,
        "heads",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, length, 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_shapes_stay_related(count_ops, run_tvm, run_onnx, rng) -> None:
    module = load(heads("B", "T"))
    ops = count_ops(module)
    assert not ops["take"]
    assert not ops["concat"]
    dims = module["main"].ret_ty.shape.values
    batch, length, _ = module["main"].params[0].ty.shape.values
    assert Algebra().same(dims[0], batch * 3)
    assert Algebra().same(dims[1], length)
    for shape in ((1, 5, 24), (3, 7, 24)):
        x = rng.standard_normal(shape).astype("float32")
        np.testing.assert_allclose(run_tvm(module, x)[0], run_onnx(heads("B", "T"), x)[0], rtol=1e-6)


@pytest.mark.parametrize(("to", "expected"), [(TensorProto.INT64, 6), (TensorProto.FLOAT, 7)])
def test_whole_numbers_and_floats_divide_as_they_do(to: int, expected: int, algebra: Algebra) -> None:
    # 7 // 2 * 2 = 6, and 7 / 2 * 2 = 7
    seven, two = (
        fold_node("Cast", {"to": to}, [known_numbers([n], (1,), "int64")], 1, algebra) for n in (7, 2)
    )
    half = fold_node("Div", {}, [*(seven or ()), *(two or ())], 1, algebra)
    whole = fold_node("Mul", {}, [*(half or ()), *(two or ())], 1, algebra)
    made = fold_node("Cast", {"to": TensorProto.INT64}, whole or [], 1, algebra)
    assert made is not None
    assert made[0].elements.tolist() == [expected]


def test_known_shapes_are_constants(count_ops) -> None:
    assert not count_ops(load(heads(2, 5)))["shape_to_tensor"]


@pytest.mark.parametrize("target", [[-1, -1], [-2, 3], [0, 0, 0, 0, 0]])
def test_a_target_that_is_none_is_one_line(target: list[int], make_model) -> None:
    model = make_model(
        [node("Reshape", ["x", "to"], ["y"])], {"x": ["n", 4, "h"]}, {"to": np.array(target)}
    )
    with pytest.raises(ModelError, match=r"Reshape.*expected .*, got \[") as raised:
        load(model)
    assert "\n" not in str(raised.value)


def test_unknown_shapes_get_symbols_of_their_own(make_model, run_tvm, run_onnx) -> None:
    # how many there are is known when it runs; the Reshape after it needs a shape
    nodes = [
        node("NonZero", ["x"], ["at"]),
        node("Cast", ["at"], ["f"], to=TensorProto.FLOAT),
        node("Reshape", ["f", "flat"], ["y"]),
    ]
    model = make_model(nodes, {"x": ["n", 4]}, {"flat": np.array([-1])})
    module = load(model)
    assert isinstance(module["main"].ret_ty, relax.TensorType)
    x = np.array([[0, 1, 0, 2], [3, 0, 0, 0]], np.float32)
    np.testing.assert_array_equal(run_tvm(module, x)[0], run_onnx(model, x)[0])


def test_a_number_is_its_own_remainder_of_a_larger_one(algebra: Algebra) -> None:
    # torch.roll by 3 writes 3 % h
    assert algebra.modulo(3, h + 3) == 3
    assert str(algebra.modulo(h, h + w)) == "h"
    assert str(algebra.modulo(3, h + 2)) == "T.int64(3) % (h + T.int64(2))"  # the twin


def test_a_size_that_a_run_finds_may_be_none_of_what_is_compared() -> None:
    # of it no call is checked to have elements, as of those of inputs
    algebra = Algebra()
    (found,) = algebra.new_sizes(1)
    algebra.bind([h])
    half = algebra.divide(found, 2)
    assert algebra.compare("Greater", found, half) is None
    assert algebra.compare("Equal", found, algebra.divide(found, 7)) is None
    assert algebra.at_least(found, half)
    grown = algebra.add(found, algebra.modulo(found, 2))
    assert isinstance(algebra.most(grown, 2), tirx.Max)
    assert algebra.compare("Greater", h, algebra.divide(h, 2)) is True  # the twin
    assert list(algebra.filled) == [(h,)]


def test_what_would_be_another_size_of_none_is_not_chosen(algebra: Algebra) -> None:
    left = algebra.subtract(algebra.subtract(h, algebra.divide(h, 3)), 1)  # of a size of 0 it is -1
    algebra.filled.clear()
    assert isinstance(algebra.most(left, 0), tirx.Max)
    assert isinstance(algebra.least(left, 0), tirx.Min)
    assert not algebra.filled
    assert algebra.same(algebra.most(algebra.add(left, 1), 0), algebra.add(left, 1))  # the twin
    assert not algebra.filled
    assert algebra.at_least(left, 0)
    assert list(algebra.filled) == [(h,)]
    assert algebra.same(algebra.most(left, 0), left)  # no call gets there with a size of 0 now


@pytest.mark.parametrize("divide", [tirx.floordiv, tirx.floormod])
def test_a_size_that_others_are_divided_by_is_not_taken_for_none(divide, algebra: Algebra) -> None:
    # BigBird's blocks of 4: of a size of 0, TVM's arithmetic raises an error
    blocks = algebra.divide(h, 4)
    assert algebra.compare("GreaterOrEqual", 1, h * 4 // blocks) is False
    assert list(algebra.filled) == [(h,)]
    assert algebra.compare("GreaterOrEqual", 1, divide(h + 3, blocks) + 2) is False
    assert algebra.compare("GreaterOrEqual", 5, divide(h, blocks)) is None  # the twin


def test_a_remainder_that_is_not_found_asks_for_no_elements(algebra: Algebra) -> None:
    before = algebra.subtract(h, 1)
    assert isinstance(algebra.modulo(before, 8), tirx.FloorMod)
    assert isinstance(algebra.modulo(algebra.multiply(h, 7), 8), tirx.FloorMod)
    assert not algebra.filled
    assert str(algebra.modulo(before, h)) == str(before)  # the twin: of h = 0 it is none
    assert list(algebra.filled) == [(h,)]


def test_what_is_not_asked_for_is_not_concluded(algebra: Algebra) -> None:
    # of a size of 0, twice of it is 1 at most
    assert not algebra.at_least(1, algebra.multiply(h, 2))
    assert not algebra.filled
    assert algebra.compare("GreaterOrEqual", 1, algebra.multiply(h, 2)) is False  # the twin
    assert list(algebra.filled) == [(h,)]


def test_what_is_doubled_and_added_to_may_be_none(run_onnx) -> None:
    nodes = [node("Concat", ["x", "x"], ["twice"], axis=1), node("Add", ["twice", "twice"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "twice",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "h"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    run = convoy.load(convoy.compile(model)).run
    for length in (0, 1, 3):
        x = np.arange(2 * length, dtype="float32").reshape(2, length)
        np.testing.assert_array_equal(run([x])[0], run_onnx(model, x)[0])


def test_one_of_several_sizes_has_to_be_there_where_any_of_them_would_do(algebra: Algebra) -> None:
    assert algebra.least(h + w, 1) == 1
    assert list(algebra.filled) == [(h, w)]
    algebra.filled.clear()
    assert algebra.compare("GreaterOrEqual", algebra.multiply(h, w), 1) is True  # the twin: each has to
    assert list(algebra.filled) == [(h,), (w,)]


def test_the_last_row_of_what_is_joined_is_there_where_one_of_both_is(run_onnx) -> None:
    # as of a cache, which is empty before the first token
    graph = helper.make_graph(
        [node("Concat", ["x", "z"], ["all"], axis=1), node("Slice", ["all", "last", "end", "one"], ["y"])],
        "last",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, name]) for name in "xz"],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.array([n]), name)
            for name, n in (("last", -1), ("end", 99), ("one", 1))
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    run = convoy.load(convoy.compile(model)).run
    for sizes in ((0, 2), (3, 0), (1, 1)):
        arrays = [np.arange(2 * size, dtype="float32").reshape(2, size) for size in sizes]
        np.testing.assert_array_equal(run(arrays)[0], run_onnx(model, *arrays)[0])
    with pytest.raises(ConvoyError, match="x \\+ z is less than 1; give larger inputs"):
        run([np.zeros((2, 0), "float32")] * 2)
