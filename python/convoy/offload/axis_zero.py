"""What ops do to axis 0, along which the images of a batch lie."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.ops.reader import Call, Reader, TensorType
from convoy.ops.row import OpRow
from convoy.ops.table import row_of


def moves_axis_zero(call: Call, at: Reader) -> bool:
    """Does an op move, cut or mix what lies along axis 0?"""
    attributes = at.attributes
    match row_of(at.name(call)).axis_zero:
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
        case "condition":  # one for each image
            whole, condition = (at.dims(of) or () for of in (call, call.args[0]))
            return len(whole) == len(condition) and condition[0] != 1
        case "result":  # as long as the data's?
            made, data = (at.dims(of) or () for of in (call, call.args[0]))
            return len(made) != len(data) or str(made[0]) != str(data[0])
        case "rows":
            return len(at.dims(call.args[0]) or ()) < 2
        case "slices":
            spans = attributes.slices(call)
            return spans is None or any(span[0] == 0 for span in spans)
    return False


def is_per_image(row: OpRow, operands: Sequence[TensorType], ndim: int) -> bool:
    """Is each operand of an op, whose result has ``ndim`` axes, per image or alike for all?

    An operand of fewer axes meets the result's last ones.  So does a matrix of a product, whose rows the
    result does not have.
    """
    if not row.takes_constants:
        return True
    for position, (_, shape, constant) in enumerate(operands):
        axes = shape or ()
        matrix = row.cost == "product" and position == 1 and len(axes) == 2
        whole = len(axes) == ndim and not matrix
        if whole == constant and not (whole and axes[0] == 1):
            return False
    return True
