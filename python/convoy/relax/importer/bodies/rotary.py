"""The body of ONNX Runtime's rotary embedding, which rotates pairs of columns by a row's position."""

from __future__ import annotations

from convoy.relax.importer.bodies.call import Call
from convoy.relax.importer.bodies.text import slice_last, unsqueeze


def rotary_embedding(call: Call) -> str | None:
    """RotaryEmbedding: x, positions of its rows, the cosines and sines of each position.

    x is [batch, rows, heads x size] or [batch, heads, rows, size].  Positions are one for each row, or the
    first row's.  ONNX Runtime's kernel reads no ``scale``.
    """
    sizes, table = call.shape_with_open(0), call.shape(2)
    if call.node.domain == "" or not table or not sizes or len(sizes) not in (3, 4):
        return None
    if call.attribute("is_packed_batching", 0):
        return None
    half, width, flat = table[-1], sizes[-1], len(sizes) == 3
    size, heads = call.attribute("rotary_embedding_dim", 0), call.attribute("num_heads", 0)
    if width is None or half < 1 or (size and (size != 2 * half or heads < 1)):
        return None
    head = width if not flat else width // heads if size else 2 * half
    if head < 2 * half or width % head:
        return None
    form = [0, 0, width // head] if flat else [0, 0, 0]
    whole = "part" if head == 2 * half else "xs"
    rest, turned = "", "rotated"
    if head > 2 * half:
        rest = f"""{slice_last("xs", "part", 0, 2 * half)} {slice_last("xs", "rest", 2 * half, head)}"""
        turned = "joined"
    begin = f"xs_to = Constant <value_ints = {[*form, head]}> () {whole} = Reshape (x, xs_to)"
    join = "joined = Concat <axis = -1> (rotated, rest)" if rest else ""
    return f"""(x, at, cosines, sines) => (y) {{
        last = Constant <value_ints = [-1]> () {begin} {rest} {_places(call, 1 if flat else 2, whole)}
        cosine = Gather (cosines, places) sine = Gather (sines, places)
        {unsqueeze(call, "cosine", "c", 2 if flat else 1)} {unsqueeze(call, "sine", "s", 2 if flat else 1)}
        {_pairs(call, half, form)}
        ac = Mul (a, c) bs = Mul (b, s) ra = Sub (ac, bs) bc = Mul (b, c) as = Mul (a, s) rb = Add (bc, as)
        {_join(call)} {join} x_shape = Shape (x) y = Reshape ({turned}, x_shape)
    }}"""


def _places(call: Call, rows: int, x: str) -> str:
    """The position of each row."""
    if call.rank(1) == 2:
        return "places = Identity (at)"
    return f"""none = Constant <value_int = 0> () one = Constant <value_int = 1> () shape = Shape ({x})
        axis = Constant <value_int = {rows}> () count = Gather (shape, axis)
        numbers = Range (none, count, one) behind = Add (numbers, at)
        {unsqueeze(call, "behind", "places", 0)}"""


def _pairs(call: Call, half: int, form: list[int]) -> str:
    """``a`` and ``b``: columns side by side, or half of them apart."""
    if not call.attribute("interleaved", 0):
        return f"{slice_last('part', 'a', 0, half)} {slice_last('part', 'b', half, 2 * half)}"
    return f"""pairs_to = Constant <value_ints = {[*form, half, 2]}> () pairs = Reshape (part, pairs_to)
        first = Constant <value_int = 0> () second = Constant <value_int = 1> ()
        a = Gather <axis = -1> (pairs, first) b = Gather <axis = -1> (pairs, second)"""


def _join(call: Call) -> str:
    if not call.attribute("interleaved", 0):
        return "rotated = Concat <axis = -1> (ra, rb)"
    return f"""{unsqueeze(call, "ra", "ua", 4)} {unsqueeze(call, "rb", "ub", 4)}
        both = Concat <axis = 4> (ua, ub) part_shape = Shape (part) rotated = Reshape (both, part_shape)"""
