"""Models in float16 or bfloat16, computed in float32.

A CPU computes in float32, and so do ONNX Runtime and Convoy's kernels.  The inputs and outputs of a
model keep their type.  Between them every op that takes half precision takes float32: its weights are
widened, and what it makes is rounded only where something wants its type, such as an output of the model.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, defs, helper

from convoy.onnx_file import inner_graphs
from convoy.relax.importer.prepare import infer_types
from convoy.relax.importer.read import UNREGISTERED, Model

SINGLE = TensorProto.FLOAT
HALVES = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
_SAY_TYPES = ("dtype", "output_dtype")
"""Attributes that are the type of what an op makes, whatever it takes."""


def widen_half(model: Model) -> None:
    """Make the ops of a model compute in float32 where they would in float16."""
    types = infer_types(model)
    half = {name: kind.tensor_type.elem_type for name, kind in types.items()}
    half.update({name: helper.np_dtype_to_tensor_dtype(a.dtype) for name, a in model.weights.items()})
    half = {name: kind for name, kind in half.items() if kind in HALVES}
    if half:
        _Widening(model, half).run()


class _Widening:
    def __init__(self, model: Model, half: dict[str, int]) -> None:
        self.model = model
        self.half = half
        """The type of each tensor of half precision."""
        self.wide: dict[str, str] = {}
        """The float32 tensor that one of half precision is rounded from, or widened to."""
        self.computed: set[str] = set()
        """Tensors of half precision that are rounded by nothing but their op's type."""
        self.nodes: list[onnx.NodeProto] = []
        self.constants = model.constants()

    def run(self) -> None:
        for node in list(self.model.graph.node):
            self.take(node)
        del self.model.graph.node[:]
        self.model.graph.node.extend(self.nodes)

    def take(self, node: onnx.NodeProto) -> None:
        made = self.made_by(node)
        if node.op_type == "Cast" and node.input[0] in self.computed and _target(node) == SINGLE:
            self.add("Identity", self.wide[node.input[0]], node.output[0], node.name)
            return
        if made is None:
            if node.op_type == "Cast" and node.output[0] in self.half and node.input[0] not in self.half:
                self.remember_cast(node)
            if node.op_type == "Cast" and _target(node) != SINGLE:
                self.cast_in_two(node)
            self.nodes.append(node)
            return
        kind = next(self.half[name] for name in node.input if name in self.half)
        node.input[:] = [self.widen(name) if name in self.half else name for name in node.input]
        for index in made:
            name = node.output[index]
            self.wide[name] = node.output[index] = f"{name}/wide"
            self.computed.add(name)
        self.nodes.append(node)
        for index in made:
            name = node.output[index].removesuffix("/wide")
            self.add("Cast", self.wide[name], name, f"{name}/half", to=self.half.get(name, kind))

    def made_by(self, node: onnx.NodeProto) -> list[int] | None:
        """Which outputs become float32 with a node's inputs; None for a node that stays as it is."""
        if node.op_type in ("Cast", "CastLike", "BitCast") or not defs.has(node.op_type, node.domain):
            return None
        if not node.domain and self.model.opset < UNREGISTERED.get(node.op_type, 0):  # of one type
            return [0] if any(name in self.half for name in node.input) else None
        if any(inner_graphs(node)):
            return None
        schema = defs.get_schema(node.op_type, self.model.opset if not node.domain else 1, node.domain)
        inputs, outputs = schema.inputs, schema.outputs
        typed = {
            inputs[min(i, len(inputs) - 1)].type_str
            for i, name in enumerate(node.input)
            if name in self.half
        }
        if not typed:
            return None
        says = any(attribute.name in _SAY_TYPES for attribute in node.attribute)
        return [
            i
            for i, name in enumerate(node.output)
            if name
            and (
                outputs[min(i, len(outputs) - 1)].type_str in typed
                or (name in self.half and not says)  # as an EyeLike, whose type is by default its input's
            )
        ]

    def remember_cast(self, node: onnx.NodeProto) -> None:
        """What a model rounds itself is computed with unrounded; a Cast back to float32 gets it rounded."""
        source, name = node.input[0], node.output[0]
        self.wide[name] = f"{name}/wide"
        self.add("Cast", source, self.wide[name], f"{name}/unrounded", to=SINGLE)

    def cast_in_two(self, node: onnx.NodeProto) -> None:
        """By way of float32, which holds bfloat16 exactly: TVM casts that to no integers (0.27)."""
        source, name = node.input[0], node.output[0]
        if self.half.get(source) == TensorProto.BFLOAT16:
            self.add("Cast", source, f"{name}/exact", f"{name}/exact", to=SINGLE)
            node.input[0] = f"{name}/exact"

    def widen(self, name: str) -> str:
        if name not in self.wide:
            self.wide[name] = f"{name}/wide"
            if name in self.constants:
                self.model.add_constant(self.wide[name], self.constants[name].astype(np.float32))
            else:
                self.add("Cast", name, self.wide[name], self.wide[name], to=SINGLE)
        return self.wide[name]

    def add(self, op: str, source: str, made: str, name: str, **attributes: int) -> None:
        self.nodes.append(helper.make_node(op, [source], [made], name, **attributes))


def _target(node: onnx.NodeProto) -> int:
    return next((int(a.i) for a in node.attribute if a.name == "to"), 0)
