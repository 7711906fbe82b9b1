"""Pools and resizes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from fuzz.networks.convolutions import draw_kernel
from fuzz.networks.draft import Draft, Unsuitable


def draw_pool(d: Draft, x: str) -> None:
    sizes = d.expect_rank(x, 3, 4, 4, 4, 4, 5)[2:]
    if 0 in sizes:
        raise Unsuitable("no pixel")
    op = d.pick(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
    kernel = draw_kernel(d, len(sizes))
    strides = [d.pick((1, 2, 2, 3)) for _ in sizes]
    dilations = [d.pick((1, 1, 1, 2)) if op == "MaxPool" else 1 for _ in sizes]
    attributes: dict[str, object] = {"kernel_shape": kernel}
    if set(strides) != {1} or d.chance(0.5):
        attributes["strides"] = strides
    if set(dilations) != {1}:
        attributes["dilations"] = dilations
    attributes |= _draw_pads(d, sizes, kernel, dilations)
    if op != "LpPool" and d.chance(0.35):
        attributes["ceil_mode"] = 1
    if op == "AveragePool" and d.chance(0.5):
        attributes["count_include_pad"] = 1
    if op == "LpPool":
        attributes["p"] = d.pick((1, 2))
    y = d.add(op, x, **attributes)
    if prod(d.shapes[y][2:]) < 1:
        raise Unsuitable("no pixel")


def _draw_pads(
    d: Draft, sizes: Sequence[int], kernel: Sequence[int], dilations: Sequence[int]
) -> dict[str, object]:
    """Pads below the window, as ONNX Runtime wants them; each window then sees a pixel."""
    if d.chance(0.15) and set(dilations) == {1}:
        return {"auto_pad": d.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))}
    if d.chance(0.4):
        if any((k - 1) * e + 1 > n for n, k, e in zip(sizes, kernel, dilations, strict=True)):
            raise Unsuitable("a window larger than its input")
        return {}
    pads = [d.below((k + 1) // 2) for _ in range(2) for k in kernel]
    for axis, (n, k, e) in enumerate(zip(sizes, kernel, dilations, strict=True)):
        if (k - 1) * e + 1 > n + pads[axis] + pads[axis + len(sizes)]:
            raise Unsuitable("a window larger than its input")
    return {"pads": pads}


def draw_global_pool(d: Draft, x: str) -> None:
    shape = d.expect_rank(x, 3, 4, 4, 4, 5)
    if 0 in shape[2:]:
        raise Unsuitable("no pixel")
    d.add(d.pick(("GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool")), x)


def draw_gate(d: Draft, x: str) -> None:
    """Squeeze and excite: x times a sigmoid of its own means."""
    _, channels, *sizes = d.expect_rank(x, 4)
    if 0 in sizes:
        raise Unsuitable("no pixel")
    inner = d.pick((1, 2, 8))
    y = d.add("GlobalAveragePool", x)
    y = d.add("Conv", y, d.add_constant(inner, channels, 1, 1, scale=channels**-0.5), d.add_constant(inner))
    y = d.add(d.pick(("Relu", "HardSwish", "Sigmoid")) if d.opset >= 14 else "Relu", y)
    y = d.add("Conv", y, d.add_constant(channels, inner, 1, 1, scale=0.5))
    d.add("Mul", x, d.add(d.pick(("Sigmoid", "HardSigmoid", "Tanh")), y))


RESIZES = (
    ("nearest", "asymmetric", "floor"), ("nearest", "half_pixel", "round_prefer_floor"),
    ("nearest", "half_pixel", "floor"), ("nearest", "asymmetric", "round_prefer_floor"),
    ("nearest", "asymmetric", "ceil"), ("linear", "half_pixel", None), ("linear", "asymmetric", None),
    ("linear", "align_corners", None), ("linear", "pytorch_half_pixel", None),
    ("cubic", "half_pixel", None),
    ("nearest", "half_pixel", "round_prefer_ceil"), ("nearest", "align_corners", "round_prefer_floor"),
    ("nearest", "pytorch_half_pixel", "round_prefer_ceil"), ("cubic", "align_corners", None),
)  # fmt: skip


def draw_resize(d: Draft, x: str) -> None:
    shape = d.expect_rank(x, 4)
    if 0 in shape:
        raise Unsuitable("no pixel")
    mode, coordinates, rounding = d.pick(RESIZES)
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if rounding is not None:
        attributes["nearest_mode"] = rounding
    if mode == "cubic":
        attributes["cubic_coeff_a"] = d.pick((-0.75, -0.5))
    if d.chance(0.6) or d.symbolic:
        factors = [d.pick((1.0, 2.0, 2.0, 3.0, 0.5)) for _ in shape[2:]]
        if not all(
            float(n * f).is_integer() and n * f >= 1 for n, f in zip(shape[2:], factors, strict=True)
        ):
            raise Unsuitable("a size that is no integer")
        scales = d.add_array(np.array([1.0, 1.0, *factors], np.float32))
        d.add("Resize", x, "", scales, **attributes)
    else:
        sizes = d.add_numbers(*shape[:2], *(d.pick_size() for _ in shape[2:]))
        d.add("Resize", x, "", "", sizes, **attributes)
