"""Which ops Convoy takes, and how axis 0 of each may be read."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from convoy.graph.idioms import IDIOMS
from convoy.graph.sizes import Size
from convoy.offload import axis_zero, reasons
from convoy.offload.names import pattern_names
from convoy.offload.refusal import refuse
from convoy.ops.row import OpRow
from convoy.ops.table import RELAX, activations
from convoy.relax import idioms
from convoy.relax.dataflow import Dataflow, dims, op_name, tensor_args
from convoy.relax.images import FLAT, OPEN, Place, image_places, image_readings, rows_before
from convoy.relax.reader import BlockReader, results
from convoy.relax.sizes import Dim

TAKEN = {name: row for name, row in RELAX.items() if row.has_lowering}
"""The rows of the ops Convoy takes."""

PATTERNS = pattern_names((*TAKEN, *idioms.IDIOMS), {*IDIOMS, *activations(RELAX).values()})
"""Every pattern's name."""


def refusal(call: relax.Call, flow: Dataflow) -> str | None:
    """Why this op is not taken; None if it is."""
    name = op_name(call)
    if not name or name.startswith("call_"):
        return f"expected an op, got {_described(call)}"
    at = BlockReader(flow)
    if (reason := refuse(call, at, TAKEN)) is not None or readings(call, flow):
        return reason
    data = [tensor.dims or () for tensor in at.reads(call) if not tensor.constant]
    return reasons.images_along_axis_zero([*data, dims(call) or ()])


def _described(value: relax.Expr) -> str:
    """What a binding that is no op's call holds: ``call_tir`` and its like name first what they call."""
    if not isinstance(value, relax.Call):
        return f"a {type(value).__name__}"
    called = value.args[0] if isinstance(value.op, tvm.ir.Op) else value.op
    name = getattr(called, "name_hint", None) or getattr(called, "global_symbol", None)
    return f"a call of {name or 'a function'}"


def readings(call: relax.Call, flow: Dataflow) -> frozenset[str]:
    """The ways in which axis 0 of this op may be read; empty if there is none.

    A region reads axis 0 of all its tensors in one and the same way:

    - ``flat``: no image axis; the ops work on the tensors as they are.  One that moves or mixes axis 0
      sees a new axis of length 1 in front.  A model of one image is this.
    - ``open``: the same, where axis 0 may be as long as a call says.  Where the number of images alone is
      open, so are read only ops that mix them: all others stay in regions of images.
    - ``images N``: every tensor is of N images (N symbolic, or more than 1), which lie along axis 0, or
      elsewhere (``images.Place``).
    """
    row, at = TAKEN[op_name(call)], BlockReader(flow)
    shapes = [tensor.dims or () for tensor in (*at.results(call), *at.reads(call)) if not tensor.constant]
    if row.images:
        return image_readings(shapes[0])
    static = all(isinstance(d, int | Size) for shape in shapes for d in shape)
    tensors = (*results(call), *tensor_args(call, row.numbers))
    made = [flow.rows_made(call, flow.rows)] * len(at.results(call))
    read = [arg for arg in tensor_args(call, row.numbers) if not flow.is_constant(arg)]
    rows = [*made, *(flow.rows_of(arg) for arg in read)]
    places = [image_places(shape, flow, before) for shape, before in zip(shapes, rows, strict=True)]
    labels = {
        label
        for label in set(places[0]).intersection(*places)
        if _keeps_images(call, at, row, shapes, [place[label] for place in places])
    }
    opens = at.opens(*tensors, mixed=not labels)
    return frozenset(labels | ({FLAT, OPEN} if static else {OPEN} if opens else set()))


def _keeps_images(
    call: relax.Call,
    at: BlockReader,
    row: OpRow,
    shapes: Sequence[Sequence[Dim]],
    places: Sequence[Place],
) -> bool:
    """Does an op compute each image by itself, where they lie at ``places`` in its results and operands?"""
    made, data = places[0], places[len(at.results(call))]
    if row.cost == "in place":
        return rows_before(shapes[0], made) == rows_before(shapes[-1], data)
    if row.cost in ("attention", "recurrent") and made.axis:
        return False
    axis = made.axis if row.axis_zero in ("rows", "condition") else data.axis
    turns = row.axis_zero == "permutation" and not isinstance(made.images, int)
    return (turns or not axis_zero.moves_axis(call, at, axis)) and axis_zero.is_per_image(
        row, at.reads(call), len(shapes[0]), made.axis
    )
