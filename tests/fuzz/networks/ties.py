"""How far a quantised network's answer may be from ONNX Runtime's, because a number between two bytes may
become either.

The network is run again and again with what is quantised pushed a little, one way or the other: where that
changes nothing, nothing is forgiven.  ``fuzz/ties.py`` does the same for graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from convoy.bench.integers import write_out_products
from fuzz.networks.bundle import constants_of, form_of, properties
from fuzz.networks.make import make_model
from fuzz.ties import DRAWS, NEAR

Run = Callable[[onnx.ModelProto, Sequence[np.ndarray]], list[np.ndarray]]


def slack(
    model: onnx.ModelProto, inputs: Sequence[np.ndarray], want: Sequence[np.ndarray], run: Run
) -> list[np.ndarray]:
    """How far each number of each output may be from what is wanted, by ties alone."""
    rng = np.random.default_rng(0)
    falls = [list(want)]
    for draw in range(DRAWS):
        falls.append(run(push(model, rng, each=draw % 2 == 1), inputs))
    stacks = (np.stack(ways).astype(np.float64) for ways in zip(*falls, strict=True))
    return [stack.max(axis=0) - stack.min(axis=0) for stack in stacks]


def push(model: onnx.ModelProto, rng: np.random.Generator, *, each: bool) -> onnx.ModelProto:
    """The network with what is quantised pushed by ``NEAR`` units before: each number up or down, or all of
    a tensor.  Products of bytes are written out, so that their sums can be."""
    return _Pushing(write_out_products(model), rng, each=each).run()


class _Pushing:
    def __init__(self, model: onnx.ModelProto, rng: np.random.Generator, *, each: bool) -> None:
        self.model, self.rng, self.each = model, rng, each
        self.constants = constants_of(model.graph)
        self.nodes: list[onnx.NodeProto] = []
        self.added: list[onnx.TensorProto] = []

    def run(self) -> onnx.ModelProto:
        for node in self.model.graph.node:
            if node.op_type == "QuantizeLinear" and node.input[0] not in self.constants:
                unit = NEAR * self.constants[node.input[1]]
                assert unit.size == 1, "activations have one scale"
                self.add_quantize(node.input[0], node.input[1:], node.output[0], self.constant(unit))
            elif node.op_type == "DynamicQuantizeLinear":
                fallen, *numbers = node.output
                self.nodes.append(
                    helper.make_node("DynamicQuantizeLinear", node.input, [f"{fallen}_all", *numbers])
                )
                unit_of = self.node("Mul", numbers[0], self.constant(np.float32(NEAR)))
                self.add_quantize(node.input[0], numbers, fallen, unit_of)
            else:
                self.nodes.append(node)
        graph = self.model.graph
        constants = [*graph.initializer, *self.added]
        pushed = helper.make_graph(self.nodes, "pushed", graph.input, graph.output, constants)
        return make_model(pushed, form_of(self.model), properties(self.model))

    def add_quantize(self, x: str, numbers: Sequence[str], output: str, unit: str) -> None:
        if self.each:  # up or down as the number itself has it, at a frequency and phase that are drawn
            often = self.node("Div", self.constant(np.float32(self.rng.uniform(1e3, 1e4))), unit)
            wild = self.node("Mul", x, often)
            wave = self.node(
                "Sin", self.node("Add", wild, self.constant(np.float32(self.rng.uniform(0, 7))))
            )
            offset = self.node("Mul", self.node("Sign", wave), unit)
        else:
            offset = self.node("Mul", unit, self.constant(np.float32(self.rng.choice((-1, 1)))))
        pushed = self.node("Add", x, offset)
        self.nodes.append(helper.make_node("QuantizeLinear", [pushed, *numbers], [output]))

    def node(self, op: str, *inputs: str, **attributes: int) -> str:
        name = f"push{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, array: np.ndarray | np.float32) -> str:
        name = f"pushed{len(self.added)}"
        self.added.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name
