"""Networks of the zoo at sizes that unoptimised code with a sanitizer in it gets through."""

from __future__ import annotations

import onnx

from convoy import zoo
from convoy.graph import Graph

SIZES = {
    "squeezenet": 39, "mobilenet_v2": 33, "resnet18": 37, "efficientnet_b0": 33,
    "unet": 32, "inception_v1": 47, "densenet121": 33,
}  # fmt: skip
"""Rows and columns of the image; odd ones leave rests in tiles.  (ShuffleNet is for 224 alone.)"""
QUICK = ("squeezenet",)


def lower_network(name: str) -> list[Graph]:
    """The regions of a network on a small image."""
    from convoy.relax.graphs import lower_model

    return lower_model(_shrink(zoo.load(name), SIZES[name]))


def _shrink(model: onnx.ModelProto, size: int) -> onnx.ModelProto:
    """The network up to where the whole image is pooled: what follows has a fixed number of inputs."""
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[2].dim_value = dims[3].dim_value = size
    nodes = list(model.graph.node)
    last = next(
        (i for i, n in enumerate(nodes) if n.op_type in ("Flatten", "Reshape") and i > len(nodes) * 0.8),
        len(nodes),
    )
    while nodes[last - 1].op_type in ("AveragePool", "Dropout") and last < len(nodes):
        last -= 1
    del model.graph.node[last:]
    del model.graph.output[:]
    del model.graph.value_info[:]
    name = nodes[last - 1].output[0]
    model.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * 4))
    used = {name for node in model.graph.node for name in node.input}
    unused = [i for i, tensor in enumerate(model.graph.initializer) if tensor.name not in used]
    for i in reversed(unused):
        del model.graph.initializer[i]
    return model
