"""Bodies of ops that ONNX defines by none, as texts of ONNX's own syntax."""

from __future__ import annotations

import math
from collections.abc import Callable

from convoy.relax.importer.bodies.affine_grid import affine_grid
from convoy.relax.importer.bodies.call import Call
from convoy.relax.importer.bodies.draws import bernoulli, multinomial
from convoy.relax.importer.bodies.fourier import fourier
from convoy.relax.importer.bodies.fused import FUSED
from convoy.relax.importer.bodies.linear import dequantise, quantise
from convoy.relax.importer.bodies.quantised import QUANTISED
from convoy.relax.importer.bodies.recurrent import write_recurrent
from convoy.relax.importer.bodies.short_time import short_time_fourier

Body = Callable[[Call], "str | None"]
"""From a call to ``(inputs) => (outputs) { nodes }``, or None for a form that has no body."""

WHOLE = (2, 3, 4, 5, 6, 7, 12, 13)
"""Types of whole numbers, as ONNX counts types."""
MOST_ELEMENTS = 1 << 24
"""Elements of a matrix or an index that a body computes at once: a model may say any size."""


def _group_norm(call: Call) -> str | None:
    """That of opsets 18 to 20: a scale and a shift for each group."""
    if call.opset >= 21:
        return None
    groups, epsilon = call.attribute("num_groups", 1), call.attribute("epsilon", 1e-5)
    return f"""(x, scale, shift) => (y) {{
        shape = Shape (x)
        grouped = Constant <value_ints = [0, {groups}, -1]> ()
        groups = Constant <value_ints = [{groups}]> ()
        apart = Constant <value_ints = [{groups}, 1]> ()
        last = Constant <value_ints = [-1]> ()
        channels = Shape <start = 1, end = 2> (x)
        each = Div (channels, groups)
        both = Concat <axis = 0> (groups, each)
        behind = Shape <start = 2> (x)
        none = Sub (behind, behind)
        one = Constant <value_int = 1> ()
        ones = Add (none, one)
        along = Concat <axis = 0> (last, ones)
        unit = ConstantOfShape <value = float[1] {{1}}> (groups)
        zero = ConstantOfShape <value = float[1] {{0}}> (groups)
        unit_like = CastLike (unit, x)
        zero_like = CastLike (zero, x)
        rows = Reshape (x, grouped)
        normal = InstanceNormalization <epsilon = {epsilon!r}> (rows, unit_like, zero_like)
        back = Reshape (normal, shape)
        scale_apart = Reshape (scale, apart)
        scales = Expand (scale_apart, both)
        gamma = Reshape (scales, along)
        shift_apart = Reshape (shift, apart)
        shifts = Expand (shift_apart, both)
        beta = Reshape (shifts, along)
        scaled = Mul (back, gamma)
        y = Add (scaled, beta)
    }}"""


def _cumulate(call: Call) -> str | None:
    """Along an axis that is known only when it runs: along each, and then the right one is chosen."""
    rank = call.rank(0)
    if not rank or call.constant(1) is not None:
        return None
    op, attributes = call.node.op_type, f"exclusive = {call.attribute('exclusive', 0)}, "
    attributes += f"reverse = {call.attribute('reverse', 0)}"
    lines = []
    for i in range(rank):
        lines.append(f"""
            at{i} = Constant <value_int = {i}> ()
            sums{i} = {op} <{attributes}> (x, at{i})
            is{i} = Equal (along, at{i})
            y{i + 1} = Where (is{i}, sums{i}, {f"y{i}" if i else "x"})""")
    return f"""(x, axis) => (y) {{
        rank = Constant <value_int = {rank}> ()
        long = Cast <to = 7> (axis)
        behind = Add (long, rank)
        along = Mod (behind, rank)
        {"".join(lines)}
        y = Identity (y{rank})
    }}"""


def _lp_normalization(call: Call) -> str | None:
    axis, p = call.attribute("axis", -1), call.attribute("p", 2)
    if p not in (1, 2):
        return None
    size = "ReduceL1" if p == 1 else "ReduceL2"
    given = "(x, axes)" if call.opset >= 18 else "(x)"
    attribute = "" if call.opset >= 18 else f", axes = [{axis}]"
    return f"""(x) => (y) {{
        axes = Constant <value_ints = [{axis}]> ()
        size = {size} <keepdims = 1{attribute}> {given}
        zero = Sub (size, size)
        none = Equal (size, zero)
        one = Constant <value = float {{1}}> ()
        unit = CastLike (one, x)
        divisor = Where (none, unit, size)
        y = Div (x, divisor)
    }}"""


def _integer_convolution(call: Call) -> str | None:
    """ConvInteger in float64, which holds every sum of products of bytes."""
    spatial = (call.rank(0) or call.rank(1) or 2) - 2
    if spatial < 1 or '"' in call.attribute("auto_pad", ""):
        return None
    lists = {name: call.attribute(name, None) for name in ("dilations", "kernel_shape", "pads", "strides")}
    given = [f"{name} = [{', '.join(map(str, value))}]" for name, value in lists.items() if value]
    given += [
        f"group = {call.attribute('group', 1)}",
        f'auto_pad = "{call.attribute("auto_pad", "NOTSET")}"',
    ]
    names = ["x", "w", "xz", "wz"][: len(call.node.input)]
    lines = ["x0 = Cast <to = 11> (x)", "w0 = Cast <to = 11> (w)"]
    for name in ("x", "w"):
        if call.has(2 + "xw".index(name)):
            lines.append(f"{name}z0 = Cast <to = 11> ({name}z)")
            zero = f"{name}z0"
            if name == "w" and call.rank(3):
                lines.append(f"shape = Constant <value_ints = [-1, 1{', 1' * spatial}]> ()")
                lines.append("wz1 = Reshape (wz0, shape)")
                zero = "wz1"
            lines.append(f"{name}1 = Sub ({name}0, {zero})")
        else:
            lines.append(f"{name}1 = Identity ({name}0)")
    return f"""({", ".join(names)}) => (y) {{
        {chr(10).join(lines)}
        sums = Conv <{", ".join(given)}> (x1, w1)
        y = Cast <to = 6> (sums)
    }}"""


def _tensor_scatter(call: Call) -> str | None:
    """A cache of which some rows along an axis are new, from an index for each batch on."""
    past, update = call.shape(0), call.shape(1)
    if past is None or update is None or math.prod(past) > MOST_ELEMENTS:
        return None
    axis = call.attribute("axis", -2) % len(past)
    along, across = [1] * len(past), [1] * len(past)
    along[axis], across[0] = -1, -1
    circular = call.attribute("mode", "linear") == "circular"
    given = call.has(2)
    return f"""(past, update{", indices" if given else ""}) => (y) {{
        zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        size = Constant <value_int = {past[axis]}> ()
        last = Constant <value_int = {update[axis] - 1}> ()
        range = Range (zero, size, one)
        along = Constant <value_ints = {along}> ()
        across = Constant <value_ints = {across}> ()
        at = Reshape (range, along)
        start = {"Reshape (indices, across)" if given else "Identity (zero)"}
        offset = Sub (at, start)
        wrapped = {"Mod (offset, size)" if circular else "Identity (offset)"}
        behind = Less (last, wrapped)
        before = Less (wrapped, zero)
        outside = Or (behind, before)
        not_before = Max (wrapped, zero)
        inside = Min (not_before, last)
        shape = Constant <value_ints = {list(past)}> ()
        index = Expand (inside, shape)
        new = GatherElements <axis = {axis}> (update, index)
        y = Where (outside, past, new)
    }}"""


def _power(call: Call) -> str | None:
    """A power of two types is one in float64."""
    if call.dtype(0) == call.dtype(1) and call.dtype(0) in (1, 10, 11):
        return None
    if call.dtype(0) in WHOLE and call.dtype(1) in WHOLE:
        return _whole_power(call)
    return """(x, y) => (z) {
        base = Cast <to = 11> (x)
        exponent = Cast <to = 11> (y)
        power = Pow (base, exponent)
        z = CastLike (power, x)
    }"""


def _whole_power(call: Call) -> str:
    """A power of whole numbers: the product of squares of squares, which wraps around if it does not fit.

    That by a negative exponent is one in float64, as in ONNX Runtime; so is that by 64 and more.
    """
    known = call.constant(1)
    if known is not None and known.size and (known == known.flat[0]).all() and 2 <= known.flat[0] < 64:
        return _known_power(int(known.flat[0]))
    lines = []
    for k in range(6):
        lines.append(f"""
        place{k} = Constant <value_int = {1 << k}> ()
        above{k} = Div (exponent, place{k})
        bit{k} = Mod (above{k}, two)
        odd{k} = Cast <to = 9> (bit{k})
        factor{k} = Where (odd{k}, square{k}, unit)
        made{k + 1} = Mul (made{k}, factor{k})
        square{k + 1} = Mul (square{k}, square{k})""")
    return f"""(x, y) => (z) {{
        exponent = Cast <to = 7> (y)
        one = Constant <value_int = 1> ()
        two = Constant <value_int = 2> ()
        zero = Constant <value_int = 0> ()
        most = Constant <value_int = 63> ()
        unit = CastLike (one, x)
        made0 = Identity (unit)
        square0 = Identity (x)
        {"".join(lines)}
        base = Cast <to = 11> (x)
        degree = Cast <to = 11> (y)
        power = Pow (base, degree)
        other = CastLike (power, x)
        below = Less (exponent, zero)
        above = Less (most, exponent)
        beyond = Or (below, above)
        z = Where (beyond, other, made6)
    }}"""


def _known_power(exponent: int) -> str:
    """x multiplied by itself; the shape is that of x and the exponent together."""
    lines, factors, square = [], [], "x"
    for k in range(exponent.bit_length()):
        if exponent >> k & 1:
            factors.append(square)
        lines.append(f"square{k} = Mul ({square}, {square})")
        square = f"square{k}"
    lines.pop()
    made = factors[0]
    for i, factor in enumerate(factors[1:]):
        lines.append(f"made{i} = Mul ({made}, {factor})")
        made = f"made{i}"
    return f"""(x, y) => (z) {{
        {chr(10).join(lines)}
        none = Sub (y, y)
        nothing = CastLike (none, x)
        z = Add ({made}, nothing)
    }}"""


OWN: dict[str, Body] = {
    **dict.fromkeys(("GRU", "LSTM", "RNN"), write_recurrent),
    "AffineGrid": affine_grid,
    "Bernoulli": bernoulli,
    "ConvInteger": _integer_convolution,
    "CumProd": _cumulate,
    "CumSum": _cumulate,
    "DFT": fourier,
    "DequantizeLinear": dequantise,
    "GroupNormalization": _group_norm,
    "LpNormalization": _lp_normalization,
    "Multinomial": multinomial,
    "Pow": _power,
    "QuantizeLinear": quantise,
    "STFT": short_time_fourier,
    "TensorScatter": _tensor_scatter,
    **FUSED,
    **QUANTISED,
}
