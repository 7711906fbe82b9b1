"""A quantised network's integer products written out in floats: ONNX Runtime's other answer.

One of products of bytes (QLinearConv) has the same kernels whether ONNX Runtime optimises it or not.  In
floats a number at a tie may fall the other way, which says how near another right answer can be.  And on
x86 without VNNI its own kernels add two products of bytes in 16 bits, where 255 · 127 · 2 does not fit;
what they answer then is not what the ops are.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from convoy.onnx_file import all_nodes, inner_graphs
from convoy.target import host
from convoy.target.this_machine import architecture_name

_DOMAINS = ("", "ai.onnx", "com.microsoft")
_LEAST_OPSET = 10
"""Since then tensors are dequantised, ..."""
_OPSET_OF_AXES = 13
"""... and since then by a scale for each channel, too."""


def products_saturate() -> bool:
    """Whether ONNX Runtime's integer products saturate on this machine."""
    x86 = architecture_name(platform.machine()) == "x86_64"
    return x86 and not host().features & {"avx512vnni", "avxvnni"}


def write_out_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its convolutions and matrix products of bytes in floats, but for QAttention.

    Sums are exact up to 2^24 in a convolution, and in float64 in a product of matrices.
    """
    versions = {opset.domain: opset.version for opset in model.opset_import}
    opset = max(versions.get("", 0), versions.get("ai.onnx", 0))
    if opset < _LEAST_OPSET or not any(node.op_type in _FORMS for node in all_nodes(model.graph)):
        return model
    written = onnx.ModelProto()
    written.CopyFrom(model)
    _write_out(written.graph, along_axes=opset >= _OPSET_OF_AXES)
    return written


def _write_out(graph: onnx.GraphProto, *, along_axes: bool) -> None:
    nodes = list(graph.node)
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    del graph.node[:]
    for node in nodes:
        for inner in inner_graphs(node):
            _write_out(inner, along_axes=along_axes)
        form = _FORMS.get(node.op_type) if node.domain in _DOMAINS else None
        if form and _is_whole(node, form) and (along_axes or _has_plain_scales(node, form, ranks)):
            writer = _Writer(node, ranks, along_axes)
            form.write(writer)
            graph.node.extend(writer.nodes)
        else:
            graph.node.append(node)


def _is_whole(node: onnx.NodeProto, form: _Form) -> bool:
    """Whether it has outputs and its first inputs; of others ONNX Runtime says what is wrong."""
    given = node.input[: form.inputs]
    outputs = 1 <= len(node.output) <= form.outputs and bool(node.output[0])
    return len(given) == form.inputs and all(given) and outputs


def _has_plain_scales(node: onnx.NodeProto, form: _Form, ranks: Mapping[str, int]) -> bool:
    """Whether the scales of what it dequantises are one number each; ops that came later are newer, too."""
    return bool(form.scales) and all(ranks.get(node.input[at]) == 0 for at in form.scales)


class _Writer:
    """Writes the nodes that stand for one."""

    def __init__(self, node: onnx.NodeProto, ranks: Mapping[str, int], along_axes: bool) -> None:
        self.node, self.ranks, self.along_axes = node, ranks, along_axes
        self.nodes: list[onnx.NodeProto] = []

    def given(self, *positions: int) -> list[str]:
        """Names of inputs; empty: it is not there."""
        inputs = self.node.input
        return [inputs[i] if i < len(inputs) else "" for i in positions]

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        made = f"{self.node.output[0]}_{len(self.nodes)}_written_out"
        self.nodes.append(helper.make_node(op, inputs, [made], **attributes))
        return made

    def dequantize(self, x: str, scale: str, zero: str = "", axis: int | None = None) -> str:
        """``axis``: along it, where there is a scale for each of its places."""
        given = {"axis": axis} if axis is not None and self.along_axes else {}
        return self.add("DequantizeLinear", x, scale, *([zero] if zero else []), **given)

    def finish(self, op: str, *inputs: str, **attributes: object) -> None:
        self.nodes.append(helper.make_node(op, inputs, [self.node.output[0]], self.node.name, **attributes))

    def conv(self, *inputs: str) -> str:
        y = self.add("Conv", *inputs)
        self.nodes[-1].attribute.extend(self.node.attribute)
        return y

    def centred(self, x: str, zero: str, to: int, *, rows: bool = False) -> str:
        """As floats, less their zero point; ``rows``: there may be one for each row."""
        x = self.add("Cast", x, to=to)
        if not zero:
            return x
        if rows and self.ranks.get(zero, 0) == 1:
            zero = self.add("Reshape", zero, self.add("Constant", value_ints=[-1, 1]))
        return self.add("Sub", x, self.add("Cast", zero, to=to))


def _qlinear_conv(w: _Writer) -> None:
    x, x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero, bias = w.given(*range(9))
    inputs = [
        w.dequantize(x, x_scale, x_zero),
        w.dequantize(weight, w_scale, w_zero, 0),
    ]
    if bias:
        inputs.append(w.dequantize(bias, w.add("Mul", x_scale, w_scale), axis=0))
    w.finish("QuantizeLinear", w.conv(*inputs), y_scale, y_zero)


def _qlinear_matmul(w: _Writer) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = w.given(*range(8))
    a = w.dequantize(a, a_scale, a_zero, -2)
    b = w.dequantize(b, b_scale, b_zero, -1)
    w.finish("QuantizeLinear", w.add("MatMul", a, b), y_scale, y_zero)


def _conv_integer(w: _Writer) -> None:
    x, weight, x_zero, w_zero = w.given(*range(4))
    inputs = w.centred(x, x_zero, TensorProto.FLOAT), w.centred(weight, w_zero, TensorProto.FLOAT)
    w.finish("Cast", w.conv(*inputs), to=TensorProto.INT32)


def _matmul_integer(w: _Writer) -> None:
    a, b, a_zero, b_zero = w.given(*range(4))
    a = w.centred(a, a_zero, TensorProto.DOUBLE, rows=True)
    w.finish("Cast", w.add("MatMul", a, w.centred(b, b_zero, TensorProto.DOUBLE)), to=TensorProto.INT32)


def _matmul_integer_to_float(w: _Writer) -> None:
    a, b, a_scale, b_scale, a_zero, b_zero, bias = w.given(*range(7))
    _scale(w, (a, a_scale, a_zero), (b, b_scale, b_zero), bias)


def _dynamic_quantize_matmul(w: _Writer) -> None:
    a, b, b_scale, b_zero, bias = w.given(*range(5))
    a = w.add("DynamicQuantizeLinear", a)
    scale, zero = f"{a}_scale", f"{a}_zero"
    w.nodes[-1].output.extend([scale, zero])
    _scale(w, (a, scale, zero), (b, b_scale, b_zero), bias)


def _scale(w: _Writer, a: tuple[str, str, str], b: tuple[str, str, str], bias: str) -> None:
    """The product of two matrices of bytes, each with its scale and zero point, in float32."""
    factors = w.centred(a[0], a[2], TensorProto.DOUBLE), w.centred(b[0], b[2], TensorProto.DOUBLE)
    y = w.add("Cast", w.add("MatMul", *factors), to=TensorProto.FLOAT)
    y = w.add("Mul", w.add("Mul", y, a[1]), b[1])
    w.finish("Add" if bias else "Identity", y, *([bias] if bias else []))


def _qgemm(w: _Writer) -> None:
    a, a_scale, a_zero, b, b_scale, b_zero, bias, y_scale, y_zero = w.given(*range(9))
    given = {attribute.name: attribute for attribute in w.node.attribute}
    turned = [name in given and bool(given[name].i) for name in ("transA", "transB")]
    factors = [
        w.centred(a, a_zero, TensorProto.DOUBLE),
        w.centred(b, b_zero, TensorProto.DOUBLE, rows=turned[1]),  # those of columns of the product
    ]
    factors = [
        w.add("Transpose", factor) if turn else factor for factor, turn in zip(factors, turned, strict=True)
    ]
    y = w.add("MatMul", *factors)
    if bias:
        y = w.add("Add", y, w.add("Cast", bias, to=TensorProto.DOUBLE))
    y = w.add("Mul", w.add("Mul", w.add("Cast", y, to=TensorProto.FLOAT), a_scale), b_scale)
    alpha = w.add("Constant", value_float=given["alpha"].f if "alpha" in given else 1.0)
    if y_scale:
        w.finish("QuantizeLinear", w.add("Mul", y, alpha), y_scale, y_zero)
    else:
        w.finish("Mul", y, alpha)


def _dynamic_quantize_lstm(w: _Writer) -> None:
    """Its weights have their columns last; the data and states stay floats."""
    x, weight, rows, *given = w.given(*range(8))
    factors = []
    for tensor, at in ((weight, 8), (rows, 10)):
        each = w.ranks.get(w.node.input[at], 0) > 1  # a scale for each column
        shape = w.add("Constant", value_ints=[0, 1, -1] if each else [-1, 1, 1])
        scale, zero = w.given(at, at + 1)
        shift = w.add("Reshape", w.add("Cast", zero, to=TensorProto.FLOAT), shape)
        centred = w.add("Sub", w.add("Cast", tensor, to=TensorProto.FLOAT), shift)
        product = w.add("Mul", centred, w.add("Reshape", scale, shape))
        factors.append(w.add("Transpose", product, perm=[0, 2, 1]))
    w.nodes.append(helper.make_node("LSTM", [x, *factors, *given], w.node.output, w.node.name))
    w.nodes[-1].attribute.extend(w.node.attribute)


def _matmul_n_bits(w: _Writer) -> None:
    """In float32, as it is defined; by ``accuracy_level`` its data would be rounded to bytes as it runs."""
    node = onnx.NodeProto()
    node.CopyFrom(w.node)
    for attribute in node.attribute:
        if attribute.name == "accuracy_level":
            attribute.i = 1
    w.nodes.append(node)


@dataclass(frozen=True)
class _Form:
    write: Callable[[_Writer], None]
    inputs: int
    """Those that it cannot do without; they come first."""
    outputs: int = 1
    """The most that it has."""
    scales: tuple[int, ...] = ()
    """Inputs that are scales of what is dequantised."""


_FORMS: Mapping[str, _Form] = {
    "QLinearConv": _Form(_qlinear_conv, 8, scales=(1, 4)),
    "QLinearMatMul": _Form(_qlinear_matmul, 8, scales=(1, 4)),
    "ConvInteger": _Form(_conv_integer, 2),
    "MatMulInteger": _Form(_matmul_integer, 2),
    "MatMulIntegerToFloat": _Form(_matmul_integer_to_float, 4),
    "DynamicQuantizeLSTM": _Form(_dynamic_quantize_lstm, 3, 3),
    "DynamicQuantizeMatMul": _Form(_dynamic_quantize_matmul, 3),
    "QGemm": _Form(_qgemm, 6),
    "MatMulNBits": _Form(_matmul_n_bits, 3),
}
