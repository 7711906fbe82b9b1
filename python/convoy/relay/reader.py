"""What Relay says of its calls, for the checks of ``convoy/ops``."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import ir, relay

from convoy.graph.builder import Span
from convoy.ops.reader import Array, Attributes, TensorType
from convoy.ops.row import Check, OpRow
from convoy.ops.table import row_of
from convoy.relay import attributes
from convoy.relay.dataflow import Dim, constant, dims, dtype, is_constant, op_name, tensor_args
from convoy.relay.fold.layout import WANTED


class CallReader:
    """``ops.reader.Reader`` of Relay."""

    attributes: Attributes = attributes

    def name(self, call: relay.Call) -> str:
        return op_name(call)

    def constant(self, expr: relay.Expr) -> Array | None:
        return constant(expr)

    def is_constant(self, expr: relay.Expr) -> bool:
        return is_constant(expr)

    def is_parameter(self, expr: relay.Expr) -> bool:
        return isinstance(expr, relay.Var)

    def dims(self, of: relay.Expr) -> tuple[Dim, ...] | None:
        return dims(of)

    def size(self, length: Dim) -> Dim:
        return length

    def elements(self, of: relay.Expr) -> int | None:
        found = dims(of)
        known = [length for length in found or () if isinstance(length, int)]
        return prod(known) if found is not None and len(known) == len(found) else None

    def reads(self, call: relay.Call) -> list[TensorType]:
        args = tensor_args(call, row_of(op_name(call)).numbers)
        return [
            TensorType(dtype(ty), dims(ty), is_constant(arg)) for arg in args for ty in flat_types([arg])
        ]

    def results(self, call: relay.Call) -> list[TensorType]:
        return [TensorType(dtype(ty), dims(ty)) for ty in results(call)]

    def slices(self, call: relay.Call) -> list[Span] | None:
        return attributes.slices(call)

    def turns(self, call: relay.Call) -> bool:
        """TVM's ConvertLayout turns some ops only."""
        return op_name(call) in WANTED

    def image_axis(self, dims: Sequence[Any]) -> int:
        """Axis 0: other ones are of known length."""
        return 0

    def own_check(self, row: OpRow) -> Check:
        return row.relay_check


READER = CallReader()


def flat_types(tensors: Sequence[relay.Expr | ir.Type]) -> list[ir.Type]:
    """Types of tensors; a tuple gives its fields."""
    found: list[ir.Type] = []
    for tensor in tensors:
        ty = tensor if isinstance(tensor, ir.Type) else tensor.checked_type
        found += list(ty.fields) if isinstance(ty, ir.TupleType) else [ty]
    return found


def results(call: relay.Call) -> list[ir.Type]:
    """Types of what the op computes; of batch_norm and dropout, only item 0 is ever taken."""
    ty = call.checked_type
    if not isinstance(ty, ir.TupleType):
        return [ty]
    return list(ty.fields) if op_name(call) == "split" else list(ty.fields)[:1]
