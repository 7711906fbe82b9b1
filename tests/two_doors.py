"""A quantised network that the tests of both doors compute: the bytes of the answers have to be the same.

Each door's tests run where its TVM is installed, so neither sees the other's answer: both compare theirs
with ``ANSWER``.  The processor is named, so that the plan is the same on every machine.
"""

from __future__ import annotations

import hashlib

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

CPU = "haswell"
ANSWER = "e2793f8d8edebb91bc7027ec18aa85545e60139b7c83de4bd6e8032f00a5de1b"
"""SHA-256 of the output's bytes."""


class _Network:
    """Nodes as quantisers write them: each tensor is quantised and dequantised where it is made."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(11)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: object, dtype: type) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [f"t{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def bytes(self, x: str, scale: float, zero: int) -> str:
        numbers = self.constant(scale, np.float32), self.constant(zero, np.uint8)
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, *numbers), *numbers)

    def weight(self, *shape: int, axis: int = 0) -> str:
        scale = (0.5 + self.random.random(shape[axis])) / 127 / np.sqrt(np.prod(shape) / shape[axis])
        return self.op(
            "DequantizeLinear",
            self.constant(self.random.integers(-127, 128, shape), np.int8),
            self.constant(scale, np.float32),
            self.constant(np.zeros(shape[axis]), np.int8),
            axis=axis,
        )

    def conv(self, x: str, given: int, made: int, kernel: int, **attributes: object) -> str:
        weight = self.weight(made, given // int(str(attributes.get("group", 1))), kernel, kernel)
        bias = self.constant(self.random.standard_normal(made), np.float32)
        return self.op("Conv", x, weight, bias, pads=[kernel // 2] * 4, **attributes)


def make_model() -> onnx.ModelProto:
    """Convolutions 3x3, 1x1, depthwise and transposed, a residual, a pool, a mean and a dense layer."""
    n = _Network()
    x = n.bytes("x0", 0.03, 128)
    x = n.bytes(n.op("Relu", n.conv(x, 3, 16, 3, strides=[2, 2])), 0.02, 0)
    y = n.bytes(n.op("Relu", n.conv(x, 16, 16, 3, group=16)), 0.025, 0)
    x = n.bytes(n.op("Relu", n.op("Add", n.bytes(n.conv(y, 16, 16, 1), 0.03, 120), x)), 0.04, 0)
    x = n.bytes(n.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 0.04, 0)
    x = n.bytes(n.op("Relu", n.conv(x, 16, 24, 3)), 0.03, 0)
    up = n.op("ConvTranspose", x, n.weight(24, 24, 3, 3, axis=1), strides=[2, 2], pads=[1, 1, 0, 0])
    x = n.bytes(n.op("Relu", up), 0.02, 0)
    x = n.bytes(n.op("GlobalAveragePool", x), 0.01, 0)
    x = n.op(
        "Gemm", n.op("Flatten", x), n.weight(10, 24), n.constant(np.arange(10) / 9, np.float32), transB=1
    )
    n.nodes[-1].output[0] = "last"
    y = n.bytes("last", 0.02, 100)
    graph = helper.make_graph(
        n.nodes, "both doors", [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [1, 10])], n.constants,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def make_image() -> NDArray[np.float32]:
    return np.random.default_rng(12).standard_normal((1, 3, 32, 32)).astype(np.float32)


def digest(answer: NDArray[np.float32]) -> str:
    return hashlib.sha256(np.ascontiguousarray(answer, "<f4").tobytes()).hexdigest()
