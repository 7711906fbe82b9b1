"""The algebra of the folds: y = scale · x + shift, per channel along one axis, in float64.

Batch norm, and add, subtract, multiply and divide with a constant, are all of this form, and so is
one after another. ``recognise`` reads a call as an ``Affine``; ``then`` composes two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from convoy.fold.constants import FLOATS, Const, Lookup
from convoy.fold.node import Node, Shape, Value

Vector: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Affine:
    """y = scale · x + shift.

    ``scale`` and ``shift`` have shape [C] and run along ``axis`` (≥ 0), or shape [] and are the same
    for all elements; ``axis`` is None if both are [].
    """

    axis: int | None
    scale: Vector
    shift: Vector

    @property
    def scales(self) -> bool:
        return bool(np.any(self.scale != 1.0))

    @property
    def shifts(self) -> bool:
        return bool(np.any(self.shift != 0.0))

    @property
    def trivial(self) -> bool:
        return not self.scales and not self.shifts

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.scale).all() and np.isfinite(self.shift).all())

    def then(self, after: Affine) -> Affine | None:
        """``after(self(x))``; None if they run along different axes."""
        if self.axis is not None and after.axis is not None and self.axis != after.axis:
            return None
        axis = self.axis if self.axis is not None else after.axis
        return Affine(axis, self.scale * after.scale, self.shift * after.scale + after.shift)

    def only_scale(self) -> Affine:
        return Affine(self.axis, self.scale, np.zeros_like(self.shift))

    def only_shift(self) -> Affine:
        return Affine(self.axis, np.ones_like(self.scale), self.shift)

    def along(self, axis: int | None) -> Affine:
        """The same numbers along another axis."""
        return Affine(None if self.axis is None else axis, self.scale, self.shift)

    def part(self, begin: int, end: int) -> Affine:
        """The channels from ``begin`` to ``end``."""
        scale = self.scale[begin:end] if self.scale.ndim else self.scale
        shift = self.shift[begin:end] if self.shift.ndim else self.shift
        return Affine(self.axis, scale, shift)


IDENTITY = Affine(None, np.array(1.0), np.array(0.0))


def recognise(node: Node, lookup: Lookup) -> tuple[Value, Affine] | None:
    """The input and the affine map of an elementwise call with one constant operand, or None.

    ``nn.batch_norm`` has its own reader, ``batch_norm``.
    """
    name = node.name
    if name == "negative":
        return node.args[0], Affine(None, np.array(-1.0), IDENTITY.shift)
    if name not in ("add", "subtract", "multiply", "divide", "nn.bias_add"):
        return None
    (x, right), shape = node.args, node.arg_shapes[0]
    constant = lookup(right)
    swapped = constant is None
    if swapped:
        constant, x, shape = lookup(x), right, node.arg_shapes[1]
    if constant is None or constant.dtype not in FLOATS or (swapped and name in ("divide", "nn.bias_add")):
        return None
    bias_axis = int(node.attrs.axis) if name == "nn.bias_add" else None
    channels = _per_channel(constant, shape, bias_axis)
    if channels is None:
        return None
    axis, c = channels
    one, zero = np.ones_like(c), np.zeros_like(c)
    with np.errstate(all="ignore"):
        affine = {
            "add": lambda: Affine(axis, one, c),
            "nn.bias_add": lambda: Affine(axis, one, c),
            "subtract": lambda: Affine(axis, -one, c) if swapped else Affine(axis, one, -c),
            "multiply": lambda: Affine(axis, c, zero),
            "divide": lambda: Affine(axis, 1.0 / c, zero),
        }[name]()
    return (x, affine) if affine.finite else None


def batch_norm(node: Node, lookup: Lookup) -> Affine | str:
    """The affine map of an inference batch norm, or in words why it is none."""
    attrs, shape = node.attrs, node.arg_shapes[0]
    if getattr(attrs, "training", False):
        return "expected inference, got training=True; its statistics are those of the batch"
    if shape is None:
        return "expected a tensor of known rank, got an unknown shape"
    values: dict[str, Vector] = {}
    for role, argument in zip(("gamma", "beta", "mean", "variance"), node.args[1:], strict=True):
        unused = (role == "gamma" and not attrs.scale) or (role == "beta" and not attrs.center)
        constant = lookup(argument)
        if unused:
            values[role] = np.array(float(role == "gamma"))
        elif constant is None:
            return f"expected a constant {role}, got a run-time value"
        else:
            values[role] = constant.wide
    with np.errstate(all="ignore"):
        scale = values["gamma"] / np.sqrt(values["variance"] + float(attrs.epsilon))
        affine = Affine(int(attrs.axis) % len(shape), scale, values["beta"] - values["mean"] * scale)
    if not affine.finite:
        return "expected finite parameters, got variance + epsilon ≤ 0 or a value that is not finite"
    return affine


def _per_channel(
    constant: Const, shape: Shape | None, bias_axis: int | None
) -> tuple[int | None, Vector] | None:
    """Axis and values of a constant that broadcasts along all axes of ``shape`` but one.

    ``bias_axis`` is the axis a vector runs along; None: the last ones, as broadcasting has it.
    """
    if shape is None or constant.array.ndim > len(shape):
        return None
    offset = len(shape) - constant.array.ndim if bias_axis is None else bias_axis % len(shape)
    wide = [axis for axis, n in enumerate(constant.array.shape) if n != 1]
    if not wide:
        return None, constant.wide.reshape(())
    axis = offset + wide[0]
    if len(wide) > 1 or shape[axis] != constant.array.shape[wide[0]]:
        return None
    return axis, constant.wide.reshape(-1)
