"""How often a Loop runs whose condition follows from constants, as ``while i < 3`` of an i from 0.

Its steps are evaluated without the rest of the body: what the condition is made of, and the states in that.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from convoy.relax.importer.read import Array

_MOST_NUMBERS = 4096
"""Numbers that a condition is made of, at most, at any step: it is evaluated at each."""
_COUNTS = frozenset({
    "Abs", "Add", "And", "Cast", "Concat", "Constant", "Div", "Equal", "Gather", "Greater",
    "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or",
    "ReduceMax", "ReduceMin", "ReduceSum", "Reshape", "Shape", "Size", "Slice", "Squeeze", "Sub",
    "Unsqueeze", "Where", "Xor",
})  # fmt: skip
"""Ops of a condition that is evaluated: none makes many numbers of few, as Expand does, or draws them."""


def count_steps(
    node: onnx.NodeProto,
    body: onnx.GraphProto,
    outside: Mapping[str, Array],
    opsets: Mapping[str, int],
    most: int,
) -> int | None:
    """The steps of a loop before its condition ends it, ``most`` if it does not; None where a call decides.

    Parameters
    ----------
    outside : Mapping[str, Array]
        The constants around it.
    opsets : Mapping[str, int]
        The version of each domain.
    most : int
        Steps that are evaluated.
    """
    at, runs, *states = (value.name for value in body.input)
    ends, *after = (value.name for value in body.output[: len(states) + 1])
    follows = dict(zip(states, after, strict=True))
    begins = dict(zip(states, node.input[2:], strict=True))
    needed = _closure(body, ends, follows)
    known = {name: array for name, array in outside.items() if name not in {*begins, at}}
    known |= {runs: np.array(True)}
    known |= {tensor.name: numpy_helper.to_array(tensor) for tensor in body.initializer}
    nodes = [inner for inner in body.node if not needed.isdisjoint(inner.output)]
    if any(inner.op_type not in _COUNTS for inner in nodes):
        return None
    made = {name for inner in nodes for name in inner.output}
    moving = [name for name in states if name in needed]
    fixed = {name: known[name] for name in needed - made - {at, *moving} if name in known}
    if needed - made - {at, *moving} - fixed.keys() or not {begins[n] for n in moving} <= outside.keys():
        return None
    values = {name: outside[begins[name]] for name in moving}
    inputs = {at: np.array(0), **fixed, **values}
    graph = helper.make_graph(
        nodes, "steps",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), None)
            for n, a in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in (ends, *(follows[n] for n in moving))],
    )  # fmt: skip
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    try:
        steps = ReferenceEvaluator(helper.make_model(graph, opset_imports=imports))
        for i in range(most):
            if sum(array.size for array in (*fixed.values(), *values.values())) > _MOST_NUMBERS:
                return None
            with np.errstate(all="ignore"):
                going, *found = steps.run(None, {at: np.array(i), **fixed, **values})
            if not np.all(going):
                return i + 1
            values = dict(zip(moving, found, strict=True))
    except Exception:  # an op that onnx.reference lacks
        return None
    return most


def _closure(body: onnx.GraphProto, ends: str, follows: Mapping[str, str]) -> set[str]:
    """The names that the condition is made of, with those that the states among them are."""
    needed, before = {ends}, 0
    while len(needed) > before:
        before = len(needed)
        for node in reversed(body.node):
            if not needed.isdisjoint(node.output):
                needed.update(filter(None, node.input))
        needed.update(after for name, after in follows.items() if name in needed)
    return needed
