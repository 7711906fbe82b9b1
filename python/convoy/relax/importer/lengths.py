"""Sequences in one tensor that have lengths of their own, from a tensor [N] that a run computes or is fed.

What lies behind a sequence's end is whatever filled the tensor up, be it NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from convoy.relax.dataflow import is_constant
from convoy.relax.importer.agree import cast
from convoy.relax.importer.idioms.definitions import constant
from convoy.relax.importer.node_error import NodeError

FAR = 1e30
"""What opens or shuts a gate, whatever else is added to it."""


def read_lengths(bb: Any, lengths: Any, steps: Any, sequences: Any) -> Any:
    """The lengths as int64 [sequences]; a call ends where one is below 0 or more than ``steps``.

    To take one of the numbers up to ``steps`` is to check it, as indices are checked.
    """
    if is_constant(lengths) and isinstance(steps, tirx.IntImm):
        given = lengths.value.numpy().astype(np.int64)
        if ((given < 0) | (given > int(steps))).any():
            raise NodeError(
                f"expected lengths from 0 to the {int(steps)} steps there are, got {given.tolist()}",
                "export it with the lengths of its sequences",
            )
        return constant(given)
    if not bb.algebra.same(bb.algebra.sizes(lengths)[0], _plain(sequences)):
        lengths = cast(bb, lengths, [sequences])
    places = bb.emit(relax.op.arange(0, steps + 1, 1, "int64"))
    return bb.emit(relax.op.take(places, bb.emit(relax.op.astype(lengths, "int64")), axis=0, mode="fast"))


def convert_reverse(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """ReverseSequence, of any sizes; a call ends where a length is none of the sequence."""
    x, (time, batch) = inputs[0], (attrs.get("time_axis", 0), attrs.get("batch_axis", 1))
    sizes = x.ty.shape.values if x.ty.shape is not None else ()
    if {time, batch} != {0, 1} or len(sizes) < 2:
        raise NodeError(f"expected time and batch on axes 0 and 1, got {time} and {batch}", "export it so")
    lengths = read_lengths(bb, inputs[1], sizes[time], sizes[batch])
    return turn(bb, x, lengths, time=time, batch=batch)


def are_whole(lengths: Any, steps: Any) -> bool:
    """Is it certain that all sequences are as long as the tensor?"""
    whole = is_constant(lengths) and isinstance(steps, tirx.IntImm)
    return bool(whole and np.all(lengths.value.numpy() == int(steps)))


def turn(bb: Any, x: Any, lengths: Any, *, time: int = 1, batch: int = 0) -> Any:
    """Each sequence backwards from its end; what is behind its end stays where it is."""

    def compute(x: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        def pick(*at: Any) -> Any:
            length, step = tirx.min(lengths(at[batch]), x.shape[time]), at[time]
            return x(*at[:time], tirx.if_then_else(step < length, length - 1 - step, step), *at[time + 1 :])

        return te.compute(x.shape, pick, name="turn")

    return bb.emit_te(compute, x, lengths, primfunc_name_hint="turn")


def clear_behind(bb: Any, y: Any, lengths: Any, *, back: bool) -> Any:
    """y [N, T, H] with zeros behind the end of each sequence, which is turned if ``back``."""

    def pick(y: te.Tensor, length: Any, n: Any, t: Any, k: Any) -> Any:
        return tirx.if_then_else(t < length, y(n, length - 1 - t if back else t, k), _zero(y))

    return _compute(bb, y, lengths, pick, "clear_behind")


def last_rows(bb: Any, y: Any, lengths: Any) -> Any:
    """The last row [N, 1, H] of each sequence of y [N, T, H]; zeros where a sequence has none."""

    def pick(y: te.Tensor, length: Any, n: Any, _: Any, k: Any) -> Any:
        return tirx.if_then_else(length > 0, y(n, length - 1, k), _zero(y))

    return _compute(bb, y, lengths, pick, "last_rows", rows=1)


def clear_empty(bb: Any, rows: Any, lengths: Any) -> Any:
    """rows [N, 1, H] with zeros for each sequence that has no step."""

    def pick(rows: te.Tensor, length: Any, n: Any, t: Any, k: Any) -> Any:
        return tirx.Select(length > 0, rows(n, t, k), _zero(rows))

    return _compute(bb, rows, lengths, pick, "clear_empty")


def hold_behind(bb: Any, gx: Any, lengths: Any, hidden: int) -> Any:
    """What the inputs [N, T, 4 H] add to the gates of an LSTM, for cells that stay behind a sequence's end.

    There the input gate is shut and the forget gate is open, whatever the state adds to them.
    """

    def pick(gx: te.Tensor, length: Any, n: Any, t: Any, k: Any) -> Any:
        gate, shut = k // hidden, tirx.const(-FAR, gx.dtype)  # i, o, f, c
        held = tirx.Select(gate == 0, shut, tirx.Select(gate == 2, -shut, _zero(gx)))
        return tirx.if_then_else(t < length, gx(n, t, k), held)

    return _compute(bb, gx, lengths, pick, "hold_behind")


def _compute(
    bb: Any, x: Any, lengths: Any, pick: Callable[..., Any], name: str, rows: int | None = None
) -> Any:
    """A tensor of ``pick(x, length, n, t, k)``, as large as x [N, T, H], or with so many rows."""

    def compute(x: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        images, steps, width = x.shape
        shape = (images, steps if rows is None else rows, width)
        return te.compute(shape, lambda n, t, k: pick(x, lengths(n), n, t, k), name=name)

    return bb.emit_te(compute, x, lengths, primfunc_name_hint=name)


def _zero(x: te.Tensor) -> Any:
    return tirx.const(0, x.dtype)


def _plain(size: Any) -> Any:
    return int(size) if isinstance(size, tirx.IntImm) else size
