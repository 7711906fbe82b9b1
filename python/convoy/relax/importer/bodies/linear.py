"""Bodies of DequantizeLinear and QuantizeLinear with a scale for each block along an axis, or of float8.

TVM has one scale for all, or one for each along an axis, and integers.  Where scales are constants, none of
this is left.
"""

from __future__ import annotations

from onnx import TensorProto

from convoy.relax.importer.bodies.call import Call
from convoy.relax.importer.bodies.text import attributes, parameters

_MOST = 1 << 20
"""The longest axis whose blocks are written out."""
_BOUNDS = {
    TensorProto.UINT8: (0, 255),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT16: (0, 65535),
    TensorProto.INT16: (-32768, 32767),
}
FLOAT8 = (
    TensorProto.FLOAT8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ,
    TensorProto.FLOAT8E5M2,
    TensorProto.FLOAT8E5M2FNUZ,
)


def spread(x: str, y: str, axis: int, block: int, length: int) -> str:
    """Nodes of ``y``, floats that repeat each of ``x`` ``block`` times along an axis of ``length``."""
    places = [i // block for i in range(length)]
    return f"""{y}_at = Constant <value_ints = {places}> () {y}_each = Gather <axis = {axis}> ({x}, {y}_at)
        {y} = Cast <to = {TensorProto.FLOAT}> ({y}_each)"""


def dequantise(call: Call) -> str | None:
    """(x - zero point) · scale, in float32; the zero point of float8 is 0."""
    kind = call.attribute("output_dtype", 0) or call.dtype(1) or TensorProto.FLOAT
    place = _place(call)
    if call.dtype(0) in FLOAT8:
        scale, zero = _scale(call), "d = Identity (xf)"
    elif place is not None:
        scale = spread("s", "sf", *place)
        zero = f"{spread('z', 'zf', *place)} d = Sub (xf, zf)" if call.has(2) else "d = Identity (xf)"
    else:
        return None
    return f"""{parameters(call, "x s z")} => (y) {{
        xf = Cast <to = {TensorProto.FLOAT}> (x) {zero} {scale}
        yf = Mul (d, sf) y = Cast <to = {kind}> (yf)
    }}"""


def quantise(call: Call) -> str | None:
    """round(x / scale) + zero point within the bounds of the integers, or float8, computed in float32."""
    place = _place(call)
    kind = call.attribute("output_dtype", 0) or (call.dtype(2) if call.has(2) else TensorProto.UINT8)
    if attributes(call, "precision"):
        return None
    if kind in FLOAT8:
        return f"""{parameters(call, "x s z")} => (y) {{
            xf = Cast <to = {TensorProto.FLOAT}> (x) {_scale(call)}
            e = Div (xf, sf) y = Cast <to = {kind}, saturate = {int(call.attribute("saturate", 1))}> (e)
        }}"""
    if place is None or kind not in _BOUNDS:
        return None
    least, most = _BOUNDS[kind]
    zero = f"{spread('z', 'zf', *place)} q = Add (r, zf)" if call.has(2) else "q = Identity (r)"
    return f"""{parameters(call, "x s z")} => (y) {{
        xf = Cast <to = {TensorProto.FLOAT}> (x) {spread("s", "sf", *place)}
        e = Div (xf, sf) r = Round (e) {zero}
        least = Constant <value_float = {float(least)}> () most = Constant <value_float = {float(most)}> ()
        c = Clip (q, least, most) y = Cast <to = {kind}> (c)
    }}"""


def _scale(call: Call) -> str:
    """Nodes of ``sf``, the scale in float32 as it stands beside the data."""
    place, rank, sizes = _place(call), call.rank(0) or 0, call.shape_with_open(1) or ()
    if place is not None:
        return spread("s", "sf", *place)
    lies = [1] * rank
    if sizes not in ((), (1,)):
        lies[call.attribute("axis", 1) % rank if rank > 1 else 0] = -1
    return f"""s_shape = Constant <value_ints = {lies}> () s_each = Reshape (s, s_shape)
        sf = Cast <to = {TensorProto.FLOAT}> (s_each)"""


def _place(call: Call) -> tuple[int, int, int] | None:
    """The axis, the length of a block, and that of the axis; None without blocks, or where one is open."""
    block, sizes = call.attribute("block_size", 0), call.shape_with_open(0)
    if block < 1 or sizes is None:
        return None
    axis = call.attribute("axis", 1) % len(sizes)
    length = sizes[axis]
    return None if length is None or length > _MOST else (axis, block, length)
