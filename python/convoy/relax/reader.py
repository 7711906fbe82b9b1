"""What Relax says of the calls of a dataflow block, for the checks of ``convoy/ops``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tvm import relax

from convoy.graph.builder import Span
from convoy.graph.sizes import Size
from convoy.ops.reader import Array, Attributes, TensorType
from convoy.ops.row import Check, OpRow
from convoy.ops.table import row_of
from convoy.relax import attributes
from convoy.relax.dataflow import Dataflow, dims, dtype, op_name, tensor_args
from convoy.relax.images import image_places
from convoy.relax.sizes import Dim


@dataclass(frozen=True)
class BlockReader:
    """``ops.reader.Reader`` of one block."""

    flow: Dataflow
    attributes: Attributes = attributes

    def name(self, call: relax.Call) -> str:
        return op_name(call)

    def constant(self, expr: relax.Expr) -> Array | None:
        return self.flow.constant(expr)

    def is_constant(self, expr: relax.Expr) -> bool:
        return self.flow.is_constant(expr)

    def is_parameter(self, expr: relax.Expr) -> bool:
        return self.flow.is_parameter(expr)

    def dims(self, of: relax.Expr | relax.Type) -> tuple[Dim, ...] | None:
        """Lengths behind axis 0 that are known at the call are sizes, where sizes can say them."""
        found = dims(of)
        return found and self.flow.lengths.sizes(found, self.image_axis(found))

    def size(self, length: Dim) -> Dim:
        known = None if isinstance(length, int | Size) else self.flow.lengths.size(length)
        return length if known is None else known

    def elements(self, of: relax.Expr | relax.Type) -> int | None:
        shape = dims(of)
        found = [None] if shape is None else list(map(self.flow.lengths.size, shape))
        known = tuple(size for size in found if size is not None)
        return _product(known) if len(known) == len(found) else None

    def opens(self, *tensors: relax.Expr | relax.Type, mixed: bool = False) -> bool:
        """May axis 0 of these be a size known at the call, like any other axis?

        Where the number of images alone is open, only if they are ``mixed``.
        """
        asked = mixed or self.flow.open_beside_images
        return asked and all(self.elements(x) is not None for x in tensors)

    def reads(self, call: relax.Call) -> list[TensorType]:
        args = tensor_args(call, row_of(op_name(call)).numbers)
        return [TensorType(dtype(arg), self.dims(arg), self.flow.is_constant(arg)) for arg in args]

    def results(self, call: relax.Call) -> list[TensorType]:
        return [TensorType(dtype(ty), self.dims(ty)) for ty in results(call)]

    def slices(self, call: relax.Call) -> list[Span] | None:
        return attributes.slices(call, self.flow.lengths.size)

    def turns(self, call: relax.Call) -> bool:
        """All of them."""
        return True

    def image_axis(self, dims: Sequence[Dim]) -> int:
        """Axis 0, or the only open one that the block knows to be of images."""
        if dims and not isinstance(dims[0], int | Size):
            return 0
        axes = {place.axis for place in image_places(dims, self.flow).values()}
        return axes.pop() if len(axes) == 1 else 0

    def own_check(self, row: OpRow) -> Check:
        return row.relax_check


def results(call: relax.Call) -> list[relax.Type]:
    """Types of what the op computes; of batch_norm and dropout, only item 0 is ever taken."""
    if not isinstance(call.ty, relax.TupleType):
        return [call.ty]
    return list(call.ty.fields) if op_name(call) == "split" else list(call.ty.fields)[:1]


@lru_cache(maxsize=1 << 14)
def _product(sizes: tuple[int, ...]) -> int:
    """A product that is slow to make of open sizes, and asked of each tensor again and again."""
    return prod(sizes)
