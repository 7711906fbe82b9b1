"""Evaluate what an ONNX graph knows before it runs.

Exporters write ``x.view(n, 2, c // 2, h, w)`` as a page of Shape, Gather, Mul, Where and Concat
nodes.  Here every node with constant inputs is computed, ``Shape`` of a tensor of known shape is
a constant, and a shape that is known but for the open batch is carried as a list with holes
through the few ops that build shapes, until the ``Reshape`` that uses it says ``-1`` or ``0``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from convoy.onnx_file import inner_graphs
from convoy.relax.importer.prepare import infer_shapes
from convoy.relax.importer.read import Array, Model

Known = int | str
"""An element of a shape: its value, or the symbol of an open dimension (``?``: unknown)."""
Holed = list[Known]

RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)
ROUNDS = 8
"""Shapes found in one round may reveal more in the next; real models need one or two."""


def _empty_inputs(model: Model) -> dict[str, Array]:
    """Inputs without elements are known before the run; TVM reduces one to unwritten memory."""
    found: dict[str, Array] = {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else -1 for d in kind.shape.dim]
        if 0 in shape and min(shape) >= 0:
            found[value.name] = np.empty(shape, helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return found


def evaluate_constants(model: Model) -> None:
    """Compute every node whose inputs are all constants, and drop nodes no output needs."""
    _Evaluation(model, {}).run()
    _drop_unused(model)


def evaluate_shapes(model: Model) -> None:
    """Compute shape arithmetic as far as shapes are known; ``Reshape`` targets become constants."""
    for _ in range(ROUNDS):
        if not any(node.op_type in ("Shape", "Size") for node in model.graph.node):
            return
        if not _Evaluation(model, infer_shapes(model)).run():
            return
        _drop_unused(model)


class _Evaluation:
    """One pass over the nodes, in order."""

    def __init__(self, model: Model, shapes: Mapping[str, tuple[Known, ...]]) -> None:
        self.model = model
        self.shapes = shapes
        self.constants = model.constants() | _empty_inputs(model)
        self.holed: dict[str, Holed] = {}
        self.opsets = {entry.domain: entry.version for entry in model.skeleton.opset_import}

    def run(self) -> bool:
        """Whether anything was found."""
        kept = []
        changed = False
        for node in self.model.graph.node:
            results = self.compute(node)
            if results is not None and all(array.size for array in results):
                changed = True
                for name, array in zip(node.output, results, strict=False):
                    self.keep(name, array)
                continue
            if results is not None:  # TVM cannot store an empty constant, but what follows may use it
                self.constants |= dict(zip(node.output, results, strict=False))
            changed |= self.carry(node)
            kept.append(node)
        del self.model.graph.node[:]
        self.model.graph.node.extend(kept)
        return changed

    def keep(self, name: str, array: Array) -> None:
        self.model.add_constant(name, array)
        self.constants[name] = array

    def compute(self, node: onnx.NodeProto) -> list[Array] | None:
        """The outputs of a node that is constant, or None."""
        if node.op_type in ("Shape", "Size") and node.input[0] in self.shapes:
            dims = _shape_slice(node, self.shapes[node.input[0]])
            if all(isinstance(d, int) for d in dims):
                found = np.array(dims, np.int64)
                return [found if node.op_type == "Shape" else np.array(found.prod(), np.int64)]
            return None
        if node.op_type in RANDOM or any(inner_graphs(node)):
            return None
        feeds = {name: self.constants.get(name) for name in node.input if name}
        if any(value is None for value in feeds.values()):
            return None
        try:
            results = ReferenceEvaluator(node, opsets=self.opsets).run(None, feeds)
        except Exception:  # an op onnx.reference lacks: TVM gets it as it is
            return None
        arrays = [np.asarray(r) for r in results]
        return arrays if all(a.dtype != object for a in arrays) else None

    def carry(self, node: onnx.NodeProto) -> bool:
        """Pass a shape with holes on; True if a Reshape got its constant target."""
        if node.op_type == "Shape" and node.input[0] in self.shapes:
            self.holed[node.output[0]] = list(_shape_slice(node, self.shapes[node.input[0]]))
        elif node.op_type == "Reshape":
            return self.settle_reshape(node)
        elif node.op_type in _CARRIERS:
            values = [self.elements(name) for name in node.input if name]
            if all(v is not None for v in values):
                found = _CARRIERS[node.op_type](node, [v for v in values if v is not None])
                if found is not None:
                    self.holed[node.output[0]] = found
        return False

    def elements(self, name: str) -> Holed | None:
        """A short integer vector or scalar, constant or with holes."""
        array = self.constants.get(name)
        if array is not None:
            small = array.size <= 64 and array.ndim <= 1 and array.dtype.kind in "iu"
            return [int(v) for v in array.reshape(-1)] if small else None
        return self.holed.get(name)

    def settle_reshape(self, node: onnx.NodeProto) -> bool:
        target = self.holed.get(node.input[1])
        if target is None or any(a.name == "allowzero" and a.i for a in node.attribute):
            return False
        source = self.shapes.get(node.input[0], ())
        copied: list[Known] = [
            0 if isinstance(d, str) and d != "?" and i < len(source) and source[i] == d else d
            for i, d in enumerate(target)
        ]
        open_at = [i for i, d in enumerate(copied) if isinstance(d, str)]
        if len(open_at) > 1 or (open_at and -1 in copied):
            return False
        name = f"{node.output[0]}_shape"
        self.keep(name, np.array([-1 if isinstance(d, str) else d for d in copied], np.int64))
        node.input[1] = name
        return True


def _shape_slice(node: onnx.NodeProto, dims: tuple[Known, ...]) -> tuple[Known, ...]:
    bounds = {a.name: a.i for a in node.attribute}
    return dims[bounds.get("start", 0) : bounds.get("end", len(dims))]


def _axis(node: onnx.NodeProto) -> int:
    return next((int(a.i) for a in node.attribute if a.name == "axis"), 0)


def _gather(node: onnx.NodeProto, values: list[Holed]) -> Holed | None:
    data, indices = values
    if _axis(node) != 0 or not all(isinstance(i, int) and -len(data) <= i < len(data) for i in indices):
        return None
    return [data[int(i)] for i in indices]


def _slice(node: onnx.NodeProto, values: list[Holed]) -> Holed | None:
    if not 3 <= len(values) <= 5 or any(isinstance(v[0], str) for v in values[1:]):
        return None
    data, (start, *_), (end, *_) = values[:3]
    step = values[4][0] if len(values) == 5 else 1
    return data[slice(int(start), int(end), int(step))] if int(step) > 0 else None


def _concat(node: onnx.NodeProto, values: list[Holed]) -> Holed:
    return [element for value in values for element in value]


def _forward(node: onnx.NodeProto, values: list[Holed]) -> Holed:
    return values[0]


def _cast(node: onnx.NodeProto, values: list[Holed]) -> Holed | None:
    """To integers only: 7 / 2 of floats is no element of a shape, but may become one again."""
    to = next(a.i for a in node.attribute if a.name == "to")
    return values[0] if to in (TensorProto.INT32, TensorProto.INT64) else None


def _combine(operation: Callable[[int, int], int]) -> Callable[[onnx.NodeProto, list[Holed]], Holed | None]:
    """Elementwise over two vectors; what depends on an open dimension becomes unknown."""

    def apply(node: onnx.NodeProto, values: list[Holed]) -> Holed | None:
        left, right = values
        if len(left) != len(right) and 1 not in (len(left), len(right)):
            return None
        size = max(len(left), len(right))
        pairs = zip(left * (size // len(left)), right * (size // len(right)), strict=True)
        return ["?" if isinstance(a, str) or isinstance(b, str) else operation(a, b) for a, b in pairs]

    return apply


_CARRIERS: dict[str, Callable[[onnx.NodeProto, list[Holed]], Holed | None]] = {
    "Gather": _gather,
    "Slice": _slice,
    "Concat": _concat,
    "Cast": _cast,
    "Identity": _forward,
    "Squeeze": _forward,
    "Unsqueeze": _forward,
    "Add": _combine(lambda a, b: a + b),
    "Sub": _combine(lambda a, b: a - b),
    "Mul": _combine(lambda a, b: a * b),
    "Div": _combine(lambda a, b: int(a / b) if b else 0),
}
"""Scalars and vectors are both lists here, so Squeeze and Unsqueeze change nothing."""


def _drop_unused(model: Model) -> None:
    needed = {output.name for output in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):
        if not needed.isdisjoint(node.output):
            needed.update(_reads(node))
            kept.append(node)
    graph = model.graph
    constants = [t for t in graph.initializer if t.name in needed]
    inputs = [v for v in graph.input if v.name in needed or v.name not in model.weights]
    for old, new in ((graph.node, kept[::-1]), (graph.initializer, constants), (graph.input, inputs)):
        del old[:]
        old.extend(new)
    for name in model.weights.keys() - needed:
        del model.weights[name]


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for graph in inner_graphs(node):
        for inner in graph.node:
            yield from _reads(inner)
        yield from (output.name for output in graph.output)
