"""DFT as products with the matrices of cos and sin."""

from __future__ import annotations

import math

from convoy.relax.importer.bodies.call import Call

MOST_ELEMENTS = 1 << 24
"""Elements of a matrix that is known, at most: a model may say any length."""


def fourier(call: Call) -> str | None:
    """The transform along one axis, whose length may be open: then its matrices are computed by the call.

    A signal of another length is cut, or goes on with zeros: the rows for these are left out.  Of a
    spectrum of which half is given (``inverse`` and ``onesided``) the signal is real: what is given counts
    twice, but for the frequency 0, and for half the length's where that is even.
    """
    shape = call.shape_with_open(0)
    axis = call.constant(2) if call.opset >= 20 else call.attribute("axis", 1)
    axis = -2 if axis is None and not call.has(2) else axis
    length = call.constant(1)
    if shape is None or axis is None:
        return None
    rank, complex_ = len(shape), shape[-1:] == (2,)
    if not -rank <= axis < rank or axis % rank == rank - 1 or shape[-1] not in (1, 2):
        return None
    axis = int(axis) % rank
    inverse, onesided = bool(call.attribute("inverse", 0)), bool(call.attribute("onesided", 0))
    halved = inverse and onesided
    if onesided and complex_ != inverse:
        return None
    size, count = shape[axis], None if length is None else int(length.item())
    computed = call.has(1) and count is None
    if size is not None and not computed:
        count = (2 * (size - 1) if halved else size) if count is None else count
        bins = count // 2 + 1 if onesided else count
        read = min(size, bins if halved else count)
        if count < 1 or not 0 < read * (count if halved else bins) <= MOST_ELEMENTS:
            return None
    elif count is not None and count < 1:
        return None
    order = [i for i in range(rank - 1) if i != axis] + [axis, rank - 1]
    back = sorted(range(rank), key=order.__getitem__)
    return f"""({", ".join(["x", "length", "axis"][: len(call.node.input)])}) => (y) {{
        zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        two = Constant <value_int = 2> ()
        {_lengths(axis, count, halved, computed)}
        last_bin = Div (count, two)
        bins = Add (last_bin, one)
        used = {"Min (size, bins)" if halved else "Min (size, count)"}
        made = {"Identity (bins)" if onesided and not inverse else "Identity (count)"}
        columns = Range (zero, made, one)
        rows = Range (zero, used, one)
        inner = Constant <value_ints = [1]> ()
        column = Unsqueeze (rows, inner)
        steps = Mul (column, columns)
        turns = Mod (steps, count)
        angle = Cast <to = 11> (turns)
        whole = Constant <value = double {{{(2 if inverse else -2) * math.pi!r}}}> ()
        parts = Cast <to = 11> (count)
        unit = Div (whole, parts)
        radians = Mul (angle, unit)
        wide_cos = Cos (radians)
        wide_sin = Sin (radians)
        {_scale(inverse, halved)}
        cos = CastLike (scaled_cos, x)
        sin = CastLike (scaled_sin, x)
        moved = Transpose <perm = {order}> (x)
        first = Constant <value_ints = [0]> ()
        along = Constant <value_ints = [-2]> ()
        end = Unsqueeze (used, first)
        cut = {"Slice (moved, first, end, along)" if call.has(1) or halved else "Identity (moved)"}
        real = Gather <axis = -1> (cut, zero)
        real_cos = MatMul (real, cos)
        {_parts(complex_, halved)}
        y = Transpose <perm = {back}> (both)
    }}"""


def _lengths(axis: int, count: int | None, halved: bool, computed: bool) -> str:
    """The size of the axis, and the length of the signal, which may be computed itself."""
    if computed:
        said = "count = Squeeze (length)"
    elif count is None:
        said = "before = Sub (size, one) count = Mul (before, two)" if halved else "count = Identity (size)"
    else:
        said = f"count = Constant <value_int = {count}> ()"
    return f"""
        shape = Shape (x)
        at = Constant <value_int = {axis}> ()
        size = Gather (shape, at)
        {said}"""


def _scale(inverse: bool, halved: bool) -> str:
    """The waves back are divided by their number; of half a spectrum most count twice."""
    if not inverse:
        return "scaled_cos = Identity (wide_cos) scaled_sin = Identity (wide_sin)"
    twice = """
        mirrored = Sub (count, column)
        other = Mod (mirrored, count)
        alone = Equal (other, column)
        times = Where (alone, one, two)
        weight = Cast <to = 11> (times)
        scale = Div (weight, parts)"""
    once = """
        unity = Constant <value = double {1}> ()
        scale = Div (unity, parts)"""
    return f"""{twice if halved else once}
        scaled_cos = Mul (wide_cos, scale)
        scaled_sin = Mul (wide_sin, scale)"""


def _parts(complex_: bool, halved: bool) -> str:
    """The result, real and imaginary parts last."""
    last = "last = Constant <value_ints = [-1]> ()"
    both = f"""{last}
        re_last = Unsqueeze (re, last)
        im_last = Unsqueeze (im, last)
        both = Concat <axis = -1> (re_last, im_last)"""
    if not complex_:
        return f"re = Identity (real_cos) im = MatMul (real, sin) {both}"
    turned = """imaginary = Gather <axis = -1> (cut, one)
        imaginary_sin = MatMul (imaginary, sin)
        re = Sub (real_cos, imaginary_sin)"""
    if halved:
        return f"{turned} {last} both = Unsqueeze (re, last)"
    return f"""{turned}
        real_sin = MatMul (real, sin)
        imaginary_cos = MatMul (imaginary, cos)
        im = Add (real_sin, imaginary_cos)
        {both}"""
