"""raise_idioms, rewrite by rewrite: before => expected, and a twin that must not fire.

Each test builds ``before`` and ``expected`` as functions of Relax ops on the parameters and
compares the modules structurally; ``stays`` says that the pass must not change a module.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper, numpy_helper
from tvm import relax, tirx, topi
from tvm.relax.frontend.onnx import from_onnx

from convoy.relax.importer import load, raise_idioms

R = relax.op
Body = Callable[..., relax.Expr]
IMAGE = (1, 4, 6, 6)


def const(value: object) -> relax.Expr:
    return relax.const(np.asarray(value, "float32"))


def build(body: Body, *shapes: tuple[object, ...]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"x{i}", relax.TensorType(list(s), "float32")) for i, s in enumerate(shapes or (IMAGE,))
    ]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(body(*params)))
        builder.emit_func_output(result)
    tidy = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    return tvm.transform.Sequential(tidy)(builder.get())


def raises(before: Body, expected: Body, *shapes: tuple[object, ...]) -> None:
    tvm.ir.assert_structural_equal(raise_idioms()(build(before, *shapes)), build(expected, *shapes))


def stays(body: Body, *shapes: tuple[object, ...]) -> None:
    raises(body, body, *shapes)


# --- broadcasts -----------------------------------------------------------------------------


def test_a_broadcast_beside_the_whole_is_left_out() -> None:
    # x / broadcast_to(norm, shape of x)  =>  x / norm, as torch's normalize writes it
    n = tirx.Var("n", "int64")
    whole, narrow = (n, 4, 6), (n, 4, 1)

    def wide(y: relax.Expr) -> relax.Expr:
        return R.broadcast_to(y, relax.ShapeExpr(whole))

    raises(lambda x, y: R.divide(x, wide(y)), R.divide, whole, narrow)
    raises(lambda x, y: R.subtract(wide(y), x), lambda x, y: R.subtract(y, x), whole, narrow)
    stays(lambda x, y: R.divide(x, wide(y)), (1, 4, 6), narrow)  # the twin: here it makes the shape


# --- bounds ---------------------------------------------------------------------------------


def test_minimum_of_maximum_is_clip() -> None:
    # minimum(maximum(x, -1), 6)  =>  clip(x, -1, 6)
    raises(lambda x: R.minimum(R.maximum(x, const(-1)), const(6)), lambda x: R.clip(x, -1.0, 6.0))


def test_maximum_of_minimum_is_clip() -> None:
    # maximum(-1, minimum(6, x))  =>  clip(x, -1, 6)
    raises(lambda x: R.maximum(const(-1), R.minimum(const(6), x)), lambda x: R.clip(x, -1.0, 6.0))


def test_minimum_of_relu_is_clip() -> None:
    # minimum(relu(x), 6)  =>  clip(x, 0, 6), which is ReLU6
    raises(lambda x: R.minimum(R.nn.relu(x), const(6)), lambda x: R.clip(x, 0.0, 6.0))


def test_crossed_bounds_are_no_clip() -> None:
    # min(max(x, 3), 2) is 2 for every x, clip(x, 3, 2) is not defined
    stays(lambda x: R.minimum(R.maximum(x, const(3)), const(2)))


def test_bounds_per_channel_are_no_clip() -> None:
    channels = np.arange(4).reshape(4, 1, 1)
    stays(lambda x: R.minimum(R.maximum(x, const(channels)), const(6)))


def test_maximum_with_zero_is_relu() -> None:
    raises(lambda x: R.maximum(x, const(0)), R.nn.relu)


def test_maximum_with_one_is_no_relu() -> None:
    stays(lambda x: R.maximum(x, const(1)))


def test_scalar_that_adds_axes_is_no_bound() -> None:
    # the bound broadcasts x from rank 2 to rank 4
    stays(lambda x: R.maximum(x, const([[[[0]]]])), (3, 4))


def test_clip_without_an_upper_bound_is_relu() -> None:
    raises(lambda x: R.clip(x, 0, math.inf), R.nn.relu)


def test_clip_without_bounds_is_nothing() -> None:
    raises(lambda x: R.nn.relu(R.clip(x, -math.inf, math.inf)), R.nn.relu)


def test_clip_with_another_lower_bound_stays() -> None:
    stays(lambda x: R.clip(x, 1, math.inf))


# --- activations ----------------------------------------------------------------------------


@pytest.mark.parametrize("flip", [False, True])
def test_x_times_its_sigmoid_is_silu(flip: bool) -> None:
    raises(lambda x: R.multiply(R.sigmoid(x), x) if flip else R.multiply(x, R.sigmoid(x)), R.nn.silu)


def test_gate_of_another_tensor_is_no_silu() -> None:
    # y·sigmoid(x), as squeeze-and-excite has it
    stays(lambda x, y: R.multiply(y, R.sigmoid(x)), IMAGE, IMAGE)


def test_sigmoid_used_twice_still_stands() -> None:
    # x·sigmoid(x) + sigmoid(x): the product is raised, the gate stays for its other user
    def before(x: relax.Expr) -> relax.Expr:
        gate = R.sigmoid(x)
        return R.add(gate, R.multiply(x, gate))

    raises(before, lambda x: R.add(R.sigmoid(x), R.nn.silu(x)))


def erf_of(x: relax.Expr) -> relax.Expr:
    return R.erf(R.divide(x, const(math.sqrt(2))))


GELUS: dict[str, Body] = {
    "pytorch": lambda x: R.multiply(R.multiply(x, R.add(erf_of(x), const(1))), const(0.5)),
    "half first": lambda x: R.multiply(R.multiply(const(0.5), x), R.add(const(1), erf_of(x))),
    "half inside": lambda x: R.multiply(x, R.multiply(const(0.5), R.add(erf_of(x), const(1)))),
    "halved": lambda x: R.divide(R.multiply(R.add(erf_of(x), const(1)), x), const(2)),
    "scaled": lambda x: R.multiply(
        R.multiply(x, const(0.5)), R.add(R.erf(R.multiply(x, const(0.70710677))), const(1))
    ),
}


@pytest.mark.parametrize("form", GELUS)
def test_gelu_written_with_erf(form: str) -> None:
    # x·(1 + erf(x/√2))/2, in any order  =>  nn.gelu(x)
    raises(GELUS[form], R.nn.gelu)


def test_erf_of_another_scale_is_no_gelu() -> None:
    stays(lambda x: R.multiply(R.multiply(x, R.add(R.erf(R.divide(x, const(1.5))), const(1))), const(0.5)))


def test_erf_of_another_tensor_is_no_gelu() -> None:
    stays(lambda x, y: R.multiply(R.multiply(x, R.add(erf_of(y), const(1))), const(0.5)), IMAGE, IMAGE)


def tanh_gelu(x: relax.Expr, cube: relax.Expr, factor: float = 0.044715) -> relax.Expr:
    inside = R.multiply(const(math.sqrt(2 / math.pi)), R.add(x, R.multiply(const(factor), cube)))
    return R.multiply(R.multiply(const(0.5), x), R.add(const(1), R.tanh(inside)))


def test_gelu_written_with_tanh_and_a_power() -> None:
    raises(lambda x: tanh_gelu(x, R.power(x, const(3))), R.nn.gelu_tanh)


def test_gelu_written_with_tanh_and_products() -> None:
    raises(lambda x: tanh_gelu(x, R.multiply(x, R.multiply(x, x))), R.nn.gelu_tanh)


def test_tanh_with_another_cubic_is_no_gelu() -> None:
    stays(lambda x: tanh_gelu(x, R.power(x, const(3)), factor=0.05))


def gate(x: relax.Expr, a: float, b: float) -> relax.Expr:
    return R.clip(R.add(R.multiply(x, const(a)), const(b)), 0, 1)


def relu6_gate(x: relax.Expr) -> relax.Expr:
    return R.clip(R.add(x, const(3)), 0, 6)


def test_relu6_gate_over_six_is_hardsigmoid() -> None:
    # clip(x + 3, 0, 6)/6  =>  clip(x/6 + 1/2, 0, 1)
    raises(lambda x: R.divide(relu6_gate(x), const(6)), lambda x: gate(x, 1 / 6, 0.5))


def test_hardsigmoid_puts_numbers_second() -> None:
    # clip(1/2 + 0.2·x, 0, 1)  =>  clip(x·0.2 + 1/2, 0, 1)
    raises(
        lambda x: R.clip(R.add(const(0.5), R.multiply(const(0.2), x)), 0, 1),
        lambda x: gate(x, float(np.float32(0.2)), 0.5),
    )


def test_hardswish_in_all_orders() -> None:
    # x·clip(x + 3, 0, 6)/6  =>  x·clip(x/6 + 1/2, 0, 1)
    def expected(x: relax.Expr) -> relax.Expr:
        return R.multiply(x, gate(x, 1 / 6, 0.5))

    raises(lambda x: R.divide(R.multiply(x, relu6_gate(x)), const(6)), expected)
    raises(lambda x: R.multiply(x, R.divide(relu6_gate(x), const(6))), expected)


@pytest.mark.parametrize(("scale", "shift"), [(2.0, 1.0), (-0.5, 3.0), (3.0, 0.0), (1.0, 4.0)])
def test_hardswish_of_a_line_is_of_its_result(scale: float, shift: float) -> None:
    # y = s·x + t, y·clip(y/6 + 1/2, 0, 1)  =>  the same, and no clip of x
    def line(x: relax.Expr) -> relax.Expr:
        return R.add(R.multiply(x, const(scale)), const(shift))

    def written(x: relax.Expr) -> relax.Expr:
        y = line(x)
        return R.multiply(y, R.clip(R.add(R.divide(y, const(6)), const(0.5)), 0, 1))

    def expected(x: relax.Expr) -> relax.Expr:
        y = line(x)
        return R.multiply(y, gate(y, 1 / 6, 0.5))

    raises(written, expected)


def test_a_gate_beside_another_line_stays_as_it_is() -> None:
    # (0.001·x + 1000)·clip(0.3·x + 0.2, 0, 1): told from y the gate would be 300·y - 299,999.8
    def written(x: relax.Expr) -> relax.Expr:
        return R.multiply(R.add(R.multiply(x, const(0.001)), const(1000)), gate(x, 0.3, 0.2))

    stays(written)


def test_hardsigmoid_stays_as_it_is() -> None:
    stays(lambda x: gate(x, 0.25, 0.5))


def test_plain_clips_are_no_hardsigmoid() -> None:
    stays(lambda x: R.clip(x, 0, 1))
    stays(lambda x: R.clip(x, 0, 6))
    stays(lambda x: R.divide(relu6_gate(x), const(5)))


# --- many tensors ---------------------------------------------------------------------------


def stacked(*tensors: relax.Expr, axis: int = 0) -> relax.Expr:
    return R.stack([R.broadcast_to(t, IMAGE) for t in tensors], axis=axis)


def test_sum_of_stacked_tensors_is_adds() -> None:
    # sum(stack(a, b, c))  =>  a + b + c
    raises(
        lambda a, b, c: R.sum(stacked(a, b, c), axis=0), lambda a, b, c: R.add(R.add(a, b), c), *[IMAGE] * 3
    )


def test_sum_drops_broadcasts_that_add_does_by_itself() -> None:
    raises(lambda a, b: R.sum(stacked(a, b), axis=0), R.add, IMAGE, (1, 4, 1, 1))


def test_sum_keeps_the_broadcast_that_makes_the_shape() -> None:
    # neither has the full shape by itself: one of two is enough
    def full(t: relax.Expr) -> relax.Expr:
        return R.broadcast_to(t, IMAGE)

    raises(
        lambda a, b: R.sum(stacked(a, b), axis=0),
        lambda a, b: R.add(a, full(b)),
        (1, 4, 1, 1),
        (1, 4, 1, 1),
    )


def test_max_min_mean_of_stacked_tensors() -> None:
    raises(lambda a, b: R.max(stacked(a, b), axis=0), R.maximum, IMAGE, IMAGE)
    raises(lambda a, b: R.min(stacked(a, b), axis=0), R.minimum, IMAGE, IMAGE)
    raises(
        lambda a, b: R.mean(stacked(a, b), axis=0),
        lambda a, b: R.multiply(R.add(a, b), const(0.5)),
        IMAGE,
        IMAGE,
    )


def test_sum_over_another_axis_stays() -> None:
    stays(lambda a, b: R.sum(R.stack([a, b], axis=0), axis=1), IMAGE, IMAGE)
    stays(lambda a, b: R.sum(R.stack([a, b], axis=1), axis=0), IMAGE, IMAGE)
    stays(lambda a, b: R.sum(R.stack([a, b], axis=0), axis=0, keepdims=True), IMAGE, IMAGE)


def joined(*tensors: relax.Expr, axis: int) -> relax.Expr:
    """So torch's exporters write a stack."""
    return R.concat([R.expand_dims(t, axis) for t in tensors], axis=axis)


@pytest.mark.parametrize("axis", [1, -1])
def test_max_of_tensors_joined_on_an_axis_of_their_own(axis: int) -> None:
    # max(concat(a[..., None], b[..., None], axis=-1), axis=-1)  =>  maximum(a, b)
    raises(lambda a, b: R.max(joined(a, b, axis=axis), axis=axis), R.maximum, IMAGE, IMAGE)
    raises(lambda a, b: R.sum(R.stack([a, b], axis=axis), axis=axis), R.add, IMAGE, IMAGE)


def test_sum_of_tensors_that_are_one_long_where_they_are_joined() -> None:
    # sum(concat(a, b, axis=1), axis=1)  =>  squeeze(a, 1) + squeeze(b, 1)
    raises(
        lambda a, b: R.sum(R.concat([a, b], axis=1), axis=1),
        lambda a, b: R.add(R.squeeze(a, 1), R.squeeze(b, 1)),
        (2, 1, 7),
        (2, 1, 7),
    )


def test_a_reduced_concat_stays() -> None:
    stays(lambda a, b: R.max(R.concat([a, b], axis=1), axis=1), IMAGE, IMAGE)
    stays(lambda a, b: R.max(R.concat([a, b], axis=1), axis=2), (2, 1, 7), (2, 1, 7))


# --- constants and shapes -------------------------------------------------------------------


def test_bias_reshape_is_a_constant() -> None:
    # add(x, reshape(b, (1, 4, 1, 1)))  =>  add(x, b')
    bias = np.arange(4)
    raises(
        lambda x: R.add(x, R.reshape(const(bias), (1, 4, 1, 1))),
        lambda x: R.add(x, const(bias.reshape(1, 4, 1, 1))),
    )


def test_arithmetic_on_constants_is_done() -> None:
    def before(x: relax.Expr) -> relax.Expr:
        scale = R.divide(const([2.0]), R.sqrt(R.add(const([3.0]), const([1.0]))))
        return R.multiply(x, R.squeeze(scale, [0]))

    raises(before, lambda x: R.multiply(x, const(1.0)))


def test_constant_is_not_grown_by_a_broadcast() -> None:
    stays(lambda x: R.matmul(x, R.broadcast_to(const([[1.0]]), (1024, 2048))), (1, 1024))


def test_gemm_weight_is_transposed_once() -> None:
    # matmul(x, permute_dims(W))  =>  matmul(x, Wᵀ)
    weight = np.arange(12).reshape(3, 4)
    raises(
        lambda x: R.matmul(x, R.permute_dims(const(weight))), lambda x: R.matmul(x, const(weight.T)), (2, 4)
    )


def test_gemm_alpha_moves_into_the_weight() -> None:
    # matmul(x·2, W)  =>  matmul(x, 2·W)
    weight = np.arange(12).reshape(4, 3)
    raises(
        lambda x: R.matmul(R.multiply(x, const(2)), const(weight)),
        lambda x: R.matmul(x, const(2 * weight)),
        (2, 4),
    )


def test_scale_per_column_stays_on_the_activations() -> None:
    weight = np.arange(12).reshape(4, 3)
    stays(lambda x: R.matmul(R.multiply(x, const(range(4))), const(weight)), (2, 4))


def test_reshape_to_the_same_shape_is_nothing() -> None:
    raises(lambda x: R.nn.relu(R.reshape(x, IMAGE)), R.nn.relu)


def test_reshape_of_a_reshape_is_one() -> None:
    raises(lambda x: R.reshape(R.reshape(x, (4, 36)), (2, 72)), lambda x: R.reshape(x, (2, 72)))


def test_reshape_of_an_open_batch_to_itself_is_nothing() -> None:
    n = tirx.Var("n", "int64")
    raises(lambda x: R.nn.relu(R.reshape(x, (n, 4))), R.nn.relu, (n, 4))


def test_transposes_that_do_something_stay() -> None:
    stays(lambda x: R.permute_dims(x, [0, 2, 3, 1]))
    raises(lambda x: R.nn.relu(R.permute_dims(x, [0, 1, 2, 3])), R.nn.relu)


def test_shape_arithmetic_is_a_reshape() -> None:
    # reshape(x, concat(take(shape_of(x), [0]), [-1 as a number]))  =>  reshape(x, (1, 144))
    def before(x: relax.Expr) -> relax.Expr:
        shape = R.shape_to_tensor(R.shape_of(x))
        first = R.take(shape, relax.const([0], "int64"), axis=0)
        target = R.concat([first, relax.const([144], "int64")], axis=0)
        return R.reshape(x, R.tensor_to_shape(target))

    raises(before, lambda x: R.reshape(x, (1, 144)))


def test_dynamic_slice_with_constant_bounds_is_strided_slice() -> None:
    bounds = [relax.const(v, "int64") for v in ([0, 1, 0, 0], [1, 3, 6, 6], [1, 1, 1, 1])]
    module = raise_idioms()(build(lambda x: R.dynamic_strided_slice(x, *bounds)))
    (binding,) = module["main"].body.blocks[0].bindings
    assert binding.value.op.name == "relax.strided_slice"
    assert [int(d) for d in binding.var.ty.shape.values] == [1, 2, 6, 6]


def test_dropout_is_nothing() -> None:
    raises(lambda x: R.nn.relu(relax.TupleGetItem(R.nn.dropout(x, 0.5), 0)), R.nn.relu)


def test_mask_of_dropout_stays() -> None:
    stays(lambda x: relax.TupleGetItem(R.nn.dropout(x, 0.5), 1))


# --- loops of TVM's own frontend -------------------------------------------------------------


def with_loop(
    operation: Callable[..., object], *arguments: object, shape: tuple[object, ...] = IMAGE
) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x0", relax.TensorType(list(shape), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.emit_te(operation, x, *arguments))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("batch", [1, "n"])
def test_loop_that_pads_is_pad(batch: int | str) -> None:
    n = tirx.Var("n", "int64") if batch == "n" else batch
    module = with_loop(topi.nn.pad, [0, 0, 1, 2], [0, 0, 3, 0], 1.5, shape=(n, 4, 6, 6))
    expected = build(lambda x: R.nn.pad(x, [0, 0, 0, 0, 1, 3, 2, 0], "constant", 1.5), (n, 4, 6, 6))
    tvm.ir.assert_structural_equal(raise_idioms()(module), expected, map_free_vars=True)


def test_loop_that_mirrors_is_no_pad() -> None:
    module = with_loop(topi.nn.mirror_pad, [0, 0, 1, 1], [0, 0, 1, 1], "REFLECT")
    after = raise_idioms()(module)
    assert len(after.get_global_vars()) == 2  # main and the loop


def test_loop_with_another_body_is_no_bound() -> None:
    # named maximum, but it doubles the bound
    def maximum(x: object, bound: float) -> object:
        return topi.maximum(x, topi.multiply(x, bound))

    after = raise_idioms()(with_loop(maximum, 2.0))
    assert len(after.get_global_vars()) == 2


@pytest.mark.filterwarnings("ignore:Field 'shape'")  # the checker on outputs without a shape
@pytest.mark.parametrize("opset", [9, 13])
def test_clip_as_tvms_frontend_writes_it(make_model, opset: int) -> None:
    # isnan, where, call_tir(maximum), call_tir(minimum)  =>  clip
    if opset == 9:
        model = make_model(
            [helper.make_node("Clip", ["x"], ["y"], min=0.0, max=6.0)], {"x": IMAGE}, opset=9
        )
    else:
        bounds = {"low": np.float32(0), "high": np.float32(6)}
        model = make_model([helper.make_node("Clip", ["x", "low", "high"], ["y"])], {"x": IMAGE}, bounds)
    before = from_onnx(model)
    assert len(before.get_global_vars()) == 3
    after = raise_idioms()(before)
    assert len(after.get_global_vars()) == 1
    (binding,) = after["main"].body.blocks[0].bindings
    assert binding.value.op.name == "relax.clip"


def test_functions_of_other_codegens_are_left_alone() -> None:
    module = build(lambda x: R.maximum(x, const(0)))
    module["main"] = module["main"].with_attr("Codegen", "someone")
    assert raise_idioms()(module)["main"].body.blocks[0].bindings[0].value.op.name == "relax.maximum"


def test_attributes_of_module_and_function_survive() -> None:
    module = build(lambda x: R.maximum(x, const(0))).with_attr("origin", "a test")
    module["main"] = module["main"].with_attr("num_input", 1)
    after = raise_idioms()(module)
    assert after.attrs["origin"] == "a test"
    assert after["main"].attrs["num_input"] == 1


def test_module_given_is_left_unchanged() -> None:
    module = build(lambda x: R.maximum(x, const(0)))
    before = module.script()
    raise_idioms()(module)
    assert module.script() == before


def test_nested_functions_and_branches_are_raised_too() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(IMAGE, "float32"))
    flag = relax.Var("flag", relax.TensorType((), "bool"))
    with builder.function("main", [x, flag]):
        yes = relax.SeqExpr([], R.maximum(x, const(0)))
        no = relax.SeqExpr([], R.negative(x))
        result = builder.emit(relax.If(flag, yes, no))
        builder.emit_func_output(result)
    script = raise_idioms()(builder.get()).script()
    assert "R.nn.relu" in script
    assert "R.maximum" not in script


# --- lookups --------------------------------------------------------------------------------

TABLE = np.arange(12, dtype="float32").reshape(4, 3)


def one_hot(x: relax.Expr, numbers: list[int], *, dtype: str = "int32", turned: bool = False) -> relax.Expr:
    listed = relax.const(np.array(numbers, dtype).reshape(1, 1, -1))
    index = x if dtype == "float32" else R.astype(x, dtype)
    equal = R.equal(listed, index) if turned else R.equal(index, listed)
    return R.astype(equal, "float32")


@pytest.mark.parametrize("turned", [False, True])
def test_a_product_of_one_hot_rows_is_a_lookup(turned: bool) -> None:
    def before(x: relax.Expr) -> relax.Expr:
        return R.matmul(one_hot(x, [0, 1, 2, 3], turned=turned), relax.const(TABLE))

    def expected(x: relax.Expr) -> relax.Expr:
        at = R.astype(R.squeeze(R.astype(x, "int32"), [2]), "int64")
        end = relax.const(4, "int64")
        inside = R.logical_and(R.greater_equal(at, relax.const(0, "int64")), R.less(at, end))
        table = relax.const(np.concatenate([TABLE, np.zeros((1, 3), "float32")]))
        return R.take(table, R.where(inside, at, end), axis=0, mode="clip")

    raises(before, expected, (tirx.Var("n", "int64"), 5, 1))


@pytest.mark.parametrize(
    ("numbers", "dtype", "table", "last"),
    [
        ([0, 1, 3, 2], "int32", TABLE, 1),
        ([0, 1, 2, 3], "float32", TABLE, 1),
        ([0, 1, 2, 3], "int32", np.where(TABLE == 5, np.inf, TABLE).astype("float32"), 1),
        ([0, 1, 2, 3], "int32", TABLE, 4),
    ],
)
def test_other_products_of_ones_stay(numbers: list[int], dtype: str, table: np.ndarray, last: int) -> None:
    stays(lambda x: R.matmul(one_hot(x, numbers, dtype=dtype), relax.const(table)), (2, 5, last))


def test_a_number_without_a_row_picks_zeros(run_tvm, run_onnx) -> None:
    nodes = [
        helper.make_node("Equal", ["i", "all"], ["e"]),
        helper.make_node("Cast", ["e"], ["ones"], to=1),
        helper.make_node("MatMul", ["ones", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("i", onnx.TensorProto.INT32, ["n", 1])],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(np.arange(4, dtype="int32"), "all"), numpy_helper.from_array(TABLE, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    numbers = np.array([[0], [3], [4], [-1], [2**31 - 1]], "int32")
    module = load(model)
    assert "take" in str(module["main"])
    np.testing.assert_array_equal(run_tvm(module, numbers)[0], run_onnx(model, numbers)[0])
