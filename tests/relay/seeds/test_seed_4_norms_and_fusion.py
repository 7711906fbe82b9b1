"""Seed 4: layer norm against batch norm under FuseOps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay import transform

import convoy.relay
from convoy.graph.rewrite import simplify
from convoy.relay.dataflow import Dataflow, op_name
from convoy.relay.fold import fold
from convoy.relay.lower import lower
from convoy.relay.partition import external_functions, partition
from convoy.report.decision import Report
from relay.relay_modules import random, run, run_plain, weight

nn = relay.nn


def linspace(n: int) -> relay.Constant:
    return relay.const(np.linspace(0.5, 1.5, n).astype(np.float32))


def matmul_layer_norm_relu(x: relay.Expr) -> relay.Expr:
    return nn.relu(nn.layer_norm(nn.dense(x, weight(24, 16)), linspace(24), linspace(24)))


def conv_batch_norm_relu(x: relay.Expr) -> relay.Expr:
    conv = nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1), channels=4, kernel_size=(3, 3))
    return nn.relu(nn.batch_norm(conv, *(linspace(4) for _ in range(4)))[0])


CASES = {
    "layer norm": (matmul_layer_norm_relu, (8, 16)),
    "batch norm": (conv_batch_norm_relu, (1, 4, 8, 8)),
}


def module(make: Callable[[relay.Expr], relay.Expr], shape: tuple[int, ...]) -> tvm.IRModule:
    x = relay.var("x0", shape=shape)
    return transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], make(x))))


def test_fuse_ops_alone_fails() -> None:
    # the error of the question: TVM says how a batch norm fuses, and forgot the layer norm
    transform.FuseOps(2)(module(*CASES["batch norm"]))
    with pytest.raises(Exception, match="TOpPattern"):
        transform.FuseOps(2)(module(*CASES["layer norm"]))


@pytest.mark.parametrize("name", CASES)
def test_after_the_fold_everything_fuses(name: str) -> None:
    folded = fold()(module(*CASES[name]))
    ops = {op_name(call) for call in Dataflow(folded["main"].body).calls}
    assert ops.isdisjoint({"nn.layer_norm", "nn.batch_norm"})
    transform.FuseOps(2)(folded)


@pytest.mark.parametrize("name", CASES)
def test_convoy_computes_it(name: str) -> None:
    before, report = module(*CASES[name]), Report()
    with convoy.relay.using(report=report):
        library = relay.build(before, target="convoy")
    assert report.flops_share == 1, report.refusals
    shape = CASES[name][1]
    (got,), (want,) = run(library, random(*shape)), run_plain(before, random(*shape))
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


def test_the_layer_norm_is_one_kernel_again() -> None:
    # what the fold wrote out in ops is read as the one op it was
    folded = fold()(module(*CASES["layer norm"]))
    (region,) = external_functions(partition(folded)).values()
    kinds = [type(node).__name__ for node in simplify(lower(region)).nodes]
    assert kinds == ["MatMul", "LayerNorm", "Unary"]
