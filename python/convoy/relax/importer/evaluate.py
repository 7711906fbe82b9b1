"""Evaluate what an ONNX graph knows before it runs.

Here every node with constant inputs is computed, and ``Shape`` of a tensor of known shape is a constant.
What is computed from open sizes becomes expressions of them later (``sizes/``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from convoy.onnx_file import inner_graphs, names_read
from convoy.relax.importer.prepare import infer_shapes
from convoy.relax.importer.read import Array, Model
from convoy.relax.importer.sizes.spaced import spaced

Size = int | str
"""An element of a shape: its value, or the symbol of an open dimension (``?``: unknown)."""

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
    """Compute shape arithmetic as far as shapes are known."""
    for _ in range(ROUNDS):
        if not any(node.op_type in ("Shape", "Size") for node in model.graph.node):
            return
        if not _Evaluation(model, infer_shapes(model)).run():
            return
        _drop_unused(model)


class _Evaluation:
    """One pass over the nodes, in order."""

    def __init__(self, model: Model, shapes: Mapping[str, tuple[Size, ...]]) -> None:
        self.model = model
        self.shapes = shapes
        self.constants = model.constants() | _empty_inputs(model)
        self.forgotten: set[str] = set()
        self.opsets = {entry.domain: entry.version for entry in model.skeleton.opset_import}

    def run(self) -> bool:
        """Whether anything was found."""
        kept = []
        changed = False
        readers = Counter(name for node in self.model.graph.node for name in names_read(node))
        readers.update(output.name for output in self.model.graph.output)
        for node in self.model.graph.node:
            results = self.compute(node)
            if results is not None and all(array.size for array in results):
                changed = True
                for name, array in zip(node.output, results, strict=False):
                    self.keep(name, array)
                readers.subtract(names_read(node))
                self.forget(name for name in node.input if not readers[name])
                continue
            if results is not None:  # TVM cannot store an empty constant, but what follows may use it
                self.constants |= dict(zip(node.output, results, strict=False))
            kept.append(node)
        del self.model.graph.node[:]
        self.model.graph.node.extend(kept)
        inputs = [value for value in self.model.graph.input if value.name not in self.forgotten]
        del self.model.graph.input[:]
        self.model.graph.input.extend(inputs)
        return changed

    def keep(self, name: str, array: Array) -> None:
        self.model.add_constant(name, array)
        self.constants[name] = array

    def forget(self, names: Iterable[str]) -> None:
        """Free large constants that nobody reads any more: to unpack a weight takes many times its size."""
        for name in names:
            if name in self.model.weights:
                del self.model.weights[name], self.constants[name]
                self.forgotten.add(name)

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
        if node.op_type == "Range" and not node.domain:  # of which onnx.reference rounds the length
            return _range([feeds[name] for name in node.input])
        try:
            with np.errstate(all="ignore"):  # of infinities and NaN that a network means NumPy would warn
                results = ReferenceEvaluator(node, opsets=self.opsets).run(None, feeds)
        except Exception:  # an op onnx.reference lacks: TVM gets it as it is
            return None
        arrays = [np.asarray(r) for r in results]
        return arrays if all(a.dtype != object for a in arrays) else None


def _range(numbers: Sequence[Array | None]) -> list[Array] | None:
    if len(numbers) != 3 or any(n is None or n.size != 1 for n in numbers):
        return None
    made = spaced(*numbers)
    return None if made is None else [made]


def _shape_slice(node: onnx.NodeProto, dims: tuple[Size, ...]) -> tuple[Size, ...]:
    bounds = {a.name: a.i for a in node.attribute}
    return dims[bounds.get("start", 0) : bounds.get("end", len(dims))]


def _drop_unused(model: Model) -> None:
    needed = {output.name for output in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):
        if not needed.isdisjoint(node.output):
            needed.update(names_read(node))
            kept.append(node)
    graph = model.graph
    constants = [t for t in graph.initializer if t.name in needed]
    inputs = [v for v in graph.input if v.name in needed or v.name not in model.weights]
    for old, new in ((graph.node, kept[::-1]), (graph.initializer, constants), (graph.input, inputs)):
        del old[:]
        old.extend(new)
    for name in model.weights.keys() - needed:
        del model.weights[name]
