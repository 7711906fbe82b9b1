"""How much work the ops of a Relax function are: floating-point operations and bytes moved."""

from __future__ import annotations

from tvm import relax

from convoy.offload import work
from convoy.relax.dataflow import Dim, dims, op_name, tensor_args


def count_flops(call: relax.Call) -> int:
    """Floating-point operations of one call, a symbolic length counted as 1."""
    return work.count_flops(op_name(call), call.attrs, _shape(call.ty), _operands(call))


def count_bytes(call: relax.Call) -> int:
    """Bytes one call reads and writes, a symbolic length counted as 1."""
    return work.count_bytes(op_name(call), _shape(call.ty), _operands(call))


def _operands(call: relax.Call) -> list[tuple[Dim, ...]]:
    return [_shape(arg.ty) for arg in tensor_args(call)]


def _shape(ty: relax.Type) -> tuple[Dim, ...]:
    """Shape of a tensor, or of a tuple's first; one that is not known counts as nothing."""
    if isinstance(ty, relax.TupleType):
        return _shape(ty.fields[0]) if len(ty.fields) else (0,)
    found = dims(ty)
    return (0,) if found is None else found
