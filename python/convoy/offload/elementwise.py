"""Elementwise ops that both doors call by the same name, and what each is in a graph."""

from __future__ import annotations

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
