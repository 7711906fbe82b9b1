"""Constants in the place of random numbers: two engines never draw the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx
from onnx import TensorProto, helper, shape_inference

from convoy.onnx_file import all_nodes, inner_graphs

_LONG = TensorProto.INT64


def hold_draws(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[str]]:
    """The model with a constant where a node draws random numbers, and the names of these nodes.

    A normal number is one deviation above its mean, a uniform one at three quarters, a chance of one half
    and less is a 0, and of classes the likeliest is taken.  A model that draws nothing is returned as is.
    """
    if not any(_draws(node) for node in all_nodes(model.graph)):
        return model, []
    held = onnx.ModelProto()
    held.CopyFrom(model)
    found: list[str] = []
    _hold(held.graph, _types(model), found)
    return held, found


def _draws(node: onnx.NodeProto) -> bool:
    return node.op_type in FORMS and node.domain in ("", "ai.onnx")


def _types(model: onnx.ModelProto) -> dict[str, int]:
    """The types of elements, by tensor, as far as they are known."""
    try:
        graph = shape_inference.infer_shapes(model).graph
    except Exception:  # external data, a faulty model: then floats are drawn
        graph = model.graph
    values = [*graph.input, *graph.value_info, *graph.output]
    return {value.name: value.type.tensor_type.elem_type for value in values}


def _hold(graph: onnx.GraphProto, types: dict[str, int], found: list[str]) -> None:
    nodes = list(graph.node)
    del graph.node[:]
    for node in nodes:
        for inner in inner_graphs(node):
            _hold(inner, types, found)
        if not _draws(node):
            graph.node.append(node)
            continue
        found.append(node.name or node.output[0])
        given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        kind = given.get("dtype") or types.get(node.input[0] if node.input else "") or TensorProto.FLOAT
        graph.node.extend(FORMS[node.op_type](node, given, kind))


Given = dict[str, float]
Form = Callable[[onnx.NodeProto, Given, int], Iterator[onnx.NodeProto]]


def _filled(node: onnx.NodeProto, given: Given, kind: int) -> Iterator[onnx.NodeProto]:
    low, high = given.get("low", 0.0), given.get("high", 1.0)
    number = low + 0.75 * (high - low)
    if "Normal" in node.op_type:
        number = given.get("mean", 0.0) + given.get("scale", 1.0)
    shape = f"{node.output[0]}_shape"
    if node.input:
        yield helper.make_node("Shape", [node.input[0]], [shape])
    else:
        yield _constant(shape, list(given["shape"]))  # type: ignore[call-overload]
    value = helper.make_tensor("value", kind, [1], [number])
    yield helper.make_node("ConstantOfShape", [shape], node.output, node.name, value=value)


def _likelier(node: onnx.NodeProto, given: Given, kind: int) -> Iterator[onnx.NodeProto]:
    half, chance, truth = (f"{node.output[0]}_{word}" for word in ("half", "chance", "truth"))
    value = helper.make_tensor("value", TensorProto.FLOAT, [], [0.5])
    yield helper.make_node("Constant", [], [half], value=value)
    yield helper.make_node("Cast", [node.input[0]], [chance], to=TensorProto.FLOAT)
    yield helper.make_node("Greater", [chance, half], [truth])
    yield helper.make_node("Cast", [truth], node.output, node.name, to=kind)


def _likeliest(node: onnx.NodeProto, given: Given, kind: int) -> Iterator[onnx.NodeProto]:
    best, shape, every = (f"{node.output[0]}_{word}" for word in ("best", "shape", "every"))
    yield helper.make_node("ArgMax", [node.input[0]], [best], axis=1, keepdims=1)
    yield _constant(shape, [1, int(given.get("sample_size", 1))])
    yield helper.make_node("Expand", [best, shape], [every])
    yield helper.make_node("Cast", [every], node.output, node.name, to=int(given.get("dtype", 6)))


def _constant(name: str, numbers: list[int]) -> onnx.NodeProto:
    value = helper.make_tensor("value", _LONG, [len(numbers)], numbers)
    return helper.make_node("Constant", [], [name], value=value)


FORMS: dict[str, Form] = {
    "Bernoulli": _likelier,
    "Multinomial": _likeliest,
    "RandomNormal": _filled,
    "RandomNormalLike": _filled,
    "RandomUniform": _filled,
    "RandomUniformLike": _filled,
}
"""What stands in the place of each op that draws."""
