"""Axis 0 stays that of the images where exporters write heads otherwise.

| written | becomes |
|---|---|
| [B, N, 3, H, D] -> [3, B, H, N, D] -> three of [B, H, N, D] | cut first: what is left is transposed |
| [B, H, N, D] -> [B·H, N, D] -> [B·H, D, N] -> [B, H, D, N] | [B, H, N, D] -> [B, H, D, N] |
"""

from __future__ import annotations

from typing import Any

from tvm import relax

from convoy.relax import attributes
from convoy.relax.dataflow import dims, numbers
from convoy.relax.importer.idioms.definitions import Definitions


def slice_before_permute(call: Any, defined: Definitions) -> Any:
    """strided_slice(permute_dims(x))  =>  permute_dims(strided_slice(x))."""
    found, axes = _find_permute(call.args[0], defined), numbers(call.args[1])
    if found is None or axes is None:
        return None
    x, perm = found
    moved, within = [perm[axis] for axis in axes], call.attrs.assume_inbound
    return relax.op.permute_dims(
        relax.op.strided_slice(x, moved, *call.args[2:], assume_inbound=within), perm
    )


def take_before_permute(call: Any, defined: Definitions) -> Any:
    """take(permute_dims(x), one index)  =>  permute_dims(take(x, one index))."""
    found, index = _find_permute(call.args[0], defined), defined.constant(call.args[1])
    if found is None or index is None or index.ndim or call.attrs.axis is None:
        return None
    x, perm = found
    axis = int(call.attrs.axis) % len(perm)
    taken = relax.op.take(x, call.args[1], perm[axis], str(call.attrs.mode))
    return relax.op.permute_dims(taken, _without(perm, [axis]))


def squeeze_before_permute(call: Any, defined: Definitions) -> Any:
    """squeeze(permute_dims(x))  =>  permute_dims(squeeze(x))."""
    found = _find_permute(call.args[0], defined)
    if found is None or call.attrs.axis is None:
        return None
    x, perm = found
    axes = [int(axis) % len(perm) for axis in call.attrs.axis]
    return relax.op.permute_dims(relax.op.squeeze(x, [perm[axis] for axis in axes]), _without(perm, axes))


def item_before_permute(item: Any, defined: Definitions) -> Any:
    """split(permute_dims(x))[i]  =>  permute_dims(strided_slice(x))."""
    split = defined.call(item.tuple_value, "split") if isinstance(item, relax.TupleGetItem) else None
    found = _find_permute(split.args[0], defined) if split is not None else None
    if split is None or found is None:
        return None
    x, perm = found
    axis, begin, end, step = attributes.piece(split, int(item.index))
    return relax.op.permute_dims(relax.op.strided_slice(x, [perm[axis]], [begin], [end], [step]), perm)


def permute_in_place(call: Any, defined: Definitions) -> Any:
    """reshape(permute_dims(reshape(x)))  =>  permute_dims(x), of first axes that are joined between."""
    permute = defined.call(call.args[0], "permute_dims")
    joined = defined.call(permute.args[0], "reshape") if permute is not None else None
    if joined is None or (perm := attributes.permutation(permute))[0] != 0:
        return None
    x, behind = joined.args[0], len(perm) - 1
    before, after = (_lengths(tensor) for tensor in (x, call))
    first = len(before) - behind
    whole = first > 0 and before[first:] == _lengths(joined)[1:]
    order = [*range(first), *(axis - 1 + first for axis in perm[1:])]
    return relax.op.permute_dims(x, order) if whole and after == [before[axis] for axis in order] else None


def _lengths(tensor: Any) -> list[str]:
    """Lengths of the axes, in words; none of an unknown shape."""
    return [str(length) for length in dims(tensor) or ()]


def _find_permute(expr: Any, defined: Definitions) -> tuple[Any, list[int]] | None:
    """x and the order of its axes, where ``expr`` is a transposed x whose axis 0 has moved."""
    call = defined.call(expr, "permute_dims")
    perm = list(attributes.permutation(call)) if call is not None else [0]
    return None if call is None or perm[0] == 0 else (call.args[0], perm)


def _without(perm: list[int], axes: list[int]) -> list[int]:
    """The order of the axes that are left."""
    kept = [axis for i, axis in enumerate(perm) if i not in axes]
    return [sorted(kept).index(axis) for axis in kept]
