"""What a kernel does to its sums before it stores them."""

from __future__ import annotations

from convoy.graph.ops import Curve, Unary
from convoy.kernels.values import Values
from convoy.plan.buffers import Operand
from convoy.plan.fuse import Fusion
from convoy.plan.step import IDENTITY, Activation, Epilogue


def make_activation(node: Unary | Curve | None) -> Activation:
    """The epilogue form of a unary node or a curve; relu is a clamp without upper bound."""
    if node is None:
        return IDENTITY
    if node.kind == "relu":
        return Activation("clip", 0.0, float("inf"))
    return Activation(node.kind, node.a, node.b)


def make_epilogue(fusion: Fusion, channels: int, residual: Operand | None, values: Values) -> Epilogue:
    bias = values.vector(fusion.bias, channels, 4 * values.lanes)
    return Epilogue(bias, make_activation(fusion.inner), residual, make_activation(fusion.outer))
