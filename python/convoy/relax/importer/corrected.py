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
    """By the width of a number, or by more, all its bits are shifted out; LLVM leaves that open."""
    x, by = inputs[:2]
    dtype = str(x.ty.dtype)
    width = np.iinfo(dtype).bits
    shift = relax.op.left_shift if attrs.get("direction", b"LEFT") == b"LEFT" else relax.op.right_shift
    some_stay = bb.emit(relax.op.less(by, relax.const(width, dtype)))
    by = bb.emit(relax.op.where(some_stay, by, relax.const(0, dtype)))
    return relax.op.where(some_stay, bb.emit(shift(x, by)), relax.const(0, dtype))


def convert_dropout(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """At inference dropout is nothing, and its mask keeps all."""
    if len(inputs) > 2 and inputs[2] is not None:
        return None
    if attrs["tvm_custom"]["num_outputs"] == 1:
        return inputs[0]
    return relax.Tuple([inputs[0], bb.emit(relax.op.ones_like(inputs[0], "bool"))])
