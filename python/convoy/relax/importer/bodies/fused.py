"""Bodies of ops that ONNX Runtime's optimisers put in the place of several of ONNX's.

A file it has saved after optimising is full of them.  Written out again they are what Convoy fuses itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import pi, sqrt

from convoy.relax.importer.bodies.attention import attention, multi_head_attention
from convoy.relax.importer.bodies.blocks import gather_of_blocks, matmul_of_blocks
from convoy.relax.importer.bodies.call import Call
from convoy.relax.importer.bodies.group_query import group_query_attention
from convoy.relax.importer.bodies.rotary import rotary_embedding
from convoy.relax.importer.bodies.text import attributes, constant, number, parameters

Body = Callable[[Call], "str | None"]

MICROSOFT = "com.microsoft"
"""The domain of ONNX Runtime's own ops."""
_ACTIVATIONS = {
    "Relu": (), "Tanh": (), "Sigmoid": (), "Softplus": (), "Softsign": (),
    "LeakyRelu": ("alpha",), "Elu": ("alpha",), "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"), "Selu": ("alpha", "gamma"),
}  # fmt: skip
"""Activations, and the attributes of each."""
_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _activate(op: str, given: dict[str, float | None], x: str, y: str) -> str:
    """The node of an activation, with those of its attributes that are given."""
    if op not in _ACTIVATIONS:
        raise ValueError(op)
    known = [f"{name} = {number(given[name])}" for name in _ACTIVATIONS[op] if given.get(name) is not None]
    said = f"<{', '.join(known)}>" if known else ""
    return f"{y} = {op} {said} ({x})"


def _convolution(call: Call) -> str:
    """FusedConv: x, w, a bias, what is added before the activation."""
    op, values = call.attribute("activation", ""), list(call.attribute("activation_params", []))
    added = "s = Add (c, z)" if call.has(3) else "s = Identity (c)"
    if op == "Clip":
        low, high = values
        end = f"""{constant(call, "low", low)} {constant(call, "high", high)}
            least = Max (s, low) y = Min (least, high)"""
    elif op:
        end = _activate(op, dict(zip(_ACTIVATIONS.get(op, ()), values, strict=False)), "s", "y")
    else:
        end = "y = Identity (s)"
    bias = ", b" if call.has(2) else ""
    return f"""{parameters(call, "x w b z")} => (y) {{
        c = Conv {attributes(call, *_CONV)} (x, w{bias})
        {added}
        {end}
    }}"""


def _gemm(call: Call) -> str:
    """FusedGemm: its activation's attributes have names of their own."""
    given = {name: call.attribute(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")}
    c = ", c" if call.has(2) else ""
    return f"""{parameters(call, "a b c")} => (y) {{
        g = Gemm {attributes(call, "alpha", "beta", "transA", "transB")} (a, b{c})
        {_activate(call.attribute("activation", ""), given, "g", "y")}
    }}"""


def _product(call: Call) -> str | None:
    """FusedMatMul: operands transposed, in their matrices or with the matrices' rows in front."""
    operands = []
    for i, (name, letter) in enumerate((("a", "A"), ("b", "B"))):
        transposed = bool(call.attribute(f"trans{letter}", 0))
        in_front = bool(call.attribute(f"transBatch{letter}", 0))
        rank = call.rank(i)
        if rank is None and (transposed or in_front):
            return None
        order = list(range(rank or 0))
        if in_front and len(order) > 2:
            order = [*order[1:-1], 0, order[-1]]
        if transposed and len(order) > 1:
            order[-2:] = order[:-3:-1]
        moves = order != sorted(order)
        operands.append(
            f"{name}t = Transpose <perm = {order}> ({name})" if moves else f"{name}t = Identity ({name})"
        )
    given = {name: call.attribute(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")}
    activation = call.attribute("activation", "")
    end = _activate(activation, given, "s", "y") if activation else "y = Identity (s)"
    return f"""(a, b) => (y) {{
        {" ".join(operands)}
        p = MatMul (at, bt)
        {constant(call, "factor", call.attribute("alpha", 1.0))}
        s = {"Identity (p)" if call.attribute("alpha", 1.0) == 1 else "Mul (p, factor)"}
        {end}
    }}"""


def _quick_gelu(call: Call) -> str:
    return f"""(x) => (y) {{
        {constant(call, "factor", call.attribute("alpha", 1.702))}
        a = Mul (x, factor) s = Sigmoid (a) y = Mul (x, s)
    }}"""


def _gelu(call: Call) -> str | None:
    """Gelu, BiasGelu and FastGelu: by the error function, or by tanh; of x and a bias."""
    if not call.node.domain:
        return None
    added = "s = Add (x, b)" if call.has(1) else "s = Identity (x)"
    if call.node.op_type == "FastGelu":
        inner = f"""{constant(call, "cubic", 0.044715)} {constant(call, "outer", sqrt(2 / pi))}
            square = Mul (s, s) cube = Mul (square, s) third = Mul (cube, cubic) sum = Add (s, third)
            inner = Mul (sum, outer) curve = Tanh (inner)"""
    else:
        inner = f"{constant(call, 'root', sqrt(2))} inner = Div (s, root) curve = Erf (inner)"
    return f"""{parameters(call, "x b")} => (y) {{
        {added} {inner} {constant(call, "one", 1.0)} {constant(call, "half", 0.5)}
        above = Add (curve, one) part = Mul (s, above) y = Mul (part, half)
    }}"""


def _root_mean_square(call: Call, x: str, least: float, axes: Sequence[int] = (-1,)) -> str:
    """Nodes of ``y``, x over the root of its mean square, and of what is added to it, times a scale."""
    given, said = (", axes", "") if call.opset >= 18 else ("", f", axes = {list(axes)}")
    return f"""
        square = Mul ({x}, {x}) axes = Constant <value_ints = {list(axes)}> ()
        mean = ReduceMean <keepdims = 1{said}> (square{given})
        {constant(call, "epsilon", call.attribute("epsilon", least))}
        above = Add (mean, epsilon) root = Sqrt (above)
        unit = Div ({x}, root) y = Mul (unit, scale)"""


def _simplified_norm(call: Call) -> str | None:
    """SimplifiedLayerNormalization; the inverse deviation is what training asks for."""
    rank, axis = call.rank(0), call.attribute("axis", -1)
    if rank is None and axis != -1:
        return None
    if rank and not -rank <= axis < rank:
        return None
    axes = range(axis % rank, rank) if rank else (-1,)
    norm = _root_mean_square(call, "x", 1e-5, [-1] if len(axes) == 1 else axes)
    made, more = ("y, v", "v = Reciprocal (root)") if call.makes(1) else ("y", "")
    return f"{parameters(call, 'x scale')} => ({made}) {{ {norm} {more} }}"


def _skip_norm(call: Call) -> str | None:
    """Skip(Simplified)LayerNormalization: the norm of a sum, its mean and inverse deviation, and the sum.

    Of the simplified one ONNX Runtime leaves the mean as its memory is.
    """
    simplified = call.node.op_type.startswith("SkipS")
    if simplified and call.makes(1):
        return None
    total = "s = Add (t, b)" if call.has(3 if simplified else 4) else "s = Identity (t)"
    made = {"y": "", "m": "m = Identity (y)", "v": "v = Identity (y)", "sum": "sum = Identity (s)"}
    if simplified:
        norm = _root_mean_square(call, "s", 1e-12)
        made["v"] = "v = Reciprocal (root)" if call.makes(2) else made["v"]
    else:
        shift = ", shift" if call.has(3) else ""
        epsilon = number(call.attribute("epsilon", 1e-12))
        wanted = "y, m, v" if call.makes(1) or call.makes(2) else "y"
        norm = f"{wanted} = LayerNormalization <axis = -1, epsilon = {epsilon}> (s, scale{shift})"
        if wanted != "y":
            made["m"] = made["v"] = ""
    last = max(i for i in range(len(made)) if i == 0 or call.makes(i)) + 1
    more = " ".join(list(made.values())[:last])
    names = "x skip scale b" if simplified else "x skip scale shift b"
    text = f"t = Add (x, skip) {total} {norm} {more}"
    return f"{parameters(call, names)} => ({', '.join(list(made)[:last])}) {{ {text} }}"


def _embeddings(call: Call) -> str | None:
    """EmbedLayerNormalization: words, segments, three tables, scale and shift, a mask, positions."""
    at = ", axes" if call.opset >= 13 else ""
    axis = "" if call.opset >= 13 else ", axes = [1]"
    place = "at = Identity (places)" if call.has(8) else "at = Range (zero, length, one)"
    segments = "seg = Gather (se, segments) s = Add (wp, seg)" if call.has(1) else "s = Identity (wp)"
    lengths = f"""whole = Cast <to = 6> (mask) each = Cast <to = 6> (one) seen = Equal (whole, each)
        int = Cast <to = 6> (seen) n = ReduceSum <keepdims = 0{axis}> (int{at})"""
    made = ["y", *(["n"] if call.makes(1) or call.makes(2) else []), *(["s"] if call.makes(2) else [])]
    if not call.has(7):  # nothing is counted
        lengths = f"int = Sub (words, words) n = ReduceSum <keepdims = 0{axis}> (int{at})"
    epsilon = number(call.attribute("epsilon", 1e-12))
    names = "words segments we pe se scale shift mask places"
    return f"""{parameters(call, names)} => ({", ".join(made)}) {{
        axes = Constant <value_ints = [1]> ()
        zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()
        shape = Shape (words) length = Gather (shape, one) {place}
        word = Gather (we, words) position = Gather (pe, at) wp = Add (word, position) {segments}
        y = LayerNormalization <axis = -1, epsilon = {epsilon}> (s, scale, shift)
        {lengths if "n" in made else ""}
    }}"""


FUSED: dict[str, Body] = {
    "Attention": attention,
    **dict.fromkeys(("BiasGelu", "FastGelu", "Gelu"), _gelu),
    "EmbedLayerNormalization": _embeddings,
    "FusedConv": _convolution,
    "FusedGemm": _gemm,
    "FusedMatMul": _product,
    "FusedMatMulActivation": _product,
    "GatherBlockQuantized": gather_of_blocks,
    "GroupQueryAttention": group_query_attention,
    "MatMulNBits": matmul_of_blocks,
    "MultiHeadAttention": multi_head_attention,
    "QuickGelu": _quick_gelu,
    "RotaryEmbedding": rotary_embedding,
    "SimplifiedLayerNormalization": _simplified_norm,
    "SkipLayerNormalization": _skip_norm,
    "SkipSimplifiedLayerNormalization": _skip_norm,
    "TransposeMatMul": _product,
}
