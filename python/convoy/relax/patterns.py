"""Which ops Convoy takes, and how axis 0 of each may be read."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax
from tvm.sym import Analyzer
from tvm_ffi import structural_hash

from convoy.graph.idioms import IDIOMS
from convoy.offload import axis_zero, reasons
from convoy.offload.names import pattern_names
from convoy.offload.refusal import refuse
from convoy.ops.table import RELAX, activations
from convoy.relax import idioms
from convoy.relax.dataflow import Dataflow, Dim, dims, op_name
from convoy.relax.reader import BlockReader

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
    - ``images N``: axis 0 of every tensor is the N images (N symbolic, or more than 1).
    """
    row, at = TAKEN[op_name(call)], BlockReader(flow)
    read = at.reads(call)
    shapes = [tensor.dims or () for tensor in (*at.results(call), *read) if not tensor.constant]
    result = shapes[0]
    if row.images:
        return image_readings(result)
    found = set()
    static = all(isinstance(d, int) for shape in shapes for d in shape)
    stays = not axis_zero.moves_axis_zero(call, at)
    if static:
        found.add("flat")
    per_image = axis_zero.is_per_image(row, read, len(result))
    if stays and result[0] != 1 and per_image:
        found |= frozenset.intersection(*(image_readings(shape) for shape in shapes))
    return frozenset(found)


def image_readings(shape: Sequence[Dim]) -> frozenset[str]:
    """The way an op on images reads axis 0 of data of this shape."""
    if shape[0] == 1:
        return frozenset({"flat"})
    if isinstance(shape[0], int):
        return frozenset({f"images {shape[0]}"})
    length = Analyzer().simplify(shape[0])
    return frozenset({f"images {length} #{structural_hash(length):x}"})
