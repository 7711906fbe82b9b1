"""What messages call a node, and the error of a rule that it breaks."""

from __future__ import annotations

import re

from convoy.errors import GraphError
from convoy.graph.ops import Binary, Node, Pool2d, Unary


def op_name(node: Node) -> str:
    """The op as the field spells it: ``conv2d``, ``avg_pool2d``, ``relu``, ``channel_shuffle``."""
    match node:
        case Unary(kind=kind) | Binary(kind=kind):
            return kind
        case Pool2d(kind=kind):
            return f"{kind}_pool2d"
    name = type(node).__name__.replace("MatMul", "Matmul")
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def describe(node: Node) -> str:
    """The op, the tensor it makes and where it came from, e.g. ``conv2d %7 (conv1)``."""
    origin = f" ({node.origin})" if node.origin else ""
    return f"{op_name(node)} %{node.output}{origin}"


def origins(node: Node) -> tuple[str, ...]:
    """The op of the model that it was made from, where that is known."""
    return (node.origin,) if node.origin else ()


def require(rule: bool, node: Node, expected: str, got: object, remedy: str) -> None:
    """Hold ``node`` to a rule.

    Raises
    ------
    GraphError
        Naming the node, if ``rule`` is false.
    """
    if not rule:
        raise GraphError("verify", describe(node), f"expected {expected}, got {got}", remedy)
