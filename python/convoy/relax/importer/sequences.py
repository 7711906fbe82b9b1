"""Sequences and optionals.  What is in them is known when a model is read, so no op is left of them.

A sequence is a ``relax.Tuple``.  TVM's frontend takes one that passes an Identity for its first element,
and asks that for elements without end; it cuts other parts than asked for, and inserts elsewhere (0.27).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import tvm
from onnx import helper
from tvm import relax

from convoy.relax.importer.idioms.definitions import constant
from convoy.relax.importer.late import expect_least
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.sizes import Known, known_array, known_numbers

Convert = Callable[[str, list[Any], dict[str, Any]], Any]
"""Converts a node of an op, with inputs and attributes."""

MOST_PARTS = 20_000
"""An op stands for each part, and a small file could ask for any number of them."""


class Nothing:
    """An optional without an element."""


@dataclass(frozen=True)
class Rows:
    """A sequence of the rows of a tensor, of which only a call may know how many there are."""

    tensor: Any


def is_sequence(value: Any) -> bool:
    """Is a value a sequence?"""
    return isinstance(value, Rows) or isinstance(getattr(value, "ty", None), relax.TupleType)


def holds_no_tensor(value: Any) -> bool:
    """Is a value a sequence, or an optional without an element?"""
    return isinstance(value, Nothing) or is_sequence(value)


def join_rows(bb: Any, before: Any, tensor: Any) -> Rows:
    """A sequence of what another holds, and then of the rows of a tensor.

    Raises
    ------
    NodeError
        If the other holds tensors of other shapes.
    """
    sizes = [*tensor.ty.shape.values][1:]
    items = [before.tensor] if isinstance(before, Rows) else _fields(bb, before)
    for item in items:
        found = [*item.ty.shape.values][int(isinstance(before, Rows)) :]
        if not _are_equal(found, sizes) or item.ty.dtype != tensor.ty.dtype:
            raise NodeError(
                f"expected a list of tensors of one shape, got {item.ty} before rows of {tensor.ty}",
                "write the loop out, or let its steps add tensors of the same shape",
            )
    if not items:
        return Rows(tensor)
    if not isinstance(before, Rows):
        items = [bb.emit(relax.op.expand_dims(item, 0)) for item in items]
    return Rows(bb.emit(relax.op.concat([*items, tensor], 0)))


def _are_equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    known = tvm.sym.Analyzer()
    return len(left) == len(right) and all(
        known.can_prove_equal(a, b) for a, b in zip(left, right, strict=True)
    )


def convert_sequence(
    bb: Any, node: onnx.NodeProto, values: Sequence[Any], known: Sequence[Known | None], convert: Convert
) -> Any:
    """The tensor, the sequence, or ``Nothing`` that a node makes.

    Parameters
    ----------
    values : Sequence[Any]
        Its inputs; None for one that is left out.
    known : Sequence[Known | None]
        What is known of them.
    convert : Convert
        Converts what it becomes.
    """
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    made = SEQUENCES[node.op_type](_Node(bb, values, known, attributes, convert))
    return bb.normalize(made) if isinstance(made, relax.Tuple) else made


@dataclass(frozen=True)
class _Node:
    bb: Any
    values: Sequence[Any]
    known: Sequence[Known | None]
    attributes: dict[str, Any]
    convert: Convert

    def items(self) -> list[Any]:
        """What the first input holds."""
        return _fields(self.bb, self.values[0])

    def place(self, at: int, count: int, default: int, *, behind: bool = False) -> int:
        """The place that an input says, of ``count`` there are, or the one behind them."""
        found = self.known[at] if at < len(self.values) else known_array(np.array(default))
        if found is None or not found.fixed or found.elements.size != 1:
            raise NodeError(
                "expected a known place in a sequence, got a computed one",
                "stack the sequence in a tensor and gather from it",
            )
        place = int(found.elements.item())
        if not -count <= place < count + behind:
            raise NodeError(f"expected a place of the {count} there are, got {place}", "correct it")
        return place if place >= 0 else place + count

    def construct(self) -> Any:
        return relax.Tuple(list(self.values))

    def at(self) -> Any:
        if isinstance(rows := self.values[0], Rows):
            place = self.values[1]
            return self.convert("Gather", [rows.tensor, place], {"axis": 0})
        items = self.items()
        return items[self.place(1, len(items), 0)]

    def insert(self) -> Any:
        items, element = self.items(), self.values[1]
        place = self.place(2, len(items), len(items), behind=True)
        return relax.Tuple([*items[:place], element, *items[place:]])

    def erase(self) -> Any:
        items = self.items()
        del items[self.place(1, len(items), -1)]
        return relax.Tuple(items)

    def length(self) -> Any:
        if isinstance(rows := self.values[0], Rows):
            return known_numbers([rows.tensor.ty.shape.values[0]], (), "int64").compute(self.bb)
        return constant(np.array(len(self.items()), np.int64))

    def concat(self) -> Any:
        axis, new = self.attributes["axis"], bool(self.attributes.get("new_axis", 0))
        if isinstance(rows := self.values[0], Rows):
            return _concat_rows(self.bb, rows.tensor, axis, new)
        items = self.items()
        if not items:
            raise NodeError("expected a sequence of tensors, got an empty one", "export it again")
        if new:
            items = [self.convert("Unsqueeze", [item, _axes(axis)], {}) for item in items]
        return self.convert("Concat", items, {"axis": axis})

    def split(self) -> Any:
        x, axis = self.values[0], self.attributes.get("axis", 0)
        sizes = self.bb.algebra.sizes(x)
        if sizes is None or not -len(sizes) <= axis < len(sizes):
            raise NodeError(f"expected an axis that is there, got {axis}", "correct it")
        parts = self.parts(sizes[axis])
        if parts == [sizes[axis]]:
            items = [x]
        else:
            given = constant(np.array(parts, np.int64))
            items = _fields(self.bb, self.convert("Split", [x, given], {"axis": axis}))
        if len(self.values) < 2 and not self.attributes.get("keepdims", 1):
            items = [self.convert("Squeeze", [item, _axes(axis)], {}) for item in items]
        return relax.Tuple(items)

    def parts(self, size: Any) -> list[int]:
        """The sizes of the parts of an axis: those that are given, or all of one size, the last shorter."""
        found = self.known[1] if len(self.values) > 1 else known_array(np.array(1))
        if found is None or not found.fixed:
            raise NodeError("expected known sizes of parts, got computed ones", "split with constants")
        given = [int(e) for e in found.elements.flat]
        if min(given, default=0) < (0 if found.elements.ndim else 1):
            raise NodeError(f"expected parts of at least 1, got {given}", "correct them")
        if found.elements.ndim:
            if isinstance(size, int) and sum(given) != size:
                raise NodeError(f"expected parts of {size} in all, got {given}", "correct them")
            return given
        if not isinstance(size, int):
            raise NodeError("expected a known number of parts, got parts of an open size")
        if size > MOST_PARTS * given[0]:
            raise NodeError(
                f"expected at most {MOST_PARTS} parts, got {-(-size // given[0])}", "keep them in a tensor"
            )
        return [min(given[0], size - begin) for begin in range(0, size, given[0])]

    def optional(self) -> Any:
        return self.values[0] if self.values else Nothing()

    def has_element(self) -> Any:
        value = self.values[0] if self.values else None
        return constant(np.array(value is not None and not isinstance(value, Nothing)))

    def get_element(self) -> Any:
        if isinstance(self.values[0], Nothing):
            raise NodeError("expected an optional with an element, got one without", "export it again")
        return self.values[0]


SEQUENCES: dict[str, Callable[[_Node], Any]] = {
    "ConcatFromSequence": _Node.concat,
    "Optional": _Node.optional,
    "OptionalGetElement": _Node.get_element,
    "OptionalHasElement": _Node.has_element,
    "SequenceAt": _Node.at,
    "SequenceConstruct": _Node.construct,
    "SequenceEmpty": lambda _: relax.Tuple([]),
    "SequenceErase": _Node.erase,
    "SequenceInsert": _Node.insert,
    "SequenceLength": _Node.length,
    "SplitToSequence": _Node.split,
}


def _concat_rows(bb: Any, stack: Any, axis: int, new: bool) -> Any:
    """The rows of a stack, one after the other along an axis, or along a new one.

    A call ends where there is none: there is no tensor to join.
    """
    sizes = [*stack.ty.shape.values]
    expect_least(bb, bb.algebra.sizes(stack)[:1], 1)
    rank = len(sizes) - (not new)
    if not -rank <= axis < rank:
        raise NodeError(f"expected an axis that is there, got {axis}", "correct it")
    place = axis % rank
    order = [*range(1, place + 1), 0, *range(place + 1, len(sizes))]
    turned = stack if place == 0 else bb.emit(relax.op.permute_dims(stack, order))
    if new:
        return turned
    joined = [*sizes[1 : place + 1], sizes[0] * sizes[place + 1], *sizes[place + 2 :]]
    return bb.emit(relax.op.reshape(turned, joined))


def _fields(bb: Any, value: Any) -> list[Any]:
    if isinstance(value, Rows):
        raise NodeError(
            "expected a known number of tensors in a sequence, got one for each step of a loop",
            "stack the sequence in a tensor",
        )
    if isinstance(value, relax.Tuple):
        return list(value.fields)
    type_ = getattr(value, "ty", None)
    if not isinstance(type_, relax.TupleType):
        raise NodeError(f"expected a sequence, got {type_}", "export it again")
    value = bb.emit(value)
    return [bb.emit(relax.TupleGetItem(value, i)) for i in range(len(type_.fields))]


def _axes(axis: int) -> Any:
    return constant(np.array([axis], np.int64))
