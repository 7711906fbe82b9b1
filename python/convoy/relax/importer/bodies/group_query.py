"""The body of ONNX Runtime's attention of language models: few heads of keys, a cache, rotated rows."""

from __future__ import annotations

from math import sqrt

from convoy.relax.importer.bodies.call import Call
from convoy.relax.importer.bodies.text import (
    LOWEST,
    constant,
    parameters,
    repeat_heads,
    slice_last,
    split_heads,
    unsqueeze,
)

_OTHER_FORMS = ("smooth_softmax", "sliding_window_cache", "qk_output", "kv_cache_bit_width")
_ADDED, _ITS_INPUTS = 10, 11


def group_query_attention(call: Call) -> str | None:
    """GroupQueryAttention: q, k and v, or all in q; keys and values before; each image's tokens, less one.

    Then how many columns the cache has, cosines and sines of each place, places of the rows, what is added
    to the scores.  Old tokens stand in the first columns of the cache and new ones behind: the number of a
    column is the place of its token.  What stands behind an image's tokens is not defined.
    """
    heads, groups = call.attribute("num_heads", 0), call.attribute("kv_num_heads", 0)
    size = _head_size(call, heads, groups)
    rotates = call.attribute("do_rotary", 0)
    if size is None or any(call.attribute(name, 0) for name in _OTHER_FORMS) or not _is_legal(call):
        return None
    if any(call.has(i) for i in range(_ITS_INPUTS, len(call.node.input))) or call.makes(3):
        return None
    if (
        not (call.has(5) and call.has(6))
        or call.has(3) != call.has(4)
        or (rotates and not (call.has(7) and call.has(8)))
    ):
        return None
    widths = [heads * size, groups * size, groups * size]
    lines = [
        """none = Constant <value_int = 0> () one = Constant <value_int = 1> ()
        two = Constant <value_int = 2> () last = Constant <value_ints = [-1]> ()
        scalar_to = Constant <value_ints = [1]> ()"""
    ]
    for i, (n, count) in enumerate(zip("qkv", (heads, groups, groups), strict=True)):
        if call.has(1):
            lines.append(f"{n}p = Identity ({n}x)")
        else:
            lines.append(slice_last("qx", f"{n}p", sum(widths[:i]), sum(widths[: i + 1])))
        lines.append(split_heads(f"{n}p", f"{n}h", count, size))
    lines += [_places(call), _rotate(call) if rotates else "qr = Identity (qh) kr = Identity (kh)"]
    lines += [_from(call, groups), _cache(call, "k", "kr", size), _cache(call, "v", "vh", size)]
    lines.append(_attend(call, heads, groups, size))
    made = ["y", "present_k", "present_v"][: max(i + 1 for i in range(3) if i == 0 or call.makes(i))]
    names = parameters(call, "qx kx vx pk pv behind total cosines sines at added")
    return f"{names} => ({', '.join(made)}) {{ {' '.join(lines)} }}"


def _is_legal(call: Call) -> bool:
    """Are its numbers some that ONNX Runtime takes?"""
    window, flags = call.attribute("local_window_size", -1), ("causal", "do_rotary", "rotary_interleaved")
    if any(call.attribute(name, 1) not in (0, 1) for name in flags) or window < -1 or window == 0:
        return False
    return bool(call.attribute("softcap", 0.0) >= 0)


def _head_size(call: Call, heads: int, groups: int) -> int | None:
    """Columns of a head; None if the inputs have none that fit."""
    sizes = call.shape_with_open(0)
    if not sizes or len(sizes) != 3 or sizes[-1] is None or heads < 1 or groups < 1 or heads % groups:
        return None
    if call.has(1) != call.has(2):
        return None
    parts = heads if call.has(1) else heads + 2 * groups
    return sizes[-1] // parts if sizes[-1] % parts == 0 and sizes[-1] else None


def _places(call: Call) -> str:
    """``before``: tokens of each image in the cache; ``place`` of each row and ``columns`` of the cache."""
    return f"""q_shape = Shape (qh) row_count = Gather (q_shape, two)
        whole = Cast <to = 7> (behind) behinds = Reshape (whole, last) tokens = Add (behinds, one)
        older = Sub (tokens, row_count) old = Max (older, none) {unsqueeze(call, "old", "before", 1)}
        rows = Range (none, row_count, one) place = Add (before, rows)
        total_whole = Cast <to = 7> (total) total_one = Reshape (total_whole, scalar_to)
        count = Gather (total_one, none) columns = Range (none, count, one)"""


def _rotate(call: Call) -> str:
    at = "at" if call.has(9) else "place"
    form = f"<interleaved = {call.attribute('rotary_interleaved', 0)}>"
    return "\n".join(
        f"{n}r = com.microsoft.RotaryEmbedding {form} ({n}h, {at}, cosines, sines)" for n in "qk"
    )


def _from(call: Call, groups: int) -> str:
    """``from``: which of the rows of all images' and groups' columns each column of the cache is."""
    old = "old_count = Sub (one, one)"
    if call.has(3):
        old = "p_shape = Shape (pk) old_count = Gather (p_shape, two)"
    return f"""{old} all_count = Add (old_count, row_count) highest = Sub (all_count, one)
        is_old = Less (columns, before) since = Sub (columns, before) moved = Add (since, old_count)
        chosen = Where (is_old, columns, moved) held = Min (chosen, highest)
        {unsqueeze(call, "held", "column", 1)}
        image_count = Gather (q_shape, none) images = Range (none, image_count, one)
        {unsqueeze(call, "images", "image", 1)} group_count = Constant <value_int = {groups}> ()
        first_group = Mul (image, group_count) groups = Range (none, group_count, one)
        group = Add (first_group, groups) begins = Mul (group, all_count)
        {unsqueeze(call, "begins", "begin", 2)} from = Add (begin, column)"""


def _cache(call: Call, n: str, new: str, size: int) -> str:
    """``present_k`` or ``present_v``: each image's old columns, then its new ones."""
    joined = f"Concat <axis = 2> (p{n}, {new})" if call.has(3) else f"Identity ({new})"
    return f"""{n}_all = {joined} {n}_flat = Constant <value_ints = [-1, {size}]> ()
        {n}_rows = Reshape ({n}_all, {n}_flat) present_{n} = Gather <axis = 0> ({n}_rows, from)"""


def _mask(call: Call) -> str:
    """``masked``: what hides the columns that a row does not see."""
    window = call.attribute("local_window_size", -1)
    seen = f"""{unsqueeze(call, "place", "row_place", 2)} seen_all = LessOrEqual (columns, row_place)"""
    if not call.attribute("causal", 1):
        seen = f"""{unsqueeze(call, "tokens", "token_ends", 1, 2)} seen_all = Less (columns, token_ends)"""
    near = "seen = Identity (seen_all)"
    if window > 0:
        near = f"""window = Constant <value_int = {window}> () first = Sub (row_place, window)
            is_near = Greater (columns, first) seen = And (seen_all, is_near)"""
    return f"""{seen} {near} {constant(call, "nothing", 0.0)}
        {constant(call, "lowest", LOWEST)} each = Where (seen, nothing, lowest)
        {unsqueeze(call, "each", "masked", 1)}"""


def _attend(call: Call, heads: int, groups: int, size: int) -> str:
    scale, cap = call.attribute("scale", 0.0) or 1 / sqrt(size), call.attribute("softcap", 0.0)
    scores = "scores = Mul (product, factor)"
    if cap > 0:
        scores = f"""{constant(call, "cap", cap)} scaled = Mul (product, factor) part = Div (scaled, cap)
            bent = Tanh (part) scores = Mul (bent, cap)"""
    added = "all_scores = Add (hidden, added)" if call.has(_ADDED) else "all_scores = Identity (hidden)"
    each = " ".join(repeat_heads(call, f"present_{n}", n, heads, groups, size) for n in "kv")
    return f"""{each} {_mask(call)}
        kt = Transpose <perm = [0, 1, 3, 2]> (k) product = MatMul (qr, kt)
        {constant(call, "factor", scale)} {scores} hidden = Add (scores, masked) {added}
        shares = Softmax <axis = -1> (all_scores) mixed = MatMul (shares, v)
        turned = Transpose <perm = [0, 2, 1, 3]> (mixed)
        y_to = Constant <value_ints = [0, 0, {heads * size}]> () y = Reshape (turned, y_to)"""
