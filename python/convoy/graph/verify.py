"""The rules every ``Graph`` keeps.  Runs after each step that makes or changes one."""

from __future__ import annotations

from typing import NoReturn

from convoy.errors import GraphError
from convoy.graph.dtypes import ARRAYS, QUANTISED, DType
from convoy.graph.empty import may_be_empty
from convoy.graph.graph import Graph
from convoy.graph.messages import require
from convoy.graph.ops import Dequantize, Node, Quantize, Softmax, Strided
from convoy.graph.quantised import is_dequantised_constant
from convoy.graph.shapes import infer_shape


def verify(graph: Graph, *, filled: bool = False) -> None:
    """Check that names are defined once and before use, and that every node fits its tensors.

    Parameters
    ----------
    filled : bool
        Every tensor but what is only put beside others has an element.

    Raises
    ------
    GraphError
        Naming the first node or tensor that breaks a rule, and the rule.
    """
    _check_tensors(graph, filled)
    shapes = {name: tensor.shape for name, tensor in graph.tensors.items()}
    defined = _define_inputs(graph)
    for node in graph.nodes:
        for name in node.inputs:
            require(
                name in defined,
                node,
                f"%{name} defined before its use",
                "a later or no definition",
                "sort the nodes in running order",
            )
        legal = node.output not in defined
        require(legal, node, "a name of its own", "one that is already defined", "rename the output")
        legal = node.output in shapes
        require(legal, node, "a tensor for its output", "none", "add it to the graph's tensors")
        _check_weights(node, graph)
        _check_types(node, graph)
        inferred = infer_shape(node, shapes)
        declared = shapes[node.output]
        require(
            declared == inferred, node, f"an output of shape {inferred}", declared, "correct the tensor"
        )
        _check_image_axis(node, graph)
        defined.add(node.output)
    _check_outputs(graph, defined)


def _reject(name: str, problem: str, remedy: str) -> NoReturn:
    raise GraphError("verify", f"tensor %{name}", problem, remedy)


def _check_tensors(graph: Graph, filled: bool) -> None:
    for name, tensor in graph.tensors.items():
        if tensor.name != name:
            _reject(name, f"expected its own name, got {tensor.name!r}", "rename the tensor or its key")
        least = (0 if may_be_empty(name, axis, graph, filled) else 1 for axis in range(len(tensor.shape)))
        if any(d < n for d, n in zip(tensor.shape, least, strict=True)):
            _reject(name, f"expected dimensions ≥ 1, got {tensor.shape}", "leave empty tensors out")
    for name, array in graph.constants.items():
        if name not in graph.tensors:
            _reject(name, "expected a tensor for the constant, got none", "add it to the graph's tensors")
        if array.dtype != ARRAYS[graph.dtype(name)]:
            held = ARRAYS[graph.dtype(name)].name
            kept = "" if held == graph.dtype(name) else f", its bits in {held}"
            problem = f"expected a {graph.dtype(name)} constant{kept}, got {array.dtype}"
            _reject(name, problem, "convert it")
        if array.shape != graph.shape(name):
            problem = f"expected a constant of shape {graph.shape(name)}, got {array.shape}"
            _reject(name, problem, "correct the tensor")


def _define_inputs(graph: Graph) -> set[str]:
    """Inputs and constants: what is defined before the first node."""
    defined = set(graph.constants)
    for name in graph.inputs:
        if name not in graph.tensors:
            _reject(name, "expected a tensor for the input, got none", "add it to the graph's tensors")
        if name in defined:
            _reject(name, "expected one definition, got a second as an input", "rename one of them")
        if graph.batch != 1 and graph.shape(name)[:1] != (1,):
            problem = f"expected the shape of one image, 1 in axis 0, got {graph.shape(name)}"
            _reject(name, problem, "divide by the batch, or set batch to 1")
        defined.add(name)
    return defined


def _check_types(node: Node, graph: Graph) -> None:
    """All tensors of a node are of one type: float32, if it does more than to move elements.

    What quantises goes from one type to another, and so has scales of float32 beside integers.
    """
    names = (*node.inputs, node.output)
    wanted: tuple[DType, ...]
    if isinstance(node, Quantize | Dequantize):
        made = isinstance(node, Quantize)
        whole, legal = (node.output, QUANTISED) if made else (node.inputs[0], (*QUANTISED, "int32"))
        integer, remedy = graph.dtype(whole), "leave this op out of the region"
        require(integer in legal, node, f"%{whole} of {', '.join(legal)}", integer, remedy)
        wanted = (
            ("float32", "float32", integer, integer) if made else (integer, "float32", integer, "float32")
        )
    else:
        wanted = (graph.dtype(node.inputs[0]) if node.moves else "float32",) * len(names)
    for name, dtype in zip(names, wanted, strict=True):
        found = graph.dtype(name)
        require(found == dtype, node, f"%{name} of {dtype}", found, "leave this op out of the region")


def _check_weights(node: Node, graph: Graph) -> None:
    for role, name in zip(node.weights, node.inputs[1:], strict=False):
        legal = name in graph.constants
        if not isinstance(node, Quantize | Dequantize):
            legal = legal or is_dequantised_constant(name, graph)
        got = f"%{name}, computed at run time"
        require(legal, node, f"a constant {role}", got, "leave this op out of the region")


def _check_image_axis(node: Node, graph: Graph) -> None:
    """With a batch, axis 0 of every tensor that is no constant is the image's own."""
    if graph.batch == 1:
        return
    output = graph.shape(node.output)
    if is_dequantised_constant(node.output, graph):
        return
    remedy = "keep axis 0, or set batch to 1"
    require(output[:1] == (1,), node, "one image, 1 in axis 0 of the output", output, remedy)
    if len(node.inputs) > 1 and not isinstance(node, Strided):
        for name in node.inputs:
            fixed = name in graph.constants or is_dequantised_constant(name, graph)
            legal = fixed or len(graph.shape(name)) == len(output)
            require(legal, node, f"inputs of the output's rank {len(output)}", graph.shape(name), remedy)
    if isinstance(node, Softmax):
        require(node.axis != 0, node, "an axis ≥ 1", node.axis, "axis 0 is the image axis")


def _check_outputs(graph: Graph, defined: set[str]) -> None:
    if not graph.outputs:
        raise GraphError("verify", "graph", "expected an output, got none", "name what the region returns")
    if len(set(graph.outputs)) != len(graph.outputs):
        problem = f"expected distinct outputs, got {graph.outputs}"
        raise GraphError("verify", "graph", problem, "return each tensor once")
    for name in graph.outputs:
        if name not in graph.producer:
            _reject(
                name,
                "expected an output made by a node, got none that makes it",
                "return inputs and constants outside the region",
            )
    for name in graph.tensors:
        if name not in defined:
            _reject(
                name,
                "expected an input, a constant or a node's output, got none of them",
                "remove the tensor with its node",
            )
    if graph.batch is not None and graph.batch < 1:
        problem = f"expected a batch ≥ 1, got {graph.batch}"
        raise GraphError("verify", "graph", problem, "use None for one known at run time")
