"""A list that each step of a Loop adds a tensor to.  So torch's scripts keep what their steps give.

What is in a sequence is known when a model is read, and how often a loop runs need not be.  So the list is
a stack of the loop's, of equal tensors, and what reads the list reads the stack.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper

from convoy.onnx_file import names_read


def stack_lists(node: onnx.NodeProto, lists: Sequence[int]) -> tuple[onnx.NodeProto, list[int]]:
    """A Loop, the lists among its states its last stacks, and which of the states these are.

    Parameters
    ----------
    lists : Sequence[int]
        Numbers of the states that are sequences.  One that a step does more to than add one tensor at
        its end stays a state.
    """
    made = onnx.NodeProto()
    made.CopyFrom(node)
    body = made.attribute[0].g
    added = {i: name for i in lists if (name := _take_added(body, i)) is not None}
    if not added:
        return node, []
    while len(made.output) < len(body.output) - 1:
        made.output.append("")
    outputs = [made.output[i] for i in added]
    for i in sorted(added, reverse=True):
        del made.input[2 + i], made.output[i], body.input[2 + i], body.output[1 + i]
    for i, name, output in zip(added, added.values(), outputs, strict=True):
        row = f"{name} as row of {i}"
        body.node.append(helper.make_node("Identity", [name], [row], name=row))
        body.output.append(onnx.ValueInfoProto(name=row))
        made.output.append(output)
    return made, list(added)


def _take_added(body: onnx.GraphProto, state: int) -> str | None:
    """The name of what a step adds at the end of a list; the node that adds it is taken out."""
    before, after = body.input[2 + state].name, body.output[1 + state].name
    makers = {name: node for node in body.node for name in node.output if name}
    passed = []
    while after in makers and makers[after].op_type == "Identity":
        passed.append(makers[after])
        after = makers[after].input[0]
    adds = makers.get(after)
    if adds is None or adds.op_type != "SequenceInsert" or len(adds.input) != 2 or adds.input[0] != before:
        return None
    own = {*adds.output, *(name for node in passed for name in node.output)}
    kept = [node for node in body.node if node is not adds and node not in passed]
    others = [output.name for k, output in enumerate(body.output) if k != 1 + state]
    if not {before, *own}.isdisjoint([*(name for node in kept for name in names_read(node)), *others]):
        return None
    del body.node[:]
    body.node.extend(kept)
    return str(adds.input[1])
