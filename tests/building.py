"""Build graphs for tests, one op a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.graph import Graph, Tensor
from convoy.graph.ops import Node, Product
from convoy.graph.shapes import infer_shape
from convoy.graph.views import View, product_views, view_whole


class Builder:
    """``b = Builder([1, 3, 8, 8]); y = b.add(Conv2d, "x0", b.weight(4, 3, 3, 3)); g = b.graph(y)``.

    Inputs are named x0, x1, …; weights are seeded and random.
    """

    def __init__(self, *inputs: Sequence[int], batch: int | None = 1, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.batch = batch
        self.tensors: dict[str, Tensor] = {}
        self.constants: dict[str, np.ndarray[Any, np.dtype[np.float32]]] = {}
        self.nodes: list[Node] = []
        self.inputs = tuple(f"x{i}" for i in range(len(inputs)))
        for name, shape in zip(self.inputs, inputs, strict=True):
            self.tensors[name] = Tensor(name, tuple(shape))

    def weight(self, *shape: int) -> str:
        """A random constant, scaled by the fan-in."""
        fan_in = max(1, int(np.prod(shape[1:])))
        return self.constant(self.random.standard_normal(shape) / np.sqrt(fan_in))

    def constant(self, value: Any) -> str:
        array = np.asarray(value, np.float32)
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        self.tensors[name] = Tensor(name, array.shape)
        return name

    def add(
        self, op: type[Node], *inputs: str, shape: Sequence[int] | None = None, **attributes: Any
    ) -> str:
        """Append a node; ``shape`` is needed where the inputs do not say it.  Returns its output."""
        output = f"t{len(self.nodes)}"
        node = op(inputs=inputs, output=output, **attributes)
        shapes = {name: self.tensors[name].shape for name in inputs}
        if shape is not None:
            shapes[output] = tuple(shape)
        self.tensors[output] = Tensor(output, infer_shape(node, shapes))
        self.nodes.append(node)
        return output

    def graph(self, *outputs: str) -> Graph:
        return Graph(self.inputs, outputs, tuple(self.nodes), self.tensors, self.constants, self.batch)

    def arrays(self, images: int = 1) -> list[np.ndarray[Any, np.dtype[np.float32]]]:
        """Random values for the inputs."""
        found = []
        for name in self.inputs:
            shape = self.tensors[name].shape
            shape = (images, *shape[1:]) if images > 1 else shape
            found.append(self.random.standard_normal(shape).astype(np.float32))
        return found


def multiply(b: Builder, x: str, y: str, **given: Any) -> str:
    """Append the product of two tensors, as NumPy multiplies them; ``given`` replaces attributes."""
    left, right, made = views_of_product(b.tensors[x].shape, b.tensors[y].shape)
    return b.add(Product, x, y, shape=made.shape, **{"a": left, "b": right, "y": made, **given})


def views_of_product(x: Sequence[int], y: Sequence[int]) -> tuple[View, View, View]:
    """Views a, b and y of a ``Product`` of two tensors of these shapes."""
    return product_views(view_whole(tuple(x)), view_whole(tuple(y)))
