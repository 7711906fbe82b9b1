"""What the ops make of known tensors that exporters compute shapes with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from convoy.relax.importer.sizes.algebra import Algebra, Number, Ratio, is_whole
from convoy.relax.importer.sizes.known import MOST_ELEMENTS, Known, known_array, known_numbers
from convoy.relax.importer.sizes.spaced import count_spaced, spaced


@dataclass(frozen=True)
class Node:
    """A node whose inputs are known."""

    op: str
    attributes: Mapping[str, Any]
    inputs: Sequence[Known | None]
    outputs: int
    algebra: Algebra

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def data(self, index: int = 0) -> Known:
        found = self.inputs[index]
        if found is None:
            raise ValueError(f"{self.op} without input {index}")
        return found

    def given(self, index: int, name: str) -> list[int] | None:
        """Numbers that are an input in newer opsets, and were an attribute; None if there are none."""
        found = self.inputs[index] if index < len(self.inputs) else None
        if found is None:
            value = self.attribute(name)
            return None if value is None else [int(v) for v in value]
        if not found.fixed:
            raise ValueError(f"{self.op} by an open size")
        return [int(v) for v in found.elements.flat]


class Unknown(Exception):
    """A result that depends on an open size in a way that no number says."""


def fold_node(
    op: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Known | None],
    outputs: int,
    algebra: Algebra,
) -> list[Known] | None:
    """What a node makes of known inputs; None if that is not known.

    Whatever does not fit, such as an index that does not exist, is left for the op's conversion to refuse.
    """
    folder = _FOLDERS.get(op)
    if folder is None:
        return None
    with suppress(Unknown, ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        made = folder(Node(op, attributes, inputs, outputs, algebra))
        made = made if isinstance(made, list) else [made]
        if len(made) >= outputs and all(m.elements.size <= MOST_ELEMENTS for m in made):
            return made
    return None


def _elementwise(operation: Callable[[Algebra, Number, Number], Number], dtype: str = "") -> Any:
    def fold(node: Node) -> Known:
        first, *rest = (node.data(i) for i in range(len(node.inputs)))
        elements = first.elements
        for other in rest:
            a, b = np.broadcast_arrays(elements, other.elements)
            pairs = zip(a.flat, b.flat, strict=True)
            elements = known_numbers(
                [_certain(operation(node.algebra, x, y)) for x, y in pairs], a.shape, first.dtype
            ).elements
        return Known(elements, dtype or first.dtype)

    return fold


def _compare(node: Node) -> Known:
    return _elementwise(lambda algebra, x, y: algebra.compare(node.op, x, y), "bool")(node)  # type: ignore[no-any-return]


def _each(operation: Callable[[Node, Number], Number]) -> Callable[[Node], Known]:
    def fold(node: Node) -> Known:
        x = node.data()
        return known_numbers(
            [_certain(operation(node, e)) for e in x.elements.flat], x.elements.shape, x.dtype
        )

    return fold


def _certain(number: Number) -> Number:
    if number is None:
        raise Unknown
    return number


def _rounded(operation: str) -> Callable[[Node], Known]:
    """Floor and Ceil: floats that are whole numbers."""

    def apply(node: Node, e: Number) -> Number:
        whole = _certain(getattr(node.algebra, operation)(e))
        return float(whole) if isinstance(whole, int) else Ratio(whole, 1)

    return _each(apply)


def _cast(node: Node) -> Known:
    x = node.data()
    if node.op == "CastLike":
        dtype = node.data(1).dtype
    else:
        dtype = str(helper.tensor_dtype_to_np_dtype(node.attribute("to")))
    kind = np.dtype(dtype).kind
    if x.fixed:
        return known_array(x.array.astype(dtype))
    if kind in "iu":
        elements = [e if is_whole(e) else node.algebra.cut_off(e) for e in x.elements.flat]
    elif kind == "f":
        elements = [e if isinstance(e, float | Ratio) else Ratio(e, 1) for e in x.elements.flat]
    elif kind == "b":
        elements = [
            None if (zero := node.algebra.compare("Equal", e, 0)) is None else not zero
            for e in x.elements.flat
        ]
    else:
        raise Unknown
    return known_numbers([_certain(e) for e in elements], x.elements.shape, dtype)


def _where(node: Node) -> Known:
    condition, x, y = (node.data(i) for i in range(3))
    if not condition.fixed:
        raise Unknown
    c = condition.elements.astype(bool)
    return Known(np.where(c, x.elements, y.elements).astype(object), x.dtype)


def _logic(operation: Callable[..., Any]) -> Callable[[Node], Known]:
    def fold(node: Node) -> Known:
        inputs = [node.data(i) for i in range(len(node.inputs))]
        if not all(i.fixed for i in inputs):
            raise Unknown
        return known_array(operation(*(i.array for i in inputs)))

    return fold


def _gather(node: Node) -> Known:
    data, indices = node.data(0), node.data(1)
    if not indices.fixed:
        raise Unknown
    axis = node.attribute("axis", 0)
    return Known(np.asarray(np.take(data.elements, indices.array, axis), object), data.dtype)


def _slice(node: Node) -> Known:
    data = node.data()
    starts, ends = node.given(1, "starts"), node.given(2, "ends")
    if starts is None or ends is None:
        raise Unknown
    axes = node.given(3, "axes") or range(len(starts))
    steps = node.given(4, "steps") or [1] * len(starts)
    index = [slice(None)] * data.elements.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        size = data.elements.shape[axis]
        last: int | None = end
        if step < 0:  # an end before the first element is none of Python's
            last = None if end < -size else end
        index[axis] = slice(start, last, step)
    return Known(data.elements[tuple(index)], data.dtype)


def _concat(node: Node) -> Known:
    parts = [node.data(i) for i in range(len(node.inputs))]
    return Known(np.concatenate([p.elements for p in parts], node.attribute("axis", 0)), parts[0].dtype)


def _squeeze(node: Node) -> Known:
    x, axes = node.data(), node.given(1, "axes")
    return Known(np.asarray(np.squeeze(x.elements, None if axes is None else tuple(axes)), object), x.dtype)


def _unsqueeze(node: Node) -> Known:
    x, axes = node.data(), node.given(1, "axes")
    if axes is None:
        raise Unknown
    return Known(np.expand_dims(x.elements, tuple(axes)), x.dtype)


def _reshape(node: Node) -> Known:
    x, shape = node.data(), node.given(1, "shape")
    if shape is None:
        raise Unknown
    if not node.attribute("allowzero", 0):
        shape = [x.elements.shape[i] if d == 0 else d for i, d in enumerate(shape)]
    return Known(x.elements.reshape(shape), x.dtype)


def _transpose(node: Node) -> Known:
    return Known(np.transpose(node.data().elements, node.attribute("perm")), node.data().dtype)


def _flatten(node: Node) -> Known:
    x, axis = node.data(), node.attribute("axis", 1)
    before = x.elements.shape[:axis]
    return Known(x.elements.reshape(int(np.prod(before)), -1), x.dtype)


def _expand(node: Node) -> Known:
    x, shape = node.data(), node.given(1, "shape")
    if shape is None or np.prod(shape) > MOST_ELEMENTS:
        raise Unknown
    whole = np.broadcast_shapes(x.elements.shape, tuple(shape))
    return Known(np.broadcast_to(x.elements, whole).copy(), x.dtype)


def _tile(node: Node) -> Known:
    x, repeats = node.data(), node.given(1, "repeats")
    if repeats is None or len(repeats) != x.elements.ndim or np.prod(repeats) > MOST_ELEMENTS:
        raise Unknown
    return Known(np.tile(x.elements, repeats), x.dtype)


def _one_hot(node: Node) -> Known:
    """The repeats of ``torch.repeat_interleave``: 1 for each axis, but for one."""
    indices, depth, values = node.data(0), node.data(1), node.data(2)
    if not indices.fixed or not depth.fixed or values.elements.shape != (2,):
        raise Unknown
    count = int(depth.elements.item())
    if not 1 <= count <= MOST_ELEMENTS:
        raise Unknown
    at = indices.array.astype(np.int64)
    places = np.where(at < 0, at + count, at)[..., None] == np.arange(count)
    off, on = values.elements
    made = np.moveaxis(np.where(places, on, off), -1, node.attribute("axis", -1))
    return Known(made.astype(object), values.dtype)


def _gather_elements(node: Node) -> Known:
    data, indices = node.data(0), node.data(1)
    if not indices.fixed:
        raise Unknown
    made = np.take_along_axis(data.elements, indices.array.astype(np.int64), node.attribute("axis", 0))
    return Known(made, data.dtype)


def _scatter_elements(node: Node) -> Known:
    data, indices, updates = (node.data(i) for i in range(3))
    if not indices.fixed or node.attribute("reduction", b"none") not in ("none", b"none"):
        raise Unknown
    if indices.elements.shape != updates.elements.shape:
        raise Unknown
    made, at = data.elements.copy(), indices.array.astype(np.int64)
    np.put_along_axis(made, at, updates.elements, node.attribute("axis", 0))
    return Known(made, data.dtype)


def _scatter_rows(node: Node) -> Known:
    """ScatterND: a size in the place of another, as a script writes ``shape[1] = n``."""
    data, indices, updates = (node.data(i) for i in range(3))
    if not indices.fixed or node.attribute("reduction", b"none") not in ("none", b"none"):
        raise Unknown
    made, at = data.elements.copy(), indices.array
    made[tuple(np.moveaxis(at, -1, 0))] = updates.elements
    return Known(made, data.dtype)


def _cumulate(node: Node) -> Known:
    x, axis = node.data(), node.given(1, "axis")
    if x.elements.ndim != 1 or axis not in ([0], [-1]):
        raise Unknown
    step = -1 if node.attribute("reverse", 0) else 1
    sums: list[Number] = [0 if "int" in x.dtype else 0.0]
    for e in x.elements[::step]:
        sums.append(_certain(node.algebra.add(sums[-1], e)))
    made = sums[:-1] if node.attribute("exclusive", 0) else sums[1:]
    return known_numbers(made[::step], x.elements.shape, x.dtype)


def _split(node: Node) -> list[Known]:
    x, axis, sizes = node.data(), node.attribute("axis", 0), node.given(1, "split")
    if sizes is None:
        each = -(-x.elements.shape[axis] // node.outputs)
        sizes = [each] * node.outputs
    return [Known(part, x.dtype) for part in np.split(x.elements, np.cumsum(sizes)[:-1], axis)]


def _constant_of_shape(node: Node) -> Known:
    shape, value = node.given(0, ""), node.attribute("value")
    if shape is None or not 0 <= np.prod(shape) <= MOST_ELEMENTS:
        raise Unknown
    fill = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    return known_array(np.full(shape, fill.reshape(-1)[0], fill.dtype))


def _range(node: Node) -> Known:
    numbers = [node.data(i) for i in range(3)]
    if not all(n.fixed for n in numbers):
        raise Unknown
    arrays = [n.array for n in numbers]
    count = count_spaced(*(a.item() for a in arrays))
    made = spaced(*arrays) if count is not None and count <= MOST_ELEMENTS else None
    if made is None:
        raise Unknown
    return known_array(made)


def _reduce(operation: str) -> Callable[[Node], Known]:
    def fold(node: Node) -> Known:
        x, axes = node.data(), node.given(1, "axes")
        if axes is None and node.attribute("noop_with_empty_axes", 0):
            return x
        rank = x.elements.ndim
        if axes and {a + rank if a < 0 else a for a in axes} != set(range(rank)):
            raise Unknown
        first, *rest = x.elements.flat
        for e in rest:
            first = _certain(getattr(node.algebra, operation)(first, e))
        shape = [1] * rank if node.attribute("keepdims", 1) else []
        return known_numbers([first], shape, x.dtype)

    return fold


def _shape(node: Node) -> Known:
    shape = list(node.data().elements.shape)[node.attribute("start", 0) : node.attribute("end")]
    return known_array(np.array(shape, np.int64))


def _size(node: Node) -> Known:
    return known_array(np.array(node.data().elements.size))


def _identity(node: Node) -> Known:
    return node.data()


def _clip(node: Node) -> Known:
    """Its bounds are attributes in old opsets, and may be left out."""
    made = node.data()
    for index, name, operation in ((1, "min", node.algebra.most), (2, "max", node.algebra.least)):
        bound = node.inputs[index] if index < len(node.inputs) else None
        limit = node.attribute(name) if bound is None else bound.elements.item()
        if limit is not None:
            elements = [_certain(operation(e, limit)) for e in made.elements.flat]
            made = known_numbers(elements, made.elements.shape, made.dtype)
    return made


_FOLDERS: dict[str, Callable[[Node], Known | list[Known]]] = {
    "Abs": _each(lambda n, e: n.algebra.most(e, n.algebra.subtract(0, e))),
    "Add": _elementwise(Algebra.add),
    "And": _logic(np.logical_and),
    "Cast": _cast,
    "CastLike": _cast,
    "Ceil": _rounded("round_up"),
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "CumSum": _cumulate,
    "Div": _elementwise(Algebra.divide),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), _compare),
    "Expand": _expand,
    "Flatten": _flatten,
    "Floor": _rounded("round_down"),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "Identity": _identity,
    "Max": _elementwise(Algebra.most),
    "Min": _elementwise(Algebra.least),
    "Mod": _elementwise(Algebra.modulo),
    "Mul": _elementwise(Algebra.multiply),
    "Neg": _each(lambda n, e: n.algebra.subtract(0, e)),
    "Not": _logic(np.logical_not),
    "OneHot": _one_hot,
    "Or": _logic(np.logical_or),
    "Range": _range,
    "ReduceMax": _reduce("most"),
    "ReduceMin": _reduce("least"),
    "ReduceProd": _reduce("multiply"),
    "ReduceSum": _reduce("add"),
    "Reshape": _reshape,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_rows,
    "Shape": _shape,
    "Size": _size,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sub": _elementwise(Algebra.subtract),
    "Sum": _elementwise(Algebra.add),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Where": _where,
}
"""Ops by name.  Of one that is not listed the inputs are computed when the model runs."""
FOLDED = frozenset(_FOLDERS) - {"Shape", "Size"}
"""Ops whose result is known where the elements of their inputs are."""
