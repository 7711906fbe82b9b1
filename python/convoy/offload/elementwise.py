"""Elementwise ops that both doors call by the same name, and what each is in a graph."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.graph.ops import BinaryKind, UnaryKind

UNARY: dict[str, UnaryKind] = {
    "nn.relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "exp": "exp", "log": "log", "sqrt": "sqrt",
    "rsqrt": "rsqrt", "abs": "abs", "negative": "neg", "erf": "erf", "round": "round", "floor": "floor",
    "ceil": "ceil",
}  # fmt: skip

BINARY: dict[str, BinaryKind] = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "maximum": "max",
    "minimum": "min", "power": "pow",
}  # fmt: skip


def kind_of(op: str) -> str:
    """What the op of this name is in a graph; empty for one that is not elementwise."""
    return UNARY.get(op) or BINARY.get(op) or ""


def is_per_channel(operand: Sequence[object], result: Sequence[object], channel: int) -> bool:
    """Is an operand one number for each index of axis ``channel``, such as [C, 1, 1] to [N, C, H, W]?"""
    if len(operand) > len(result):
        return False
    padded = (1,) * (len(result) - len(operand)) + tuple(operand)
    return all(length == (result[i] if i == channel else 1) for i, length in enumerate(padded))
