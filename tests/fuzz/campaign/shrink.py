"""A network that fails, made smaller for as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import onnx
from onnx import TensorProto, helper

from fuzz.campaign.case import Case
from fuzz.networks.bundle import form_of, properties
from fuzz.networks.make import make_model

Model = onnx.ModelProto


def shrink(model: Model, case: Case, fails: Callable[[Model, Case], bool]) -> tuple[Model, Case]:
    """The smallest network and case found that ``fails``.

    Parameters
    ----------
    fails : Callable[[Model, Case], bool]
        Whether a network is valid and fails in the way the first one did; False as well once there has
        been enough of it.
    """
    going_on = True
    while going_on:
        going_on = False
        for smaller in smaller_models(model):
            if fails(smaller, case):
                model, going_on = smaller, True
                break
    for simpler in simpler_cases(case):
        if fails(model, simpler):
            case = simpler
    return model, case


def simpler_cases(case: Case) -> Iterator[Case]:
    """The case with one thing as it is by default, and without each of its passes."""
    for i in range(len(case.passes)):
        yield replace(case, passes=case.passes[i : i + 1])
    for name, value in (("passes", ()), ("threads", 1), ("shipped", False), ("small", True)):
        if getattr(case, name) != value:
            yield replace(case, **{name: value})


def smaller_models(model: Model) -> Iterator[Model]:
    """Networks with something less, the boldest first."""
    known = onnx.shape_inference.infer_shapes(model)
    values = {v.name: v for v in (*known.graph.value_info, *known.graph.input, *known.graph.output)}
    floats = [n for node in model.graph.node for n in node.output if n in values and _is_float(values[n])]
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


def _is_float(value: onnx.ValueInfoProto) -> bool:
    return bool(
        value.type.tensor_type.elem_type == TensorProto.FLOAT and value.type.tensor_type.HasField("shape")
    )


def _dims(value: onnx.ValueInfoProto | None) -> tuple[object, ...] | None:
    if value is None:
        return None
    return tuple(d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim)


def _part(
    model: Model, values: dict[str, onnx.ValueInfoProto], outputs: list[str], begins: tuple[str, ...] = ()
) -> Model:
    """What ``outputs`` need, with the tensors ``begins`` as inputs."""
    needed, nodes = set(outputs), []
    for node in reversed(model.graph.node):
        wanted = needed.intersection(node.output) - set(begins)
        if wanted:
            nodes.append(node)
            needed |= set(node.input)
    made = {name for node in nodes for name in node.output}
    inputs = [value for value in model.graph.input if value.name in needed]
    inputs += [values[name] for name in begins if name in needed and name not in made]
    declared = {value.name: value for value in model.graph.output}
    graph = helper.make_graph(
        nodes[::-1],
        "fuzz",
        inputs,
        [declared.get(name) or values[name] for name in outputs],
        [tensor for tensor in model.graph.initializer if tensor.name in needed],
    )
    return _like(model, graph)


def _without(model: Model, values: dict[str, onnx.ValueInfoProto], number: int, instead: str) -> Model:
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
    """A smaller batch; each size of an input 1, or less by a half or by one."""
    form = form_of(model)
    if form.symbolic:
        fixed = _resized(model, None, 0, form.batch)
        fixed.metadata_props[0].value = str(form.batch)
        yield fixed
    for i, value in enumerate(model.graph.input):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            n = dim.dim_value
            for less in sorted({1, n // 2, n - 1}):
                if 0 < less < n:
                    yield _resized(model, i if axis else None, axis, less)


def _resized(model: Model, number: int | None, axis: int, size: int) -> Model:
    """With another size of an input's axis (of all inputs, if none is named), outputs declared anew."""
    smaller = Model()
    smaller.CopyFrom(model)
    chosen = smaller.graph.input if number is None else [smaller.graph.input[number]]
    for value in chosen:
        dim = value.type.tensor_type.shape.dim[axis]
        dim.Clear()
        dim.dim_value = size
    return _declared_anew(smaller)


def _declared_anew(model: Model) -> Model:
    """With the shapes of outputs as they are now."""
    given = {value.name for value in (*model.graph.initializer, *model.graph.input)}
    for value in model.graph.output:
        if value.name not in given:
            value.type.tensor_type.ClearField("shape")
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
                yield _declared_anew(smaller)


def _like(model: Model, graph: onnx.GraphProto) -> Model:
    made = make_model(graph, form_of(model))
    helper.set_model_props(made, properties(model))
    return made
