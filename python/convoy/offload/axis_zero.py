"""What ops do to axis 0, or another one, along which the images of a batch lie."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.ops.reader import Call, Reader, TensorType
from convoy.ops.row import OpRow
from convoy.ops.table import row_of


def moves_axis(call: Call, at: Reader, axis: int = 0) -> bool:
    """Does an op move, cut or mix what lies along an axis?

    Parameters
    ----------
    axis : int
        Of the data; of a choice and a product, that of the result.
    """
    attributes = at.attributes
    match row_of(at.name(call)).axis_zero:
        case "axes":
            return axis in attributes.axes(call)
        case "norm axes":
            return axis in attributes.norm_axes(call)
        case "axis":
            return attributes.axis(call) == axis
        case "permutation":
            return attributes.permutation(call)[axis] != axis
        case "widths":
            return attributes.pad_widths(call)[axis] != (0, 0)
        case "condition":  # one for each image
            whole, condition = (at.dims(of) or () for of in (call, call.args[0]))
            place = len(condition) - len(whole) + axis
            return place >= 0 and condition[place] != 1
        case "result":  # as long as the data's?
            made, data = (at.dims(of) or () for of in (call, call.args[0]))
            return len(made) != len(data) or str(made[axis]) != str(data[axis])
        case "scales":  # one for each image
            scales = at.constant(call.args[1])
            return scales is not None and scales.size > 1 and attributes.axis(call) == axis
        case "rows":
            return len(at.dims(call.args[0]) or ()) < 2 or axis == len(at.dims(call) or ()) - 1 > 0
        case "slices":
            spans = at.slices(call)
            return spans is None or any(span[0] == axis for span in spans)
    return False


def is_per_image(row: OpRow, operands: Sequence[TensorType], ndim: int, axis: int = 0) -> bool:
    """Is each operand of an op, whose result has ``ndim`` axes, per image or alike for all?

    An operand of fewer axes meets the result's last ones.  So does a matrix of a product, whose rows the
    result does not have.

    Parameters
    ----------
    axis : int
        That of the images in the result.
    """
    if not row.takes_constants:
        return True
    for position, (_, shape, constant) in enumerate(operands):
        axes = shape or ()
        matrix = row.cost == "product" and position == 1 and len(axes) == 2
        place = len(axes) - ndim + axis
        whole = place >= 0 and not matrix
        if whole == constant and not (whole and axes[place] == 1):
            return False
    return True
