"""A Scan that only cuts frames out of a sequence, as front ends of speech networks do, is one gather.

Its state is the end of the frame before, and what it scans is what a frame adds::

    frame = Concat(state, element);  state = Slice(frame, from as many as an element has)

So frame t begins at t times the length of an element, in the state and all elements one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from tvm import relax, te

from convoy.relax.checks import check
from convoy.relax.importer.agree import cast
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.prepare import infer_shapes
from convoy.relax.importer.read import Model

FRAMES = "Frames"
"""An op of ours: of a state and the elements, [..., steps, ``hop``], the last state and all frames."""
END = 2**31 - 1
"""From here on an end of a Slice is that of the axis."""


def write_frames(model: Model) -> None:
    """Write such Scans as ``Frames``."""
    if not any(node.op_type == "Scan" for node in model.graph.node):
        return
    shapes, constants = infer_shapes(model), model.constants()
    for node in model.graph.node:
        hop = _read_hop(node, shapes, constants) if node.op_type == "Scan" else None
        if hop is not None:
            made = helper.make_node(FRAMES, node.input, node.output, node.name, domain="convoy", hop=hop)
            node.CopyFrom(made)


def _read_hop(
    node: onnx.NodeProto,
    shapes: Mapping[str, tuple[int | str, ...]],
    constants: Mapping[str, NDArray[np.generic]],
) -> int | None:
    """How far apart the frames of a Scan begin; None for a Scan that does something else."""
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    rank = len(shapes.get(node.input[-1], ()))
    if len(node.input) != 2 or len(node.output) != 2 or given["num_scan_inputs"] != 1 or rank < 2:
        return None
    along, turned = (
        [given.get(f"scan_{kind}_{what}", [0])[0] for kind in ("input", "output")]
        for what in ("axes", "directions")
    )
    if any(axis not in (-2, rank - 2) for axis in along) or any(turned):
        return None
    body = given["body"]
    known = {**constants, **{t.name: numpy_helper.to_array(t) for t in body.initializer}}
    for part in body.node:
        if part.op_type == "Constant" and part.attribute[0].name == "value":
            known[part.output[0]] = numpy_helper.to_array(part.attribute[0].t)
    nodes = [part for part in body.node if part.op_type != "Constant"]
    if [part.op_type for part in nodes] != ["Concat", "Slice"]:
        return None
    concat, cut = nodes
    frame = concat.output[0]
    tensors = [*concat.input, cut.input[0], *(value.name for value in body.output)]
    if tensors != [*(value.name for value in body.input), frame, cut.output[0], frame]:
        return None
    numbers = [known.get(name) for name in cut.input[1:]]
    if len(numbers) < 2 or any(n is None or n.size != 1 for n in numbers):
        return None
    start, end, *others = (int(n.item()) for n in numbers if n is not None)
    axis, step = [*others, *(0, 1)[len(others) :]]
    last = {axis, concat.attribute[0].i} <= {-1, rank - 2}
    return start if last and step == 1 and start > 0 and end >= END else None


def convert_frames(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """All frames, [..., steps, state + hop], and the state after them.

    A call ends where an element is not as long as the hop.

    Raises
    ------
    NodeError
        Where it certainly is not.
    """
    algebra, hop = bb.algebra, attrs["hop"]
    (*around, before), (*outer, steps, length) = map(algebra.sizes, inputs)
    for found, wanted in zip([*around, length], [*outer, hop], strict=True):
        if isinstance(found, int) and isinstance(wanted, int) and found != wanted:
            problem = f"expected elements and a state that fit, got {found} beside {wanted}"
            raise NodeError(problem, "export it again")
    if not algebra.same(length, hop):
        check(bb, [length], [hop])
    state = inputs[0]
    if not all(map(algebra.same, around, outer)):
        state = cast(bb, state, [*outer, before])
    added = algebra.multiply(steps, hop)
    row = bb.emit(relax.op.reshape(inputs[1], relax.ShapeExpr([*outer, added])))
    sequence = bb.emit(relax.op.concat([state, row], axis=-1))
    sizes = [*outer, steps, algebra.add(before, hop)]

    def frames(x: te.Tensor, sizes: Any) -> te.Tensor:
        return te.compute(sizes, lambda *at: x(*at[:-2], at[-2] * hop + at[-1]), name="frames")

    made = bb.emit_te(frames, sequence, relax.ShapeExpr(sizes))
    end = algebra.add(before, added)
    begin, end = (n if isinstance(n, int) else relax.prim_value(n) for n in (added, end))
    last = relax.op.strided_slice(sequence, [len(outer)], [begin], [end], [1], assume_inbound=True)
    return relax.Tuple([bb.emit(last), made])
