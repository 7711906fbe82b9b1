"""Graphs inside of nodes, put in the place of their nodes: branches that are known, loops that are counted.

TVM's frontend knows no Loop and no Scan, and writes nothing around an If as dataflow.  An If with a
constant condition is the branch it takes.  A Scan over a known length, and a Loop of a known count of steps
(``counted.py``), are their bodies, written out as often as they run.  Others are loops (``loops.py``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import onnx
from onnx import helper, numpy_helper

from convoy.onnx_file import all_nodes, inner_graphs
from convoy.relax.importer.counted import count_steps
from convoy.relax.importer.loop_numbers import take_numbers
from convoy.relax.importer.prepare import infer_shapes
from convoy.relax.importer.read import Model
from convoy.relax.importer.scans import write_loop

MOST_NODES = 20_000
"""Nodes of a graph in which loops are written out, at most; a longer one stays, and is refused by name."""
MOST_BYTES = 1 << 28
"""Bytes of the nodes that a loop becomes, at most: each may hold tensors."""

ENDLESS = 2**63 - 1
"""Steps of a loop without a count."""

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
        if splicing.full:
            return False
    if changed:
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.name_nodes()
    return changed


def loop_scans(model: Model) -> None:
    """Make loops of the scans that were not written out."""
    splicing, nodes = _Splicing(model, {}), []
    for node in model.graph.node:
        made = write_loop(node, splicing.folder(node)) if node.op_type == "Scan" else None
        nodes += [node] if made is None else made
    if len(nodes) > len(model.graph.node):
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.name_nodes()


def take_branch(model: Model, name: str, condition: bool) -> None:
    """Put the branch that an If takes in its place."""
    splicing = _Splicing(model, {})
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        chosen = node.op_type == "If" and node.name == name
        nodes += splicing.take(node, condition) if chosen else [node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.name_nodes()


class _Splicing:
    """The nodes of one model that bodies become."""

    def __init__(self, model: Model, shapes: Shapes) -> None:
        self.model = model
        self.shapes = shapes
        self.constants = model.constants()
        self.room = MOST_NODES - len(model.graph.node)
        """Nodes that loops may still become."""
        self.full = False
        """Was a loop too long?  Then the model is refused, whatever becomes of others."""
        self.folders = {folder for name in all_names(model.graph) for folder in _folders(name)}

    def folder(self, node: onnx.NodeProto) -> str:
        """What the names of all that a node becomes begin with; no other name does."""
        numbers = (f"{node.name}_{i}" for i in itertools.count(1))
        found: str = next(
            name for name in itertools.chain([node.name], numbers) if name not in self.folders
        )
        self.folders.add(found)
        return found

    def fits(self, body: onnx.GraphProto, times: int) -> bool:
        """May a body be written out so often?  If so, it takes its room."""
        held = sum(t.ByteSize() for t in body.initializer)
        held += sum(node.ByteSize() for node in body.node if _held(node) is not None)
        nodes = times * max(sum(1 for _ in all_nodes(body)), 1)
        if nodes > self.room or times * (body.ByteSize() - held) > MOST_BYTES:
            self.full = True
            return False
        self.room -= nodes
        return True

    def hoist(self, body: onnx.GraphProto, folder: str) -> dict[str, str]:
        """Make a body's constants some of the model's, once for all times; their names there."""
        held = [(tensor.name, tensor) for tensor in body.initializer]
        held += [(node.output[0], t) for node in body.node if (t := _held(node)) is not None]
        bound = {value.name for value in body.input}
        names = {name: f"{folder}/{name}" for name, _ in held if name not in bound}
        for name, tensor in held:
            if name in names:
                self.model.add_constant(names[name], numpy_helper.to_array(tensor))
        return names

    def copy(
        self, body: onnx.GraphProto, prefix: str, bound: Sequence[str], hoisted: Mapping[str, str]
    ) -> tuple[list[onnx.NodeProto], list[str]]:
        """A body's nodes for these inputs, and the names of its outputs."""
        names = {**hoisted, **dict(zip((value.name for value in body.input), bound, strict=True))}
        nodes = []
        for node in body.node:
            if _held(node) is not None:
                continue
            copied = onnx.NodeProto()
            copied.CopyFrom(node)
            copied.name = f"{prefix}/{node.name or next(filter(None, node.output), node.op_type)}"
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
        body = _branch(node, bool(condition.item()))
        if body.input or len(body.output) < len(node.output):
            return None
        return self.take(node, bool(condition.item()))

    def take(self, node: onnx.NodeProto, condition: bool) -> list[onnx.NodeProto]:
        """The nodes of the branch that an If takes."""
        body = _branch(node, condition)
        folder = self.folder(node)
        nodes, outputs = self.copy(body, folder, (), self.hoist(body, folder))
        return nodes + _pass_on(outputs, node.output)

    def splice_loop(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Write out ``Loop(count, condition, states…)``: ``body(i, condition, states…)`` count times."""
        body = take_numbers(node).attribute[0].g
        states, kept = list(node.input[2:]), len(node.input) - 2
        if len(body.input) != kept + 2 or not max(kept, len(node.output) - 1) < len(body.output):
            return None
        times = self.count(node, body)
        if times is None or (not times and len(node.output) > kept):
            return None  # a call decides, or stacks of nothing
        if not self.fits(body, times):
            return None
        folder = self.folder(node)
        hoisted = self.hoist(body, folder)
        rows: list[list[str]] = []
        nodes: list[onnx.NodeProto] = []
        always = f"{folder}/going"
        self.model.graph.initializer.append(numpy_helper.from_array(np.array(True), always))
        for i in range(times):
            prefix = f"{folder}/{i}"
            bound = [self.constant(f"{prefix}/at", i), always, *states]
            made, outputs = self.copy(body, prefix, bound, hoisted)
            nodes += made
            states = outputs[1 : kept + 1]
            rows.append(outputs[kept + 1 :])
        nodes += _pass_on(states, node.output)
        for column, output in zip(zip(*rows, strict=True), node.output[kept:], strict=False):
            nodes += self.stack(output, folder, list(column), 0)
        return nodes

    def count(self, node: onnx.NodeProto, body: onnx.GraphProto) -> int | None:
        """How often a loop runs, if that is known."""
        going = self.constants.get(node.input[1]) if node.input[1] else np.array(True)
        given = self.constants.get(node.input[0]) if node.input[0] else np.array(ENDLESS)
        if given is None or going is None or given.size != 1 or going.size != 1 or given.dtype.kind != "i":
            return None
        most = max(int(given.item()), 0) if going.item() else 0
        if goes_on(body, self.constants):
            return most if node.input[0] else None
        opsets = {entry.domain: entry.version for entry in self.model.skeleton.opset_import}
        room = self.room // max(len(body.node), 1)
        found = count_steps(node, body, self.constants, opsets, min(most, room + 1))
        return None if found is None or found > room else found

    def splice_scan(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        """Write out ``Scan(states…, sequences…)``: ``body(states…, one element of each)``."""
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        body, scanned = attributes["body"], attributes["num_scan_inputs"]
        kept = len(node.input) - scanned
        stacks = len(body.output) - kept
        if not scanned or kept < 0 or len(body.input) != len(node.input):
            return None
        if stacks < 0 or len(node.output) > len(body.output):
            return None
        states, sequences = list(node.input[:kept]), list(node.input[kept:])
        axes, backward = (attributes.get(f"scan_input_{n}", [0] * scanned) for n in ("axes", "directions"))
        shapes = [self.shapes.get(name, ()) for name in sequences]
        if not len(axes) == len(backward) == scanned:
            return None
        if not all(-len(shape) <= axis < len(shape) for shape, axis in zip(shapes, axes, strict=True)):
            return None
        lengths = {shape[axis] for shape, axis in zip(shapes, axes, strict=True)}
        (times, *more) = lengths
        stacked, turned = (attributes.get(f"scan_output_{n}", [0] * stacks) for n in ("axes", "directions"))
        if more or not isinstance(times, int) or not times or not len(stacked) == len(turned) == stacks:
            return None
        if not self.fits(body, times):
            return None
        folder = self.folder(node)
        hoisted = self.hoist(body, folder)
        nodes: list[onnx.NodeProto] = []
        rows: list[list[str]] = []
        for i in range(times):
            prefix = f"{folder}/{i}"
            elements = []
            for k, (name, axis, back) in enumerate(zip(sequences, axes, backward, strict=True)):
                at = self.constant(f"{prefix}/at{k}", times - 1 - i if back else i)
                elements.append(f"{prefix}/element{k}")
                nodes.append(helper.make_node("Gather", [name, at], [elements[-1]], axis=axis))
            made, outputs = self.copy(body, prefix, [*states, *elements], hoisted)
            nodes += made
            states = outputs[:kept]
            rows.append(outputs[kept:])
        nodes += _pass_on(states, node.output)
        columns = zip(zip(*rows, strict=True), stacked, turned, strict=True)
        for (column, axis, back), output in zip(columns, node.output[kept:], strict=False):
            nodes += self.stack(output, folder, list(column)[:: -1 if back else 1], axis)
        return nodes

    def stack(self, output: str, folder: str, names: Sequence[str], axis: int) -> list[onnx.NodeProto]:
        """Nodes that make a tensor of equal ones along a new axis."""
        if not output:
            return []
        axes = self.constant(f"{folder}/axes/{output}", [axis])
        grown = [f"{folder}/grown/{output}/{i}" for i in range(len(names))]
        return [
            *(
                helper.make_node("Unsqueeze", [name, axes], [wide])
                for name, wide in zip(names, grown, strict=True)
            ),
            helper.make_node("Concat", grown, [output], axis=axis),
        ]


_SPLICERS = {"If": _Splicing.splice_if, "Loop": _Splicing.splice_loop, "Scan": _Splicing.splice_scan}


def _branch(node: onnx.NodeProto, condition: bool) -> onnx.GraphProto:
    name = "then_branch" if condition else "else_branch"
    return next(a.g for a in node.attribute if a.name == name)


def _held(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """The tensor of a Constant."""
    given = node.attribute[0] if node.op_type == "Constant" and len(node.attribute) == 1 else None
    return given.t if given is not None and given.HasField("t") else None


def all_names(graph: onnx.GraphProto) -> Iterator[str]:
    """The names of a graph's tensors and of those in the graphs inside."""
    yield from (value.name for value in (*graph.input, *graph.initializer))
    for node in all_nodes(graph):
        yield from (*node.input, *node.output)
        for inner in inner_graphs(node):
            yield from (value.name for value in (*inner.input, *inner.initializer))


def _folders(name: str) -> Iterator[str]:
    return (name[:i] for i, letter in enumerate(name) if letter == "/")


def goes_on(body: onnx.GraphProto, outside: Mapping[str, np.ndarray] = MappingProxyType({})) -> bool:
    """Does the body of a Loop give the condition it got, or true?  ``outside`` are constants around it."""
    name = body.output[0].name
    if name == body.input[1].name:
        return True
    made = {output: node for node in body.node for output in node.output}
    bound = {value.name for value in body.input}
    known = {name: array for name, array in outside.items() if name not in bound}
    known |= {t.name: numpy_helper.to_array(t) for t in body.initializer}
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
        # named anew with each graph around them, names would be twice as long each time
        own.update(output for nested in graph.node for output in nested.output)
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
