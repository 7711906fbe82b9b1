"""Casts from and to the four floats of 8 bits, as ONNX defines them; TVM's own lose what is special.

A byte becomes a float by a table of 256.  A float becomes a byte by rounding to nearest, ties to even, in
integers where the byte is normal, and by a sum where it is not: a number of which one unit in the last
place is the least of the bytes rounds what is added to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from convoy.relax.dataflow import is_constant

WIDER = ("float16", "float32")
"""Floats from which a byte is made; of float64 it would round twice."""


@dataclass(frozen=True)
class Format:
    """A float of 8 bits: a sign, then exponent and mantissa."""

    mantissa: int
    """Bits of the mantissa."""
    bias: int
    """What is added to the exponent."""
    largest: int
    """The byte of the largest number."""
    beyond: int
    """The byte of what is larger, where it does not become the largest."""
    nan: int

    @property
    def signed_zero(self) -> bool:
        """Is there a negative zero?  Elsewhere its byte is the only NaN."""
        return self.nan != 0x80


FORMATS = {
    "float8_e4m3fn": Format(mantissa=3, bias=7, largest=0x7E, beyond=0x7F, nan=0x7F),
    "float8_e4m3fnuz": Format(mantissa=3, bias=8, largest=0x7F, beyond=0x80, nan=0x80),
    "float8_e5m2": Format(mantissa=2, bias=15, largest=0x7B, beyond=0x7C, nan=0x7E),
    "float8_e5m2fnuz": Format(mantissa=2, bias=16, largest=0x7F, beyond=0x80, nan=0x80),
}


def cast_float8(bb: relax.BlockBuilder, x: Any, source: str, to: str, attrs: dict[str, Any]) -> Any:
    """From or to a float of 8 bits; None for other types."""
    if source in FORMATS and to in WIDER:
        return _decode(bb, x, source, to)
    if source in WIDER and to in FORMATS:
        saturate = bool(attrs.get("saturate", 1))
        return bb.emit_te(lambda t: te.compute(t.shape, lambda *i: _encode(t(*i), to, saturate)), x)
    return None


def _decode(bb: relax.BlockBuilder, x: Any, source: str, to: str) -> Any:
    with np.errstate(invalid="ignore"):
        values = np.arange(256, dtype=np.uint8).view(np.dtype(source)).astype(to)
    if is_constant(x):
        return relax.const(values[x.value.numpy().view(np.uint8)])
    codes = bb.emit_te(
        lambda t: te.compute(t.shape, lambda *i: tirx.reinterpret("uint8", t(*i)).astype("int32")), x
    )
    return relax.op.take(bb.normalize(relax.const(values)), codes, axis=0)


def _encode(x: Any, to: str, saturate: bool) -> Any:
    """The byte of one number."""
    kind = FORMATS[to]

    def uint(value: int) -> Any:
        return tirx.const(value, "uint32")

    bits = tirx.reinterpret("uint32", x.astype("float32"))
    magnitude = bits & uint(0x7FFFFFFF)
    positive = tirx.reinterpret("float32", magnitude)
    drop = 23 - kind.mantissa
    even = (magnitude >> uint(drop)) & uint(1)
    normal = (magnitude + even + uint((1 << drop - 1) - 1)) >> uint(drop)
    unit = tirx.const(2.0 ** (24 - kind.bias - kind.mantissa), "float32")
    small = tirx.reinterpret("uint32", positive + unit) - tirx.reinterpret("uint32", unit)
    is_small = positive < tirx.const(2.0 ** (1 - kind.bias), "float32")
    code = tirx.Select(is_small, small, normal - uint(127 - kind.bias << kind.mantissa))
    most = kind.largest if saturate else kind.beyond
    code = tirx.Select(code > uint(kind.largest), uint(most), code)
    code = tirx.Select(magnitude > uint(0x7F800000), uint(kind.nan), code)
    sign = (bits >> uint(31)) << uint(7)
    if not kind.signed_zero:
        sign = tirx.Select(code == uint(0), uint(0), sign)
    return tirx.reinterpret(to, (code | sign).astype("uint8"))
