"""Conversions of ops of which TVM's frontend leaves out what a node says."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

FLOATS = ("float16", "float32", "float64")


def convert_is_inf(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Infinities of one sign; the frontend's are those of both."""
    signs = [sign for sign, name in ((1, "detect_positive"), (-1, "detect_negative")) if attrs.get(name, 1)]
    dtype = str(inputs[0].ty.dtype)
    if len(signs) == 2 or dtype not in FLOATS:
        return None
    if not signs:
        return relax.op.zeros_like(inputs[0], "bool")
    return relax.op.equal(inputs[0], relax.const(signs[0] * np.inf, dtype))


def convert_bit_shift(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """By the width of a number, or by more, only the sign stays of its bits; LLVM leaves that open.

    A number of bits below 0 is as many as that.
    """
    x, by = inputs[:2]
    dtype = str(x.ty.dtype)
    info = np.iinfo(dtype)
    left = attrs.get("direction", b"LEFT") == b"LEFT"
    some_stay = bb.emit(relax.op.less(by, relax.const(info.bits, dtype)))
    if info.min < 0:
        none_less = bb.emit(relax.op.greater_equal(by, relax.const(0, dtype)))
        some_stay = bb.emit(relax.op.logical_and(some_stay, none_less))
    by = bb.emit(relax.op.where(some_stay, by, relax.const(info.bits - 1, dtype)))
    if not left and info.min < 0:
        return relax.op.right_shift(x, by)
    shifted = bb.emit((relax.op.left_shift if left else relax.op.right_shift)(x, by))
    return relax.op.where(some_stay, shifted, relax.const(0, dtype))


def convert_dropout(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """At inference dropout is nothing, and its mask keeps all."""
    if len(inputs) > 2 and inputs[2] is not None:
        return None
    if attrs["tvm_custom"]["num_outputs"] == 1:
        return inputs[0]
    return relax.Tuple([inputs[0], bb.emit(relax.op.ones_like(inputs[0], "bool"))])
