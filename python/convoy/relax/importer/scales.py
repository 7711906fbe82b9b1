"""Quantised ops whose blocks, scales and zero points do not fit what they scale, by the name of their node.

Without a look at them TVM, or whoever computes a constant, ends in words of its own, or makes something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import onnx
from onnx import TensorProto

LEAST_BLOCK = 16
"""Elements of the smallest block that ONNX Runtime's own ops have."""
NARROW = {
    number: name.lower()
    for name, number in TensorProto.DataType.items()
    if name in ("INT4", "UINT4", "INT2", "UINT2")
}
"""Integers of which a byte holds two or four; older versions of onnx lack the latter."""

Shape = Sequence[int | str]
"""Sizes, or the symbols of open ones."""


class Misfit(Exception):
    """What a node should have, and what it has."""

    def __init__(self, expected: str, found: object) -> None:
        super().__init__(expected, found)
        self.expected = expected
        self.found = found


class Given:
    """A node's attributes, and what is known of its inputs."""

    def __init__(
        self,
        node: onnx.NodeProto,
        attributes: Mapping[str, Any],
        shapes: Mapping[str, Shape],
        kinds: Mapping[str, int],
    ) -> None:
        self.node = node
        self.attributes = attributes
        self.shapes = shapes
        self.kinds = kinds

    def shape(self, index: int) -> Shape | None:
        return self.shapes.get(self._name(index))

    def kind(self, index: int) -> int:
        return self.kinds.get(self._name(index), TensorProto.UNDEFINED)

    def number(self, name: str, default: int) -> int:
        return int(self.attributes.get(name, default))

    def _name(self, index: int) -> str:
        return self.node.input[index] if index < len(self.node.input) else ""


def check_scales(given: Given) -> None:
    """Ask whether a node can mean what it says.

    Raises
    ------
    Misfit
        If it cannot.
    """
    check = CHECKS.get(given.node.op_type)
    if check is not None:
        check(given)


def _check_linear(given: Given) -> None:
    """DequantizeLinear and QuantizeLinear: one scale, or one for each along an axis, or for each block."""
    block, x, scale, zero = given.number("block_size", 0), *map(given.shape, range(3))
    if block < 0:
        raise Misfit("a block_size from 0 on", block)
    if x is None or scale is None:
        return
    if (
        zero is not None
        and not _may_be_same(zero, scale)
        and {prod(_known(zero)), prod(_known(scale))} != {1}
    ):
        raise Misfit(f"a zero point of the scale's shape {list(scale)}", list(zero))
    if not block and prod(_known(scale)) == 1 and len(_known(scale)) == len(scale) <= 1:
        return
    axis = 0 if len(x) == 1 else _axis(given, "axis", 1, len(x))
    if block:
        _check_blocks_of(x, scale, axis, block)
    elif not _may_be_same(scale, x[axis : axis + 1]):
        hint = "" if len(scale) < 2 else ", as it has no block_size"
        raise Misfit(f"a scale of shape {list(x[axis : axis + 1])}, or one number{hint}", list(scale))


def _check_gather(given: Given) -> None:
    """GatherBlockQuantized: integers of 4 bits along any axes, or bytes of packed ones along the last."""
    table, indices, scale, zero = map(given.shape, range(4))
    del indices
    bits, narrow = given.number("bits", 4), given.kind(0) in NARROW
    _check_power(given.number("block_size", 128))
    if bits not in ((4,) if narrow else (2, 4, 8)):
        raise Misfit("bits to be 4" if narrow else "bits to be 2, 4 or 8", bits)
    if table is None:
        return
    gathered = _axis(given, "gather_axis", 0, len(table))
    axis = _axis(given, "quantize_axis", 1, len(table))
    if not narrow and given.kind(0) == TensorProto.UINT8:
        if gathered:
            raise Misfit("a gather_axis of 0 for bytes", gathered)
        if axis != len(table) - 1 or not axis:
            raise Misfit("a quantize_axis that is the last one for bytes, and no other", axis)
        table = [*table[:-1], _times(table[-1], 8 // bits)]
    if scale is None:
        return
    _check_blocks_of(table, scale, axis, given.number("block_size", 128))
    packed = [*scale[:-1], _over(scale[-1], 8 // bits)] if given.kind(3) == TensorProto.UINT8 else scale
    if zero is not None and not _may_be_same(zero, packed):
        raise Misfit(f"zero points of shape {list(packed)}", list(zero))


def _check_product(given: Given) -> None:
    """MatMulNBits: N columns of K numbers, in blocks."""
    bits, block = given.number("bits", 4), given.number("block_size", 0)
    columns, depth = given.number("N", 0), given.number("K", 0)
    _check_power(block)
    if bits not in (2, 4, 8):
        raise Misfit("bits to be 2, 4 or 8", bits)
    for name, size in (("N", columns), ("K", depth)):
        if size < 1:
            raise Misfit(f"{name} from 1 on", size)
    blocks = -(-depth // block)
    x = given.shape(0)
    if x and isinstance(x[-1], int) and x[-1] != depth:
        raise Misfit(f"data of K = {depth} columns", list(x))
    packed = given.kind(3) == TensorProto.UINT8
    zeros = columns * (-(-blocks * bits // 8) if packed else blocks)
    counts = {1: columns * blocks * block * bits // 8, 2: columns * blocks, 3: zeros, 5: columns}
    for i, what in ((1, "bytes"), (2, "scales"), (3, "zero points"), (5, "numbers of bias")):
        shape = given.shape(i)
        if shape is not None and len(_known(shape)) == len(shape) and prod(_known(shape)) != counts[i]:
            raise Misfit(f"{counts[i]} {what} by N, K and block_size", f"the shape {list(shape)}")


CHECKS: dict[str, Callable[[Given], None]] = {
    "DequantizeLinear": _check_linear,
    "GatherBlockQuantized": _check_gather,
    "MatMulNBits": _check_product,
    "QuantizeLinear": _check_linear,
}


def _check_power(block: int) -> None:
    if block < LEAST_BLOCK or block & (block - 1):
        raise Misfit(f"a block_size that is a power of 2 from {LEAST_BLOCK} on", block)


def _check_blocks_of(x: Shape, scale: Shape, axis: int, block: int) -> None:
    wanted = [*x[:axis], _over(x[axis], block), *x[axis + 1 :]]
    if not _may_be_same(scale, wanted):
        raise Misfit(f"scales of shape {wanted} for blocks of {block} in {list(x)}", list(scale))


def _axis(given: Given, name: str, default: int, rank: int) -> int:
    axis = given.number(name, default)
    if not -rank <= axis < rank:
        raise Misfit(f"{name} from {-rank} to {rank - 1}", axis)
    return axis % rank


def _known(shape: Shape) -> list[int]:
    return [size for size in shape if isinstance(size, int)]


def _times(size: int | str, factor: int) -> int | str:
    return size * factor if isinstance(size, int) else "?"


def _over(size: int | str, divisor: int) -> int | str:
    return -(-size // divisor) if isinstance(size, int) else "?"


def _may_be_same(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(
        isinstance(m, str) or isinstance(n, str) or m == n for m, n in zip(a, b, strict=True)
    )
