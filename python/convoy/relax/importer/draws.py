"""Ops that draw random numbers, which TVM's frontend lacks.

A number is a hash of its place, of the node that draws it, and of a key.  A node with a ``seed`` has its
key from that and draws the same at every call, unless it is in a loop; others take a new one from TVM's
runtime.  The hash of a word is ``lowbias32`` of C. Wellons's hash-prospector: two multiplications between
three shifts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from onnx import helper
from tvm import relax, te, tirx

from convoy.onnx_file import all_nodes, inner_graphs
from convoy.relax.importer.corrected import FLOATS
from convoy.relax.importer.evaluate import RANDOM
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.read import Model

MOST_KEYS = 2**31 - 1
_OTHER = 0x9E3779B9
"""Bits of the golden ratio."""
_BITS = {"float32": 24, "float64": 32}
"""Random bits of a number: so many that every one of them is a number of the type."""


def forget_seeds(model: Model) -> None:
    """Let what a Loop or a Scan draws differ from step to step: the draws of one seed are alike."""
    for node in all_nodes(model.graph):
        for body in inner_graphs(node) if node.op_type in ("Loop", "Scan") else ():
            for inner in all_nodes(body):
                seeds = [i for i, a in enumerate(inner.attribute) if a.name == "seed"]
                if inner.op_type in RANDOM and seeds:
                    del inner.attribute[seeds[0]]


def convert_uniform(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Numbers from ``low`` to below ``high``, each as likely."""
    low, high = float(attrs.get("low", 0.0)), float(attrs.get("high", 1.0))
    drawn = _draw(bb, inputs, attrs, 1)
    return drawn and _as(drawn.dtype, _moved(bb, drawn.numbers[0], high - low, low))


def convert_normal(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Numbers around ``mean``, as Box and Muller make them of two that are uniform.

    They are ops, of which a region makes vectors.
    """
    drawn = _draw(bb, inputs, attrs, 2)
    if drawn is None:
        return None
    one, other = drawn.numbers
    above_none = bb.emit(relax.op.subtract(_number(1.0, one), one))
    length = bb.emit(relax.op.sqrt(_moved(bb, bb.emit(relax.op.log(above_none)), -2.0)))
    turned = bb.emit(relax.op.cos(_moved(bb, other, 2 * math.pi)))
    made = bb.emit(relax.op.multiply(length, turned))
    mean, scale = float(attrs.get("mean", 0.0)), float(attrs.get("scale", 1.0))
    return _as(drawn.dtype, _moved(bb, made, scale, mean))


class _Drawn(NamedTuple):
    numbers: list[relax.Expr]
    """Tensors of numbers from 0 to below 1."""
    dtype: str
    """What the node makes."""


def _draw(bb: Any, inputs: list[Any], attrs: dict[str, Any], count: int) -> _Drawn | None:
    """So many tensors; None where their shape is not known."""
    if inputs:
        like = inputs[0].ty
        if like.shape is None:
            return None
        shape, dtype = like.shape, str(like.dtype)
    else:
        shape, dtype = relax.ShapeExpr([int(size) for size in attrs["shape"]]), "float32"
    dtype = str(helper.tensor_dtype_to_np_dtype(attrs["dtype"])) if "dtype" in attrs else dtype
    if dtype not in FLOATS:
        problem = f"expected it to draw floats, got {dtype}"
        raise NodeError(problem, "give it a dtype of floats, and cast what it draws")
    wide = "float64" if dtype == "float64" else "float32"
    salt, bits = crc32(attrs["tvm_custom"]["name"].encode()), _BITS[wide]

    def compute(key: te.Tensor, sizes: Any, which: int) -> te.Tensor:
        words = _words(key, salt + 2 * which, list(sizes))
        return te.compute(
            list(sizes),
            lambda *at: (words(*at) >> _word(32 - bits)).astype(wide) * tirx.const(2.0**-bits, wide),
            name="draw",
        )

    key = _key(bb, attrs.get("seed"))
    return _Drawn(
        [bb.emit_te(compute, key, shape, i, primfunc_name_hint="draw") for i in range(count)], dtype
    )


def _moved(bb: Any, x: relax.Expr, factor: float, term: float = 0.0) -> relax.Expr:
    """``x`` times a number, and another one more."""
    if factor != 1:
        x = bb.emit(relax.op.multiply(x, _number(factor, x)))
    return bb.emit(relax.op.add(x, _number(term, x))) if term else x


def _as(dtype: str, x: relax.Expr) -> relax.Expr:
    return x if str(x.ty.dtype) == dtype else relax.op.astype(x, dtype)


def _number(value: float, like: relax.Expr) -> relax.Expr:
    return relax.const(value, str(like.ty.dtype))


def _key(bb: Any, seed: float | None) -> relax.Expr:
    """An int32 [1]; of a seed one from a range of one, which TVM does not fold: a draw may be large."""
    first, last = 0, MOST_KEYS
    if seed is not None:
        first = int(np.float32(seed).view(np.int32)) % (MOST_KEYS - 1)
        last = first + 1
    limits = [relax.prim_value(first), relax.prim_value(last)]
    new = relax.op.call_dps_packed("tvm.contrib.random.randint", limits, relax.TensorType([1], "int32"))
    return bb.emit(new, name_hint="key")


def _words(key: te.Tensor, salt: int, sizes: Sequence[Any]) -> te.Tensor:
    """A word of random bits for each place of a tensor."""
    begin = te.compute((1,), lambda i: _mix(_cut(_wide(key[i]) + _word(salt))))
    end = te.compute((1,), lambda i: _mix(begin[i] ^ _word(_OTHER)))
    mixed = te.compute(sizes, lambda *at: _mix(_cut(_flat(at, sizes) + begin[0])))
    return te.compute(sizes, lambda *at: _mix(mixed(*at) ^ end[0]))


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
