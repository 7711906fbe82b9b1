"""Constants in the place of random numbers: two engines never draw the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import onnx
from onnx import TensorProto, checker, helper, inliner, shape_inference

from convoy.onnx_file import all_nodes, inner_graphs

_LONG = TensorProto.INT64


def hold_draws(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[str]]:
    """The model with a constant where a node draws random numbers, and the names of these nodes.

    A normal number is one deviation above its mean, a uniform one at three quarters, a chance of one half
    and less is a 0, and of classes the likeliest is taken.  A model that draws nothing is returned as is,
    and so is a node that no engine takes: they say what is wrong with it.
    """
    graphs = [model.graph, *model.functions]
    if not any(_draws(node) for graph in graphs for node in all_nodes(graph)):
        return model, []
    held = onnx.ModelProto()
    held.CopyFrom(model)
    if any(_draws(node) for function in model.functions for node in all_nodes(function)):
        with suppress(Exception):  # a faulty model, of which the engines say what is wrong
            held = inliner.inline_local_functions(held)
    holding = _Holding(held)
    holding.hold(held.graph)
    return held, holding.found


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


class _Holding:
    """Puts forms in the place of nodes that draw."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.types = _types(model)
        self.found: list[str] = []
        self.names = {name for node in all_nodes(model.graph) for name in (*node.input, *node.output)}
        self.context = checker.C.CheckerContext()
        self.context.ir_version = model.ir_version
        self.context.opset_imports = {entry.domain: entry.version for entry in model.opset_import}

    def hold(self, graph: onnx.GraphProto) -> None:
        nodes = list(graph.node)
        del graph.node[:]
        for node in nodes:
            for inner in inner_graphs(node):
                self.hold(inner)
            graph.node.extend(self.form_of(node) if _draws(node) else [node])

    def form_of(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        try:
            checker.check_node(node, self.context)
            given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            typed = self.types.get(node.input[0] if node.input else "")
            kind = given.get("dtype") or typed or TensorProto.FLOAT
            form = list(FORMS[node.op_type](node, given, kind, self.fresh))
        except (checker.ValidationError, KeyError, TypeError, ValueError):
            return [node]
        self.found.append(node.name or node.output[0])
        return form

    def fresh(self, name: str) -> str:
        """A name that no tensor has."""
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name


Given = dict[str, float]
Fresh = Callable[[str], str]
Form = Callable[[onnx.NodeProto, Given, int, Fresh], Iterator[onnx.NodeProto]]


def _filled(node: onnx.NodeProto, given: Given, kind: int, fresh: Fresh) -> Iterator[onnx.NodeProto]:
    low, high = given.get("low", 0.0), given.get("high", 1.0)
    number = low + 0.75 * (high - low)
    if "Normal" in node.op_type:
        number = given.get("mean", 0.0) + given.get("scale", 1.0)
    shape = fresh(f"{node.output[0]}_shape")
    if node.input:
        yield helper.make_node("Shape", [node.input[0]], [shape])
    else:
        yield _constant(shape, list(given["shape"]))  # type: ignore[call-overload]
    value = helper.make_tensor("value", kind, [1], [number])
    yield helper.make_node("ConstantOfShape", [shape], node.output, node.name, value=value)


def _likelier(node: onnx.NodeProto, given: Given, kind: int, fresh: Fresh) -> Iterator[onnx.NodeProto]:
    half, chance, truth = (fresh(f"{node.output[0]}_{word}") for word in ("half", "chance", "truth"))
    value = helper.make_tensor("value", TensorProto.FLOAT, [], [0.5])
    yield helper.make_node("Constant", [], [half], value=value)
    yield helper.make_node("Cast", [node.input[0]], [chance], to=TensorProto.FLOAT)
    yield helper.make_node("Greater", [chance, half], [truth])
    yield helper.make_node("Cast", [truth], node.output, node.name, to=kind)


def _likeliest(node: onnx.NodeProto, given: Given, kind: int, fresh: Fresh) -> Iterator[onnx.NodeProto]:
    best, shape, every = (fresh(f"{node.output[0]}_{word}") for word in ("best", "shape", "every"))
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
