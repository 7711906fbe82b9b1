"""What ops do to axis 0, along which the images of a batch lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.offload.operands import Attributes

REDUCTIONS = ("mean", "sum", "max", "min")
"""Reductions that regions have kernels for."""

_ALONG = (
    "concat", "concatenate", "split", "nn.softmax", "nn.log_softmax", "nn.batch_norm", "nn.bias_add",
    "nn.prelu",
)  # fmt: skip
"""Ops along one axis."""


def moves_axis_zero(name: str, call: Any, attributes: Attributes) -> bool:
    """Does the op ``name`` move, cut or mix what lies along axis 0?  Of all ops but matrix products."""
    if name in (*REDUCTIONS, "variance"):
        return 0 in attributes.axes(call)
    if name == "nn.layer_norm":
        return 0 in attributes.norm_axes(call)
    if name in _ALONG:
        return attributes.axis(call) == 0
    if name in ("permute_dims", "transpose", "layout_transform"):
        return attributes.permutation(call)[0] != 0
    if name == "nn.pad":
        return attributes.pad_widths(call)[0] != (0, 0)
    if name == "strided_slice":
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
