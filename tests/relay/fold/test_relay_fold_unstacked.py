"""What TVM's passes combine is offloaded where its parts would be."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay import transform

import convoy.relay
from convoy.relay.dataflow import Dataflow, op_name
from convoy.relay.fold import fold
from convoy.report.decision import Report
from relay.relay_modules import module, random, run, run_plain, weight

nn = relay.nn
Make = Callable[[relay.Expr], relay.Expr]


def dense(x: relay.Expr) -> relay.Expr:
    made = [nn.relu(nn.dense(x, weight(8, 64, seed=s)) + weight(8, seed=s)) for s in (1, 2, 3)]
    return relay.concatenate([*made[:2], relay.tanh(made[2])], axis=1)


def conv(x: relay.Expr) -> relay.Expr:
    made = [nn.conv2d(x, weight(8, 4, 3, 3, seed=s), channels=8, kernel_size=(3, 3)) for s in (1, 2, 3)]
    return relay.concatenate([nn.relu(y + weight(8, 1, 1, seed=s)) for s, y in enumerate(made)], axis=1)


def products(x: relay.Expr) -> relay.Expr:
    made = [nn.relu(nn.batch_matmul(x, weight(1, 48, 64, seed=s))) for s in (1, 2, 3)]
    return relay.concatenate(made, axis=2)


CASES: dict[str, tuple[Make, tuple[int, ...], tvm.ir.transform.Pass, str]] = {
    "CombineParallelDense": (dense, (4, 64), transform.CombineParallelDense(3, True), "nn.batch_matmul"),
    "one row": (dense, (1, 64), transform.CombineParallelDense(3, True), "nn.batch_matmul"),
    "to_batch=False": (dense, (4, 64), transform.CombineParallelDense(3, False), "strided_slice"),
    "CombineParallelConv2D": (conv, (1, 4, 8, 8), transform.CombineParallelConv2D(3), "strided_slice"),
    "CombineParallelBatchMatmul": (
        products, (1, 40, 64), transform.CombineParallelBatchMatmul(3), "strided_slice"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_combined_ops_are_offloaded_as_their_parts_would_be(name: str) -> None:
    make, shape, combine, op = CASES[name]
    before = module(make, shape)
    with tvm.transform.PassContext(opt_level=4):
        combined = transform.InferType()(combine(before))
    assert op in [op_name(call) for call in Dataflow(combined["main"].body).calls]
    report = Report()
    with convoy.relay.using(report=report):
        got = run(relay.build(combined, "convoy"), random(*shape))[0]
    assert not report.refusals
    want = run_plain(before, random(*shape))[0]
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


def test_a_batch_matmul_of_other_pieces_stays() -> None:
    # its weights are no literals, or its pieces are read together
    def pieces(x: relay.Expr, w: relay.Expr) -> relay.Expr:
        y = nn.batch_matmul(relay.stack([x, x], 0), relay.stack([w, w], 0))
        return relay.squeeze(relay.split(y, 2, 0)[0], [0])

    def together(x: relay.Expr) -> relay.Expr:
        return nn.relu(nn.batch_matmul(relay.stack([x, x], 0), weight(2, 8, 64)))

    for before in (module(pieces, (4, 64), (8, 64)), module(together, (4, 64))):
        found = [op_name(call) for call in Dataflow(fold()(before)["main"].body).calls]
        assert "nn.batch_matmul" in found
        assert "nn.dense" not in found
