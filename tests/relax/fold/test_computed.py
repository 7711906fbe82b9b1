"""Constant expressions become literals; nothing else is shown to TVM's FoldConstant."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import convoy.relax
from convoy.relax.dataflow import read_array
from convoy.relax.fold.computed import compute_constants
from convoy.report.decision import Report
from relax.plain import UNOPTIMISED

X = (1, 4, 8, 8)


def const(*shape: int) -> relax.Expr:
    return relax.const(np.random.default_rng([*shape]).standard_normal(shape).astype(np.float32))


def module(make: Callable[..., relax.Expr], shape: tuple[object, ...] = X) -> tvm.IRModule:
    """``make(emit, x)`` returns the output."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(make(builder.emit, x))
        builder.emit_func_output(result)
    return builder.finalize()


def run(mod: tvm.IRModule, target: str | tvm.target.Target = UNOPTIMISED) -> np.ndarray:
    x = np.random.default_rng(0).standard_normal(X).astype(np.float32)
    machine = relax.VirtualMachine(tvm.compile(mod, target=target), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


def ops(mod: tvm.IRModule) -> list[str]:
    values = [binding.value for block in mod["main"].body.blocks for binding in block.bindings]
    return [str(value.op.name) for value in values if isinstance(value, relax.Call)]


def folded(mod: tvm.IRModule) -> tvm.IRModule:
    return compute_constants(mod, tvm.transform.PassContext.current())


def computed_weight(emit: Callable[..., relax.Expr]) -> relax.Expr:
    wide = emit(op.concat([emit(op.sin(const(8, 2, 3, 3))), const(8, 2, 3, 3)], 1))
    return emit(op.multiply(wide, emit(op.reshape(emit(op.exp(const(8))), (8, 1, 1, 1)))))


@pytest.mark.slow
def test_a_weight_that_is_computed_becomes_a_literal():
    # conv2d(x, concat(sin(c), c) * reshape(exp(c)))  =>  conv2d(x, c)
    before = module(lambda emit, x: emit(op.nn.conv2d(x, computed_weight(emit), padding=1)))
    after = convoy.relax.fold()(before)
    assert ops(after) == ["relax.nn.conv2d"]
    np.testing.assert_allclose(run(after), run(before), rtol=1e-5, atol=1e-5)


def test_fold_by_itself_computes_constants():
    # conv2d(x, astype(c))  =>  conv2d(x, c)
    def make(emit, x):
        half = emit(op.astype(const(8, 4, 3, 3), "float16"))
        return emit(op.nn.conv2d(x, emit(op.astype(half, "float32"))))

    assert ops(convoy.relax.fold()(module(make))) == ["relax.nn.conv2d"]


def test_a_scale_in_float64_stays_so():
    # conv2d(x, w) * (gamma / sqrt(variance + epsilon)), all literals: left to the fold, which is in float64
    w, gamma = const(8, 4, 3, 3), const(8, 1, 1)
    variance, epsilon = (relax.const(np.full((8, 1, 1), value, "float32")) for value in (3e-12, 1e-12))

    def make(emit, x):
        scale = emit(op.divide(gamma, emit(op.sqrt(emit(op.add(variance, epsilon))))))
        return emit(op.multiply(emit(op.nn.conv2d(x, w)), scale))

    before = module(make)
    assert folded(before).same_as(before)
    after = convoy.relax.fold()(before)["main"]
    (weight,) = [binding.value.args[1] for binding in after.body.blocks[0].bindings]
    wide = [read_array(value).astype(np.float64) for value in (gamma, variance, epsilon)]
    scale = wide[0] / np.sqrt(wide[1] + wide[2])
    np.testing.assert_allclose(read_array(weight), read_array(w) * scale.reshape(-1, 1, 1, 1), rtol=1e-7)


def test_a_weight_in_another_layout_becomes_a_literal():
    # conv2d(x, layout_transform(c))  =>  conv2d(x, c)
    def make(emit, x):
        turned = emit(op.layout_transform(const(3, 3, 4, 8), lambda h, w, i, o: (o, i, h, w)))
        return emit(op.nn.conv2d(x, turned))

    before = module(make)
    after = convoy.relax.fold()(before)
    assert ops(after) == ["relax.nn.conv2d"]
    np.testing.assert_allclose(run(after), run(before), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_an_item_of_a_constant_that_is_split_becomes_a_literal():
    # conv2d(x, exp(split(c)[1]))  =>  conv2d(x, c)
    def make(emit, x):
        second = emit(relax.TupleGetItem(emit(op.split(const(16, 4, 3, 3), 2)), 1))
        return emit(op.nn.conv2d(x, emit(op.exp(second))))

    before = module(make)
    after = folded(before)
    assert ops(after) == ["relax.nn.conv2d"]
    np.testing.assert_allclose(run(after), run(before), rtol=1e-5, atol=1e-5)


def test_what_reads_the_input_is_left():
    # conv2d(x, c) * exp(x), an open length in a reshape: no constant expression, the same module
    n = tvm.tirx.Var("n", "int64")

    def make(emit, x):
        y = emit(op.nn.conv2d(x, const(4, 4, 1, 1)))
        return emit(op.reshape(emit(op.multiply(y, emit(op.exp(x)))), (n, 256)))

    before = module(make, (n, *X[1:]))
    assert folded(before).same_as(before)


@pytest.mark.slow
def test_ops_that_tvm_cannot_legalize_do_not_end_the_compilation():
    # TVM's legalization of pixel_shuffle calls a function that does not exist (0.27)
    def make(emit, x):
        shuffled = emit(op.nn.pixel_shuffle(emit(op.nn.conv2d(x, computed_weight(emit), padding=1)), 2))
        return emit(op.nn.conv2d(shuffled, const(4, 2, 1, 1)))

    report = Report()
    with convoy.relax.using(report=report):
        result = run(module(make), "convoy")
    assert result.shape == (1, 4, 16, 16)
    assert len(report.regions) == 1
    assert not report.refusals
