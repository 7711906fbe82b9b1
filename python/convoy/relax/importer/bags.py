"""A Loop that adds up a run of rows of a table at each step, or takes their mean, is one op.

So PyTorch's older exporter writes an EmbeddingBag.  Bag t has the indices from ``starts[t]`` on::

    Reduce(Gather(table, Slice(indices, starts[t], ends[t])))

Steps of a loop are calls of TVM's virtual machine, some twenty of them a bag.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from convoy.relax.importer.loop_body import Known, LoopBody, read_attribute
from convoy.relax.importer.prepare import infer_shapes, write_nodes
from convoy.relax.importer.read import Model
from convoy.relax.importer.subgraphs import all_names

BAGS = "Bags"
"""An op of ours: of rows, and the starts and ends of bags of them, the sum of each bag or its ``mean``."""

MEANS = {"ReduceSum": 0, "ReduceMean": 1}

Shapes = Mapping[str, tuple[int | str, ...]]


def write_bags(model: Model) -> None:
    """Write such Loops as ``Bags`` of the rows that all of them take."""
    if not any(node.op_type == "Loop" for node in model.graph.node):
        return
    reader = _Reader(model)

    def write(node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        found = reader.read(node) if node.op_type == "Loop" else None
        if found is None:
            return None
        mean, table, indices, *bounds = found
        rows = reader.name_new(f"{node.output[0]}/rows")
        return [
            helper.make_node("Gather", [table, indices], [rows], f"{node.name}/rows"),
            helper.make_node(BAGS, [rows, *bounds], node.output, node.name, domain="convoy", mean=mean),
        ]

    if write_nodes(model, write):
        model.name_nodes()


class _Reader:
    """Finds the bags of a model's loops."""

    def __init__(self, model: Model) -> None:
        self.shapes: Shapes = infer_shapes(model)
        self.constants: Known = model.constants()
        self.makers = {name: node for node in model.graph.node for name in node.output}
        self.names = set(all_names(model.graph))

    def name_new(self, name: str) -> str:
        """A name like this that no tensor has."""
        while name in self.names:
            name += "_"
        self.names.add(name)
        return name

    def read(self, node: onnx.NodeProto) -> tuple[int, str, str, str, str] | None:
        """Is it the mean, and the table, indices, starts and ends; None for a Loop of something else."""
        inner = node.attribute[0].g
        if [len(x) for x in (node.input, node.output, inner.input, inner.output)] != [2, 1, 2, 2]:
            return None
        body = _Body(inner, self.constants)
        total = body.made(body.outputs[1], *MEANS)
        rows = body.made(total.input[0], "Gather") if total is not None else None
        cut = body.made(rows.input[1], "Slice") if rows is not None else None
        if total is None or rows is None or cut is None:
            return None
        if _axis(rows) or not _reduces_rows(total, body.known) or not _cuts_first(cut, body.known):
            return None
        starts, ends = (body.at_step(name) for name in cut.input[1:3])
        table, indices = rows.input[0], cut.input[0]
        if starts is None or ends is None or body.inside & {table, indices, starts, ends}:
            return None
        names = table, indices, starts, ends
        ranks = [len(self.shapes.get(name, ())) for name in names]
        dtype = getattr(self.constants.get(table), "dtype", None)
        if ranks != [2, 1, 1, 1] or dtype not in (np.float32, np.float64):
            return None
        endless = not node.input[1] or body.is_true(node.input[1])
        if not endless or not body.goes_on() or not self._counts(node.input[0], ends):
            return None
        return MEANS[total.op_type], *names

    def _counts(self, count: str, ends: str) -> bool:
        """Is it how many ends there are?"""
        if count in self.constants:
            return self.shapes[ends] == tuple(self.constants[count].reshape(-1))
        taken = self.makers.get(count)
        if taken is None or taken.op_type != "Gather" or _axis(taken) or taken.input[0] not in self.makers:
            return False
        size, place = self.makers[taken.input[0]], self.constants.get(taken.input[1])
        whole = size.op_type == "Shape" and not size.attribute and list(size.input) == [ends]
        return whole and place is not None and place.size == 1 and place.item() in (0, -1)


class _Body(LoopBody):
    """What such a Loop does at a step."""

    def at_step(self, name: str) -> str | None:
        """The tensor of which this is the element of the step, with an axis of one; None: of none."""
        row = self.made(name, "Unsqueeze", "Reshape")
        taken = self.made(row.input[0], "Gather") if row is not None else None
        if taken is None or taken.input[1] != self.step or _axis(taken):
            return None
        return str(taken.input[0])


def _axis(node: onnx.NodeProto) -> int:
    axis: int = read_attribute(node, "axis", 0)
    return axis


def _reduces_rows(node: onnx.NodeProto, known: Known) -> bool:
    axes = known.get(node.input[1]) if len(node.input) > 1 else np.array(read_attribute(node, "axes", []))
    return axes is not None and axes.tolist() in ([0], [-2]) and not read_attribute(node, "keepdims", 1)


def _cuts_first(node: onnx.NodeProto, known: Known) -> bool:
    """Is it a slice of the first axis alone, step by step?"""
    axes, steps = ([*node.input, "", ""][i] for i in (3, 4))
    return all(
        not name or (name in known and known[name].tolist() == wanted)
        for name, wanted in ((axes, [0]), (steps, [1]))
    )
