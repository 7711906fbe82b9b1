"""Graphs inside of nodes, put in the place of their nodes: branches that are known, loops that are counted.

TVM's frontend knows no Loop and no Scan, and writes nothing around an If as dataflow.  An If with a
constant condition is the branch it takes.  A Scan over a known length, and a Loop of a known count that
nothing else ends, are their bodies, written out as often as they run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from convoy.onnx_file import inner_graphs
from convoy.relax.importer.prepare import infer_shapes
from convoy.relax.importer.read import Model

MOST_NODES = 20_000
"""Nodes that a loop may become; a longer one stays, and is refused by name."""

Shapes = Mapping[str, tuple[int | str, ...]]


def splice_subgraphs(model: Model) -> bool:
    """Put graphs in the place of their nodes, of every If, Loop and Scan that allows it; was there any?"""
    if not any(node.op_type in _SPLICERS for node in model.graph.node):
        return False
    splicing = _Splicing(model, infer_shapes(model))
    nodes, changed = [], False
    for node in model.graph.node:
        splicer = _SPLICERS.get(node.op_type)
        made = splicer(splicing, node) if splicer is not None else None
        changed |= made is not None
        nodes += [node] if made is None else made
    if changed:
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.name_nodes()
    return changed


class _Splicing:
    """The nodes of one model that bodies become."""

    def __init__(self, model: Model, shapes: Shapes) -> None:
        self.model = model
        self.shapes = shapes
        self.constants = model.constants()

    def copy(
        self, body: onnx.GraphProto, prefix: str, bound: Sequence[str]
    ) -> tuple[list[onnx.NodeProto], list[str]]:
        """A body's nodes for these inputs, and the names of its outputs."""
        names = dict(zip((value.name for value in body.input), bound, strict=False))
        for tensor in body.initializer:
            if tensor.name not in names:
                names[tensor.name] = f"{prefix}/{tensor.name}"
                self.model.add_constant(names[tensor.name], numpy_helper.to_array(tensor))
        nodes = []
        for node in body.node:
            copied = onnx.NodeProto()
            copied.CopyFrom(node)
            copied.name = f"{prefix}/{node.name or node.op_type}"
            names |= {name: f"{prefix}/{name}" for name in node.output if name}
            _rename(copied, names)
            nodes.append(copied)
        return nodes, [names.get(value.name, value.name) for value in body.output]

    def constant(self, name: str, value: object) -> str:
        """The name of a new constant."""
        self.model.add_constant(name, np.array(value, np.int64))
        return name

    def splice_if(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        condition = self.constants.get(node.input[0])
        if condition is None or condition.size != 1:
            return None
        taken = "then_branch" if condition.item() else "else_branch"
        body = next(a.g for a in node.attribute if a.name == taken)
        nodes, outputs = self.copy(body, node.name, ())
        return nodes + _pass_on(outputs, node.output)

    def splice_loop(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Write out ``Loop(count, condition, states…)``: ``body(i, condition, states…)`` count times."""
        body = node.attribute[0].g
        count = self.constants.get(node.input[0])
        going = self.constants.get(node.input[1], np.array(True)) if node.input[1] else np.array(True)
        if count is None or (node.input[1] and node.input[1] not in self.constants):
            return None
        times = max(int(count.item()), 0) if going.item() else 0
        if not _goes_on(body) or times * len(body.node) > MOST_NODES:
            return None
        states, kept = list(node.input[2:]), len(node.input) - 2
        if not times and len(node.output) > kept:
            return None  # stacks of nothing
        rows: list[list[str]] = []
        nodes: list[onnx.NodeProto] = []
        always = f"{node.name}/going"
        self.model.graph.initializer.append(numpy_helper.from_array(np.array(True), always))
        for i in range(times):
            prefix = f"{node.name}/{i}"
            made, outputs = self.copy(body, prefix, [self.constant(f"{prefix}/at", i), always, *states])
            nodes += made
            states = outputs[1 : kept + 1]
            rows.append(outputs[kept + 1 :])
        nodes += _pass_on(states, node.output)
        for column, output in zip(zip(*rows, strict=True), node.output[kept:], strict=False):
            nodes += self.stack(output, list(column), 0)
        return nodes

    def splice_scan(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Write out ``Scan(states…, sequences…)``: ``body(states…, one element of each)``."""
        if self.model.opset < 9:
            return None  # there it also had a batch
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        body, scanned = attributes["body"], attributes["num_scan_inputs"]
        kept = len(node.input) - scanned
        states, sequences = list(node.input[:kept]), list(node.input[kept:])
        stacks = len(node.output) - kept
        axes = attributes.get("scan_input_axes", [0] * scanned)
        backward = attributes.get("scan_input_directions", [0] * scanned)
        shapes = [self.shapes.get(name, ()) for name in sequences]
        if not all(-len(shape) <= axis < len(shape) for shape, axis in zip(shapes, axes, strict=True)):
            return None
        lengths = {shape[axis] for shape, axis in zip(shapes, axes, strict=True)}
        (times, *more) = lengths
        if more or not isinstance(times, int) or not 0 < times * len(body.node) <= MOST_NODES:
            return None
        nodes: list[onnx.NodeProto] = []
        rows: list[list[str]] = []
        for i in range(times):
            prefix = f"{node.name}/{i}"
            elements = []
            for k, (name, axis, back) in enumerate(zip(sequences, axes, backward, strict=True)):
                at = self.constant(f"{prefix}/at{k}", times - 1 - i if back else i)
                elements.append(f"{prefix}/element{k}")
                nodes.append(helper.make_node("Gather", [name, at], [elements[-1]], axis=axis))
            made, outputs = self.copy(body, prefix, [*states, *elements])
            nodes += made
            states = outputs[:kept]
            rows.append(outputs[kept:])
        nodes += _pass_on(states, node.output)
        axes = attributes.get("scan_output_axes", [0] * stacks)
        backward = attributes.get("scan_output_directions", [0] * stacks)
        columns = list(zip(*rows, strict=True))
        for column, output, axis, back in zip(columns, node.output[kept:], axes, backward, strict=True):
            nodes += self.stack(output, list(column)[:: -1 if back else 1], axis)
        return nodes

    def stack(self, output: str, names: Sequence[str], axis: int) -> list[onnx.NodeProto]:
        """Nodes that make a tensor of equal ones along a new axis."""
        if not output:
            return []
        axes = self.constant(f"{output}/axes", [axis])
        grown = [f"{output}/{i}" for i in range(len(names))]
        return [
            *(
                helper.make_node("Unsqueeze", [name, axes], [wide])
                for name, wide in zip(names, grown, strict=True)
            ),
            helper.make_node("Concat", grown, [output], axis=axis),
        ]


_SPLICERS = {"If": _Splicing.splice_if, "Loop": _Splicing.splice_loop, "Scan": _Splicing.splice_scan}


def _goes_on(body: onnx.GraphProto) -> bool:
    """Is the condition a body gives the one it got, or true?"""
    name = body.output[0].name
    if name == body.input[1].name:
        return True
    made = {output: node for node in body.node for output in node.output}
    known = {t.name: numpy_helper.to_array(t) for t in body.initializer}
    while name in made and made[name].op_type == "Identity":
        name = made[name].input[0]
    if name in made and made[name].op_type == "Constant" and made[name].attribute[0].HasField("t"):
        known[name] = numpy_helper.to_array(made[name].attribute[0].t)
    return name == body.input[1].name or (name in known and bool(known[name].all()))


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    for field in (node.input, node.output):
        field[:] = [names.get(name, name) for name in field]
    for graph in inner_graphs(node):
        own = {value.name for value in (*graph.input, *graph.initializer)}
        inner = {old: new for old, new in names.items() if old not in own}
        for nested in graph.node:
            _rename(nested, inner)
        for value in graph.output:
            value.name = inner.get(value.name, value.name)


def _pass_on(names: Sequence[str], outputs: Sequence[str]) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Identity", [name], [output])
        for name, output in zip(names, outputs, strict=False)
        if output
    ]
