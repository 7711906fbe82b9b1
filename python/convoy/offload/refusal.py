"""Why an op is not taken, as far as both doors say it alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol

from convoy.offload import reasons
from convoy.ops.reader import Call, Reader, TensorType
from convoy.ops.row import Check, OpRow
from convoy.ops.table import row_of


class DoorReader(Reader, Protocol):
    """A reader that knows of which TVM it is."""

    def own_check(self, row: OpRow) -> Check:
        """What that TVM's form of an op needs beside."""

    def image_axis(self, dims: Sequence[Any]) -> int:
        """The axis of a tensor along which its images may lie, and whose length may be open."""


def refuse(call: Call, at: DoorReader, taken: Mapping[str, OpRow]) -> str | None:
    """Why a call is not taken; None if it is.

    Beside the op's own checks: types that its kernel has, lengths known except that of the images,
    constants where the kernels need them, something left to compute at run time.

    Parameters
    ----------
    taken : Mapping[str, OpRow]
        The ops that the door takes.
    """
    name = at.name(call)
    if name not in taken:
        return row_of(name).not_in_relay or reasons.no_kernel(name)
    row = taken[name]
    constants = [(call.args[i], what) for i, what in row.constants.items() if i < len(call.args)]
    for arg, what in constants:
        if not at.is_constant(arg):
            return reasons.not_constant(what, parameter=at.is_parameter(arg))
    read, results = at.reads(call), at.results(call)
    tensors = [*read, *results]
    reason = refuse_tensors(tensors, at.image_axis, open_sizes=row.open_sizes, dtypes=row.dtypes)
    if reason is not None:
        return reason
    data = [tensor for tensor in read if not tensor.constant]
    if not data:
        fixed = all(isinstance(length, int) for tensor in results for length in tensor.dims or ())
        return reasons.ONLY_CONSTANTS if fixed else reasons.OPEN_CONSTANTS
    if not all(tensor.dims for tensor in (*data, *results)):
        return reasons.SCALAR
    if not row.takes_constants and len(data) + len(row.constants.keys() - row.numbers) < len(read):
        return reasons.CONSTANT_BESIDE
    return refuse_form(call, at, row)


def refuse_form(call: Call, at: DoorReader, row: OpRow) -> str | None:
    """Why a call of an op that is taken has a form that is not; None if it is."""
    return at.own_check(row)(at, call) or row.check(at, call)


def refuse_tensors(
    tensors: Iterable[TensorType],
    image_axis: Callable[[Sequence[Any]], int] = lambda dims: 0,
    *,
    open_sizes: bool = False,
    dtypes: Set[str] = frozenset({"float32"}),
) -> str | None:
    """Why a kernel cannot have these operands and results; None if it can."""
    found = (
        reasons.tensor(t.dtype, t.dims, image_axis(t.dims or ()), open_sizes=open_sizes, dtypes=dtypes)
        for t in tensors
    )
    return next((reason for reason in found if reason is not None), None)
