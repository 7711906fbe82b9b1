"""What is known of an op of TVM by its name alone: one row an op, whichever TVM has it.

A row says what patterns call an activation, what an elementwise op is in a graph, what it costs, what it
does to axis 0, and how layouts go through it.  Folds, both doors and what they share read the rows.  How an
op is checked and lowered are functions of TVM's calls, which the doors' tables have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from convoy.graph.ops import BinaryKind, UnaryKind

Cost = Literal[
    "elementwise", "in place", "move", "reduction", "window", "convolution", "transposed", "product",
    "attention",
]  # fmt: skip
"""What counts its FLOPs and bytes (``offload/work.py``); ``in place`` keeps elements where they are."""

AxisZero = Literal["keeps", "axes", "norm axes", "axis", "permutation", "widths", "slices"]
"""By which of its attributes it moves, cuts or mixes what lies along axis 0, if at all."""


@dataclass(frozen=True)
class OpRow:
    """One op."""

    relax: str = ""
    relay: str = ""
    """Its names; empty where that TVM has no such op, or Convoy has no use for it there."""
    unary: UnaryKind | None = None
    binary: BinaryKind | None = None
    """What it is in a graph, if it is nothing but that."""
    activation: str = ""
    """What patterns call it where it joins a kernel."""
    cost: Cost = "elementwise"
    axis_zero: AxisZero = "keeps"
    one_operand: bool = False
    """It computes each element from one other: a layout goes through as it is."""

    @property
    def names(self) -> set[str]:
        return {self.relax, self.relay} - {""}


def _unary(name: str, kind: UnaryKind, activation: str = "") -> OpRow:
    return OpRow(name, name, unary=kind, activation=activation, one_operand=True)


def _relax_unary(name: str, kind: UnaryKind | None = None, activation: str = "") -> OpRow:
    return OpRow(name, unary=kind, activation=activation, one_operand=True)


def _both(name: str, cost: Cost, axis_zero: AxisZero = "keeps") -> OpRow:
    return OpRow(name, name, cost=cost, axis_zero=axis_zero)


REDUCTIONS = ("mean", "sum", "max", "min")
"""Those that are one node of a graph."""

ROWS: tuple[OpRow, ...] = (
    _unary("nn.relu", "relu", "relu"),
    _unary("sigmoid", "sigmoid", "sigmoid"),
    _unary("tanh", "tanh", "tanh"),
    _unary("exp", "exp"),
    _unary("log", "log"),
    _unary("sqrt", "sqrt"),
    _unary("rsqrt", "rsqrt"),
    _unary("abs", "abs"),
    _unary("negative", "neg"),
    _unary("erf", "erf"),
    _unary("round", "round"),
    _unary("floor", "floor"),
    _unary("ceil", "ceil"),
    _relax_unary("nn.silu", "silu", "silu"),
    _relax_unary("nn.gelu", "gelu", "gelu"),
    _relax_unary("nn.gelu_tanh", "gelu_tanh", "gelu_tanh"),
    _relax_unary("square", "square"),
    _relax_unary("nn.relu6", activation="relu6"),
    _relax_unary("nn.softplus"),
    _relax_unary("nn.selu"),
    _relax_unary("sign"),
    _relax_unary("astype"),
    OpRow("clip", "clip", activation="clip", one_operand=True),
    OpRow("nn.leakyrelu", "nn.leaky_relu", activation="leaky_relu", one_operand=True),
    OpRow("nn.prelu", "nn.prelu", activation="prelu", axis_zero="axis"),
    OpRow("add", "add", binary="add"),
    OpRow("subtract", "subtract", binary="sub"),
    OpRow("multiply", "multiply", binary="mul"),
    OpRow("divide", "divide", binary="div"),
    OpRow("maximum", "maximum", binary="max"),
    OpRow("minimum", "minimum", binary="min"),
    OpRow("power", "power", binary="pow"),
    OpRow(relay="nn.bias_add", axis_zero="axis"),
    *(_both(f"nn.conv{n}d", "convolution") for n in (1, 2, 3)),
    *(_both(f"nn.conv{n}d_transpose", "transposed") for n in (1, 2, 3)),
    OpRow("matmul", "nn.matmul", cost="product"),
    OpRow(relay="nn.dense", cost="product"),
    OpRow(relay="nn.batch_matmul", cost="product"),
    OpRow("nn.attention", cost="attention"),
    OpRow("nn.attention_bias", cost="attention"),
    *(_both(f"nn.{kind}_pool{n}d", "window") for kind in ("max", "avg") for n in (1, 2, 3)),
    *(_both(name, "reduction", "axes") for name in (*REDUCTIONS, "variance")),
    _both("nn.adaptive_avg_pool2d", "reduction"),
    OpRow(relay="nn.global_avg_pool2d", cost="reduction"),
    OpRow(relay="nn.global_max_pool2d", cost="reduction"),
    _both("nn.layer_norm", "elementwise", "norm axes"),
    _both("nn.batch_norm", "elementwise", "axis"),
    _both("nn.softmax", "elementwise", "axis"),
    _both("nn.log_softmax", "elementwise", "axis"),
    _both("reshape", "in place"),
    _both("squeeze", "in place"),
    _both("expand_dims", "in place"),
    _both("nn.batch_flatten", "in place"),
    OpRow("flatten", cost="in place"),
    OpRow(relay="copy", cost="in place"),
    OpRow(relay="annotation.stop_fusion", cost="in place"),
    _both("nn.dropout", "in place"),
    OpRow("permute_dims", "transpose", cost="move", axis_zero="permutation"),
    OpRow(relay="layout_transform", cost="move", axis_zero="permutation"),
    OpRow("concat", "concatenate", cost="move", axis_zero="axis"),
    _both("split", "move", "axis"),
    _both("strided_slice", "move", "slices"),
    _both("nn.pad", "move", "widths"),
    OpRow("nn.pixel_shuffle", "nn.depth_to_space", cost="move"),
    *(_both(name, "move") for name in ("shape_of", "take", "broadcast_to", "stack", "tile", "repeat")),
)
"""An op without a row is taken for an elementwise one that leaves axis 0 alone."""

OF: dict[str, OpRow] = {name: row for row in ROWS for name in row.names}
"""The row of each name; the two TVMs call no two ops alike."""

RELAX: dict[str, OpRow] = {row.relax: row for row in ROWS if row.relax}
RELAY: dict[str, OpRow] = {row.relay: row for row in ROWS if row.relay}
UNKNOWN = OpRow()


def row_of(name: str) -> OpRow:
    """The row of an op, or ``UNKNOWN``."""
    return OF.get(name, UNKNOWN)


def kind_of(name: str) -> str:
    """What an elementwise op is in a graph; empty for any other op."""
    row = row_of(name)
    return row.unary or row.binary or ""


def elementwise(rows: Mapping[str, OpRow]) -> list[str]:
    """The names of ops that are one elementwise node of a graph, whatever their operands and attributes."""
    return [name for name, row in rows.items() if row.unary or row.binary]


def activations(rows: Mapping[str, OpRow]) -> dict[str, str]:
    """What patterns call the ops that join a kernel, by their names."""
    return {name: row.activation for name, row in rows.items() if row.activation}


def of_cost(rows: Mapping[str, OpRow], *costs: Cost) -> tuple[str, ...]:
    """The names of the ops of these costs."""
    return tuple(name for name, row in rows.items() if row.cost in costs)


def reshapes(rows: Mapping[str, OpRow]) -> tuple[str, ...]:
    """The names of ops that keep the elements in their order, in another shape."""
    return tuple(name for name in of_cost(rows, "in place") if name != "nn.dropout")
