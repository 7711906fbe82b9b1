"""Smaller networks than one that fails, to try whether they fail, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import onnx
from onnx import TensorProto, helper

from convoy.bench.inputs import forget_shape
from convoy.onnx_file import all_nodes, inner_graphs

Model: TypeAlias = onnx.ModelProto
Values = dict[str, onnx.ValueInfoProto]


def shrink(model: Model, fails: Callable[[Model], bool]) -> Model:
    """The smallest network found that ``fails``, which ``model`` does.

    Where it ends is found by halves: what fails because of a node fails with all that comes behind it.
    """
    ends = _prefixes(model)
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if fails(ends[middle]()):
            high = middle
        else:
            low = middle + 1
    if low < len(ends):
        model = ends[low]()
    while (smaller := next(filter(fails, smaller_models(model)), None)) is not None:
        model = smaller
    return model


def _prefixes(model: Model) -> list[Callable[[], Model]]:
    """The network up to each of its tensors, in their order; none where that is the whole of it."""
    values = _values(model)
    return [
        lambda name=name: _part(model, values, [name])  # type: ignore[misc]
        for name in _floats(model, values)
    ]


def smaller_models(model: Model) -> Iterator[Model]:
    """Networks with something less, the boldest first."""
    values = _values(model)
    floats = _floats(model, values)
    outputs = [value.name for value in model.graph.output]
    if len(outputs) > 1:
        for name in outputs:
            yield _part(model, values, [name])
    for name in floats:  # the network ends here
        if outputs != [name]:
            yield _part(model, values, [name])
    for name in reversed(floats):  # the network begins here
        if name not in outputs:
            yield _part(model, values, outputs, begins=(name,))
    for i, node in enumerate(model.graph.node):
        for name in node.input:  # without this node
            if (
                len(node.output) == 1
                and name in values
                and _dims(values[name]) == _dims(values.get(node.output[0]))
            ):
                yield _without(model, values, i, name)
    yield from _smaller_sizes(model)
    yield from _plainer_attributes(model)


def _values(model: Model) -> Values:
    """What is known of each tensor, by its name."""
    known = onnx.shape_inference.infer_shapes(model).graph
    return {v.name: v for v in (*known.value_info, *known.input, *known.output)}


def _floats(model: Model, values: Values) -> list[str]:
    """The tensors of float32 that nodes make, in their order."""
    made = (name for node in model.graph.node for name in node.output)
    return [name for name in made if name in values and _is_float(values[name])]


def _is_float(value: onnx.ValueInfoProto) -> bool:
    return bool(
        value.type.tensor_type.elem_type == TensorProto.FLOAT and value.type.tensor_type.HasField("shape")
    )


def _dims(value: onnx.ValueInfoProto | None) -> tuple[object, ...] | None:
    if value is None:
        return None
    return tuple(d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim)


def _part(model: Model, values: Values, outputs: list[str], begins: tuple[str, ...] = ()) -> Model:
    """What ``outputs`` need, with the tensors ``begins`` as inputs."""
    needed, nodes = set(outputs), []
    for node in reversed(model.graph.node):
        wanted = needed.intersection(node.output) - set(begins)
        if wanted:
            nodes.append(node)
            needed |= _reads(node)
    made = {name for node in nodes for name in node.output}
    inputs = [value for value in model.graph.input if value.name in needed]
    inputs += [values[name] for name in begins if name in needed and name not in made]
    declared = {value.name: value for value in model.graph.output}
    graph = helper.make_graph(
        nodes[::-1],
        model.graph.name,
        inputs,
        [declared.get(name) or values[name] for name in outputs],
        [tensor for tensor in model.graph.initializer if tensor.name in needed],
    )
    return _like(model, graph)


def _without(model: Model, values: Values, number: int, instead: str) -> Model:
    """The network with the input ``instead`` of a node in the place of its output."""
    smaller = Model()
    smaller.CopyFrom(model)
    gone = smaller.graph.node[number].output[0]
    del smaller.graph.node[number]
    for node in smaller.graph.node:
        node.input[:] = [instead if name == gone else name for name in node.input]
    outputs = [instead if value.name == gone else value.name for value in model.graph.output]
    return _part(smaller, values, list(dict.fromkeys(outputs)))


def _smaller_sizes(model: Model) -> Iterator[Model]:
    """Each size of an input 1, or less by a half or by one; all inputs have one batch."""
    for i, value in enumerate(model.graph.input):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            n = dim.dim_value
            for less in sorted({1, n // 2, n - 1}):
                if 0 < less < n:
                    yield resized(model, i if axis else None, axis, less)


def resized(model: Model, number: int | None, axis: int, size: int) -> Model:
    """With another size of an input's axis (of all inputs, if none is named), outputs declared anew."""
    smaller = Model()
    smaller.CopyFrom(model)
    chosen = smaller.graph.input if number is None else [smaller.graph.input[number]]
    for value in chosen:
        dim = value.type.tensor_type.shape.dim[axis]
        dim.Clear()
        dim.dim_value = size
    return declared_anew(smaller)


def declared_anew(model: Model) -> Model:
    """With the shapes of outputs as they are now."""
    given = {value.name for value in (*model.graph.initializer, *model.graph.input)}
    for value in model.graph.output:
        if value.name not in given:
            forget_shape(value)
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        return model
    del inferred.graph.value_info[:]
    return inferred


def _plainer_attributes(model: Model) -> Iterator[Model]:
    for i, node in enumerate(model.graph.node):
        for j, attribute in enumerate(node.attribute):
            if attribute.name not in ("kernel_shape", "group", "value", "axis", "perm"):
                smaller = Model()
                smaller.CopyFrom(model)
                del smaller.graph.node[i].attribute[j]
                yield declared_anew(smaller)


def _reads(node: onnx.NodeProto) -> set[str]:
    """What a node reads, its bodies included."""
    inner = (name for graph in inner_graphs(node) for n in all_nodes(graph) for name in n.input)
    return {*node.input, *inner}


def _like(model: Model, graph: onnx.GraphProto) -> Model:
    made = Model()
    made.CopyFrom(model)
    made.graph.CopyFrom(graph)
    return made
