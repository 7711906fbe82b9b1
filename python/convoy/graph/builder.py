"""Build a ``Graph`` tensor by tensor: what the doors lower with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from convoy.errors import LoweringError, UnknownSizeError
from convoy.graph.dtypes import BYTES, element_type
from convoy.graph.making import Array, Making
from convoy.graph.ops import (
    Binary,
    Dequantize,
    Node,
    Pool2d,
    Quantize,
    Reduce,
    Slice,
    Unary,
)
from convoy.graph.sizes import Size, largest
from convoy.graph.volumes import Volumes

FIX_SHAPE = "fix the input's shape (when importing; for the convoy command, --shape)"
"""What to do about a length that is not known."""

Span = tuple[int, int, int, int]
"""axis, begin, end, step of one axis of a slice, as Python would slice."""


class Builder(Making):
    """The graph of one region while it grows.

    ``reading`` is how the region reads axis 0 of the module's tensors: ``flat``, as they are; ``lifted``,
    with an axis of length 1 in front; ``images``, with 1 instead of their number.
    """

    def __init__(self, reading: str) -> None:
        super().__init__()
        self.reading = reading
        self.volumes = Volumes(self)

    @property
    def lift(self) -> int:
        """What to add to an axis of the module to get that of the graph."""
        return 1 if self.reading == "lifted" else 0

    def shape(self, lengths: Sequence[object] | None) -> tuple[int, ...]:
        """Shape in the graph of a tensor whose axes have these lengths in the module.

        Raises
        ------
        UnknownSizeError
            If a length is neither known nor follows from those of the inputs.
        """
        rest = (lengths or ())[1:] if self.reading == "images" else lengths
        if lengths is None or rest is None or any(not isinstance(d, int | Size) for d in rest):
            found = "an unknown shape" if lengths is None else f"[{', '.join(map(str, lengths))}]"
            problem = f"expected sizes that follow from those of the region's inputs, got {found}"
            raise UnknownSizeError("lower", self.origin or "input", problem, FIX_SHAPE)
        known = tuple(d for d in rest if isinstance(d, int | Size))
        return known if self.reading == "flat" else (1, *known)

    def input(self, name: str, shape: tuple[int, ...], dtype: str = "float32") -> str:
        """Declare an input.

        Raises
        ------
        LoweringError
            If no tensor of a graph can have that type.
        """
        known = element_type(dtype)
        if known is None:
            raise LoweringError(
                "lower",
                f"input {name}",
                f"expected one of {', '.join(BYTES)}, got {dtype}",
                "leave what reads it out of the function",
            )
        return self._declare(name, shape, known)

    def lifted(self, operands: Iterable[str], shape: tuple[int, ...]) -> tuple[str, ...]:
        """The operands of an op that makes ``shape``; constants with its axes get the one in front, too.

        Without it, a constant of more axes than the tensor it meets would make a result without that axis.
        """
        names = tuple(operands)
        for name in set(names) & self.constants.keys() if self.lift else ():
            array = self.constants[name]
            if array.ndim + 1 == len(shape):
                self.constants[name] = array[np.newaxis]
                self.tensors[name] = replace(self.tensors[name], shape=(1, *array.shape))
        return names

    def node(
        self, op: type[Node], inputs: tuple[str, ...], shape: tuple[int, ...], **attributes: Any
    ) -> str:
        """Append a node; what reads a volume is computed slice by slice, where it can be."""
        volume = self.volumes.through(op, inputs, shape, attributes)
        return super().node(op, inputs, shape, **attributes) if volume is None else volume

    # Ops of frontends that a graph says in several --------------------------------------------------

    def quantize(self, data: str, scale: Array, zero: Array, axis: int = 0) -> str:
        """Float32 to the type of ``zero``, with one scale and zero point, or one for each along an axis."""
        return self._quantised(Quantize, data, scale, zero, axis)

    def dequantize(self, data: str, scale: Array, zero: Array, axis: int = 0) -> str:
        """Integers to float32; ``data`` may be a constant."""
        return self._quantised(Dequantize, data, scale, zero, axis)

    def _quantised(self, op: type[Node], data: str, scale: Array, zero: Array, axis: int) -> str:
        flat = np.broadcast_arrays(scale.reshape(-1).astype(np.float32), zero.reshape(-1))
        shape, alike = self.shape_of(data), all((array == array[0]).all() for array in flat)
        names = tuple(self.constant(array[:1] if alike else array) for array in flat)
        return self.node(op, (data, *names), shape, axis=0 if alike else axis)

    def windowed(
        self, op: type[Node], data: str, shape: tuple[int, ...], *constants: Array | None, **given: Any
    ) -> str:
        """An op on windows of images, with its weight and bias; a 1-D one becomes one of height 1."""
        wide = len(shape) == 3
        if wide:
            before = self.shape_of(data)
            data = self.reshape(data, (*before[:2], 1, *before[2:]))
        names = [self.constant(array) for array in constants if array is not None]
        made = (*shape[:2], 1, *shape[2:]) if wide else shape
        result = self.node(op, (data, *names), made, **given)
        return self.reshape(result, shape) if wide else result

    def batch_norm(
        self,
        data: str,
        axis: int,
        gamma: Array | float,
        beta: Array | float,
        mean: Array,
        variance: Array,
        epsilon: float,
    ) -> str:
        """x · scale + shift with scale = gamma / √(variance + epsilon), shift = beta - mean · scale."""
        scale = gamma / np.sqrt(variance.astype(np.float64) + epsilon)
        shift = beta - mean.astype(np.float64) * scale
        shape = self.shape_of(data)
        behind = (1,) * (len(shape) - 1 - axis)
        for kind, values in (("mul", scale), ("add", shift)):
            constant = self.constant(np.asarray(values).reshape(-1, *behind).astype(np.float32))
            data = self.node(Binary, (data, constant), shape, kind=kind)
        return data

    def mean_square(self, data: str, axes: tuple[int, ...], keepdims: bool = True) -> str:
        """Mean of x² over ``axes``: the variance, of data whose mean is 0."""
        shape = self.shape_of(data)
        square = self.node(Unary, (data,), shape, kind="square")
        return self.node(
            Reduce, (square,), reduced(shape, axes, keepdims), kind="mean", axes=axes, keepdims=keepdims
        )

    def centred(self, data: str, axes: tuple[int, ...]) -> str:
        """x - mean over ``axes``."""
        shape = self.shape_of(data)
        mean = self.node(Reduce, (data,), reduced(shape, axes), kind="mean", axes=axes)
        return self.node(Binary, (data, mean), shape, kind="sub")

    def slices(self, data: str, spans: Iterable[Span]) -> str:
        """Cut one axis after the other; without any, a copy."""
        shape, cut = list(self.shape_of(data)), False
        for axis, begin, end, step in spans:
            shape[axis] = largest(0, -(-(end - begin) // step))
            data = self.node(Slice, (data,), tuple(shape), axis=axis, begin=begin, end=end, step=step)
            cut = True
        return data if cut else self.reshape(data, tuple(shape))

    def average_to(self, data: str, shape: tuple[int, ...]) -> str:
        """Average [1, C, H, W] down to ``shape``, whose H and W divide the data's."""
        _, _, height, width = self.shape_of(data)
        if shape[2:] == (1, 1):
            return self.node(Reduce, (data,), shape, kind="mean", axes=(2, 3))
        tile = (height // shape[2], width // shape[3])
        return self.node(Pool2d, (data,), shape, kind="avg", kernel=tile, stride=tile)

    def depth_to_space(self, data: str, r: int, *, blocks_first: bool = False) -> str:
        """Channels C·r·r (r·r·C with ``blocks_first``) become squares of r x r pixels.

        [1, C·r·r, H, W] → [1, C, r, r, H, W] → [1, C, H, r, W, r] → [1, C, H·r, W·r]
        """
        _, packed, height, width = self.shape_of(data)
        channels = packed // (r * r)
        axes = (r, r, channels) if blocks_first else (channels, r, r)
        perm = (0, 3, 4, 1, 5, 2) if blocks_first else (0, 1, 4, 2, 5, 3)
        split = self.reshape(data, (1, *axes, height, width))
        return self.reshape(self.transpose(split, perm), (1, channels, height * r, width * r))


def reduced(shape: Sequence[int], axes: Sequence[int], keepdims: bool = True) -> tuple[int, ...]:
    """What a reduction over ``axes`` leaves of a shape."""
    kept = ((d, i in axes) for i, d in enumerate(shape))
    return tuple(1 if gone else d for d, gone in kept if keepdims or not gone)
