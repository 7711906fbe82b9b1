"""Convolutions of all kinds, with what networks put behind them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from fuzz.networks.draft import Draft, Unsuitable
from fuzz.networks.norms import draw_batch_norm
from fuzz.networks.pointwise import draw_activation, draw_arithmetic, draw_residual


def draw_conv(d: Draft, x: str) -> None:
    d.expect_rank(x, 3, 4, 4, 4, 5)
    channels, sizes = d.shapes[x][1], d.shapes[x][2:]
    if channels == 0:
        raise Unsuitable("no channels")
    groups, out = draw_groups(d, channels)
    kernel = draw_kernel(d, len(sizes))
    dilations = [d.pick((1, 1, 1, 2, 3)) for _ in sizes]
    strides = [d.pick((1, 1, 1, 2, 3)) for _ in sizes]
    attributes = {"group": groups, "dilations": dilations, "strides": strides}
    attributes |= draw_padding(d, sizes, kernel, dilations)
    if d.chance(0.8):
        attributes["kernel_shape"] = kernel
    w = draw_weight(d, (out, channels // groups, *kernel), channels // groups * prod(kernel))
    bias = [d.constant_like(out)] if d.chance(0.6) else []
    y = d.add("Conv", x, w, *bias, **drop_defaults(d, attributes))
    if prod(d.shapes[y][2:]) < 1 and all(sizes):
        raise Unsuitable("no pixel")
    draw_tail(d, y)


def draw_conv_transpose(d: Draft, x: str) -> None:
    d.expect_rank(x, 3, 4, 4, 4, 5)
    channels, sizes = d.shapes[x][1], d.shapes[x][2:]
    if channels == 0:
        raise Unsuitable("no channels")
    groups = d.pick_divisor(channels) if d.chance(0.4) else 1
    out = d.pick((1, 2, 3, 5, 8, 16, 17)) if groups < 8 else d.pick((1, 2))
    kernel = draw_kernel(d, len(sizes))
    strides = [d.pick((1, 2, 2, 3)) for _ in sizes]
    dilations = [d.pick((1, 1, 1, 2)) for _ in sizes]
    attributes = {"group": groups, "strides": strides, "dilations": dilations, "kernel_shape": kernel}
    attributes["output_padding"] = [d.below(max(s, e)) for s, e in zip(strides, dilations, strict=True)]
    reach = [(k - 1) * e + 1 for k, e in zip(kernel, dilations, strict=True)]
    full = [(n - 1) * s + r for n, s, r in zip(sizes, strides, reach, strict=True)]
    begins = [d.below(min(r, n)) for r, n in zip(reach, full, strict=True)]
    ends = [d.below(min(r, n - b)) for r, n, b in zip(reach, full, begins, strict=True)]
    attributes["pads"] = [*begins, *ends]
    taps = max(1, channels // groups * prod(kernel) // prod(strides))
    w = draw_weight(d, (channels, out, *kernel), taps)
    bias = [d.constant_like(out * groups)] if d.chance(0.6) else []
    y = d.add("ConvTranspose", x, w, *bias, **drop_defaults(d, attributes))
    if prod(d.shapes[y][2:]) < 1 and all(sizes):
        raise Unsuitable("no pixel")
    draw_tail(d, y)


def draw_separable(d: Draft, x: str) -> None:
    """Depthwise, then pointwise, as mobile networks do, each with its batch norm and activation."""
    _, channels, *_ = d.expect_rank(x, 4)
    k, stride = d.pick((3, 3, 5)), d.pick((1, 2))
    w = draw_weight(d, (channels, 1, k, k), k * k)
    attributes = {"group": channels, "strides": [stride] * 2, "pads": [k // 2] * 4}
    y = d.add("Conv", x, w, **attributes)
    draw_batch_norm(d, y)
    draw_activation(d, d.made[-1])
    out = channels if d.chance(0.5) else d.pick_channels()
    y = d.add("Conv", d.made[-1], draw_weight(d, (out, channels, 1, 1), channels))
    draw_batch_norm(d, y)
    if d.chance(0.5) and d.shapes[x] == d.shapes[d.made[-1]]:
        d.add("Add", x, d.made[-1])


def draw_siblings(d: Draft, x: str) -> None:
    """Several convolutions of one input, joined again: an inception block."""
    _, channels, *_ = d.expect_rank(x, 4)
    k = d.pick((1, 1, 3))
    shared = d.chance(0.2)
    out = d.pick_channels()
    ends = []
    for _ in range(d.pick((2, 2, 3))):
        out = out if shared else d.pick_channels()
        w = draw_weight(d, (out, channels, k, k), channels * k * k)
        y = d.add("Conv", x, w, *([d.constant_like(out)] if d.chance(0.5) else []), pads=[k // 2] * 4)
        ends.append(d.add("Relu", y) if d.chance(0.6) else y)
    if shared and d.chance(0.5):
        d.add(d.pick(("Sum", "Max", "Mean", "Min")), *ends)
    else:
        d.add("Concat", *ends, axis=1)


def draw_branches(d: Draft, x: str) -> None:
    """Convolutions of one input in windows of several sizes, and the input itself, added up."""
    _, channels, *_ = d.expect_rank(x, 4)
    groups = d.pick((1, 1, channels, d.pick_divisor(channels)))
    ends = []
    for k in (d.pick((3, 3, 5)), d.pick((1, 1, 3)), d.pick((1, 3))):
        form, dilation = (groups, d.pick((1, 1, 2))) if d.chance(0.85) else (d.pick((1, channels)), 1)
        w = draw_weight(d, (channels, channels // form, k, k), channels // form * k * k)
        bias = [d.constant_like(channels)] if d.chance(0.4) else []
        pads = [k // 2 * dilation if d.chance(0.97) else 0] * 4
        y = d.add("Conv", x, w, *bias, group=form, pads=pads, dilations=[dilation] * 2)
        if d.chance(0.4):
            draw_batch_norm(d, y)
        ends.append(d.made[-1])
    if d.chance(0.5):
        ends.append(x)
        if d.chance(0.6):
            draw_batch_norm(d, x)
            ends[-1] = d.made[-1]
    ends = [y for y in ends if d.shapes[y] == d.shapes[ends[0]]]
    d.rng.shuffle(ends)
    if d.chance(0.3):
        d.add("Sum", *ends)
    else:
        for y in ends[1:]:
            ends[0] = d.add("Add", ends[0], y)
    draw_activation(d, d.made[-1])


def draw_tail(d: Draft, y: str) -> None:
    """What follows a convolution: norms, scales, biases, a residual, an activation; in any order."""
    for probability, step in (
        (0.45, draw_batch_norm), (0.12, draw_arithmetic), (0.12, draw_batch_norm),
        (0.3, draw_residual), (0.55, draw_activation), (0.1, draw_batch_norm),
    ):  # fmt: skip
        if d.chance(probability):
            mark = d.mark()
            try:
                step(d, d.made[-1])
            except Unsuitable:
                d.take_back(mark)


def draw_groups(d: Draft, channels: int) -> tuple[int, int]:
    """Groups and output channels: plain, depthwise with any multiplier, or any divisor."""
    form = d.rng.random()
    if form < 0.5:
        return 1, d.pick_channels()
    if form < 0.75:
        return channels, channels * d.pick((1, 1, 1, 2, 3))
    groups = d.pick_divisor(channels)
    return groups, groups * d.pick((1, 2, 3, 4, 8, 9))


def draw_kernel(d: Draft, axes: int) -> list[int]:
    k = d.pick((1, 1, 2, 3, 3, 3, 3, 4, 5, 7))
    return [k] * axes if d.chance(0.75) else [d.pick((1, 2, 3, 5)) for _ in range(axes)]


def draw_padding(
    d: Draft, sizes: Sequence[int], kernel: Sequence[int], dilations: Sequence[int]
) -> dict[str, object]:
    """``pads`` or ``auto_pad``, wide enough for a pixel to come out."""
    if d.chance(0.15) and set(dilations) == {1}:
        return {"auto_pad": d.pick(("SAME_UPPER", "SAME_LOWER"))}
    reach = [(k - 1) * e + 1 for k, e in zip(kernel, dilations, strict=True)]
    if d.chance(0.4):
        begins = ends = [r // 2 for r in reach]
    else:
        begins, ends = ([d.below(r) for r in reach] for _ in range(2))
    ends = [e + max(0, r - n - b - e) for n, r, b, e in zip(sizes, reach, begins, ends, strict=True)]
    if not any((*begins, *ends)) and d.chance(0.3):
        return {"auto_pad": "VALID"}
    return {"pads": [*begins, *ends]}


def draw_weight(d: Draft, shape: tuple[int, ...], taps: int) -> str:
    """A convolution's weight: new or shared; now and then a constant expression."""
    w = d.constant_like(*shape, scale=(1.5 / taps) ** 0.5)
    if d.chance(0.04):
        return d.add(d.pick(("Identity", "Neg", "Tanh")), w)
    return w


def drop_defaults(d: Draft, attributes: dict[str, object]) -> dict[str, object]:
    """Attributes with their default value are written out, or not."""
    if d.chance(0.3):
        return attributes
    return {name: value for name, value in attributes.items() if not _is_default(name, value)}


def _is_default(name: str, value: object) -> bool:
    if name in ("strides", "dilations"):
        return set(value) == {1}  # type: ignore[call-overload]
    if name in ("pads", "output_padding"):
        return not any(value)  # type: ignore[call-overload]
    return name == "group" and value == 1
