"""Small real models to damage: stretches of the zoo's networks, with their own weights, some quantised.

A whole network takes a minute to compile, and a mutant of it says no more than one of ten nodes.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from command import tiny_model
from convoy import zoo
from fuzz.campaign.oracle import quantise_network

NETWORKS = (
    "densenet121", "efficientnet_b0", "inception_v1", "inception_v2", "mobilenet_v2", "resnet18",
    "resnet50", "shufflenet", "squeezenet", "unet",
)  # fmt: skip
LONGEST = 12
"""Nodes of a stretch."""
LARGEST = 17
"""Rows and columns of a stretch's inputs, at most."""
PER_CHANNEL = 13
"""The opset in which DequantizeLinear has an axis."""
_WEIGHTS = 400_000
"""Elements of a stretch's weights, at most: more would only make the files large."""


def pick_model(rng: np.random.Generator) -> onnx.ModelProto:
    """A valid model: mostly a stretch of a real network, sometimes the tests' own tiny one."""
    if rng.random() < 0.15:
        return tiny_model(batch="N" if rng.random() < 0.5 else 1, softmax=bool(rng.random() < 0.5))
    while True:
        found = _cut(_network(str(rng.choice(NETWORKS))), rng)
        if found is not None:
            newer = found.opset_import[0].version >= PER_CHANNEL
            return quantise_network(found, rng) if newer and rng.random() < 0.5 else found


@lru_cache(maxsize=len(NETWORKS))
def _network(name: str) -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
    """A network, and the shape of each of its tensors."""
    model = zoo.load(name)
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for tensor in bare.graph.initializer:  # their values do not matter, but those of shapes
        if tensor.data_type == TensorProto.FLOAT:
            tensor.ClearField("raw_data")
            bare.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            )
    kept = [tensor for tensor in bare.graph.initializer if tensor.data_type != TensorProto.FLOAT]
    del bare.graph.initializer[:]
    bare.graph.initializer.extend(kept)
    graph = shape_inference.infer_shapes(bare, data_prop=True).graph
    shapes = {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.input, *graph.value_info, *graph.output)
    }
    return model, shapes


def _cut(
    network: tuple[onnx.ModelProto, dict[str, tuple[int, ...]]], rng: np.random.Generator
) -> onnx.ModelProto | None:
    """Some nodes in a row, on a small map; None where the stretch that was drawn is none of use."""
    model, shapes = network
    begin = int(rng.integers(len(model.graph.node)))
    nodes = list(model.graph.node)[begin : begin + int(rng.integers(3, LONGEST + 1))]
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    reached = {name for node in nodes for name in node.input}
    shapers = [
        n for n in model.graph.node[:begin] if n.output[0] in reached and constants.keys() >= set(n.input)
    ]
    nodes = [*shapers, *nodes]
    made = {name for node in nodes for name in node.output}
    read = dict.fromkeys(name for node in nodes for name in node.input if name)
    inputs = [name for name in read if name not in made and name not in constants]
    outputs = [node.output[0] for node in nodes if node.output[0] not in read]
    weights = [constants[name] for name in read if name in constants]
    if (
        not inputs
        or len(inputs) > 4
        or not set(outputs) <= shapes.keys()
        or any(0 in shapes.get(name, (0,)) for name in inputs)
    ):
        return None
    if sum(int(np.prod(w.dims)) for w in weights) > _WEIGHTS:
        return None
    cut = helper.make_graph(
        nodes,
        f"{model.graph.name} from {begin}",
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, _small(shapes[name], shapes[inputs[0]]))
            for name in inputs
        ],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * len(shapes[n])) for n in outputs],
        weights,
    )
    found = helper.make_model(cut, opset_imports=model.opset_import, ir_version=8)
    return found if _is_valid(found) else None


def _small(shape: tuple[int, ...], first: tuple[int, ...]) -> tuple[int, ...]:
    """The shape on a smaller map, by the same divisor for all inputs."""
    if len(shape) != 4 or len(first) != 4:
        return shape
    divisor = max(1, -(-max(first[2:]) // LARGEST))
    return (*shape[:2], *(-(-size // divisor) for size in shape[2:]))


def _is_valid(model: onnx.ModelProto) -> bool:
    """A stretch with a Reshape to what the whole network has there does not fit a smaller map."""
    try:
        onnx.checker.check_model(model)
        inferred = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except (onnx.checker.ValidationError, shape_inference.InferenceError):
        return False
    shapes = [
        value.type.tensor_type.shape.dim for value in (*inferred.graph.value_info, *inferred.graph.output)
    ]
    return all(dim.dim_value > 0 for dims in shapes for dim in dims)


def integer_constants(model: onnx.ModelProto) -> list[tuple[onnx.TensorProto, np.ndarray]]:
    """The initializers that say shapes, axes or sizes, and their values."""
    found = [tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.INT64]
    return [(tensor, numpy_helper.to_array(tensor)) for tensor in found]
