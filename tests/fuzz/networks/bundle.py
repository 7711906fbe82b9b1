"""Networks in one model, side by side: they share an import, a compile and a build."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from convoy.bench.smaller import declared_anew
from fuzz.networks.draft import Form
from fuzz.networks.make import SIDE, make_model

Arrays = dict[str, np.ndarray]


def join(models: Mapping[int, onnx.ModelProto]) -> onnx.ModelProto:
    """One model of networks of one form; each name in it begins with its network's number.

    Its inputs and outputs are theirs, in order.
    """
    graph = onnx.GraphProto(name="fuzz")
    for number, model in models.items():
        add_graph(graph, model.graph, f"n{number}_")
    return make_model(graph, form_of(next(iter(models.values()))))


def add_graph(target: onnx.GraphProto, graph: onnx.GraphProto, prefix: str) -> None:
    """Append a copy of ``graph``, with ``prefix`` before all names but that of an open batch."""
    copy = onnx.GraphProto()
    copy.CopyFrom(graph)
    for node in copy.node:
        node.name = prefix + node.name
        node.input[:] = [prefix + name if name else "" for name in node.input]
        node.output[:] = [prefix + name if name else "" for name in node.output]
    for value in (*copy.input, *copy.output, *copy.initializer):
        value.name = prefix + value.name
    for value in copy.input:
        for dim in value.type.tensor_type.shape.dim:
            if _side(dim):
                dim.dim_param = prefix + dim.dim_param
    target.node.extend(copy.node)
    target.input.extend(copy.input)
    target.output.extend(copy.output)
    target.initializer.extend(copy.initializer)


def form_of(model: onnx.ModelProto) -> Form:
    """What all networks of a model that ``make_model`` made have alike."""
    dims = [dim for value in model.graph.input for dim in value.type.tensor_type.shape.dim]
    return Form(
        model.opset_import[0].version,
        int(properties(model).get("batch", "1")),
        symbolic=any(dim.dim_param == "N" for dim in dims),
        sides=any(_side(dim) for dim in dims),
    )


def _side(dim: onnx.TensorShapeProto.Dimension) -> int | None:
    """What an open side is run with; None of another dimension."""
    _, side, number = dim.dim_param.rpartition(SIDE)
    return int(number) if side else None


def closed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model of the sizes it is run with, its batch as it was."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for value in fixed.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            number = _side(dim)
            if number is not None:
                dim.dim_value = number
    return declared_anew(fixed) if form_of(model).sides else fixed


def properties(model: onnx.ModelProto) -> dict[str, str]:
    """The model's metadata."""
    return {entry.key: entry.value for entry in model.metadata_props}


def is_quantised(model: onnx.ModelProto) -> bool:
    """Is it judged by units of its scales?"""
    return properties(model).get("quantised") == "1"


def draw_inputs(model: onnx.ModelProto) -> list[np.ndarray]:
    """Normal values for each input, the same for the same name and shape."""
    batch = form_of(model).batch
    arrays = []
    for value in closed(model).graph.input:
        shape = [
            d.dim_value if d.HasField("dim_value") else batch for d in value.type.tensor_type.shape.dim
        ]
        rng = np.random.default_rng([zlib.crc32(value.name.encode()), *shape])
        arrays.append(rng.standard_normal(shape).astype(np.float32))
    return arrays


def constants_of(graph: onnx.GraphProto) -> Arrays:
    """Initializers, and what Constant nodes give, by name."""
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    return found


def split(
    values: Sequence[np.ndarray], models: Mapping[int, onnx.ModelProto]
) -> dict[int, list[np.ndarray]]:
    """The outputs of ``join``'s model, network by network."""
    rest, parts = list(values), {}
    for number, model in models.items():
        count = len(model.graph.output)
        parts[number], rest = rest[:count], rest[count:]
    return parts
