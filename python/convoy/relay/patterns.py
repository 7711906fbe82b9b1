"""Which ops Convoy takes, and which regions of several images may hold them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tvm import ir, relay
from tvm.relay.op.op import OpPattern

from convoy.graph.idioms import IDIOMS
from convoy.offload import reasons
from convoy.offload.names import pattern_names
from convoy.offload.refusal import refuse
from convoy.ops.table import RELAY, activations, row_of
from convoy.relay.dataflow import dims, op_name, operands
from convoy.relay.reader import READER, flat_types
from convoy.relay.readings import readings

TAKEN = {name: row for name, row in RELAY.items() if row.has_lowering and not row.not_in_relay}
"""The rows of the ops Convoy takes."""

PATTERNS = pattern_names(TAKEN, {*IDIOMS, *activations(RELAY).values()})
"""Every pattern's name."""


def refusal(call: relay.Call, numbers: Collection[int] = ()) -> str | None:
    """Why this op is not taken; None if it is.

    Parameters
    ----------
    numbers : Collection[int]
        Of images that the module computes at once, see ``count_images``.
    """
    name = op_name(call)
    if not name:
        return "expected an op, got a call of a function"
    if (reason := refuse(call, READER, TAKEN)) is not None or readings(call, numbers):
        return reason
    read = [t for t in READER.reads(call) if row_of(name).takes_constants or not t.constant]
    return reasons.images_along_axis_zero([t.dims or () for t in (*read, *READER.results(call))])


# Images --------------------------------------------------------------------------------------------


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
        return bool(readings(node))
    return (
        bool(name)
        and node.op.has_attr("TOpPattern")
        and node.op.get_attr("TOpPattern") == OpPattern.ELEMWISE
    )


def _has_unknown_batch(ty: ir.Type) -> bool:
    return any((dims(tensor) or ())[:1] == ("?",) for tensor in flat_types([ty]))
