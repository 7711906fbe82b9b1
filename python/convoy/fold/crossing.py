"""Which affine maps may cross which op: op(s·x + t) = s·op(x) + t.

| op | scale | shift |
|---|---|---|
| relu, leaky relu | ≥ 0 | none |
| max pool | > 0, along no axis it pools | any: the padding is -inf |
| average pool | any, along no axis it pools | any, unless it counts its padding, which is not shifted |
| pool with windows that may see no pixel | the same, none if max | none: what TVM gives there stays |
| mean over other axes | any | any |
| transpose, reshape that keeps the channel axis | any | any |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from convoy.fold.affine import Affine
from convoy.fold.node import Node
from convoy.ops.row import Pool
from convoy.ops.table import OF, of_cost


@dataclass(frozen=True)
class Crossing:
    """What an op lets through, and where its axes go."""

    name: str
    lowest_scale: float = float("-inf")
    strict: bool = False
    """The scale must be above ``lowest_scale``, not at it."""
    shifts: bool = True
    axes: dict[int, int] | None = field(default=None)
    """Output axis → input axis, for the axes a map may run along; None: all, unchanged."""

    def refusal(self, affine: Affine) -> str:
        """Why a map of the output cannot come from the input; empty if it can."""
        if affine.axis is not None and self.axes is not None and affine.axis not in self.axes:
            return f"{self.name} does not keep axis {affine.axis}"
        lowest = float(affine.scale.min())
        if lowest < self.lowest_scale or (self.strict and lowest == self.lowest_scale):
            bound = ">" if self.strict else "≥"
            return f"expected a scale {bound} {self.lowest_scale:g} to cross {self.name}, got {lowest:.3g}"
        if affine.shifts and not self.shifts:
            return f"a shift does not cross {self.name}"
        return ""

    def down(self, affine: Affine) -> Affine:
        """The map of the input that makes this map of the output."""
        return affine if self.axes is None or affine.axis is None else affine.along(self.axes[affine.axis])

    def up(self, affine: Affine) -> Affine | None:
        """The map of the output that this map of the input makes; None if its axis is lost."""
        if self.axes is None or affine.axis is None:
            return affine
        outputs = [out for out, axis in self.axes.items() if axis == affine.axis]
        return affine.along(outputs[0]) if outputs else None


def read_crossing(node: Node) -> Crossing | None:
    """The crossing of an op with one input, None for ops no map may cross."""
    reader = _READERS.get(node.name)
    return reader(node) if reader is not None else None


def _kept_axes(node: Node) -> dict[int, int]:
    """The images and channels of a pool; it mixes the pixels along every other axis."""
    return {axis: axis for axis, letter in enumerate(str(node.attrs.layout)) if letter in "NC"}


def _sees_pixels(node: Node) -> bool:
    """Is there a pixel in every window of a pool?  In doubt not."""
    attrs = node.attrs
    padding = max(map(int, attrs.padding), default=0)
    overhang = max(map(int, attrs.strides)) - 1 if attrs.ceil_mode else 0
    dense = all(int(d) == 1 for d in attrs.dilation)
    return padding + overhang == 0 or (dense and padding + overhang < min(map(int, attrs.pool_size)))


def _max_pool(node: Node) -> Crossing | None:
    if not _sees_pixels(node):
        return None
    return Crossing("max_pool", 0.0, strict=True, axes=_kept_axes(node))


def _average_pool(node: Node) -> Crossing:
    attrs = node.attrs
    padded = any(int(p) != 0 for p in attrs.padding)
    counted = bool(attrs.ceil_mode) or (bool(attrs.count_include_pad) and padded)
    name = "an average pool that counts its padding" if counted else "avg_pool"
    return Crossing(name, shifts=not counted and _sees_pixels(node), axes=_kept_axes(node))


def _area_pool(node: Node) -> Crossing:
    return Crossing(node.name.removeprefix("nn."), axes=_kept_axes(node))


def _transpose(node: Node) -> Crossing | None:
    shape = node.arg_shapes[0]
    if shape is None:
        return None
    axes = node.attrs.axes
    order = list(reversed(range(len(shape)))) if axes is None else [int(a) % len(shape) for a in axes]
    return Crossing("a transpose", axes=dict(enumerate(order)))


def _mean(node: Node) -> Crossing | None:
    shape, axes = node.arg_shapes[0], node.attrs.axis
    if shape is None or axes is None or getattr(node.attrs, "exclude", False):
        return None
    reduced = {int(a) % len(shape) for a in axes}
    kept = [axis for axis in range(len(shape)) if axis not in reduced]
    if node.attrs.keepdims:
        return Crossing("mean", axes={axis: axis for axis in kept})
    return Crossing("mean", axes=dict(enumerate(kept)))


def _reshape(node: Node) -> Crossing | None:
    """[N, C, 1, 1] ↔ [N, C]: the axes that are more than 1 stay what they are."""
    before, after = node.arg_shapes[0], node.shape
    if before is None or after is None:
        return None
    wide_before = [axis for axis, n in enumerate(before) if n != 1]
    wide_after = [axis for axis, n in enumerate(after) if n != 1]
    if [before[a] for a in wide_before] != [after[a] for a in wide_after]:
        return None
    if sum(before[a] is None for a in wide_before) > 1:
        return None
    return Crossing("reshape", axes=dict(zip(wide_after, wide_before, strict=True)))


_POOLS: dict[Pool | None, Callable[[Node], Crossing | None]] = {
    "max": _max_pool,
    "avg": _average_pool,
    "area avg": _area_pool,
}
_READERS: dict[str, Callable[[Node], Crossing | None]] = {
    "nn.relu": lambda node: Crossing("relu", 0.0, shifts=False),
    **dict.fromkeys(OF["nn.leakyrelu"].names, lambda node: Crossing("leaky_relu", 0.0, shifts=False)),
    **{name: _POOLS[row.pool] for name, row in OF.items() if row.pool in _POOLS},
    "mean": _mean,
    **dict.fromkeys(OF["transpose"].names, _transpose),
    **dict.fromkeys(of_cost(OF, "in place"), _reshape),
}
