"""Bodies of ONNX Runtime's attention: projections, heads, masks and softmax, as exporters write them."""

from __future__ import annotations

from math import sqrt

from convoy.relax.importer.bodies.call import Call
from convoy.relax.importer.bodies.onnx_attention import onnx_attention
from convoy.relax.importer.bodies.text import (
    LOWEST,
    constant,
    parameters,
    slice_last,
    split_heads,
    unsqueeze,
)

_CONSTANTS = """none = Constant <value_int = 0> ()
    one = Constant <value_int = 1> () two = Constant <value_int = 2> ()
    last = Constant <value_ints = [-1]> ()"""


def _mask(call: Call, at: int, y: str) -> str:
    """What a mask adds to the scores: of 1 and 0, or of which columns of each image count.

    Raises
    ------
    ValueError
        For a form other than [batch], [2 batch], [3 batch + 2], [batch, columns], [batch, rows, columns].
    """
    rank = call.rank(at)
    if rank not in (1, 2, 3):
        raise ValueError(rank)
    of_ones = "whole = Cast <to = 7> (mask) seen = Greater (whole, none)"
    seen = _counted(call, at) if rank == 1 else of_ones
    filled = call.attribute("mask_filter_value", -10000.0)
    return f"""{seen} {constant(call, "hidden", filled)} each = Where (seen, nothing, hidden)
        {unsqueeze(call, "each", y, *((1,) if rank == 3 else (1, 2)))}"""


def _counted(call: Call, at: int) -> str:
    """``seen``: columns before the end of each image, and behind its begin where ends and begins are given.

    The form of 3 batch + 2 numbers has where each image lies among all rows behind these ends: ONNX Runtime
    reads only the ends.

    Raises
    ------
    ValueError
        For another number of them.
    """
    (count,) = call.shape_with_open(at) or (None,)
    images = (call.shape_with_open(0) or (None,))[0]
    each = f"""counts = Cast <to = 7> ({{}}) {unsqueeze(call, "counts", "behind", 1)}
        before_end = Less (columns, behind)"""
    if count == images:
        return f"{each.format('mask')} seen = Identity (before_end)"
    both = count == 2 * (images or 0) and call.node.op_type == "Attention"
    if not images or not (both or count == 3 * images + 2):
        raise ValueError(count)
    cut = f"""first_image = Constant <value_ints = [0]> ()
        all_images = Constant <value_ints = [{images}]> ()
        ends = Slice (mask, first_image, all_images) {each.format("ends")}"""
    if not both:
        return f"{cut} seen = Identity (before_end)"
    return f"""{cut} mask_end = Constant <value_ints = [{2 * images}]> ()
        begins = Slice (mask, all_images, mask_end) whole = Cast <to = 7> (begins)
        {unsqueeze(call, "whole", "begin", 1)} before = Less (columns, begin) not_before = Not (before)
        seen = And (before_end, not_before)"""


def _attend(call: Call, head_size: int, added: str, mask_at: int, *, past: bool) -> str:
    """Nodes of ``y`` from heads ``qh``, ``kh``, ``vh``, and keys and values before, ``pk`` and ``pv``."""
    scale = call.attribute("scale", 0.0) or 1 / sqrt(head_size)
    joined = "Concat <axis = 2> (p{0}, {0}h)" if past else "Identity ({0}h)"
    lines = [
        f"k = {joined.format('k')} v = {joined.format('v')} kt = Transpose <perm = [0, 1, 3, 2]> (k)",
        "k_shape = Shape (k) k_count = Gather (k_shape, two) columns = Range (none, k_count, one)",
        f"{constant(call, 'factor', scale)} {constant(call, 'nothing', 0.0)}",
        "product = MatMul (qh, kt) s0 = Mul (product, factor)",
    ]
    scores = 0
    if call.has(mask_at):
        lines.append(f"{_mask(call, mask_at, 'masked')} s{scores + 1} = Add (s{scores}, masked)")
        scores += 1
    if call.attribute("unidirectional", 0):
        lines.append(
            f"""q_shape = Shape (qh) q_count = Gather (q_shape, two) first = Sub (k_count, q_count)
            numbers = Range (first, k_count, one) {unsqueeze(call, "numbers", "rows", 1)}
            ahead = Greater (columns, rows) {constant(call, "lowest", LOWEST)}
            causal = Where (ahead, lowest, nothing) s{scores + 1} = Add (s{scores}, causal)"""
        )
        scores += 1
    if added:
        lines.append(f"s{scores + 1} = Add (s{scores}, {added})")
        scores += 1
    lines.append(
        f"""shares = Softmax <axis = -1> (s{scores}) mixed = MatMul (shares, v)
        turned = Transpose <perm = [0, 2, 1, 3]> (mixed)
        y_to = Constant <value_ints = [0, 0, -1]> () y = Reshape (turned, y_to)"""
    )
    return "\n".join(lines)


def _sizes(call: Call, heads: int) -> list[int] | None:
    """Sizes of q, k and v in the columns of Attention's weights."""
    shape = call.shape(1)
    given = list(call.attribute("qkv_hidden_sizes", ()))
    sizes = given or ([shape[1] // 3] * 3 if shape else [])
    if len(sizes) != 3 or sizes[0] != sizes[1] or heads < 1 or any(n < 1 or n % heads for n in sizes):
        return None
    if shape and sum(sizes) != shape[-1]:
        return None
    return sizes


def attention(call: Call) -> str | None:
    """Attention: x, weights and bias of all projections, a mask, keys and values before, what is added."""
    if call.node.domain == "":
        return onnx_attention(call)
    heads = call.attribute("num_heads", 0)
    sizes = _sizes(call, heads)
    shared = ("do_rotary", "past_present_share_buffer")
    if sizes is None or any(call.attribute(name, 0) for name in shared):
        return None
    begins = [0, sizes[0], sizes[0] + sizes[1], sum(sizes)]
    parts = [slice_last("p", f"{n}p", *begins[i : i + 2]) for i, n in enumerate("qkv")]
    past = call.has(4)
    before = "pk = Gather (past, none) pv = Gather (past, one)" if past else ""
    present = ""
    if call.makes(1):
        present = f"""{unsqueeze(call, "k", "ku", 0)} {unsqueeze(call, "v", "vu", 0)}
            present = Concat <axis = 0> (ku, vu)"""
    text = f"""{_CONSTANTS}
        products = MatMul (x, w) p = {"Add (products, b)" if call.has(2) else "Identity (products)"}
        {" ".join(parts)} {" ".join(split_heads(f"{n}p", f"{n}h", heads) for n in "qkv")} {before}
        {_attend(call, sizes[0] // heads, "added" if call.has(5) else "", 3, past=past)} {present}"""
    made = "y, present" if call.makes(1) else "y"
    return f"{parameters(call, 'x w b mask past added count')} => ({made}) {{ {text} }}"


def multi_head_attention(call: Call) -> str | None:
    """MultiHeadAttention: q, k and v, a bias of all, a mask, what is added, keys and values before."""
    heads = call.attribute("num_heads", 0)
    width = (call.shape_with_open(0) or (None,))[-1]
    ranks = [call.rank(i) for i in range(min(3, len(call.types)))]
    others = [i for i in (8, 9) if call.has(i)]
    if len(ranks) < 3 or ranks[0] != 3 or ranks[1] != ranks[2] or ranks[1] not in (3, 4):
        return None
    if others or call.makes(3) or width is None or heads < 1 or width % heads or call.has(6) != call.has(7):
        return None
    lines = [_CONSTANTS]
    for i, n in enumerate("qkv"):
        x = f"{n}x"
        if call.has(3) and (i == 0 or ranks[1] == 3):
            end = width * (i + 1) if i < 2 else 2**31 - 1  # v may have another width
            lines.append(f"{slice_last('b', f'{n}b', width * i, end)} {n}s = Add ({x}, {n}b)")
            x = f"{n}s"
        split = i == 0 or ranks[1] == 3
        lines.append(split_heads(x, f"{n}h", heads) if split else f"{n}h = Identity ({x})")
    lines.append(_attend(call, width // heads, "added" if call.has(5) else "", 4, past=call.has(6)))
    made = ["y"]
    if call.makes(1) or call.makes(2):
        made += ["present_k", "present_v"]
        lines.append("present_k = Identity (k) present_v = Identity (v)")
    names = parameters(call, "qx kx vx b mask added pk pv count where")
    return f"{names} => ({', '.join(made)}) {{ {' '.join(lines)} }}"
