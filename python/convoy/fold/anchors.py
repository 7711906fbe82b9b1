"""Anchor ops: convolutions and matmuls with a constant weight, which swallow scales and shifts.

    conv(a·x + t, W) = conv(x, W · a[input channel]) + Σ W·t        (forward; t needs no padding)
    s·conv(x, W) + b = conv(x, W · s[output channel]) + b           (backward)

Both scales are applied to the weight at once, in float64, and rounded once. A shared weight is
never changed: each anchor writes its own copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from convoy.fold.affine import IDENTITY, Affine, Vector
from convoy.fold.constants import FLOATS, Lookup
from convoy.fold.node import Node
from convoy.graph.scaled import is_likely_scaled
from convoy.ops.table import OF, of_cost

_CONVOLUTIONS = of_cost(OF, "convolution", "transposed")
WEIGHTED_OPS = (*_CONVOLUTIONS, *of_cost(OF, "product"))

_BEST_HALF = (2.0**-12, float(np.finfo(np.float16).max))
"""Range of a channel's largest fp16 weight outside of which scaling costs precision."""
_NORMAL = (float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max))
"""The same of the largest fp32 weight of all: a channel may vanish beside the others."""


@dataclass(frozen=True)
class Geometry:
    """Where an anchor's channels are."""

    out_axis: int
    """Axis of the output."""
    in_axis: int
    """Axis of the input."""
    weight_out: int
    """Axis of the weight that holds output channels (of one group, if ``transposed``)."""
    weight_in: int
    """Axis of the weight that holds input channels (of one group, unless ``transposed``)."""
    groups: int = 1
    transposed: bool = False
    padded: bool = False

    def spread_out(self, vector: Vector, rank: int, channels_in: int) -> Vector:
        """Values per output channel as a factor of the weight."""
        if vector.ndim == 0:
            return vector
        if not self.transposed:
            return _along(vector, self.weight_out, rank)
        rows = vector.reshape(self.groups, -1).repeat(channels_in // self.groups, axis=0)
        return self._matrix(rows.T, rank)

    def spread_in(self, vector: Vector, rank: int, channels_out: int) -> Vector:
        """Values per input channel as a factor of the weight."""
        if vector.ndim == 0:
            return vector
        if self.transposed:
            return _along(vector, self.weight_in, rank)
        rows = vector.reshape(self.groups, -1).repeat(channels_out // self.groups, axis=0)
        return self._matrix(rows, rank)

    def _matrix(self, matrix: Vector, rank: int) -> Vector:
        """[O, I] laid along the weight's two channel axes."""
        shape = [1] * rank
        shape[self.weight_out], shape[self.weight_in] = matrix.shape
        return (matrix if self.weight_out < self.weight_in else matrix.T).reshape(shape)


def read_geometry(node: Node) -> Geometry | None:
    """Channels of a convolution or a matmul with one matrix of weights; None for any other form."""
    x, weight = node.arg_shapes
    if x is None or weight is None or not {node.dtype, node.arg_dtypes[1]} <= set(FLOATS):
        return None
    attrs = node.attrs
    if node.name not in _CONVOLUTIONS:
        transposed = node.name == "nn.dense" or bool(getattr(attrs, "transpose_b", False))
        if len(weight) < 2 or len(x) < len(weight) or getattr(attrs, "transpose_a", False):
            return None
        *stacked, rows, columns = range(len(weight))
        if any(weight[axis] != 1 for axis in stacked):
            return None
        weight_out, weight_in = (rows, columns) if transposed else (columns, rows)
        return Geometry(len(x) - 1, len(x) - 1, weight_out, weight_in)
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout or attrs.data_layout))
    if any(not layout.isalpha() or not layout.isupper() for layout in layouts):
        return None
    data, kernel, out = layouts
    groups, transposed = int(attrs.groups), node.name.endswith("transpose")
    channels_in = x[data.index("C")]
    if not transposed and channels_in is not None and weight[kernel.index("I")] != channels_in // groups:
        return None  # Relay's [C, M, kh, kw] of a depthwise convolution
    return Geometry(
        out.index("C"),
        data.index("C"),
        kernel.index("O"),
        kernel.index("I"),
        groups,
        transposed,
        any(int(p) != 0 for p in attrs.padding),
    )


class Anchor:
    """One call of an anchor op with the affine maps before and after it, not yet in its weight."""

    def __init__(self, node: Node, geometry: Geometry, lookup: Lookup) -> None:
        self.node = node
        self.geometry = geometry
        self.name = node.label
        self.weight = lookup(node.args[1])
        self.before = IDENTITY
        self.after = IDENTITY

    def refusal(self, after: Affine) -> str:
        """Why a map of the output cannot be taken; empty if it can."""
        if self.weight is None:
            return f"expected a constant weight in {self.name}, got a run-time value"
        if after.axis not in (None, self.geometry.out_axis):
            return f"expected a map along axis {self.geometry.out_axis} of {self.name}, got {after.axis}"
        total = self.after.then(after)
        return self._range_refusal(total, self.before) if total is not None else "axes differ"

    def take(self, after: Affine) -> None:
        total = self.after.then(after)
        assert total is not None
        self.after = total

    def input_refusal(self, before: Affine) -> str:
        """Why a map of the input cannot be taken; empty if it can."""
        if self.weight is None:
            return f"expected a constant weight in {self.name}, got a run-time value"
        if before.axis not in (None, self.geometry.in_axis):
            return f"expected a map along axis {self.geometry.in_axis} into {self.name}, got {before.axis}"
        if before.shifts and self.geometry.padded:
            return f"expected no padding in {self.name} to take a shift, got some: zeros are not shifted"
        if before.shifts and self.geometry.transposed:
            return f"expected {self.name} to sum the same taps everywhere to take a shift, got a transpose"
        if before.scales and before.scale.ndim and self._is_of_few_bits:
            return (
                f"expected a matrix of floats in {self.name} to take a scale of rows, got one of few bits"
            )
        return self._range_refusal(self.after, before)

    def take_input(self, before: Affine) -> None:
        self.before = before

    @property
    def shift(self) -> Vector:
        """What the anchor adds to each output channel: [O] or []."""
        if not self.before.shifts:
            return self.after.shift
        assert self.weight is not None
        shift = self.geometry.spread_in(self.before.shift, self._rank, self.channels_out)
        others = tuple(axis for axis in range(self._rank) if axis != self.geometry.weight_out)
        taps: Vector = np.multiply(self.weight.array, shift, dtype=np.float64).sum(axis=others)
        return taps * self.after.scale + self.after.shift

    @property
    def factor(self) -> Vector | None:
        """What both scales multiply the weight by, of its rank; None if they leave it as it is."""
        if not self.after.scales and not self.before.scales:
            return None
        return self._factor(self.after, self.before)

    @property
    def _rank(self) -> int:
        assert self.weight is not None
        return self.weight.array.ndim

    @property
    def channels_out(self) -> int:
        """Channels of the whole output."""
        assert self.weight is not None
        n: int = self.weight.array.shape[self.geometry.weight_out]
        return n * self.geometry.groups if self.geometry.transposed else n

    @property
    def _channels_in(self) -> int:
        assert self.weight is not None
        n: int = self.weight.array.shape[self.geometry.weight_in]
        return n if self.geometry.transposed else n * self.geometry.groups

    @property
    def _is_of_few_bits(self) -> bool:
        """Is its weight a matrix that is kept so, with a scale for each block of a column?"""
        assert self.weight is not None
        if self.node.name in _CONVOLUTIONS or self.weight.dtype != "float32":
            return False
        rows, columns = self.geometry.weight_in, self.geometry.weight_out
        array = self.weight.array.reshape(self.weight.array.shape[-2:])
        return is_likely_scaled(array if rows < columns else array.T)

    def _factor(self, after: Affine, before: Affine) -> Vector:
        return self.geometry.spread_out(after.scale, self._rank, self._channels_in) * (
            self.geometry.spread_in(before.scale, self._rank, self.channels_out)
        )

    def _range_refusal(self, after: Affine, before: Affine) -> str:
        """Scaling must not push weights out of the normal range: of a channel in fp16, of all in fp32."""
        assert self.weight is not None
        if self.weight.dtype not in ("float16", "float32") or not (after.scales or before.scales):
            return ""
        scaled = self._peaks * np.abs(self._factor(after, before))
        others = tuple(axis for axis in range(self._rank) if axis != self.geometry.weight_out)
        half = self.weight.dtype == "float16"
        largest = scaled.max(axis=others if half else None)
        low, high = _BEST_HALF if half else _NORMAL
        if np.all((largest == 0) | ((largest >= low) & (largest <= high))):
            return ""
        kind = "fp16" if half else "fp32"
        return (
            f"expected the scaled {kind} weight of {self.name} in [{low}, {high}], got {largest.max():.3g}"
        )

    @cached_property
    def _peaks(self) -> Vector:
        """Largest magnitude of the weight over the taps: the weight's rank, kept dimensions."""
        assert self.weight is not None
        channels = (self.geometry.weight_out, self.geometry.weight_in)
        taps = tuple(axis for axis in range(self._rank) if axis not in channels)
        peaks: Vector = np.abs(self.weight.wide).max(axis=taps, keepdims=True)
        return peaks


def _along(vector: Vector, axis: int, rank: int) -> Vector:
    shape = [1] * rank
    shape[axis] = -1
    return vector.reshape(shape)
