"""Seed 3: TVM's passes still work on a module that holds Convoy functions, and leave these alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay import transform

from convoy.relay import no_touch
from convoy.relay.dataflow import Dataflow, op_name
from convoy.relay.no_touch import marked_functions
from convoy.relay.partition import partition
from relay.relay_modules import const, random, run, weight

IMAGE = (1, 4, 8, 8)
nn = relay.nn


def conv(x: relay.Expr, channels: int, seed: int = 0) -> relay.Expr:
    return nn.conv2d(x, weight(channels, 4, 1, 1, seed=seed), channels=channels, kernel_size=(1, 1))


def scale_after(x: relay.Expr) -> relay.Expr:
    return conv(x, 4) * const(np.linspace(1, 2, 4).reshape(4, 1, 1))


def scale_before(x: relay.Expr) -> relay.Expr:
    return conv(x * const(np.linspace(1, 2, 4).reshape(4, 1, 1)), 4)


def parallel_convs(x: relay.Expr) -> relay.Expr:
    return relay.concatenate([nn.relu(conv(x, 4, seed)) for seed in (1, 2, 3)], axis=1)


def parallel_dense(x: relay.Expr) -> relay.Expr:
    flat = nn.batch_flatten(x)
    return relay.concatenate([nn.dense(flat, weight(8, 256, seed=seed)) for seed in (1, 2, 3)], axis=1)


def host_and_region(on_host: Callable[[relay.Expr], relay.Expr]) -> tvm.IRModule:
    """conv → relu as a Convoy function, and ``on_host`` of its result in main."""
    x = relay.var("x0", shape=IMAGE)
    region = nn.relu(nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1), channels=4, kernel_size=(3, 3)))
    cut = partition(transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], region))))
    main = cut["main"]
    cut["main"] = relay.Function(main.params, on_host(main.body))
    return transform.InferType()(cut)


def host_ops(module: tvm.IRModule) -> list[str]:
    return [op_name(call).removeprefix("nn.") for call in Dataflow(module["main"].body).calls]


CASES = {
    "FoldScaleAxis, backward": (scale_after, transform.BackwardFoldScaleAxis, ["conv2d"]),
    "FoldScaleAxis, forward": (scale_before, transform.ForwardFoldScaleAxis, ["conv2d"]),
    "CombineParallelConv2D": (parallel_convs, transform.CombineParallelConv2D, ["conv2d", "relu"]),
    "CombineParallelDense": (
        parallel_dense,
        lambda: transform.CombineParallelDense(to_batch=False),
        ["batch_flatten", "dense"],
    ),
}
"""What is on the host, the pass, and the ops that compute there afterwards."""
COMPUTING = {"conv2d", "relu", "multiply", "dense", "batch_flatten"}


@pytest.mark.parametrize("name", CASES)
def test_the_pass_works_on_the_host(name: str) -> None:
    on_host, make_pass, expected = CASES[name]
    before = host_and_region(on_host)
    after = transform.FoldConstant()(transform.InferType()(make_pass()(before)))
    assert [op for op in host_ops(after) if op in COMPUTING] == expected
    (was,), (now,) = marked_functions(before).values(), marked_functions(after).values()
    tvm.ir.assert_structural_equal(now, was)
    (got,), (want,) = run(build(after), random(*IMAGE)), run(build(before), random(*IMAGE))
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("guarded", [False, True])
def test_inline_and_remove_unused_functions(guarded: bool) -> None:
    # a helper of the host is inlined and removed, a dead one is removed; what Convoy computes stays. TVM's
    # PartitionGraph marks external functions Inline: unguarded, they are written where they are called
    before = host_and_region(relay.tanh)
    (function,) = marked_functions(before).values()
    helper, dead = relay.GlobalVar("helper"), relay.GlobalVar("dead")
    x = relay.var("x", shape=IMAGE)
    body = relay.Function([x], relay.exp(x), relay.TensorType(IMAGE, "float32"))
    before[helper] = body.with_attr("Inline", tvm.tir.IntImm("int32", 1))
    before[dead] = body
    main = before["main"]
    before["main"] = relay.Function(main.params, relay.Call(helper, [main.body]))
    inline, remove = transform.Inline(), transform.RemoveUnusedFunctions()
    before = transform.InferType()(before)
    after = transform.InferType()(no_touch([inline, remove])(before) if guarded else remove(inline(before)))
    assert host_ops(after) == ["tanh", "exp"]
    assert len(after.get_global_vars()) == (2 if guarded else 1)
    (same,) = marked_functions(after).values()
    tvm.ir.assert_structural_equal(same, function)
    (got,) = run(build(after), random(*IMAGE))
    (want,) = run(build(host_and_region(lambda y: relay.exp(relay.tanh(y)))), random(*IMAGE))
    assert np.abs(got - want).max() <= 1e-6 * np.abs(want).max()


def build(module: tvm.IRModule) -> object:
    with tvm.transform.PassContext(opt_level=1):
        return relay.build(module, target="llvm")
