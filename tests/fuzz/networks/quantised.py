"""A drawn network quantised, in the ways that quantisers write it.

Scales come from ONNX Runtime's values of each tensor, now and then too narrow, so that bytes end.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fuzz.networks.bundle import constants_of, form_of
from fuzz.networks.make import make_model

WEIGHTED = {"Conv": 0, "ConvTranspose": 1, "Gemm": None, "MatMul": None}
"""Ops with weights, and the axis of their output channels; None: it depends."""
UNREAD = frozenset({"LSTM", "GRU", "RNN", "Resize", "Shape"})
"""Ops whose operands stay as they are."""


def quantise(
    model: onnx.ModelProto, rng: np.random.Generator, values: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    """The model with bytes between many of its nodes, and as weights.

    Parameters
    ----------
    values : Mapping[str, np.ndarray]
        Of all tensors that the model's nodes make, and of its inputs.
    """
    return _Quantising(model, rng, values).run()


class _Quantising:
    def __init__(
        self, model: onnx.ModelProto, rng: np.random.Generator, values: Mapping[str, np.ndarray]
    ) -> None:
        self.model, self.rng, self.values = model, rng, values
        self.constants = constants_of(model.graph)
        self.share = float(rng.choice((0.4, 0.8, 1.0)))
        """Of the tensors that are quantised."""
        self.signed = bool(rng.random() < 0.3)
        self.each = bool(rng.random() < 0.7)
        """Weights have a scale for each channel."""
        self.linear = bool(rng.random() < 0.3)
        """Some convolutions are QLinearConv."""
        self.dynamic = bool(rng.spawn(1)[0].random() < 0.4)
        """Some products are of bytes whose scale is computed as the network runs."""
        self.odd = rng.spawn(1)[0]
        self.unusual = bool(self.odd.random() < 0.4)
        """Some forms are such as ONNX allows, and ONNX Runtime's quantiser does not write."""
        self.outputs = {value.name for value in model.graph.output}
        self.nodes: list[onnx.NodeProto] = []
        self.added: list[onnx.TensorProto] = []
        self.bytes: dict[str, tuple[str, ...]] = {}
        """Of a quantised tensor: its bytes, scale and zero point, if that is said."""
        self.floats: dict[str, str] = {}
        self.numbers = count()

    def run(self) -> onnx.ModelProto:
        graph = self.model.graph
        for node in graph.node:
            made = onnx.NodeProto()
            made.CopyFrom(node)
            if self.dynamic and node.op_type in ("MatMul", "Gemm") and self.add_dynamic(made):
                continue
            if node.op_type not in UNREAD:
                self.read_quantised(made)
            if not (self.linear and self.chance(0.7) and self.add_linear(made)):
                self.nodes.append(made)
        outputs = [self.as_bytes(value) for value in graph.output]
        used = {name for node in self.nodes for name in node.input} | {value.name for value in outputs}
        kept = [t for t in graph.initializer if t.name in used]
        whole = helper.make_graph(self.nodes, "fuzz", graph.input, outputs, [*kept, *self.added])
        return make_model(whole, form_of(self.model), {"quantised": "1"})

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def seldom(self, probability: float) -> bool:
        """Is there an unusual form here?"""
        return self.unusual and bool(self.odd.random() < probability)

    def as_bytes(self, value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
        """An output, or its bytes in its place."""
        array = self.values.get(value.name)
        if array is None or array.dtype != np.float32 or not array.size or not self.seldom(0.3):
            return value
        self.quantised(value.name)
        made = onnx.ValueInfoProto()
        made.CopyFrom(value)
        made.name = self.node("Identity", self.bytes[value.name][0])
        made.type.tensor_type.elem_type = TensorProto.INT8 if self.signed else TensorProto.UINT8
        return made

    def read_quantised(self, node: onnx.NodeProto) -> None:
        """Let a node read what it reads through bytes."""
        data = [name for name in node.input if self.values.get(name, np.int64(0)).dtype == np.float32]
        if not data or node.op_type == "Constant":
            return
        for i, name in enumerate(node.input):
            if name in data and name not in self.constants and self.choose(name):
                node.input[i] = self.dequantised(name)
        if node.op_type in WEIGHTED and node.input[1] in self.constants and self.chance(0.9):
            self.quantise_weight(node)

    def choose(self, name: str) -> bool:
        """Is this tensor quantised?  Once drawn, it stays so."""
        if name not in self.floats:
            self.floats[name] = ""
            if self.values[name].size and self.chance(self.share):
                self.floats[name] = name
        return bool(self.floats[name])

    def dequantised(self, name: str) -> str:
        """Floats of the bytes of a tensor; each reader may have its own."""
        self.quantised(name)
        if self.floats[name] == name or self.chance(0.3):
            self.floats[name] = self.node("DequantizeLinear", *self.bytes[name])
        return self.floats[name]

    def quantised(self, name: str) -> None:
        if name not in self.bytes:
            scale, zero = self.numbers_of(self.values[name])
            if not self.signed and not self.array(zero) and self.seldom(0.2):  # what is left out is 0
                self.bytes[name] = (self.node("QuantizeLinear", name, scale), scale)
            else:
                self.bytes[name] = (self.node("QuantizeLinear", name, scale, zero), scale, zero)

    def numbers_of(self, values: np.ndarray) -> tuple[str, str]:
        """Scale and zero point for such values."""
        low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
        span = (high - low) * (0.6 if self.chance(0.15) else 1.0)
        scale = np.float32(span / 255 if span > 1e-6 else 1.0)
        least = -128 if self.signed else 0
        zero = least if low == 0.0 else int(np.clip(np.rint(least - low / scale), least, least + 255))
        if self.signed and self.chance(0.4):
            scale, zero = np.float32(scale * 1.1 * max(-low, high) * 2 / max(span, 1e-6)), 0
        dtype = np.int8 if self.signed else np.uint8
        return self.constant(scale), self.constant(np.array(zero, dtype))

    def quantise_weight(self, node: onnx.NodeProto) -> None:
        """Integers as the weight, and as the bias where there is one."""
        weight = self.constants[node.input[1]]
        channels = axis = self.channel_axis(node, weight)
        if axis is not None and self.seldom(0.15):
            axis = int(self.odd.integers(weight.ndim))
        parts = self.weight_parts(weight, axis if self.each else None)
        if self.seldom(0.2):
            parts = self.moved(parts, axis if self.each else None)
        attributes = {"axis": axis} if self.each and axis is not None else {}
        known = {self.floats[name]: parts for name, parts in self.bytes.items()}
        x = known.get(node.input[0])
        w = [self.constant(part) for part in parts]
        if not np.any(parts[2]) and self.chance(0.3):
            w.pop()
        node.input[1] = self.node("DequantizeLinear", *w, **attributes)
        bias = self.constants.get(node.input[2]) if len(node.input) > 2 else None
        plain = axis == channels and node.op_type != "ConvTranspose"
        if x is not None and bias is not None and bias.ndim == 1 and plain:
            each = np.float32(self.array(x[1]) * parts[1])
            whole = np.rint(np.clip(bias / each, -(2**30), 2**30)).astype(np.int32)
            along = {"axis": 0} if each.ndim else {}
            node.input[2] = self.node(
                "DequantizeLinear", self.constant(whole), self.constant(each), **along
            )

    def moved(
        self, parts: tuple[np.ndarray, np.ndarray, np.ndarray], axis: int | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same weights by other zero points, each its own, but for those that end."""
        whole, scale, zero = parts
        info = np.iinfo(whole.dtype)
        steps = self.odd.integers(-9, 10, scale.shape)
        along = (
            (1,) * whole.ndim if axis is None else tuple(-1 if i == axis else 1 for i in range(whole.ndim))
        )
        further = np.clip(whole + steps.reshape(along), info.min, info.max).astype(whole.dtype)
        return further, scale, (zero + steps).astype(whole.dtype)

    def weight_parts(
        self, weight: np.ndarray, axis: int | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        others = None if axis is None else tuple(i for i in range(weight.ndim) if i != axis)
        peak = np.maximum(np.abs(weight).max(axis=others, keepdims=True), 1e-6)
        unsigned = not self.each and self.chance(0.3)
        scale = (peak / 127).astype(np.float32)
        zero = 128 if unsigned else 0
        bounds = (0, 255) if unsigned else (-128, 127)
        whole = np.clip(np.rint(weight / scale) + zero, *bounds).astype(np.uint8 if unsigned else np.int8)
        scale = scale.reshape(-1) if axis is not None else scale.reshape(())
        return whole, scale, np.full(scale.shape, zero, whole.dtype)

    def channel_axis(self, node: onnx.NodeProto, weight: np.ndarray) -> int | None:
        if weight.ndim < 2:
            return None
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if node.op_type == "Gemm":
            return 0 if attributes.get("transB", 0) else 1
        return WEIGHTED[node.op_type] if node.op_type != "MatMul" else weight.ndim - 1

    def add_linear(self, node: onnx.NodeProto) -> bool:
        """A convolution as QLinearConv, where what it reads is bytes; whether it is one."""
        made = {n.output[0]: n for n in self.nodes if n.op_type == "DequantizeLinear"}
        parts = [made.get(name) for name in node.input]
        output = node.output[0]
        legal = node.op_type == "Conv" and output not in self.outputs and self.values[output].size
        if not legal or not all(parts) or len(parts[0].input) < 3:  # type: ignore[union-attr]
            return False
        zero = self.constant(np.zeros((), np.int8))
        x, w = parts[0], parts[1]
        if len(w.input) < 3 and self.array(w.input[1]).ndim:  # type: ignore[union-attr]
            return False
        if any(a.name == "axis" and a.i for a in w.attribute):  # type: ignore[union-attr]
            return False
        if len(w.input) > 2 and np.ptp(self.array(w.input[2])):  # type: ignore[union-attr]
            return False
        scale, offset = self.numbers_of(self.values[output])
        inputs = [*x.input, *w.input[:2], *(list(w.input[2:]) or [zero]), scale, offset]  # type: ignore[union-attr]
        inputs += [part.input[0] for part in parts[2:] if part is not None]
        bytes_of = self.node("QLinearConv", *inputs)
        self.nodes[-1].attribute.extend(node.attribute)
        self.nodes.append(helper.make_node("DequantizeLinear", [bytes_of, scale, offset], [output]))
        return True

    def add_dynamic(self, node: onnx.NodeProto) -> bool:
        """A product as DynamicQuantizeLinear and MatMulInteger, where its weight is a constant; whether."""
        x, weight = node.input[0], self.constants.get(node.input[1])
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        plain = given.get("alpha", 1) == given.get("beta", 1) == 1 and not given.get("transA", 0)
        if (
            weight is None
            or weight.ndim != 2
            or x in self.constants
            or not self.values[x].size
            or not plain
        ):
            return False
        if given.get("transB", 0):
            weight = weight.T
        whole, scale, zero = self.weight_parts(weight, 1 if self.each else None)
        q, x_scale, x_zero = (f"q{next(self.numbers)}" for _ in range(3))
        self.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], [q, x_scale, x_zero], name=q))
        w_zero = self.constant(zero.reshape(-1)[0])  # ONNX Runtime takes one
        sums = self.node("MatMulInteger", q, self.constant(whole), x_zero, w_zero)
        floats = self.node("Cast", sums, to=onnx.TensorProto.FLOAT)
        unit = self.node("Mul", x_scale, self.constant(scale))
        product = self.node("Mul", floats, unit)
        bias = node.input[2:]
        last = helper.make_node("Add" if bias else "Identity", [product, *bias], [node.output[0]])
        self.nodes.append(last)
        return True

    def node(self, op: str, *inputs: str, **attributes: int) -> str:
        name = f"q{next(self.numbers)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"{name}_{op}", **attributes))
        return name

    def constant(self, array: np.ndarray | np.float32) -> str:
        name = f"k{next(self.numbers)}"
        self.added.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def array(self, name: str) -> np.ndarray:
        return next(numpy_helper.to_array(t) for t in self.added if t.name == name)


def with_all_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with every tensor that its nodes make among its outputs, and its float inputs."""
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    known = {value.name for value in whole.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in known:
                whole.graph.output.add(name=name)
    return whole
