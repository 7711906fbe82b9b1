"""A random graph with bytes between its nodes, and as its weights, inputs and outputs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from convoy.graph import Graph, Tensor
from convoy.graph.dtypes import ARRAYS, DType, dtype_of, range_of
from convoy.graph.graph import Array, drop_unread
from convoy.graph.ops import Conv2d, ConvTranspose2d, Dequantize, MatMul, Node, Quantize
from convoy.kernels.registry import KERNELS

SHARE = 0.3
"""Of the graphs are quantised."""
SCALES = (0.011, 0.02, 0.031, 0.0421)
"""Of values near 1: bytes end at 1.4 to 5.4 on either side, which some tensors pass."""
OUTPUT_CHANNELS: dict[type[Node], int] = {Conv2d: 0, ConvTranspose2d: 1, MatMul: 1}
"""The axis of a weight along which it has scales."""


def quantise(graph: Graph, rng: np.random.Generator) -> Graph:
    """The graph, or in some cases one with ``Quantize`` and ``Dequantize`` behind many of its tensors.

    Each has one scale or one for each channel, and zero points anywhere.  What only moves elements may move
    the bytes, where its kernel knows them; inputs may be bytes, and so may outputs.
    """
    return _Quantising(graph, rng).run() if rng.random() < SHARE else graph


class _Quantising:
    def __init__(self, graph: Graph, rng: np.random.Generator) -> None:
        self.graph, self.rng = graph, rng
        self.share = float(rng.choice((0.4, 0.8, 1.0)))
        """Of the tensors that are quantised."""
        self.tensors = dict(graph.tensors)
        self.constants = dict(graph.constants)
        self.nodes: list[Node] = []
        self.bytes: dict[str, tuple[str, str, str, int]] = {}
        """Of a quantised tensor: its bytes, scale, zero point and axis."""
        self.floats: dict[str, str] = {}

    def run(self) -> Graph:
        outputs = list(self.graph.outputs)
        for name in self.graph.inputs:
            self.quantise_input(name)
        for node in self.graph.nodes:
            self.add(node)
            if self.chance(self.share):
                self.quantise(node.output)
                if node.output in outputs and self.chance(0.7):
                    place = outputs.index(node.output)
                    as_bytes = self.chance(0.5)
                    outputs[place] = self.bytes[node.output][0] if as_bytes else self.read(node.output)
        whole = replace(
            self.graph,
            outputs=tuple(outputs),
            nodes=tuple(self.nodes),
            tensors=self.tensors,
            constants=self.constants,
        )
        return drop_unread(whole)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def quantise_input(self, name: str) -> None:
        if self.chance(0.3):
            dtype = self.draw_type()
            self.tensors[name] = Tensor(name, self.tensors[name].shape, dtype)
            self.bytes[name] = (name, *self.numbers(name, dtype))
        elif self.chance(self.share):
            self.quantise(name)

    def quantise(self, name: str) -> None:
        dtype = self.draw_type()
        numbers = self.numbers(name, dtype)
        self.bytes[name] = (self.make(Quantize, name, dtype, *numbers), *numbers)

    def read(self, name: str) -> str:
        """Floats of a tensor's bytes; each reader may have its own."""
        if name not in self.floats or self.chance(0.3):
            self.floats[name] = self.make(Dequantize, self.bytes[name][0], "float32", *self.bytes[name][1:])
        return self.floats[name]

    def add(self, node: Node) -> None:
        x = node.inputs[0]
        if node.moves and len(node.inputs) == 1 and x in self.bytes and self.chance(0.5):
            moved, scale, zero, axis = self.bytes[x]
            if axis == 0 and knows(type(node), self.tensors[moved].dtype):
                self.move(node, moved, scale, zero)
                return
        inputs = [self.read(name) if name in self.bytes else name for name in node.inputs]
        if type(node) in OUTPUT_CHANNELS and self.chance(self.share):
            inputs[1:] = self.integers(node)
        self.nodes.append(replace(node, inputs=tuple(inputs)))

    def move(self, node: Node, x: str, scale: str, zero: str) -> None:
        moved = self.define(self.tensors[node.output].shape, self.tensors[x].dtype)
        self.nodes.append(replace(node, inputs=(x,), output=moved))
        self.nodes.append(Dequantize(inputs=(moved, scale, zero), output=node.output))

    def integers(self, node: Node) -> list[str]:
        """A node's weight as int8 or uint8, and its bias as int32, behind ``Dequantize``."""
        weight, *bias = (self.constants[name] for name in node.inputs[1:])
        axis = OUTPUT_CHANNELS[type(node)]
        each = self.chance(0.7) and not (isinstance(node, ConvTranspose2d) and node.groups > 1)
        others = tuple(i for i in range(weight.ndim) if not (each and i == axis))
        peak = np.maximum(np.abs(weight).max(axis=others, keepdims=True), 1e-3)
        dtype: DType = "uint8" if not each and self.chance(0.3) else "int8"
        zero = 128 if dtype == "uint8" else 0
        scale = (peak / 127).astype(np.float32)
        whole = np.clip(np.rint(weight / scale) + zero, *range_of(dtype)).astype(ARRAYS[dtype])
        made = [self.dequantise(whole, scale.reshape(-1), zero, axis if each else 0)]
        for array in bias:
            unit = np.float32(0.02) * scale.reshape(-1)
            unit = unit if len(unit) == len(array) else unit[:1]
            made.append(self.dequantise(np.rint(array / unit).astype(np.int32), unit, 0, 0))
        return made

    def dequantise(self, whole: Array, scale: Array, zero: int, axis: int) -> str:
        numbers = (scale, np.full(scale.shape, zero, whole.dtype))
        return self.make(Dequantize, self.constant(whole), "float32", *map(self.constant, numbers), axis)

    def numbers(self, name: str, dtype: DType) -> tuple[str, str, int]:
        """Scale, zero point and axis for a tensor."""
        shape = self.tensors[name].shape
        each = len(shape) > 1 and self.chance(0.25)
        count = shape[1] if each else 1
        scale = self.rng.choice(SCALES) * (1 + self.rng.random(count) * each)
        low, high = range_of(dtype)
        zero = np.full(count, low if self.chance(0.2) else (low + high + 1) // 2)
        if self.chance(0.5):
            zero = np.clip(zero + self.rng.integers(-60, 61, count), low, high)
        return self.constant(scale.astype(np.float32)), self.constant(zero.astype(ARRAYS[dtype])), int(each)

    def draw_type(self) -> DType:
        return "uint8" if self.chance(0.7) else "int8"

    def make(self, op: type[Node], x: str, dtype: DType, scale: str, zero: str, axis: int) -> str:
        output = self.define(self.tensors[x].shape, dtype)
        self.nodes.append(op(inputs=(x, scale, zero), output=output, axis=axis))  # type: ignore[call-arg]
        return output

    def define(self, shape: tuple[int, ...], dtype: DType) -> str:
        name = f"q{len(self.tensors)}"
        self.tensors[name] = Tensor(name, shape, dtype)
        return name

    def constant(self, array: Array) -> str:
        name = f"k{len(self.tensors)}"
        self.tensors[name] = Tensor(name, array.shape, element_type(array))
        self.constants[name] = array
        return name


def knows(op: type[Node], dtype: DType) -> bool:
    return any(op in kernel.nodes and dtype in kernel.dtypes for kernel in KERNELS)


def element_type(array: Array) -> DType:
    dtype = dtype_of(array)
    assert dtype is not None
    return dtype
