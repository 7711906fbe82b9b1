"""A graph while it is drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from convoy.graph import Graph, Node, Tensor
from convoy.graph.graph import Array
from convoy.graph.shapes import infer_shape

CHANNELS = (1, 2, 3, 5, 8, 12, 16, 17, 24, 32, 33, 40)
SIZES = (1, 2, 3, 5, 7, 8, 11, 14, 16, 19)
LARGEST = 20_000
"""Elements of a tensor; larger ones are only read by what makes them smaller."""


class Draft:
    """Nodes, shapes and constants so far, and the random choices."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[Node] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.inputs: list[str] = []
        self.made: list[str] = []
        """Inputs and outputs of nodes, in order."""
        self.constants: dict[str, Array] = {}

    def pick(self, choices: tuple[int, ...]) -> int:
        return choices[int(self.rng.integers(len(choices)))]

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def pick_tensor(self) -> str | None:
        """Mostly the last one made, sometimes an earlier one: that makes it a DAG."""
        name = self.made[-1] if self.chance(0.7) else self.made[int(self.rng.integers(len(self.made)))]
        return name if np.prod(self.shapes[name]) <= LARGEST else None

    def add_input(self) -> None:
        name = f"x{len(self.inputs)}"
        shape: tuple[int, ...] = (1, self.pick(CHANNELS), self.pick(SIZES), self.pick(SIZES))
        if self.inputs and self.chance(0.7):
            shape = self.shapes[self.inputs[0]]
        self.inputs.append(name)
        self.made.append(name)
        self.shapes[name] = shape

    def add_constant(self, *shape: int, scale: float = 1.0, offset: float = 0.0) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = (self.rng.standard_normal(shape) * scale + offset).astype(np.float32)
        self.shapes[name] = shape
        return name

    def add(
        self,
        op: Callable[..., Node],
        *inputs: str,
        shape: tuple[int, ...] | None = None,
        **attributes: object,
    ) -> str:
        name = f"t{len(self.nodes)}"
        node = op(inputs=inputs, output=name, **attributes)
        shapes = self.shapes if shape is None else {**self.shapes, name: shape}
        self.shapes[name] = infer_shape(node, shapes)
        self.nodes.append(node)
        self.made.append(name)
        return name

    def finish(self) -> Graph:
        read = {name for node in self.nodes for name in node.inputs}
        outputs = tuple(node.output for node in self.nodes if node.output not in read)
        return Graph(
            inputs=tuple(self.inputs),
            outputs=outputs,
            nodes=tuple(self.nodes),
            tensors={name: Tensor(name, shape) for name, shape in self.shapes.items()},
            constants=self.constants,
            batch=(1, 1, 1, 2, None)[int(self.rng.integers(5))],
        )
