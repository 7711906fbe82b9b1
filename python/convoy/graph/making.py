"""A graph in the making: its tensors, constants and nodes, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy.errors import LoweringError
from convoy.graph.dtypes import BYTES, DType, dtype_of
from convoy.graph.graph import Graph
from convoy.graph.ops import Dequantize, Node, Quantize, Reshape, Tensor, Transpose

Array = NDArray[Any]


class Making:
    """What a graph has so far."""

    def __init__(self) -> None:
        self.origin = ""
        """Origin of the nodes that are made next."""
        self.nodes: list[Node] = []
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, Array] = {}

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Shape of one of the graph's tensors."""
        return self.tensors[name].shape

    def constant(self, array: Array) -> str:
        """Declare a constant, of the array's own type: nothing is rounded here.

        Raises
        ------
        LoweringError
            If no tensor of a graph can have that type.
        """
        dtype = dtype_of(array)
        if dtype is None:
            raise LoweringError(
                "lower",
                self.origin or "constant",
                f"expected a constant of {', '.join(BYTES)}, got {array.dtype}",
                "convert it where its rounding is meant",
            )
        name = self._declare(f"c{len(self.constants)}", array.shape, dtype)
        self.constants[name] = np.ascontiguousarray(array).reshape(array.shape)
        return name

    def node(
        self, op: type[Node], inputs: tuple[str, ...], shape: tuple[int, ...], **attributes: Any
    ) -> str:
        """Append a node; returns the name of its output.

        That has the type of the first operand, or what ``Quantize`` or ``Dequantize`` makes of it.
        """
        like = inputs[{Quantize: 2, Dequantize: 1}.get(op, 0)]
        name = self._declare(f"t{len(self.nodes)}", shape, self.tensors[like].dtype)
        self.nodes.append(op(inputs=inputs, output=name, origin=self.origin, **attributes))
        return name

    def reshape(self, data: str, shape: tuple[int, ...]) -> str:
        return self.node(Reshape, (data,), shape)

    def transpose(self, data: str, perm: tuple[int, ...]) -> str:
        """Axes in another order; no node where it is the same."""
        if perm == tuple(range(len(perm))):
            return data
        shape = self.shape_of(data)
        return self.node(Transpose, (data,), tuple(shape[axis] for axis in perm), perm=perm)

    def finish(self, inputs: tuple[str, ...], outputs: tuple[str, ...], batch: int | None) -> Graph:
        """The graph."""
        return Graph(inputs, outputs, tuple(self.nodes), self.tensors, self.constants, batch)

    def _declare(self, wish: str, shape: tuple[int, ...], dtype: DType) -> str:
        name, copies = wish, 0
        while name in self.tensors:
            copies += 1
            name = f"{wish}_{copies}"
        self.tensors[name] = Tensor(name, tuple(shape), dtype)
        return name
