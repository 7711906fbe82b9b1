"""Elementwise ops that both doors call by the same name, and what each is in a graph."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

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


def is_leaky(slopes: NDArray[Any]) -> bool:
    """Are the slopes of a PReLU one number, as a leaky ReLU has it?"""
    return bool((slopes == slopes.reshape(-1)[0]).all())
