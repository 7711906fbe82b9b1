"""Bodies of quantised ops: what they read is dequantised, what they make is quantised.

So every way to write a quantised network becomes one form, from which kernels of bytes are made.
"""

from __future__ import annotations

from collections.abc import Callable

from convoy.relax.importer.bodies.call import Call
from convoy.relax.importer.bodies.text import attributes, parameters

Body = Callable[[Call], "str | None"]


def _float(call: Call, name: str, place: int, axis: int | None = None, made: str = "") -> str:
    """Dequantise input ``place``, whose scale and zero point follow it."""
    return _float_of(call, name, f"{name}s", place + 1, f"{name}z", place + 2, axis, made)


def _float_of(
    call: Call,
    name: str,
    scale: str,
    at: int,
    zero: str,
    zero_at: int,
    axis: int | None = None,
    made: str = "",
) -> str:
    """``name`` as floats in ``<name>f``, with a scale and zero point that are inputs elsewhere."""
    along = "" if axis is None or not _is_vector(call, at) else f"<axis = {axis}> "
    return f"{made or f'{name}f'} = DequantizeLinear {along}({name}, {scale}{_given(call, zero, zero_at)})"


def _given(call: Call, name: str, place: int) -> str:
    """A further operand, where the call has it."""
    return f", {name}" if call.has(place) else ""


def _is_vector(call: Call, place: int) -> bool:
    """Is a scale one number for each along an axis?"""
    shape = call.shape(place)
    return bool(shape) and shape != (1,)


def _channels_first(call: Call, x: str, y: str, last: bool) -> tuple[str, str] | None:
    """``x`` with its channels in front, and ``y`` with them where they were; None if that is not known."""
    rank = call.rank(0)
    if not last:
        return f"Identity ({x})", f"Identity ({y})"
    if not rank:
        return None
    front, back = [0, rank - 1, *range(1, rank - 1)], [0, *range(2, rank), 1]
    return f"Transpose <perm = {front}> ({x})", f"Transpose <perm = {back}> ({y})"


_CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _convolution(call: Call) -> str | None:
    """QLinearConv; its bias is in steps of data times weight, and channels may come last."""
    turned = _channels_first(call, "x", "yq", bool(call.attribute("channels_last", 0)))
    if turned is None:
        return None
    data, back = turned
    bias = ""
    if call.has(8):
        axis = "<axis = 0> " if _is_vector(call, 4) else ""
        bias = f"each = Mul (xs, ws) bf = DequantizeLinear {axis}(b, each)"
    return f"""{parameters(call, "x xs xz w ws wz ys yz b")} => (y) {{
        xq = {data}
        xf = DequantizeLinear (xq, xs, xz)
        {_float(call, "w", 3, 0)}
        {bias}
        yf = Conv {attributes(call, *_CONV)} (xf, wf{", bf" if bias else ""})
        yq = QuantizeLinear (yf, ys, yz)
        y = {back}
    }}"""


def _product(call: Call) -> str | None:
    """QLinearMatMul; scales may be of the rows of a, or of the columns of b."""
    ranks = call.rank(0), call.rank(3)
    if any(_is_vector(call, at) and not rank for at, rank in zip((1, 4), ranks, strict=True)):
        return None
    return f"""(a, as, az, b, bs, bz, ys, yz) => (y) {{
        {_float(call, "a", 0, (ranks[0] or 2) - 2)}
        {_float(call, "b", 3, (ranks[1] or 1) - 1)}
        yf = MatMul (af, bf)
        y = QuantizeLinear (yf, ys, yz)
    }}"""


def _gemm(call: Call) -> str:
    """QGemm; without a scale of its own the result is of floats."""
    axis = 0 if call.attribute("transB", 0) else 1
    bias, alpha = "", call.attribute("alpha", 1.0)
    if call.has(6):
        along = "<axis = 0> " if _is_vector(call, 4) else ""
        bias = f"""alpha = Constant <value = float {{{alpha!r}}}> ()
        unscaled = Mul (as, bs)
        each = Mul (unscaled, alpha)
        rows = DequantizeLinear {along}(c, each)"""
    last = f"y = QuantizeLinear (yf, ys{_given(call, 'yz', 8)})" if call.has(7) else "y = Identity (yf)"
    return f"""{parameters(call, "a as az b bs bz c ys yz")} => (y) {{
        {_float(call, "a", 0)}
        {_float(call, "b", 3, axis)}
        {bias}
        yf = Gemm {attributes(call, "alpha", "transA", "transB")} (af, bf{", rows" if bias else ""})
        {last}
    }}"""


def _pairwise(op: str) -> Body:
    """QLinearAdd and QLinearMul."""

    def body(call: Call) -> str:
        return f"""{parameters(call, "a as az b bs bz ys yz")} => (y) {{
            {_float(call, "a", 0)}
            {_float(call, "b", 3)}
            yf = {op} (af, bf)
            y = QuantizeLinear (yf, ys{_given(call, "yz", 7)})
        }}"""

    return body


def _unary(op: str, *names: str, **defaults: float) -> Body:
    """Ops of one operand: data, and scale and zero point of data and result."""

    def body(call: Call) -> str:
        given = {name: call.attribute(name, default) for name, default in defaults.items()}
        written = ", ".join(f"{name} = {value!r}" for name, value in given.items())
        said = f"<{written}>" if written else attributes(call, *names)
        return f"""{parameters(call, "x xs xz ys yz")} => (y) {{
            {_float(call, "x", 0)}
            yf = {op} {said} (xf)
            y = QuantizeLinear (yf, ys{_given(call, "yz", 4)})
        }}"""

    return body


def _pool(op: str, *names: str) -> Body:
    """Pools of images whose channels may come last."""

    def body(call: Call) -> str | None:
        turned = _channels_first(call, "x", "yq", bool(call.attribute("channels_last", 0)))
        if turned is None:
            return None
        data, back = turned
        return f"""{parameters(call, "x xs xz ys yz")} => (y) {{
            xq = {data}
            xf = DequantizeLinear (xq, xs{_given(call, "xz", 2)})
            yf = {op} {attributes(call, *names)} (xf)
            yq = QuantizeLinear (yf, ys{_given(call, "yz", 4)})
            y = {back}
        }}"""

    return body


def _largest(call: Call) -> str | None:
    """NhwcMaxPool, whose channels come last."""
    turned = _channels_first(call, "x", "made", last=True)
    if turned is None:
        return None
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    return f"""(x) => (y) {{
        data = {turned[0]} made = MaxPool {attributes(call, *names)} (data) y = {turned[1]}
    }}"""


def _concat(call: Call) -> str:
    """QLinearConcat: scale and zero point of the result, then of each operand behind it."""
    count = (len(call.node.input) - 2) // 3
    names = [f"x{i} x{i}s x{i}z" for i in range(count)]
    lines = [_float(call, f"x{i}", 2 + 3 * i) for i in range(count)]
    return f"""(ys, yz, {", ".join(" ".join(names).split())}) => (y) {{
        {chr(10).join(lines)}
        yf = Concat <axis = {call.attribute("axis", 0)}> ({", ".join(f"x{i}f" for i in range(count))})
        y = QuantizeLinear (yf, ys{_given(call, "yz", 1)})
    }}"""


def _where(call: Call) -> str:
    return f"""(condition, a, as, az, b, bs, bz, ys, yz) => (y) {{
        {_float(call, "a", 1)}
        {_float(call, "b", 4)}
        yf = Where (condition, af, bf)
        y = QuantizeLinear (yf, ys, yz)
    }}"""


def _softmax(call: Call) -> str | None:
    """Over one axis from opset 13 on; before, over all from it."""
    axis = call.attribute("axis", -1 if call.attribute("opset", 13) >= 13 else 1)
    body = f"yf = Softmax <axis = {axis}> (xf)"
    if call.attribute("opset", 13) < 13:
        body = f"""shape = Shape (xf)
        rows = Flatten <axis = {axis}> (xf)
        flat = Softmax <axis = 1> (rows)
        yf = Reshape (flat, shape)"""
    return f"""(x, xs, xz, ys, yz) => (y) {{
        {_float(call, "x", 0)}
        {body}
        y = QuantizeLinear (yf, ys, yz)
    }}"""


def _product_to_float(call: Call) -> str:
    """MatMulIntegerToFloat: a, b, their scales, their zero points, a bias."""
    bias = "y = Add (yf, bias)" if call.has(6) else "y = Identity (yf)"
    columns = (call.rank(1) or 2) - 1
    return f"""{parameters(call, "a b as bs az bz bias")} => (y) {{
        {_float_of(call, "a", "as", 2, "az", 4)}
        {_float_of(call, "b", "bs", 3, "bz", 5, columns)}
        yf = MatMul (af, bf)
        {bias}
    }}"""


def _dynamic_product(call: Call) -> str:
    """DynamicQuantizeMatMul: a of floats, b, its scale and zero point, a bias."""
    bias = "y = Add (yf, bias)" if call.has(4) else "y = Identity (yf)"
    columns = (call.rank(1) or 2) - 1
    return f"""{parameters(call, "a b bs bz bias")} => (y) {{
        q, as, az = DynamicQuantizeLinear (a)
        af = DequantizeLinear (q, as, az)
        {_float_of(call, "b", "bs", 2, "bz", 3, columns)}
        yf = MatMul (af, bf)
        {bias}
    }}"""


_ATTENTION = (
    "num_heads", "unidirectional", "scale", "mask_filter_value", "do_rotary", "past_present_share_buffer",
)  # fmt: skip


def _attention(call: Call) -> str:
    """QAttention: x, w, bias, scales of x and w, mask, zero points of x and w, keys and values before."""
    mask, past = ("mask" if call.has(5) else ""), ("past" if call.has(8) else "")
    made = "y, present" if call.makes(1) else "y"
    return f"""{parameters(call, "x w b xs ws mask xz wz past")} => ({made}) {{
        {_float_of(call, "x", "xs", 3, "xz", 6)}
        {_float_of(call, "w", "ws", 4, "wz", 7, 1)}
        {made} = com.microsoft.Attention {attributes(call, *_ATTENTION)} (xf, wf, b, {mask}, {past})
    }}"""


_TABLES = ("we", "pe", "se", "scale", "shift")
"""What QEmbedLayerNormalization has in bytes, from its third input on."""


def _embeddings(call: Call) -> str:
    """QEmbedLayerNormalization: words, segments, what is in bytes, a mask; then scales and zero points."""
    given = [name for place, name in enumerate(_TABLES, 2) if call.has(place)]
    lines = [
        _float_of(call, name, f"{name}s", 8 + place, f"{name}z", 13 + place)
        for place, name in enumerate(_TABLES)
        if name in given
    ]
    floats = ", ".join(f"{name}f" if name in given else "" for name in _TABLES)
    segments, mask = ("segments" if call.has(1) else ""), ("mask" if call.has(7) else "")
    made = "y, n" if call.makes(1) else "y"
    names = " ".join(
        ["words segments", *_TABLES, "mask", *(f"{name}{part}" for part in "sz" for name in _TABLES)]
    )
    return f"""{parameters(call, names)} => ({made}) {{
        {" ".join(lines)}
        {made} = com.microsoft.EmbedLayerNormalization {attributes(call, "epsilon")} (
            words, {segments}, {floats}, {mask}
        )
    }}"""


_LSTM = ("activation_alpha", "activation_beta", "clip", "direction", "hidden_size", "input_forget")


def _dynamic_lstm(call: Call) -> str | None:
    """DynamicQuantizeLSTM: an LSTM of dequantised weights, which have their columns last.

    Data and states stay floats: ONNX Runtime makes bytes of them at each step, which only loses digits.
    """
    scales = call.shape(8), call.shape(10)
    if None in scales or call.attribute("activations", None) is not None:
        return None
    sizes = [[*(shape or ()), 1][:2] for shape in scales]
    lines = [
        f"""{name}to = Constant <value_ints = [{directions}, 1, {columns}]> ()
        {name}zf = Cast <to = 1> ({name}z) {name}zw = Reshape ({name}zf, {name}to)
        {name}f = Cast <to = 1> ({name}) {name}d = Sub ({name}f, {name}zw)
        {name}sw = Reshape ({name}s, {name}to) {name}m = Mul ({name}d, {name}sw)
        {name}t = Transpose <perm = [0, 2, 1]> ({name}m)"""
        for name, (directions, columns) in zip("wr", sizes, strict=True)
    ]
    given = [name if call.has(i) else "" for i, name in enumerate(["b", "lens", "h", "c", "p"], 3)]
    made = ", ".join(["y", "yh", "yc"][: len(call.node.output)])
    return f"""{parameters(call, "x w r b lens h c p ws wz rs rz")} => ({made}) {{
        {" ".join(lines)}
        {made} = LSTM {attributes(call, *_LSTM)} (x, wt, rt, {", ".join(given)})
    }}"""


QUANTISED: dict[str, Body] = {
    "DynamicQuantizeLSTM": _dynamic_lstm,
    "DynamicQuantizeMatMul": _dynamic_product,
    "MatMulIntegerToFloat": _product_to_float,
    "NhwcMaxPool": _largest,
    "QAttention": _attention,
    "QEmbedLayerNormalization": _embeddings,
    "QGemm": _gemm,
    "QLinearAdd": _pairwise("Add"),
    "QLinearAveragePool": _pool(
        "AveragePool", "auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"
    ),
    "QLinearConcat": _concat,
    "QLinearConv": _convolution,
    "QLinearGlobalAveragePool": _pool("GlobalAveragePool"),
    "QLinearLeakyRelu": _unary("LeakyRelu", alpha=0.01),
    "QLinearMatMul": _product,
    "QLinearMul": _pairwise("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _where,
}
