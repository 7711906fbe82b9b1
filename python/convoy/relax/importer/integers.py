"""Sums of products of integers whose only reader makes floats of them: products of floats.

    float(ConvInteger(x, w, xz, wz))    =>  Conv((x - xz) · 1, (w - wz) · 1)
    float(MatMulInteger(a, b, az, bz))  =>  MatMul((a - az) · 1, (b - bz) · 1)
    float(sums + bias)                  =>  float(sums) + float(bias), of one of these

So a network that is quantised as it runs has the form of any other one.  Where data come from
``DynamicQuantizeLinear`` that is written out in floats, too: rounding and bounds are the same, and what it
makes of integers are the numbers they stand for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

from convoy.onnx_file import all_nodes, names_read
from convoy.relax.importer.read import Array, Model

PRODUCTS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
TINY = float(np.finfo(np.float32).tiny)
MOST = 255.0
"""Steps between the least and the largest byte."""


def make_float(model: Model) -> None:
    """Put products of floats in the place of those that are cast to floats and read by nothing else."""
    uses = Counter(name for node in all_nodes(model.graph) for name in names_read(node))
    uses.update(output.name for output in model.graph.output)
    made = {name: node for node in model.graph.node for name in node.output}
    known = model.constants()
    readers = _find_scales(model, made)
    steps = _Steps(model)
    gone: set[str] = set()
    nodes: list[onnx.NodeProto] = []
    written: dict[str, list[onnx.NodeProto]] = {}
    """What stands in the place of a node, by its first output."""
    for cast in model.graph.node:
        product = made.get(cast.input[0]) if cast.op_type == "Cast" and cast.input else None
        product, bias = _split_bias(product, made)
        if product is None or product.op_type not in PRODUCTS or product.domain:
            continue
        if uses[cast.input[0]] != 1 or uses[product.output[0]] != 1:
            continue
        if helper.get_attribute_value(cast.attribute[0]) != TensorProto.FLOAT:
            continue
        zeros = [*product.input[2:], "", ""][:2]
        if zeros[1] and zeros[1] not in known:
            continue
        source = made.get(product.input[0])
        dynamic = source is not None and source.op_type == "DynamicQuantizeLinear"
        if dynamic and source is not None and zeros[0] == source.output[2]:
            written.setdefault(source.output[0], steps.write_out(source))
            for reader in readers:  # a scalar would be computed apart from what it scales
                scale = f"{source.output[0]}/scale"
                reader.input[:] = [scale if name == source.output[1] else name for name in reader.input]
            data = f"{source.output[0]}/steps"
            lines: list[onnx.NodeProto] = []
        elif not zeros[0] or zeros[0] in known:
            data, lines = steps.dequantize(product.input[0], zeros[0], known, 0)
        else:
            continue
        axis = 0 if product.op_type == "ConvInteger" else -1
        weight, more = steps.dequantize(product.input[1], zeros[1], known, axis)
        last = onnx.NodeProto()
        last.CopyFrom(product)
        last.op_type = PRODUCTS[product.op_type]
        del last.input[:], last.output[:]
        last.input.extend([data, weight])
        last.output.append(f"{product.output[0]}/float" if bias else cast.output[0])
        written[cast.output[0]] = [*lines, *more, last]
        if bias:
            whole, before = _float_whole(bias, made)
            add = helper.make_node("Add", [last.output[0], whole], [cast.output[0]])
            written[cast.output[0]] += [*before, add]
        gone |= {product.output[0], cast.input[0]}
    if not written:
        return
    for node in model.graph.node:
        first = node.output[0] if node.output else ""
        if first not in gone:
            nodes += written.get(first, [node])
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.name_nodes()


def _find_scales(model: Model, made: Mapping[str, onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Multiplications by which sums are scaled, whose scales may have as many axes as the sums."""
    sums = {
        node.output[0]
        for node in model.graph.node
        if node.op_type == "Cast" and node.input and _is_sum(made.get(node.input[0]), made)
    }
    uses: dict[str, list[onnx.NodeProto]] = {}
    for node in all_nodes(model.graph):
        for name in names_read(node):
            uses.setdefault(name, []).append(node)
    seen = {output.name for output in model.graph.output}

    def scales(node: onnx.NodeProto) -> bool:
        return node.op_type == "Mul" and not sums.isdisjoint(node.input)

    return [
        node
        for node in model.graph.node
        if scales(node)
        or (
            node.op_type == "Mul"
            and node.output[0] not in seen
            and all(map(scales, uses.get(node.output[0], [])))
        )
    ]


def _is_sum(node: onnx.NodeProto | None, made: Mapping[str, onnx.NodeProto]) -> bool:
    product, _ = _split_bias(node, made)
    return product is not None and product.op_type in PRODUCTS


def _split_bias(
    node: onnx.NodeProto | None, made: Mapping[str, onnx.NodeProto]
) -> tuple[onnx.NodeProto | None, str]:
    """The sums of products that a node adds something to, and what that is."""
    if node is not None and node.op_type == "Add":
        for sums, bias in (node.input, node.input[::-1]):
            if sums in made and made[sums].op_type in PRODUCTS:
                return made[sums], bias
    return node, ""


def _float_whole(name: str, made: Mapping[str, onnx.NodeProto]) -> tuple[str, list[onnx.NodeProto]]:
    """Whole numbers as floats, and nodes that make them: of such as floats become, what they were."""
    result, reshape = f"{name}/float", made.get(name)
    shaped = reshape is not None and reshape.op_type == "Reshape"
    cast = made.get(reshape.input[0] if shaped and reshape is not None else name)
    source = made.get(cast.input[0]) if cast is not None and cast.op_type == "Cast" else None
    if source is None or source.op_type not in ("Ceil", "Floor", "Round"):
        return result, [helper.make_node("Cast", [name], [result], to=TensorProto.FLOAT)]
    if not shaped or reshape is None:
        return source.output[0], []
    moved = onnx.NodeProto()
    moved.CopyFrom(reshape)
    moved.input[0], moved.output[0] = source.output[0], result
    return result, [moved]


class _Steps:
    """Writes nodes whose constants it shares."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.constants: dict[str, None] = {}
        self.written: dict[tuple[str, str], str] = {}

    def constant(self, array: Array) -> str:
        name = f"convoy/{array.dtype}{list(array.shape)}{array.reshape(-1)[:1].tolist()}"
        if name not in self.constants:
            self.constants[name] = None
            self.model.add_constant(name, array)
        return name

    def dequantize(
        self, name: str, zero: str, known: dict[str, Array], axis: int
    ) -> tuple[str, list[onnx.NodeProto]]:
        """(x - zero) · 1, and the node that computes it, unless there is one."""
        if (name, zero) in self.written:
            return self.written[name, zero], []
        shape = known[zero].shape if zero else ()
        one = self.constant(np.ones(shape if known.get(zero, np.ones(1)).size > 1 else (), np.float32))
        if zero and known[zero].size == 1 and shape:
            scalar = f"{zero}/scalar"
            if scalar not in self.constants:
                self.constants[scalar] = None
                self.model.add_constant(scalar, known[zero].reshape(()))
            zero = scalar
        made = f"{name}/{zero or 'whole'}/float"
        self.written[name, zero] = made
        inputs = [name, one, zero] if zero else [name, one]
        along = {"axis": axis} if known.get(zero, np.ones(1)).size > 1 else {}
        return made, [helper.make_node("DequantizeLinear", inputs, [made], **along)]

    def write_out(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """DynamicQuantizeLinear, and how many steps each number is from the zero point, in floats."""
        x, (q, scale, zero) = node.input[0], node.output
        scalar = self.constant(np.zeros(0, np.int64))
        number = {value: self.constant(np.asarray(value, np.float32)) for value in (0.0, 1.0, TINY, MOST)}

        def part(op: str, end: str, *inputs: str, **attributes: int) -> onnx.NodeProto:
            return helper.make_node(op, inputs, [end if end in node.output else f"{q}/{end}"], **attributes)

        def own(end: str) -> str:
            return f"{q}/{end}"

        return [
            part("ReduceMax", "max", x, keepdims=1),
            part("ReduceMin", "min", x, keepdims=1),
            part("Max", "high", own("max"), number[0.0]),
            part("Min", "low", own("min"), number[0.0]),
            part("Sub", "span", own("high"), own("low")),
            part("Div", "step", own("span"), number[MOST]),
            part("Max", "scale", own("step"), number[TINY]),  # of zeros only, any scale gives zeros
            part("Equal", "flat", own("span"), number[0.0]),
            part("Where", "own", own("flat"), number[1.0], own("step")),
            part("Reshape", scale, own("own"), scalar),
            part("Div", "below", own("low"), own("scale")),
            part("Neg", "above", own("below")),
            part("Round", "whole", own("above")),
            part("Clip", "zero", own("whole"), number[0.0], number[MOST]),
            part("Div", "exact", x, own("scale")),
            part("Round", "rounded", own("exact")),
            part("Add", "shifted", own("rounded"), own("zero")),
            part("Clip", "held", own("shifted"), number[0.0], number[MOST]),
            part("Sub", "steps", own("held"), own("zero")),
            part("Cast", q, own("held"), to=TensorProto.UINT8),
            part("Cast", "byte", own("zero"), to=TensorProto.UINT8),
            part("Reshape", zero, own("byte"), scalar),
        ]
