"""A Scan over a length that is open, or long, as the Loop that it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from convoy.relax.checks import check
from convoy.relax.importer.agree import cast
from convoy.relax.importer.node_error import NodeError

SAME_LENGTH = "SameLength"
"""An op of ours: its first input, whose ``axis`` has to be as long as the axis ``of`` of the second."""


def convert_same_length(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """The sequence, of a length that is the other's, which a call checks where it is not known.

    Raises
    ------
    NodeError
        Where the two certainly differ.
    """
    (sizes, others), axis = map(bb.algebra.sizes, inputs[:2]), attrs["axis"]
    wanted, found = others[attrs["of"]], sizes[axis]
    if bb.algebra.same(found, wanted):
        return inputs[0]
    if isinstance(found, int) and isinstance(wanted, int):
        raise NodeError(
            f"expected sequences of one length in a Scan, got {wanted} and {found}", "scan as much of each"
        )
    if isinstance(found, int):
        check(bb, [wanted], [found])
        return inputs[0]
    sizes[axis] = wanted
    return cast(bb, inputs[0], sizes)


def write_loop(node: onnx.NodeProto, folder: str) -> list[onnx.NodeProto] | None:
    """Nodes in the place of a Scan: a Loop whose steps gather their elements.

    Parameters
    ----------
    folder : str
        What the names of new tensors begin with.

    Returns
    -------
    list[onnx.NodeProto] | None
        None for a Scan that is not well formed, or whose stacks have axes that are not known.
    """
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    body, scanned = attributes["body"], attributes["num_scan_inputs"]
    kept = len(node.input) - scanned
    stacks = len(body.output) - kept
    if not scanned or kept < 0 or stacks < 0 or len(body.input) != len(node.input):
        return None
    axes, backward = (attributes.get(f"scan_input_{n}", [0] * scanned) for n in ("axes", "directions"))
    stacked, turned = (attributes.get(f"scan_output_{n}", [0] * stacks) for n in ("axes", "directions"))
    kinds = [value.type.tensor_type for value in body.output[kept:]]
    if not len(axes) == len(backward) == scanned or not len(stacked) == len(turned) == stacks:
        return None
    if any(axis and not kind.HasField("shape") for axis, kind in zip(stacked, kinds, strict=True)):
        return None
    sizes, axis, count, one, last, at, go, from_end = (
        f"{folder}/{name}" for name in ("sizes", "axis", "count", "one", "last", "at", "go", "from_end")
    )
    nodes = [
        _constant(1, one),
        _constant(axes[0], axis),
        helper.make_node("Shape", [node.input[kept]], [sizes]),
        helper.make_node("Gather", [sizes, axis], [count], axis=0),
        helper.make_node("Sub", [count, one], [last]),
    ]
    scans = [node.input[kept]]
    for i, (name, along) in enumerate(zip(node.input[kept + 1 :], axes[1:], strict=True), start=1):
        scans.append(f"{folder}/scan_{i}")
        lengths = {"axis": along, "of": axes[0]}
        nodes.append(
            helper.make_node(
                SAME_LENGTH, [name, scans[0]], scans[-1:], node.name, domain="convoy", **lengths
            )
        )
    steps = [helper.make_node("Sub", [last, at], [from_end])]
    steps += [
        helper.make_node("Gather", [name, from_end if back else at], [element.name], axis=along)
        for element, name, along, back in zip(body.input[kept:], scans, axes, backward, strict=True)
    ]
    inputs = [helper.make_tensor_value_info(at, TensorProto.INT64, [])]
    going = helper.make_tensor_value_info(go, TensorProto.BOOL, [])
    loop = helper.make_graph(
        [*steps, *body.node],
        f"{folder}/body",
        [*inputs, going, *body.input[:kept]],
        [going, *body.output],
        body.initializer,
    )
    made = [f"{folder}/stack_{i}" for i in range(stacks)]
    outputs = [*node.output[:kept], *made]
    nodes.append(helper.make_node("Loop", [count, "", *node.input[:kept]], outputs, node.name, body=loop))
    for name, output, axis, back, kind in zip(
        made, node.output[kept:], stacked, turned, kinds, strict=False
    ):
        nodes += _move(name, output, axis, len(kind.shape.dim) + 1, back=bool(back))
    return nodes


def _move(stack: str, output: str, axis: int, rank: int, *, back: bool) -> list[onnx.NodeProto]:
    """A stack that was made along axis 0, along another, or backwards."""
    nodes = []
    if back:
        bounds = {"first": -1, "end": -(2**62), "along": 0, "step": -1}
        nodes += [_constant([n], f"{stack}/{name}") for name, n in bounds.items()]
        given = [stack, *(node.output[0] for node in nodes)]
        stack = f"{stack}/turned"
        nodes.append(helper.make_node("Slice", given, [stack]))
    if axis:
        axis %= rank
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
        return [*nodes, helper.make_node("Transpose", [stack], [output], perm=order)]
    return [*nodes, helper.make_node("Identity", [stack], [output])]


def _constant(value: int | Sequence[int], name: str) -> onnx.NodeProto:
    tensor = numpy_helper.from_array(np.array(value, np.int64))
    return helper.make_node("Constant", [], [name], value=tensor)
