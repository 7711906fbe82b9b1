"""Build a ``Graph`` tensor by tensor, in terms of Relax expressions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from convoy.errors import LoweringError
from convoy.graph import Graph, Node, Tensor
from convoy.relax.dataflow import dims


class Builder:
    """The graph of one region while it grows.

    ``reading`` is how the region reads axis 0, see ``patterns.readings``: with ``lifted`` every
    tensor has an axis of length 1 in front, with ``images`` axis 0 is 1 instead of their number.
    """

    def __init__(self, reading: str) -> None:
        self.reading = reading
        self.lift = 1 if reading == "lifted" else 0
        """What to add to an axis of Relax to get that of the graph."""
        self.origin = ""
        """Of the nodes that are made next."""
        self.nodes: list[Node] = []
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, NDArray[np.float32]] = {}

    def shape(self, of: relax.Expr | relax.Type) -> tuple[int, ...]:
        """Shape in the graph of a tensor of the region.

        Raises
        ------
        LoweringError  if it is not static beside the images
        """
        lengths = dims(of)
        rest = (lengths or ())[1:] if self.reading == "images" else lengths
        if lengths is None or rest is None or any(not isinstance(d, int) for d in rest):
            raise LoweringError(
                "lower",
                self.origin or "input",
                f"expected a static shape beside axis 0, got {of.ty if isinstance(of, relax.Expr) else of}",
                "fix it with --shape",
            )
        static = tuple(d for d in rest if isinstance(d, int))
        return static if self.reading == "flat" else (1, *static)

    def input(self, name: str, shape: tuple[int, ...]) -> str:
        """Declare an input."""
        return self._declare(name, shape)

    def constant(self, array: NDArray[Any]) -> str:
        """Declare a constant."""
        name = self._declare(f"c{len(self.constants)}", array.shape)
        self.constants[name] = np.ascontiguousarray(array, dtype=np.float32).reshape(array.shape)
        return name

    def node(
        self, op: type[Node], inputs: tuple[str, ...], shape: tuple[int, ...], **attributes: Any
    ) -> str:
        """Append a node; returns the name of its output."""
        name = self._declare(f"t{len(self.nodes)}", shape)
        self.nodes.append(op(inputs=inputs, output=name, origin=self.origin, **attributes))
        return name

    def finish(self, inputs: tuple[str, ...], outputs: tuple[str, ...], batch: int | None) -> Graph:
        """The graph."""
        return Graph(inputs, outputs, tuple(self.nodes), self.tensors, self.constants, batch)

    def _declare(self, wish: str, shape: tuple[int, ...]) -> str:
        name, copies = wish, 0
        while name in self.tensors:
            copies += 1
            name = f"{wish}_{copies}"
        self.tensors[name] = Tensor(name, tuple(shape))
        return name
