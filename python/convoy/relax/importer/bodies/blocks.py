"""Bodies of ONNX Runtime's ops on weights of 2, 4 or 8 bits, which have a scale for each block of a row."""

from __future__ import annotations

from math import prod

from onnx import TensorProto

from convoy.relax.importer.bodies.call import Call
from convoy.relax.importer.bodies.linear import spread
from convoy.relax.importer.bodies.text import parameters

_MOST_WEIGHTS = 1 << 28
"""Elements of a weight that is written out: 1 GB of floats."""
_FOUR_BITS = ("int4", "uint4")


def _unpack(x: str, y: str, bits: int, shape: list[int]) -> str:
    """``y``, bytes of ``shape``, from those that hold 8 / bits numbers each, the lowest bits first."""
    lines: list[str] = []
    each = 8 // bits
    rest, parts = x, []
    for i in range(each):
        if i == each - 1:
            lines.append(f"{y}{i} = Identity ({rest})")
        else:
            lines.append(
                f"{y}_by{i} = Constant <value = uint8 {{{1 << bits}}}> ()"
                f" {y}_over{i} = Div ({rest}, {y}_by{i})"
                f" {y}_whole{i} = Mul ({y}_over{i}, {y}_by{i}) {y}{i} = Sub ({rest}, {y}_whole{i})"
            )
            rest = f"{y}_over{i}"
        lines.append(
            f"{y}_one{i} = Constant <value_ints = {[*shape[:-1], shape[-1] // each, 1]}> ()"
            f" {y}_in{i} = Reshape ({y}{i}, {y}_one{i})"
        )
        parts.append(f"{y}_in{i}")
    lines.append(
        f"{y}_all = Concat <axis = -1> ({', '.join(parts)}) {y}_to = Constant <value_ints = {shape}> ()"
        f" {y} = Reshape ({y}_all, {y}_to)"
    )
    return "\n".join(lines)


def _constant_zero(bits: int, kind: int) -> str:
    return f"z_wide = Constant <value_float = {float(1 << (bits - 1))}> () z = Cast <to = {kind}> (z_wide)"


def matmul_of_blocks(call: Call) -> str | None:
    """MatMulNBits: rows of floats by columns whose blocks have scales, zero points, or 2^(bits - 1)."""
    bits, block = call.attribute("bits", 4), call.attribute("block_size", 0)
    columns, depth = call.attribute("N", 0), call.attribute("K", 0)
    if bits not in (2, 4, 8) or min(block, columns, depth) < 1 or block * bits % 8 or call.has(4):
        return None
    blocks = -(-depth // block)
    if columns * blocks * block > _MOST_WEIGHTS or call.attribute("weight_prepacked", 0):
        return None
    if prod(call.shape(1) or ()) != columns * blocks * block * bits // 8:
        return None
    kind = call.dtype(2) or TensorProto.FLOAT
    zero = _constant_zero(bits, kind)
    if call.has(3) and call.dtype_name(3) == "uint8":
        each = 8 // bits
        packed = -(-blocks // each) * each
        zero = f"""{_unpack("zeros", "zu", bits, [columns, packed])}
            z_from = Constant <value_ints = [0]> () z_end = Constant <value_ints = [{blocks}]> ()
            z_axis = Constant <value_ints = [1]> () zc = Slice (zu, z_from, z_end, z_axis)
            zf = Cast <to = {kind}> (zc) z = Reshape (zf, each_to)"""
    elif call.has(3):
        zero = "z = Reshape (zeros, each_to)"
    bias = "y = Add (p, bias)" if call.has(5) else "y = Identity (p)"
    return f"""{parameters(call, "x w scales zeros order bias")} => (y) {{
        {_unpack("w", "wu", bits, [columns, blocks, block])} wf = Cast <to = {kind}> (wu)
        each_to = Constant <value_ints = [{columns}, {blocks}, 1]> () s = Reshape (scales, each_to) {zero}
        wd = Sub (wf, z) ws = Mul (wd, s) row_to = Constant <value_ints = [{columns}, -1]> ()
        rows = Reshape (ws, row_to) from = Constant <value_ints = [0]> ()
        end = Constant <value_ints = [{depth}]> () axis = Constant <value_ints = [1]> ()
        cut = Slice (rows, from, end, axis) turned = Transpose <perm = [1, 0]> (cut)
        p = MatMul (x, turned) {bias}
    }}"""


def gather_of_blocks(call: Call) -> str | None:
    """GatherBlockQuantized: rows of a table of integers, in bytes or not, whose blocks have scales."""
    shape, packed = call.shape(0), call.dtype_name(0) == "uint8"
    if not shape:
        return None
    if call.dtype_name(0) in _FOUR_BITS and prod(shape) <= _MOST_WEIGHTS:
        return _gather_of_four_bits(call, shape) if call.opset >= 21 else None
    return _gather_of_bytes(call, shape) if packed else None


def _gather_of_four_bits(call: Call, shape: tuple[int, ...]) -> str:
    """Rows of a table of ONNX's own integers of 4 bits, along any axes; a zero point left out is 0."""
    axis = call.attribute("quantize_axis", 1) % len(shape)
    zero = "zeros" if call.has(3) else ""
    return f"""{parameters(call, "w at scales zeros")} => (y) {{
        {_scale_blocks(call, "w", "scales", zero, axis, shape[axis])}
        y = Gather <axis = {call.attribute("gather_axis", 0)}> (rows, at)
    }}"""


def _gather_of_bytes(call: Call, shape: tuple[int, ...]) -> str | None:
    """Rows of a table of bytes that hold 8 / bits integers each; a zero point left out is 2^(bits - 1).

    The rows are gathered first, so that the table stays as small as it is in the file.
    """
    bits, block = call.attribute("bits", 4), call.attribute("block_size", 128)
    if bits not in (2, 4, 8) or block < 1 or len(shape) < 2 or call.attribute("gather_axis", 0):
        return None
    each, width, between = 8 // bits, shape[-1] * 8 // bits, list(shape[1:-1])
    blocks = -(-width // block)
    zero = f"""half = Constant <value = int32[1] {{{1 << (bits - 1)}}}> ()
        wi = Cast <to = 6> (wu) wz = Sub (wi, half)"""
    if call.has(3):
        packed = -(-blocks // each) * each
        zero = f"""z_rows = Gather <axis = 0> (zeros, places)
            {_unpack("z_rows", "zu", bits, [-1, *between, packed])} wz = Identity (wu)"""
    return f"""{parameters(call, "w at scales zeros")} => (y) {{
        flat = Constant <value_ints = [-1]> () places = Reshape (at, flat)
        w_rows = Gather <axis = 0> (w, places) s_rows = Gather <axis = 0> (scales, places)
        {_unpack("w_rows", "wu", bits, [-1, *between, width])} {zero}
        {_scale_blocks(call, "wz", "s_rows", "zu" if call.has(3) else "", len(shape) - 1, width)}
        row_to = Constant <value_ints = {[*between, width]}> () at_shape = Shape (at)
        y_to = Concat <axis = 0> (at_shape, row_to) y = Reshape (rows, y_to)
    }}"""


def _scale_blocks(call: Call, w: str, scales: str, zero: str, axis: int, length: int) -> str:
    """Nodes of ``rows``, of the type of the scales."""
    kind, place = call.dtype(2) or TensorProto.FLOAT, (axis, call.attribute("block_size", 128), length)
    centred = f"{spread(zero, 'zf', *place)} wd = Sub (wf, zf)" if zero else "wd = Identity (wf)"
    return f"""wf = Cast <to = {TensorProto.FLOAT}> ({w}) {centred} {spread(scales, "sf", *place)}
        wide = Mul (wd, sf) rows = Cast <to = {kind}> (wide)"""
