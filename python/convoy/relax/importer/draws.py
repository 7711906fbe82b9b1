"""Ops that draw random numbers, which TVM's frontend lacks.

A number is a hash of its place, of the node that draws it, and of a key.  A node with a ``seed`` has
its key from that and draws the same at every call; others take a new one from TVM's runtime.  The hash of a
word is ``lowbias32`` of C. Wellons's hash-prospector: two multiplications between three shifts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
from onnx import helper
from tvm import relax, te, tirx

from convoy.relax.importer.idioms.definitions import constant

MOST_KEYS = 2**31 - 1
_OTHER = 0x9E3779B9
"""Bits of the golden ratio."""
_BITS = {"float32": 24, "float64": 32}
"""Random bits of a number: so many that every one of them is a number of the type."""


def convert_uniform(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Numbers from ``low`` to below ``high``, each as likely."""
    low, high = float(attrs.get("low", 0.0)), float(attrs.get("high", 1.0))
    return _draw(bb, inputs, attrs, lambda one, _, number: number(one) * (high - low) + low)


def convert_normal(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Numbers around ``mean``, as Box and Muller make them of two that are uniform."""
    mean, scale = float(attrs.get("mean", 0.0)), float(attrs.get("scale", 1.0))

    def normal(one: Any, other: Any, number: Any) -> Any:
        length = te.sqrt(te.log(1.0 - number(one)) * -2.0)  # of 1 to above 0
        return length * te.cos(number(other) * (2 * math.pi)) * scale + mean

    return _draw(bb, inputs, attrs, normal)


def _draw(bb: Any, inputs: list[Any], attrs: dict[str, Any], make: Any) -> Any:
    """A tensor of numbers that ``make`` makes of two random words and of what makes a number of one."""
    if inputs:
        like = inputs[0].ty
        if like.shape is None:
            return None
        shape, dtype = like.shape, str(like.dtype)
    else:
        shape, dtype = relax.ShapeExpr([int(size) for size in attrs["shape"]]), "float32"
    dtype = str(helper.tensor_dtype_to_np_dtype(attrs["dtype"])) if "dtype" in attrs else dtype
    wide = "float64" if dtype == "float64" else "float32"
    salt = crc32(attrs["tvm_custom"]["name"].encode())

    def number(word: Any) -> Any:
        bits = _BITS[wide]
        return (word >> _word(32 - bits)).astype(wide) * tirx.const(2.0**-bits, wide)

    def compute(key: te.Tensor, sizes: Any) -> te.Tensor:
        one, other = _words(key, salt, list(sizes))
        return te.compute(
            list(sizes), lambda *at: make(one(*at), other(*at), number).astype(dtype), name="draw"
        )

    return bb.emit_te(compute, _key(bb, attrs.get("seed")), shape, primfunc_name_hint="draw")


def _key(bb: Any, seed: float | None) -> relax.Expr:
    """An int32 [1]."""
    if seed is not None:
        return constant(np.array([seed], np.float32).view(np.int32))
    limits = [relax.prim_value(0), relax.prim_value(MOST_KEYS)]
    new = relax.op.call_dps_packed("tvm.contrib.random.randint", limits, relax.TensorType([1], "int32"))
    return bb.emit(new, name_hint="key")


def _words(key: te.Tensor, salt: int, sizes: Sequence[Any]) -> list[te.Tensor]:
    """Two words of random bits for each place of a tensor."""
    begin = te.compute((2,), lambda i: _mix(_cut(_wide(key[0]) + _word(salt) + _wide(i))))
    end = te.compute((2,), lambda i: _mix(begin[i] ^ _word(_OTHER)))

    def words(i: int) -> te.Tensor:
        mixed = te.compute(sizes, lambda *at: _mix(_cut(_flat(at, sizes) + begin[i])))
        return te.compute(sizes, lambda *at: _mix(mixed(*at) ^ end[i]))

    return [words(i) for i in range(2)]


def _flat(places: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """The number of a place in a tensor, from 0."""
    flat: Any = _word(0)
    for place, size in zip(places, sizes, strict=True):
        flat = flat * _wide(size) + _wide(place)
    return flat


def _mix(word: Any) -> Any:
    """A word of which each bit hangs on all of this one's."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        word = _cut((word ^ (word >> _word(shift))) * _word(factor))
    return word ^ (word >> _word(16))


def _word(number: int) -> Any:
    """32 bits within 64: TVM lets LLVM believe that no sum or product of unsigned numbers is cut off."""
    return tirx.const(number, "uint64")


def _wide(number: Any) -> Any:
    return number.astype("uint64")


def _cut(number: Any) -> Any:
    return number & _word(2**32 - 1)
