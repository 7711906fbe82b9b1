"""Other outputs for a model: what it says before softmax, or anywhere inside.

Softmax hides errors: a thousand classes of random logits all come out near 0.001.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from convoy.errors import ModelError


def strip_softmax(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that returns the logits: each output made by a Softmax gives way to that node's input."""
    stripped = onnx.ModelProto()
    stripped.CopyFrom(model)
    graph = stripped.graph
    outputs = {value.name: value for value in graph.output}
    read = {name for node in graph.node for name in node.input}
    for node in list(graph.node):
        if node.op_type == "Softmax" and node.output[0] in outputs:
            outputs[node.output[0]].name = node.input[0]
            if node.output[0] not in read:
                graph.node.remove(node)
    return stripped


def with_inner_outputs(model: onnx.ModelProto, tensors: Sequence[str] | None = None) -> onnx.ModelProto:
    """A copy that also returns ``tensors``, all float32, or every tensor a node makes.

    Raises
    ------
    ModelError
        If no node makes one of them.
    """
    made = [name for node in model.graph.node for name in node.output if name]
    known = {value.name for value in model.graph.output}
    extended = onnx.ModelProto()
    extended.CopyFrom(model)
    for name in made if tensors is None else tensors:
        if name not in made:
            problem = "expected a tensor that a node makes, got a name no node has as its output"
            raise ModelError(
                "zoo", f"tensor {name!r}", problem, "name an output of one of the model's nodes"
            )
        if name not in known:
            value = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
            extended.graph.output.append(value)
    return extended
