"""Attention as Relay's ONNX frontend writes it, heads folded into the batch: one region, one node."""

from __future__ import annotations

import pytest
from relay_modules import Cut, compare, random, weight
from tvm import relay
from tvm.relay import op

from convoy.graph.ops import Attention
from convoy.graph.rewrite import simplify

H, N, D = 2, 5, 4


def heads(x: relay.Expr, batch: int, perm: tuple[int, ...] = (0, 2, 1, 3)) -> relay.Expr:
    split = op.transpose(op.reshape(x, (batch, N, H, D)), perm)
    return op.reshape(split, (batch * H, *((D, N) if perm[2] == 3 else (N, D))))


def block(x: relay.Expr, batch: int, axis: int = -1) -> relay.Expr:
    q, k, v = (op.nn.batch_matmul(x, weight(1, H * D, H * D, seed=i)) for i in range(3))
    q = op.multiply(heads(q, batch), relay.const(0.5))
    scores = op.nn.batch_matmul(q, heads(k, batch, (0, 2, 3, 1)), transpose_b=False)
    y = op.nn.batch_matmul(op.nn.softmax(scores, axis), heads(v, batch), transpose_b=False)
    return op.reshape(op.transpose(op.reshape(y, (batch, H, N, D)), (0, 2, 1, 3)), (batch, N, H * D))


@pytest.mark.parametrize("batch", [1, 3])
def test_heads_in_the_batch_are_one_attention(batch: int) -> None:
    cut = Cut(lambda x: block(x, batch), (batch, N, H * D))
    assert len(cut.functions) == 1
    nodes = simplify(cut.graph).nodes
    assert [type(node).__name__ for node in nodes].count("Attention") == 1
    (node,) = [node for node in nodes if isinstance(node, Attention)]
    assert node.scale == 0.5
    compare(cut, random(batch, N, H * D))


def test_a_softmax_over_queries_is_none() -> None:
    cut = Cut(lambda x: block(x, 1, axis=1), (1, N, H * D))
    assert not any(isinstance(node, Attention) for node in simplify(cut.graph).nodes)
    compare(cut, random(1, N, H * D))
