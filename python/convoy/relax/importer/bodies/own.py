"""Bodies of ops that ONNX defines by none, as texts of ONNX's own syntax."""

from __future__ import annotations

from collections.abc import Callable

from convoy.relax.importer.bodies.call import Call

Body = Callable[[Call], "str | None"]
"""From a call to ``(inputs) => (outputs) { nodes }``, or None for a form that has no body."""


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


OWN: dict[str, Body] = {
    "GroupNormalization": _group_norm,
}
