"""The body of ONNX's own Attention: heads, few heads of keys, a cache, masks.

ONNX's definition makes shares of 0 where a row sees no column, between the softmax and the product.  No
kernel of attention has a place for it there.  Here such a row sees all, and its result is multiplied by 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from onnx import TensorProto

from convoy.relax.importer.bodies.call import Call
from convoy.relax.importer.bodies.text import (
    LOWEST,
    constant,
    parameters,
    repeat_heads,
    split_heads,
    unsqueeze,
)

_MASK, _PAST, _LENGTHS = 3, 4, 6
_ATTRIBUTES = {
    "is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap",
    "softmax_precision",
}  # fmt: skip
"""Those of opset 23; later ones have windows, too."""


@dataclass(frozen=True)
class _Heads:
    """Heads of the queries, groups of them that share keys, and columns of a head's keys and values."""

    count: int
    groups: int
    size: int
    value_size: int
    split: bool
    """Whether a row has those of all heads side by side."""


def onnx_attention(call: Call) -> str | None:
    """Attention: q, k and v, apart in heads or not, a mask, keys and values before.

    None for a softcap, a window, lengths of a cache, scores that are asked for, and what is not float32:
    what ONNX says of these is written out.
    """
    heads = _find_heads(call)
    if not {attribute.name for attribute in call.node.attribute} <= _ATTRIBUTES:
        return None
    if heads is None or call.dtype(0) != TensorProto.FLOAT or call.attribute("softcap", 0.0):
        return None
    if call.makes(3) or call.has(_LENGTHS) or call.has(_PAST) != call.has(_PAST + 1):
        return None
    if call.has(_MASK) and call.dtype(_MASK) not in (TensorProto.FLOAT, TensorProto.BOOL):
        return None
    if call.has(_MASK) and (call.opset > 23 or (call.rank(_MASK) or 0) < 2):
        return None  # of later versions it may have fewer columns than there are
    lines = [
        """none = Constant <value_int = 0> () one = Constant <value_int = 1> ()
        two = Constant <value_int = 2> ()"""
    ]
    for n, count in zip("qkv", (heads.count, heads.groups, heads.groups), strict=True):
        lines.append(split_heads(n, f"{n}h", count) if heads.split else f"{n}h = Identity ({n})")
    for n, size in (("k", heads.size), ("v", heads.value_size)):
        joined = f"Concat <axis = 2> (p{n}, {n}h)" if call.has(_PAST) else f"Identity ({n}h)"
        lines.append(f"present_{n} = {joined}")
        lines.append(repeat_heads(call, f"present_{n}", f"{n}a", heads.count, heads.groups, size))
    lines.append(_attend(call, heads.size))
    lines.append(_join(heads) if heads.split else "y = Identity (mixed)")
    made = ["y", "present_k", "present_v"][: 1 + max(i for i in range(3) if i == 0 or call.makes(i))]
    return f"{parameters(call, 'q k v mask pk pv')} => ({', '.join(made)}) {{ {' '.join(lines)} }}"


def _find_heads(call: Call) -> _Heads | None:
    q, k, v = (call.shape_with_open(i) or () for i in range(3))
    if len(q) == len(k) == len(v) == 4:
        count, groups, size, value_size, split = q[1], k[1], q[3], v[3], False
    elif len(q) == len(k) == len(v) == 3:
        count, groups = call.attribute("q_num_heads", 0), call.attribute("kv_num_heads", 0)
        if min(count, groups) < 1 or (q[2] or 0) % count or (v[2] or 0) % groups:
            return None
        size, value_size, split = (q[2] or 0) // count, (v[2] or 0) // groups, True
    else:
        return None
    if not count or not groups or not size or not value_size or count % groups:
        return None
    return _Heads(count, groups, size, value_size, split)


def _attend(call: Call, size: int) -> str:
    """Nodes of ``mixed``: the values of each head, weighted."""
    hidden = _hide(call)
    scores = "scores = Add (scaled, hidden)" if hidden else "scores = Identity (scaled)"
    alive = "mixed = Mul (mixture, alive)" if call.has(_MASK) else "mixed = Identity (mixture)"
    factor = call.attribute("scale", 0.0) or 1 / sqrt(size)
    return f"""{hidden} kt = Transpose <perm = [0, 1, 3, 2]> (ka) product = MatMul (qh, kt)
        {constant(call, "factor", factor)} scaled = Mul (product, factor) {scores}
        shares = Softmax <axis = -1> (scores) mixture = MatMul (shares, va) {alive}"""


def _hide(call: Call) -> str:
    """Nodes of ``hidden``, which is added to the scores, and of ``alive``: 0 where a row sees no column."""
    causal, masked = call.attribute("is_causal", 0), call.has(_MASK)
    if not causal and not masked:
        return ""
    numbers = f"""{constant(call, "nothing", 0.0)} {constant(call, "lowest", LOWEST)}
        row = Constant <value_ints = [-1]> () below = Constant <value = float {{-inf}}> ()
        k_shape = Shape (present_k) k_count = Gather (k_shape, two)
        {_find_seen(call) if causal else ""}"""
    if not masked:
        return f"{numbers} hidden = Where (seen, nothing, lowest)"
    numbers += _fit(call)
    if call.dtype(_MASK) == TensorProto.BOOL:
        return f"""{numbers} visible = {"And (seen, given)" if causal else "Identity (given)"}
            hidden = Where (visible, nothing, lowest) ones = Cast <to = 1> (visible)
            alive = ReduceMax (ones, row)"""
    return f"""{numbers} added = {"Where (seen, given, below)" if causal else "Identity (given)"}
        hidden = Max (added, lowest) most = ReduceMax (added, row)
        some = GreaterOrEqual (most, lowest) alive = Cast <to = 1> (some)"""


def _fit(call: Call) -> str:
    """Nodes of ``given``, the mask: of as many columns as there are keys, where a call says how many."""
    shape = call.shape_with_open(_MASK) or ()
    if shape[-1] is not None:
        return "given = Identity (mask)"
    return f"""outer = Constant <value_ints = {[0] * (len(shape) - 1)}> () count_of = Reshape (k_count, row)
        mask_to = Concat <axis = 0> (outer, count_of) given = Reshape (mask, mask_to)"""


def _find_seen(call: Call) -> str:
    """Nodes of ``seen``: the columns that are no later than a row; rows follow the cache."""
    before = "p_shape = Shape (pk) before = Gather (p_shape, two)"
    return f"""q_shape = Shape (qh) q_count = Gather (q_shape, two)
        {before if call.has(_PAST) else "before = Identity (none)"}
        numbers = Range (none, q_count, one) place = Add (numbers, before)
        columns = Range (none, k_count, one) {unsqueeze(call, "place", "row_place", 1)}
        seen = LessOrEqual (columns, row_place)"""


def _join(heads: _Heads) -> str:
    """Nodes of ``y``, heads side by side."""
    return f"""turned = Transpose <perm = [0, 2, 1, 3]> (mixed)
        y_to = Constant <value_ints = [0, 0, {heads.count * heads.value_size}]> ()
        y = Reshape (turned, y_to)"""
