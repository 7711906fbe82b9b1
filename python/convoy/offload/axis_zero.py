"""What ops do to axis 0, along which the images of a batch lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.offload.operands import Attributes
from convoy.ops import row_of


def moves_axis_zero(name: str, call: Any, attributes: Attributes) -> bool:
    """Does the op ``name`` move, cut or mix what lies along axis 0?  Of all ops but matrix products."""
    match row_of(name).axis_zero:
        case "axes":
            return 0 in attributes.axes(call)
        case "norm axes":
            return 0 in attributes.norm_axes(call)
        case "axis":
            return attributes.axis(call) == 0
        case "permutation":
            return attributes.permutation(call)[0] != 0
        case "widths":
            return attributes.pad_widths(call)[0] != (0, 0)
        case "slices":
            spans = attributes.slices(call)
            return spans is None or any(span[0] == 0 for span in spans)
    return False


def is_per_image(operands: Sequence[tuple[Sequence[object], bool]], ndim: int) -> bool:
    """Is every operand of an elementwise op either per image or the same for all images?

    Parameters
    ----------
    operands : Sequence[tuple[Sequence[object], bool]]
        The shape of each, and whether it is a constant.
    ndim : int
        Axes of the result.
    """
    for shape, is_constant in operands:
        if is_constant and len(shape) == ndim and shape[0] != 1:
            return False
        if not is_constant and len(shape) != ndim:
            return False
    return True
