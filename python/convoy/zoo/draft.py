"""An ONNX model in the making: ops one by one, as exporters write them, with seeded weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Draft:
    """``d = Draft("net", x=(1, 3, 8, 8)); model = d.model(d.act(d.conv("x", 3, 16, 3), "Relu"))``.

    Weights are drawn in the order of the ops, so that a network has the same on every machine; a product's
    keep the size of what goes through it.
    """

    def __init__(self, name: str, *, whole: Sequence[str] = (), **inputs: Sequence[int]) -> None:
        """``whole``: inputs of whole numbers; the others are float32."""
        self.name = name
        self._random = np.random.default_rng(0)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        types = {n: TensorProto.INT64 if n in whole else TensorProto.FLOAT for n in inputs}
        self._inputs = [helper.make_tensor_value_info(n, types[n], s) for n, s in inputs.items()]

    def ops(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        names = [f"{kind.lower()}_{len(self._nodes)}_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(kind, inputs, names, names[0], **attributes))
        return names

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.ops(kind, *inputs, **attributes)[0]

    def model(self, *outputs: str) -> onnx.ModelProto:
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self._nodes, self.name, self._inputs, made, self._constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    # Constants -----------------------------------------------------------------------------------------

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"constant_{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def ints(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def weight(self, *shape: int, std: float = 0.1, mean: float = 0.0) -> str:
        return self.constant(mean + std * self._random.standard_normal(shape))

    # Layers --------------------------------------------------------------------------------------------

    def add(self, x: str, y: str) -> str:
        return self.op("Add", x, y)

    def act(self, x: str, kind: str) -> str:
        """An activation; GELU and SiLU as exporters write them out."""
        if kind == "Silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if kind == "Gelu":
            error = self.op("Erf", self.op("Div", x, self.constant(math.sqrt(2))))
            return self.op(
                "Mul", self.op("Mul", x, self.add(error, self.constant(1.0))), self.constant(0.5)
            )
        return self.op(kind, x) if kind else x

    def dense(self, x: str, given: int, made: int, *, bias: bool = True) -> str:
        y = self.op("MatMul", x, self.weight(given, made, std=given**-0.5))
        return self.add(y, self.weight(made)) if bias else y

    def conv(
        self, x: str, given: int, made: int, kernel: int | Sequence[int], stride: int | Sequence[int] = 1,
        *, act: str = "", groups: int = 1, axes: int = 2, padding: Sequence[int] | None = None,
    ) -> str:  # fmt: skip
        """A convolution over ``axes``, a batch norm folded in; without ``padding`` it keeps the size."""
        sizes = [kernel] * axes if isinstance(kernel, int) else list(kernel)
        strides = [stride] * axes if isinstance(stride, int) else list(stride)
        sides = [k // 2 for k in sizes] if padding is None else list(padding)
        fan_in = given // groups * math.prod(sizes)
        gain = 2 if act else 1
        w = self.weight(made, given // groups, *sizes, std=math.sqrt(gain / fan_in))
        attributes = {"kernel_shape": sizes, "strides": strides, "pads": 2 * sides, "group": groups}
        return self.act(self.op("Conv", x, w, self.weight(made), **attributes), act)

    def layer_norm(self, x: str, width: int) -> str:
        gamma, beta = self.weight(width, mean=1.0), self.weight(width)
        return self.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=1e-5)

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.ints(*shape))

    def transpose(self, x: str, *perm: int) -> str:
        return self.op("Transpose", x, perm=perm)

    def slice(self, x: str, axis: int, begin: int, end: int, step: int = 1) -> str:
        return self.op("Slice", x, *(self.ints(v) for v in (begin, end, axis, step)))

    def mean(self, x: str, *axes: int) -> str:
        return self.op("ReduceMean", x, axes=axes, keepdims=0)
