"""A Loop that lists each slice of a tensor as often as a run says, and joins the list, is one op.

So PyTorch's older exporter writes a ``repeat_interleave``, as of sounds that a speech model makes last::

    Reshape(Expand(Unsqueeze(slices[i]), [1, repeats[i], sizes behind]))

The list has tensors of different sizes, as many as only a run knows.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from convoy.relax.importer.loop_body import Known, LoopBody, Makers, read_attribute
from convoy.relax.importer.prepare import infer_shapes, write_nodes
from convoy.relax.importer.read import Model

REPEATS = "Repeats"
"""An op of ours: of a tensor, and how often to take each of its slices along ``axis``, those slices."""


def write_repeats(model: Model) -> None:
    """Write such Loops, and the ConcatFromSequence behind them, as ``Repeats``."""
    if not any(node.op_type == "ConcatFromSequence" for node in model.graph.node):
        return
    reader = _Reader(model)

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        found = reader.read(node) if node.op_type == "ConcatFromSequence" else None
        if found is None:
            return None
        x, repeats, axis = found
        return [helper.make_node(REPEATS, [x, repeats], node.output, node.name, domain="convoy", axis=axis)]

    if write_nodes(model, write):
        kept = _read_ones(model)
        del model.graph.node[:]
        model.graph.node.extend(kept)


def _read_ones(model: Model) -> list[onnx.NodeProto]:
    """The nodes without the lists, and loops over them, that nothing reads any more."""
    nodes = list(model.graph.node)
    results = {value.name for value in model.graph.output}
    while True:
        read = results.union(*({*node.input, *_captured(node)} for node in nodes))
        kept = [node for node in nodes if node.op_type not in _LISTS or not read.isdisjoint(node.output)]
        if len(kept) == len(nodes):
            return kept
        nodes = kept


_LISTS = ("Loop", "SequenceEmpty", "SplitToSequence")


def _captured(node: onnx.NodeProto) -> set[str]:
    inner = [a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    return {name for graph in inner for part in graph.node for name in {*part.input, *_captured(part)}}


class _Reader:
    """Finds what a model's loops repeat."""

    def __init__(self, model: Model) -> None:
        self.shapes = infer_shapes(model)
        self.constants: Known = model.constants()
        self.makers: Makers = {name: node for node in model.graph.node for name in node.output}

    def read(self, joined: onnx.NodeProto) -> tuple[str, str, int] | None:
        """The tensor, how often to take its slices, and their axis; None for another list."""
        loop = self._made(joined.input[0], "Loop")
        if loop is None or read_attribute(joined, "new_axis", 0):
            return None
        inner = loop.attribute[0].g
        if [len(x) for x in (loop.input, loop.output, inner.input, inner.output)] != [3, 1, 3, 2]:
            return None
        body = _Body(inner, self.constants)
        empty = self._made(loop.input[2], "SequenceEmpty") is not None
        endless = not loop.input[1] or body.is_all(loop.input[1], 1)
        adds = body.made(body.outputs[1], "SequenceInsert")
        if adds is None or list(adds.input) != [adds.input[0], adds.input[1]] or not (empty and endless):
            return None
        found = body.repeated(adds.input[1])
        if [adds.input[0]] != body.states or not body.goes_on() or found is None:
            return None
        slices, times, wide, shape = found
        x, axis = self._split(slices)
        repeats, _ = self._split(times)
        sizes = self.shapes.get(x)
        if sizes is None or not 0 <= axis < len(sizes) or len(self.shapes.get(repeats, ())) != 1:
            return None
        if read_attribute(joined, "axis", 0) % len(sizes) != axis or not self._counts(
            loop.input[0], x, axis
        ):
            return None
        return (x, repeats, axis) if body.joins(slices, times, wide, shape, sizes, axis) else None

    def _made(self, name: str, op: str) -> onnx.NodeProto | None:
        maker = self.makers.get(name)
        return maker if maker is not None and maker.op_type == op and not maker.domain else None

    def _split(self, name: str) -> tuple[str, int]:
        """The tensor of which a list has all slices of one, and their axis."""
        split = self._made(name, "SplitToSequence")
        if split is None:
            return "", 0
        x, axis = str(split.input[0]), int(read_attribute(split, "axis", 0))
        if len(split.input) > 1 and split.input[1]:
            ones = _is_all(split.input[1], 1, self.makers, self.constants)
        else:
            ones = bool(read_attribute(split, "keepdims", 1))
        return (x, axis % max(len(self.shapes.get(x, ())), 1)) if ones else ("", 0)

    def _counts(self, count: str, x: str, axis: int) -> bool:
        """Is it how many slices there are?"""
        if count in self.constants:
            return self.shapes[x][axis] == int(self.constants[count].reshape(-1)[0])
        maker = self.makers.get(count)
        while maker is not None and maker.op_type in ("Unsqueeze", "Squeeze", "Reshape"):
            maker = self.makers.get(maker.input[0])
        if maker is None or maker.op_type != "Gather" or maker.input[1] not in self.constants:
            return False
        size, place = self._made(maker.input[0], "Shape"), self.constants[maker.input[1]]
        if size is None or size.attribute or list(size.input) != [x] or place.size != 1:
            return False
        return int(place.item()) % len(self.shapes[x]) == axis


class _Body(LoopBody):
    """What such a Loop does at a step."""

    def is_all(self, name: str, number: int) -> bool:
        """Is a tensor this number everywhere?"""
        return _is_all(name, number, self.makers, self.known)

    def at_step(self, name: str) -> str | None:
        """The list of which this is the element of the step."""
        taken = self.made(name, "SequenceAt")
        return str(taken.input[0]) if taken is not None and taken.input[1] == self.step else None

    def repeated(self, name: str) -> tuple[str, str, onnx.NodeProto, onnx.NodeProto] | None:
        """The lists of slices and of repeats, and the nodes that make one wider and give it its shape."""
        shape = self.made(name, "Reshape")
        wide = self.made(shape.input[0], "Expand") if shape is not None else None
        apart = self.made(wide.input[0], "Unsqueeze") if wide is not None else None
        sizes = self.sizes(wide.input[1]) if wide is not None else None
        if shape is None or wide is None or apart is None or sizes is None or len(sizes.input) != 3:
            return None
        slices, times = self.at_step(apart.input[0]), self.at_step(sizes.input[1])
        return (slices, times, wide, shape) if slices is not None and times is not None else None

    def sizes(self, name: str) -> onnx.NodeProto | None:
        """The Concat of sizes of an Expand, where it may have -1 for those that stay."""
        choice = self.made(name, "Where")
        if choice is None:
            return self.made(name, "Concat")
        same, ones, name = choice.input
        equal = self.made(same, "Equal")
        if equal is None or not self.is_all(ones, 1) or equal.input[0] != name:
            return None
        return self.made(name, "Concat") if self.is_all(equal.input[1], -1) else None

    def joins(
        self,
        slices: str,
        times: str,
        wide: onnx.NodeProto,
        shape: onnx.NodeProto,
        sizes: tuple[int | str, ...],
        axis: int,
    ) -> bool:
        """Is a slice of this axis repeated, and nothing else?"""
        apart, concat = self.made(wide.input[0], "Unsqueeze"), self.sizes(wide.input[1])
        if apart is None or concat is None:
            return False
        if len(apart.input) > 1:
            axes = self.known.get(apart.input[1])
        else:
            axes = np.array(read_attribute(apart, "axes", []))
        before, behind = (self.known.get(concat.input[i]) for i in (0, 2))
        wanted = self.known.get(shape.input[1])
        if axes is None or before is None or behind is None or wanted is None:
            return False
        if axes.tolist() not in ([axis + 1], [axis - len(sizes)]) or wanted.size != len(sizes):
            return False
        stay = [*before.tolist(), *behind.tolist()]
        expected = [*sizes[:axis], 1, *sizes[axis + 1 :]]
        if len(before) != axis + 1 or len(stay) != len(sizes):
            return False
        if any(a not in (b, 1, -1) for a, b in zip(stay, expected, strict=True)):
            return False
        same = zip(wanted.tolist(), sizes, strict=True)
        return all(
            n == (-1 if i == axis else size) or (n == 0 and i < axis) for i, (n, size) in enumerate(same)
        )


def _is_all(name: str, number: int, makers: Makers, known: Known) -> bool:
    """Is a tensor this number everywhere?"""
    if name in known:
        return bool((known[name] == number).all())
    maker = makers.get(name)
    if maker is None:
        return False
    if maker.op_type == "ConstantOfShape":
        value = next((numpy_helper.to_array(a.t) for a in maker.attribute), np.zeros(1))
        return int(value.reshape(-1)[0]) == number
    if maker.op_type == "Mul":
        return any(
            _is_all(a, 1, makers, known) and _is_all(b, number, makers, known)
            for a, b in (maker.input, reversed(maker.input))
        )
    return maker.op_type in ("Cast", "Identity") and _is_all(maker.input[0], number, makers, known)
