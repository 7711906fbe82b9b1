"""STFT as a convolution: a filter for the cosine and one for the sine of each frequency."""

from __future__ import annotations

import math

from convoy.relax.importer.bodies.call import Call

MOST_WEIGHTS = 1 << 24
"""Elements of the filters, at most: a model may say any length."""


def short_time_fourier(call: Call) -> str | None:
    """The spectrum of real signals [N, L] or [N, L, 1], in frames of a known length, a known step apart."""
    signal, window = call.shape_with_open(0), call.shape(2) if call.has(2) else None
    step, length = call.constant(1), call.constant(3)
    if signal is None or step is None or (call.has(3) and length is None):
        return None
    if not (len(signal) == 2 or (len(signal) == 3 and signal[2] == 1)):
        return None
    if call.has(2) and (window is None or len(window) != 1):
        return None
    if length is None and window is None:
        return None
    apart, count = int(step.item()), int(length.item()) if length is not None else (window or [0])[0]
    bins = count // 2 + 1 if call.attribute("onesided", 1) else count
    if apart < 1 or count < 1 or count * bins > MOST_WEIGHTS or (window and window[0] != count):
        return None
    planar = "Unsqueeze (x, inner)" if len(signal) == 2 else "Transpose <perm = [0, 2, 1]> (x)"
    return f"""({", ".join(["x", "step", "window", "length"][: len(call.node.input)])}) => (y) {{
        zero = Constant <value_int = 0> ()
        one = Constant <value_int = 1> ()
        inner = Constant <value_ints = [1]> ()
        bins = Constant <value_int = {bins}> ()
        count = Constant <value_int = {count}> ()
        places = Range (zero, count, one)
        frequencies = Range (zero, bins, one)
        column = Unsqueeze (frequencies, inner)
        steps = Mul (column, places)
        turns = Mod (steps, count)
        angle = Cast <to = 11> (turns)
        unit = Constant <value = double {{{-2 * math.pi / count!r}}}> ()
        radians = Mul (angle, unit)
        wide_cos = Cos (radians)
        wide_sin = Sin (radians)
        wide = Concat <axis = 0> (wide_cos, wide_sin)
        waves = CastLike (wide, x)
        seen = {"Mul (waves, window)" if call.has(2) else "Identity (waves)"}
        filters = Unsqueeze (seen, inner)
        planar = {planar}
        sums = Conv <strides = [{apart}]> (planar, filters)
        shape = Constant <value_ints = [0, 2, {bins}, -1]> ()
        parts = Reshape (sums, shape)
        y = Transpose <perm = [0, 3, 2, 1]> (parts)
    }}"""
