"""An If whose branches give tensors of other ranks: what is computed of them goes into both branches.

No op of TVM takes a tensor whose number of axes is not known.
"""

from __future__ import annotations

import onnx
from onnx import helper

from convoy.onnx_file import names_read
from convoy.relax.importer.read import Model


def followers(graph: onnx.GraphProto, name: str) -> list[onnx.NodeProto]:
    """The nodes that compute something of what the node of this name gives."""
    found, made = [], {output for n in graph.node if n.name == name for output in n.output if output}
    for node in graph.node:
        if node.name != name and not made.isdisjoint(names_read(node)):
            found.append(node)
            made.update(filter(None, node.output))
    return found


def take_in(model: Model, name: str) -> None:
    """Move what follows from an If into each of its branches."""
    graph = model.graph
    branching = next(node for node in graph.node if node.name == name)
    moved = followers(graph, name)
    given = list(branching.output)
    made = {output for node in (branching, *moved) for output in node.output if output}
    outputs = [value for value in graph.output if value.name in made]
    for attribute in branching.attribute:
        branch = attribute.g
        for inner, outer in zip(branch.output, given, strict=False):
            if outer and inner.name != outer:
                branch.node.append(helper.make_node("Identity", [inner.name], [outer]))
        branch.node.extend(moved)
        del branch.output[:]
        branch.output.extend(outputs)
    # the If is behind all that the moved nodes read
    nodes = [*(node for node in graph.node if made.isdisjoint(node.output)), branching]
    branching.output[:] = [value.name for value in outputs]
    del graph.node[:]
    graph.node.extend(nodes)
    model.name_nodes()
