"""How much work the ops of a Relax function are: floating-point operations and bytes moved."""

from __future__ import annotations

from math import prod

from tvm import relax

from convoy.relax.dataflow import Dim, dims, op_name, tensor_args


def count_flops(call: relax.Call) -> int:
    """Floating-point operations of one call, a symbolic length counted as 1.

    A multiply-add is two; an elementwise op is one an element; moving data is none.
    """
    name = op_name(call)
    result = _elements(call)
    if name in ("nn.conv1d", "nn.conv2d", "nn.conv3d"):
        return 2 * result * prod(_lengths(dims(call.args[1]))[1:])
    if name in ("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose"):
        return 2 * _elements(call.args[0]) * prod(_lengths(dims(call.args[1]))[1:])
    if name == "matmul":
        return 2 * result * _lengths(dims(call.args[0]))[-1]
    if name.startswith(("nn.max_pool", "nn.avg_pool")):
        return result * prod(int(k) for k in call.attrs.pool_size)
    if name in ("mean", "sum", "max", "min", "nn.adaptive_avg_pool2d"):
        return _elements(call.args[0])
    return 0 if name in _MOVES else result


def count_bytes(call: relax.Call) -> int:
    """Bytes one call reads and writes, a symbolic length counted as 1."""
    return 4 * (_elements(call) + sum(_elements(arg) for arg in tensor_args(call)))


_MOVES = frozenset(
    {
        "reshape", "flatten", "expand_dims", "squeeze", "nn.batch_flatten", "permute_dims", "concat",
        "split", "strided_slice", "nn.pad", "nn.dropout", "nn.pixel_shuffle", "shape_of", "take",
        "broadcast_to", "stack", "tile", "repeat",
    }
)  # fmt: skip


def _elements(of: relax.Expr | relax.Type) -> int:
    ty = of if isinstance(of, relax.Type) else of.ty
    if isinstance(ty, relax.TupleType):
        return _elements(ty.fields[0]) if len(ty.fields) else 0
    shape = dims(ty)
    return prod(_lengths(shape)) if shape is not None else 0


def _lengths(shape: tuple[Dim, ...] | None) -> list[int]:
    return [d if isinstance(d, int) else 1 for d in shape or ()]
