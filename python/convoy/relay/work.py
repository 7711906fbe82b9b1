"""How much work the ops of a Relay function are: floating-point operations and bytes moved."""

from __future__ import annotations

from tvm import ir, relay

from convoy.offload import work
from convoy.relay.dataflow import Dim, dims, op_name
from convoy.relay.reader import flat_types, results


def count_flops(call: relay.Call) -> int:
    """Floating-point operations of one call."""
    return work.count_flops(op_name(call), call.attrs, _shape(results(call)[0]), _operands(call))


def count_bytes(call: relay.Call) -> int:
    """Bytes one call reads and writes."""
    return work.count_bytes(op_name(call), _shape(results(call)[0]), _operands(call))


def _operands(call: relay.Call) -> list[tuple[Dim, ...]]:
    return [_shape(ty) for ty in flat_types(call.args)]


def _shape(ty: ir.Type) -> tuple[Dim, ...]:
    found = dims(ty)
    return (0,) if found is None else found
