"""Recurrent layers, as an op of Convoy's own in Relax (``relax/importer/recurrent_op.py``)."""

from __future__ import annotations

from typing import Any, cast

from convoy.graph.ops import Curve, Recurrent
from convoy.ops.operands import Operands
from convoy.ops.reader import Call
from convoy.ops.row import OpRow


def read_curves(attrs: Any) -> tuple[Curve, ...]:
    """The activations ``gate``, ``inner`` and ``outer`` of a call."""
    return tuple(Curve(cast(Any, str(kind)), float(a), float(b)) for kind, a, b in attrs["curves"])


def _lower_recurrent(at: Operands, call: Call) -> str:
    """The weights of the states come in panels [gates · H / width, H, width].

    What a region reads as an image may have several sequences, such as its rows.
    """
    x, panels, extra, *states = call.args
    packed = at.array(panels)
    weights = at.build.constant(packed.transpose(1, 0, 2).reshape(packed.shape[1], -1))
    data, attrs = at.tensor(x), call.attrs
    *sequences, _, _ = at.build.shape_of(data)
    first = (*sequences, 1, packed.shape[1])
    given = (at.build.reshape(at.tensor(state), first) for state in states)
    names = (data, weights, at.build.constant(at.array(extra)), *given)
    return at.build.node(
        Recurrent, names, at.shape(call), kind=str(attrs["kind"]), back=bool(attrs["back"]),
        clip=float(attrs["clip"]), **dict(zip(("gate", "inner", "outer"), read_curves(attrs), strict=True)),
    )  # fmt: skip


ROWS = (
    OpRow(
        relax="convoy.recurrent", cost="recurrent", heavy=True, open_sizes=True, lower=_lower_recurrent,
        constants={1: "weights", 2: "peepholes or bias"},
    ),
)  # fmt: skip
