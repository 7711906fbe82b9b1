"""Which ops Convoy takes, and which regions of several images may hold them."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import ir, relay
from tvm.relay.op.op import OpPattern

from convoy.graph.idioms import IDIOMS
from convoy.offload import axis_zero, reasons
from convoy.offload.names import pattern_names
from convoy.offload.refusal import refuse
from convoy.ops.attributes import elements
from convoy.ops.table import RELAY, activations, row_of
from convoy.relay.dataflow import dims, op_name, operands
from convoy.relay.reader import READER, flat_types, results

TAKEN = {name: row for name, row in RELAY.items() if row.has_lowering and not row.not_in_relay}
"""The rows of the ops Convoy takes."""

PATTERNS = pattern_names(TAKEN, {*IDIOMS, *activations(RELAY).values()})
"""Every pattern's name."""


def refusal(call: relay.Call, images: int = 1) -> str | None:
    """Why this op is not taken; None if it is.

    Parameters
    ----------
    images : int
        How many images the module computes at once, see ``count_images``.
    """
    name = op_name(call)
    if not name:
        return "expected an op, got a call of a function"
    if (reason := refuse(call, READER, TAKEN)) is not None or _readable(call, images):
        return reason
    read = [t for t in READER.reads(call) if row_of(name).takes_constants or not t.constant]
    return reasons.images_along_axis_zero([t.dims or () for t in (*read, *READER.results(call))])


# Images --------------------------------------------------------------------------------------------


def count_images(calls: Sequence[relay.Call]) -> int:
    """How many images these ops compute at once: axis 0 of the first op on images; 1 without any.

    A region is called with that many images and runs once for each.  With one image axis 0 may be
    read as it is; with more, or a number known only at run time, every op has to treat it as the images.
    """
    for call in calls:
        if op_name(call) in TAKEN and row_of(op_name(call)).images:
            shape = dims(results(call)[0])
            return shape[0] if shape and isinstance(shape[0], int) else 1
    return 1


def _readable(call: relay.Call, images: int) -> bool:
    """May a region of so many images hold this op?"""
    row, read = row_of(op_name(call)), READER.reads(call)
    shapes = [t.dims or () for t in (*READER.results(call), *read) if not t.constant]
    dynamic = any(shape[:1] == ("?",) for shape in shapes)
    if images == 1 and not dynamic:
        return not row.images or shapes[0][0] == 1
    if dynamic and row.cost == "in place" and elements(shapes[0][1:]) != elements(shapes[1][1:]):
        return False  # axis 0 would hold more or fewer than the images
    return (
        all(shape[0] == ("?" if dynamic else images) for shape in shapes)
        and not moves_axis_zero(call)
        and axis_zero.is_per_image(row, read, len(shapes[0]))
    )


Origins = frozenset[relay.Expr]
"""The nodes that numbers of images known only at run time come from."""


def find_origins(nodes: Sequence[relay.Expr]) -> dict[relay.Expr, Origins]:
    """Where the numbers of images of these nodes, given in running order, come from.

    Inputs have one each, and so has whatever an op gives that may move, cut or mix its images.
    """
    found: dict[relay.Expr, Origins] = {}
    for node in nodes:
        read = Origins().union(*(found.get(operand, Origins()) for operand in operands(node)))
        if isinstance(node, relay.Tuple) or not _has_unknown_batch(node.checked_type):
            found[node] = read if isinstance(node, relay.Tuple) else Origins()
        elif isinstance(node, relay.TupleGetItem):
            found[node] = Origins([node]) if isinstance(node.tuple_value, relay.Var) else read
        else:
            found[node] = read if len(read) == 1 and _keeps_images(node) else Origins([node])
    return found


def _keeps_images(node: relay.Expr) -> bool:
    """Are the images of what an op computes those of what it reads, even if Convoy does not take it?"""
    if (name := op_name(node)) in TAKEN:
        return _readable(node, 1)
    return (
        bool(name)
        and node.op.has_attr("TOpPattern")
        and node.op.get_attr("TOpPattern") == OpPattern.ELEMWISE
    )


def _has_unknown_batch(ty: ir.Type) -> bool:
    return any((dims(tensor) or ())[:1] == ("?",) for tensor in flat_types([ty]))


def moves_axis_zero(call: relay.Call) -> bool:
    """Does this op move, cut or mix what lies along axis 0?"""
    return axis_zero.moves_axis(call, READER)
