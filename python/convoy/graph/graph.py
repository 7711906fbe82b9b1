"""The ``Graph``: one region, in a form that knows nothing of TVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from convoy.graph.dtypes import DType
from convoy.graph.ops import Node, Tensor
from convoy.graph.sizes import Symbol, as_multiple, bind

Array = NDArray[Any]
"""An array of one of the dtypes of ``dtypes.ARRAYS``."""


@dataclass(frozen=True)
class OpenAxis:
    """An axis of an input whose length is so often a symbol: there a call says what its value is."""

    symbol: Symbol
    input: int
    axis: int
    times: int = 1


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in an order they can run in, of one image.

    A region is called with ``batch`` images; every input and output then has ``batch`` as
    its axis 0 while the graph's own tensors have 1 there, and the region runs once per image.
    ``batch`` is None where it is only known at run time.  A region in which axis 0 is not an
    image axis has batch 1 and whatever shapes it has.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    """Every tensor by name, constants too."""
    constants: Mapping[str, Array] = field(default_factory=dict)
    batch: int | None = 1

    def shape(self, name: str) -> tuple[int, ...]:
        return self.tensors[name].shape

    def dtype(self, name: str) -> DType:
        return self.tensors[name].dtype

    def scalar(self, name: str) -> float | None:
        """The value of a constant that holds one number."""
        constant = self.constants.get(name)
        return float(constant.reshape(-1)[0]) if constant is not None and constant.size == 1 else None

    @cached_property
    def open_axes(self) -> tuple[OpenAxis, ...]:
        """Where the sizes that are known at the call are read, each symbol once, by their names' order."""
        found: dict[Symbol, OpenAxis] = {}
        for i, name in enumerate(self.inputs):
            for axis, length in enumerate(self.shape(name)):
                symbol, times = as_multiple(length) or (None, 1)
                if symbol is not None and (symbol not in found or times < found[symbol].times):
                    found[symbol] = OpenAxis(symbol, i, axis, times)
        return tuple(sorted(found.values(), key=lambda at: (len(at.symbol.name), at.symbol.name)))

    @property
    def is_open(self) -> bool:
        """Are there sizes that are known at the call?"""
        return bool(self.open_axes)

    def bound(self, sizes: Mapping[Symbol, int]) -> Graph:
        """The same with numbers for sizes: these, and likely ones for the others."""
        return replace(
            self,
            nodes=tuple(bind(node, sizes) for node in self.nodes),
            tensors={name: bind(tensor, sizes) for name, tensor in self.tensors.items()},
        )

    @cached_property
    def likely(self) -> Graph:
        """The same with a likely number for each size that is known at the call: to decide by."""
        return self.bound({}) if self.is_open else self

    @cached_property
    def producer(self) -> Mapping[str, Node]:
        """The node that makes each tensor; inputs and constants have none."""
        return {node.output: node for node in self.nodes}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """The nodes that read each tensor, in running order, one entry per node."""
        found: dict[str, list[Node]] = {name: [] for name in self.tensors}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found.setdefault(name, []).append(node)  # ``verify`` says of a name that is no tensor's
        return {name: tuple(nodes) for name, nodes in found.items()}


def drop_unread(graph: Graph) -> Graph:
    """The graph without the nodes and constants from which no output is computed.  Inputs stay."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.output in needed:
            kept.append(node)
            needed.update(node.inputs)
    needed.update(graph.inputs)
    return replace(
        graph,
        nodes=tuple(reversed(kept)),
        tensors={name: t for name, t in graph.tensors.items() if name in needed},
        constants={name: c for name, c in graph.constants.items() if name in needed},
    )
