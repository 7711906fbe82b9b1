"""Sizes, indices and masks that are computed several times are computed once; floats are left alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R

import convoy
from convoy.relax.share import share_counts


@I.ir_module
class Twice:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), at: R.Tensor(("n",), "int64")) -> R.Tensor(
        ("n", 8), "float32"
    ):
        with R.dataflow():
            one = R.add(at, R.const(1, "int64"))
            last = R.minimum(one, R.const(7, "int64"))
            first = R.take(x, last, axis=0, mode="clip")
            again = R.add(at, R.const(1, "int64"))
            least = R.minimum(again, R.const(7, "int64"))
            second = R.take(x, least, axis=0, mode="clip")
            both = R.add(first, second)
            R.output(both)
        return both


@I.ir_module
class Once:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), at: R.Tensor(("n",), "int64")) -> R.Tensor(
        ("n", 8), "float32"
    ):
        with R.dataflow():
            one = R.add(at, R.const(1, "int64"))
            last = R.minimum(one, R.const(7, "int64"))
            first = R.take(x, last, axis=0, mode="clip")
            second = R.take(x, last, axis=0, mode="clip")
            both = R.add(first, second)
            R.output(both)
        return both


def test_whole_numbers_are_computed_once_and_floats_stay() -> None:
    tvm.ir.assert_structural_equal(share_counts()(Twice), Once)


def test_a_node_that_is_named_stays() -> None:
    kept = share_counts({"again"})(Twice)
    assert kept.script().count("R.add(at,") == 2
    assert share_counts({"other"})(Twice).script().count("R.add(at,") == 1


@I.ir_module
class Embedded:
    @R.function
    def main(at: R.Tensor((4,), "int64")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            x = R.astype(at, "float32")
            y = R.astype(at, "float32")
            a = R.exp(x)
            b = R.exp(y)
            c = R.add(a, b)
            R.output(c)
        return c


def test_floats_that_come_of_counts_are_floats() -> None:
    kept = share_counts()(Embedded).script()
    assert kept.count("R.astype") == 1
    assert kept.count("R.exp") == 2


@I.ir_module
class Different:
    @R.function
    def main(x: R.Tensor((4,), "int8"), at: R.Tensor((4,), "int64")) -> R.Tuple(
        R.Tensor((4,), "int64"), R.Tensor((4,), "int64"), R.Tensor((4,), "int8"), R.Tensor((4,), "int8")
    ):
        with R.dataflow():
            a = R.add(at, R.const(1, "int64"))
            b = R.add(at, R.const(2, "int64"))  # another number
            c = R.add(x, R.const(1, "int8"))
            d = R.add(x, R.const(1, "int8"))  # the bytes of a quantised network
            made = (a, b, c, d)
            R.output(made)
        return made


def test_other_numbers_and_bytes_stay() -> None:
    tvm.ir.assert_structural_equal(share_counts()(Different), Different)


@I.ir_module
class Calls:
    @R.function
    def main(at: R.Tensor((4,), "int64")) -> R.Tuple(R.Tensor((4,), "int64"), R.Tensor((4,), "int64")):
        with R.dataflow():
            a = R.call_pure_packed("theirs", at, ty_args=R.Tensor((4,), "int64"))
            b = R.call_pure_packed("theirs", at, ty_args=R.Tensor((4,), "int64"))
            made = (a, b)
            R.output(made)
        return made


def test_calls_of_what_may_be_anything_stay() -> None:
    tvm.ir.assert_structural_equal(share_counts()(Calls), Calls)


@I.ir_module
class Blocks:
    @R.function
    def main(at: R.Tensor((4,), "int64"), take: R.Tensor((), "bool")) -> R.Tensor((4,), "int64"):
        with R.dataflow():
            a = R.add(at, R.const(1, "int64"))
            b = R.multiply(a, a)
            R.output(b)
        if take:
            with R.dataflow():
                c = R.add(at, R.const(1, "int64"))
                d = R.multiply(c, b)
                R.output(d)
            e = d
        else:
            e = b
        return e


def test_what_lies_in_another_block_or_branch_stays() -> None:
    tvm.ir.assert_structural_equal(share_counts()(Blocks), Blocks)


def test_functions_of_a_codegen_stay_as_they_are() -> None:
    marked = Twice.clone()
    marked.update_func(marked.get_global_var("main"), Twice["main"].with_attr("Codegen", "theirs"))
    tvm.ir.assert_structural_equal(share_counts()(marked), marked)


LAYERS = """(float[n, 8] x, int64[n] at) => (float[n, 8] z) {
    one = Constant<value_int = 1>() two = Constant<value_int = 2>()
    a = Add(at, one) b = Mod(a, two) y = Gather<axis = 0>(x, b)
    c = Add(at, one) d = Mod(c, two) w = Gather<axis = 0>(x, d)
    z = Mul(y, w)
}"""


@pytest.mark.slow
@pytest.mark.parametrize("exclude", [[], ["c"]])
def test_models_are_right_and_a_shared_node_can_be_excluded(exclude: list[str]) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> g {LAYERS}')
    for node in model.graph.node:
        node.name = node.output[0]
    built = convoy.compile(model, threads=1, exclude=exclude)
    x, at = np.random.default_rng(0).random((5, 8), np.float32), np.arange(5)
    y = x[(at + 1) % 2]
    np.testing.assert_allclose(convoy.Runner(built).run([x, at])[0], y * y, rtol=1e-6)


def kinds(module: IRModule) -> list[str]:
    return [
        str(b.value.op.name)
        for b in module["main"].body.blocks[0].bindings
        if isinstance(b.value, relax.Call)
    ]


def test_sizes_as_data_are_computed_once() -> None:
    builder = relax.BlockBuilder()
    sizes = relax.ShapeExpr([tvm.tirx.Var("n", "int64"), 4])
    x = relax.Var("x", relax.TensorType(sizes, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            a, b = (builder.emit(relax.op.shape_to_tensor(sizes)) for _ in range(2))
            made = builder.emit_output(relax.op.add(a, b))
        builder.emit_func_output(made)
    assert kinds(builder.get()).count("relax.shape_to_tensor") == 2
    assert kinds(share_counts()(builder.get())).count("relax.shape_to_tensor") == 1
