"""The steps of a random graph: each adds an op or a small group of ops that reads a given tensor, or
nothing where the tensor does not suit it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from convoy.errors import GraphError
from convoy.graph.ops import (
    Binary,
    ChannelShuffle,
    Concat,
    Conv2d,
    ConvTranspose2d,
    GridSample,
    GroupNorm,
    LayerNorm,
    Lrn,
    MatMul,
    Pad,
    Pool2d,
    Reduce,
    Reshape,
    Resize,
    Slice,
    Softmax,
    Transpose,
    Unary,
)
from convoy.graph.shapes import pool_bounds
from fuzz.draft import CHANNELS, LARGEST, SIZES, Draft
from quantising import round_to_bits


def draw_conv2d(d: Draft, x: str) -> None:
    if len(d.shapes[x]) != 4:
        return
    _, channels, height, width = d.shapes[x]
    groups, out = draw_groups(d, channels)
    kernel = draw_kernel(d)
    stride, dilation = (
        (d.pick((1, 1, 1, 2, 3)), d.pick((1, 1, 2))),
        (d.pick((1, 1, 2)), d.pick((1, 1, 1, 2))),
    )
    reach = [(k - 1) * e + 1 for k, e in zip(kernel, dilation, strict=True)]
    padding = [int(d.rng.integers(reach[axis % 2])) for axis in range(4)]
    for axis, size in enumerate((height, width)):
        lacking = reach[axis] - size - padding[axis] - padding[axis + 2]
        padding[axis + 2] += max(0, lacking)
    taps = channels // groups * kernel[0] * kernel[1]
    w = d.add_constant(out, channels // groups, *kernel, scale=(1.5 / taps) ** 0.5)
    bias = [d.add_constant(out)] if d.chance(0.7) else []
    y = d.add(Conv2d, x, w, *bias, stride=stride, dilation=dilation, padding=tuple(padding), groups=groups)
    if d.chance(0.6):
        draw_residual(d, y)
    if d.chance(0.6):
        draw_activation(d, d.made[-1])


def draw_groups(d: Draft, channels: int) -> tuple[int, int]:
    """Groups and output channels: plain, depthwise with multiplier 1 or 2, or any divisor."""
    form = d.rng.random()
    if form < 0.5:
        return 1, d.pick(CHANNELS)
    if form < 0.8:
        return channels, channels * d.pick((1, 1, 2))
    groups = d.pick(tuple(g for g in range(1, channels + 1) if channels % g == 0))
    return groups, groups * d.pick((1, 2, 3))


def draw_kernel(d: Draft) -> tuple[int, int]:
    k = d.pick((1, 1, 2, 3, 3, 3, 5))
    return (k, k) if d.chance(0.8) else (k, d.pick((1, 2, 3)))


def draw_conv_transpose2d(d: Draft, x: str) -> None:
    if len(d.shapes[x]) != 4 or np.prod(d.shapes[x]) > LARGEST / 4:
        return
    _, channels, height, width = d.shapes[x]
    groups = d.pick(tuple(g for g in range(1, channels + 1) if channels % g == 0))
    out, kernel, stride = d.pick((1, 2, 5, 16)), draw_kernel(d), (d.pick((1, 2, 2)), d.pick((1, 2, 3)))
    out = out if groups < 8 else 1
    dilation = (d.pick((1, 1, 2)), 1)
    reach = [(k - 1) * e + 1 for k, e in zip(kernel, dilation, strict=True)]
    sizes = [(n - 1) * s + r for n, s, r in zip((height, width), stride, reach, strict=True)]
    padding = [0, 0, 0, 0]
    for axis in (0, 1):
        before = int(d.rng.integers(min(reach[axis], sizes[axis])))
        padding[axis] = before
        padding[axis + 2] = int(d.rng.integers(min(reach[axis], sizes[axis] - before)))
    bound = [max(s, e) for s, e in zip(stride, dilation, strict=True)]
    extra = tuple(int(d.rng.integers(b)) for b in bound)
    taps = max(1, channels // groups * kernel[0] * kernel[1] // (stride[0] * stride[1]))
    w = d.add_constant(channels, out, *kernel, scale=(1.5 / taps) ** 0.5)
    bias = [d.add_constant(out * groups)] if d.chance(0.7) else []
    attributes = {
        "stride": stride,
        "padding": tuple(padding),
        "output_padding": extra,
        "dilation": dilation,
    }
    d.add(ConvTranspose2d, x, w, *bias, groups=groups, **attributes)
    if d.chance(0.5):
        draw_activation(d, d.made[-1])


def draw_matmul(d: Draft, x: str) -> None:
    if len(d.shapes[x]) < 2:
        return
    k, n = d.shapes[x][-1], d.pick(CHANNELS)
    bias = [d.add_constant(n)] if d.chance(0.7) else []
    w = d.add_constant(k, n, scale=(1 / k) ** 0.5)
    if d.chance(0.25):
        d.constants[w] = round_to_bits(d.constants[w], d.pick((16, 32, max(k, 1))), d.pick((4, 8)))
    d.add(MatMul, x, w, *bias)
    if d.chance(0.5):
        draw_activation(d, d.made[-1])


def draw_pool2d(d: Draft, x: str) -> None:
    if len(d.shapes[x]) != 4:
        return
    kind = "max" if d.chance(0.5) else "avg"
    kernel, stride = draw_kernel(d), (d.pick((1, 2, 2)), d.pick((1, 2, 3)))
    dilation = (d.pick((1, 1, 1, 2)), 1)
    padding, ranges = [0, 0, 0, 0], []
    for axis in (0, 1):
        size, most = d.shapes[x][2 + axis], kernel[axis] // 2
        padding[axis], padding[axis + 2] = (int(d.rng.integers(most + 1)) for _ in range(2))
        padding[axis + 2] += max(0, (kernel[axis] - 1) * dilation[axis] + 1 - size - sum(padding[axis::2]))
        ranges.append(
            pool_bounds(size, kernel[axis], stride[axis], dilation[axis], padding[axis], padding[axis + 2])
        )
    ceil = d.chance(0.3)
    shape = (*d.shapes[x][:2], *(high if ceil else low for low, high in ranges))
    try:
        d.add(
            Pool2d, x, kind=kind, kernel=kernel, stride=stride, dilation=dilation, padding=tuple(padding),
            count_include_pad=kind == "avg" and d.chance(0.5), shape=shape,
        )  # fmt: skip
    except GraphError:
        return  # a window that sees no pixel


def draw_activation(d: Draft, x: str) -> None:
    kind, a, b = ACTIVATIONS[int(d.rng.integers(len(ACTIVATIONS)))]
    d.add(Unary, x, kind=kind, a=a, b=b)


ACTIVATIONS = (
    ("relu", 0.0, 0.0), ("clip", 0.0, 6.0), ("clip", -0.5, 0.75), ("leaky_relu", 0.1, 0.0),
    ("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0), ("silu", 0.0, 0.0), ("hardswish", 0.0, 0.0),
    ("hardsigmoid", 0.2, 0.5), ("gelu", 0.0, 0.0), ("gelu_tanh", 0.0, 0.0), ("abs", 0.0, 0.0),
    ("neg", 0.0, 0.0), ("erf", 0.0, 0.0), ("sin", 0.0, 0.0), ("cos", 0.0, 0.0), ("atan", 0.0, 0.0),
    ("softplus", 0.0, 0.0), ("elu", 1.0, 0.0),
    ("mish", 0.0, 0.0),
)  # fmt: skip


def draw_arithmetic(d: Draft, x: str) -> None:
    """Functions with a limited domain, on values brought into it."""
    kind = ("exp", "log", "sqrt", "rsqrt", "reciprocal", "square", "pow")[int(d.rng.integers(7))]
    if kind in ("exp", "square"):
        d.add(Unary, d.add(Unary, x, kind="clip", a=-3.0, b=3.0), kind=kind)
        return
    positive = d.add(Unary, d.add(Unary, x, kind="abs"), kind="clip", a=0.25, b=4.0)
    if kind == "pow":
        d.add(Binary, positive, d.add_constant(1, offset=1.5, scale=0.2), kind=kind)
    else:
        d.add(Unary, positive, kind=kind)


def draw_binary_with_constant(d: Draft, x: str) -> None:
    shape = d.shapes[x]
    kind = ("add", "sub", "mul", "div", "max", "min")[int(d.rng.integers(6))]
    form = int(d.rng.integers(4))
    if form == 0 or len(shape) < 3:
        shape = (1,)
    elif form == 1:
        shape = (1, shape[1], *(1,) * (len(shape) - 2))
    elif form == 2:
        shape = shape[-1:]
    c = d.add_constant(*shape, scale=0.2, offset=1.0) if kind == "div" else d.add_constant(*shape)
    operands = (x, c) if kind == "div" or d.chance(0.7) else (c, x)
    d.add(Binary, *operands, kind=kind)


def draw_residual(d: Draft, x: str) -> None:
    """x and an earlier tensor that broadcasts with it, itself at worst."""
    kind = ("add", "add", "add", "mul", "sub", "max", "min")[int(d.rng.integers(7))]
    fitting = [name for name in d.made if broadcasts_to(d.shapes[name], d.shapes[x])]
    y = fitting[int(d.rng.integers(len(fitting)))]
    limited = d.add(Unary, y, kind="tanh") if kind == "mul" else y
    d.add(Binary, *((x, limited) if d.chance(0.7) else (limited, x)), kind=kind)


def broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    same_rank = len(shape) == len(target)
    return same_rank and all(a in (1, b) for a, b in zip(shape, target, strict=True))


def draw_gate(d: Draft, x: str) -> None:
    """Squeeze and excite: x times a sigmoid of its own means."""
    if len(d.shapes[x]) != 4:
        return
    channels, inner = d.shapes[x][1], d.pick((1, 2, 8))
    mean = d.add(Reduce, x, kind="mean", axes=(2, 3))
    small = d.add(Conv2d, mean, d.add_constant(inner, channels, 1, 1), d.add_constant(inner))
    wide = d.add(Conv2d, d.add(Unary, small, kind="relu"), d.add_constant(channels, inner, 1, 1))
    d.add(Binary, x, d.add(Unary, wide, kind="sigmoid"), kind="mul")


def draw_reduce(d: Draft, x: str) -> None:
    rank = len(d.shapes[x])
    axes = tuple(a for a in range(1, rank) if d.chance(0.5)) or (rank - 1,)
    if rank == 4 and d.chance(0.5):
        axes = (2, 3)
    if axes[0] < 1:
        return
    kind = ("mean", "mean", "max", "min", "sum")[int(d.rng.integers(5))]
    y = d.add(Reduce, x, kind=kind, axes=axes, keepdims=d.chance(0.6))
    if kind == "sum":
        d.add(Unary, y, kind="tanh")


def draw_concat(d: Draft, x: str) -> None:
    rank = len(d.shapes[x])
    if rank < 2:
        return
    axis = 1 if d.chance(0.8) else int(d.rng.integers(1, rank))
    shape = d.shapes[x]
    fitting = [
        name
        for name in d.made
        if len(d.shapes[name]) == rank
        and all(a == b for i, (a, b) in enumerate(zip(d.shapes[name], shape, strict=True)) if i != axis)
    ]
    others = [fitting[int(d.rng.integers(len(fitting)))] for _ in range(d.pick((1, 1, 2)))]
    d.add(Concat, x, *others, axis=axis)


def draw_slice(d: Draft, x: str) -> None:
    rank = len(d.shapes[x])
    if rank < 2:
        return
    axis = int(d.rng.integers(1, rank))
    size = d.shapes[x][axis]
    begin = int(d.rng.integers(size))
    end = int(d.rng.integers(begin + 1, size + 1))
    step = d.pick((1, 1, 1, 2, 3, -1, -2))
    begin, end = (begin, end) if step > 0 else (end - 1, begin - 1)
    d.add(Slice, x, axis=axis, begin=begin, end=end, step=step)


def draw_reshape(d: Draft, x: str) -> None:
    shape = d.shapes[x]
    size = int(np.prod(shape))
    if len(shape) == 4 and d.chance(0.5):
        d.add(Reshape, x, shape=(1, size))
        return
    factor = d.pick(tuple(f for f in range(1, min(size, 40) + 1) if size % f == 0))
    rest = size // factor
    rows = d.pick(tuple(f for f in range(1, min(rest, 20) + 1) if rest % f == 0))
    d.add(Reshape, x, shape=(1, factor, rows, rest // rows))


def draw_transpose(d: Draft, x: str) -> None:
    rank = len(d.shapes[x])
    perm = (0, *(int(a) for a in 1 + d.rng.permutation(rank - 1)))
    d.add(Transpose, x, perm=perm)


def draw_channel_shuffle(d: Draft, x: str) -> None:
    if len(d.shapes[x]) == 4:
        channels = d.shapes[x][1]
        groups = d.pick(tuple(g for g in range(1, channels + 1) if channels % g == 0))
        d.add(ChannelShuffle, x, groups=groups)


def draw_pad(d: Draft, x: str) -> None:
    widths = [(0, 0), *((d.pick((0, 0, 1, 2)), d.pick((0, 0, 1, 3))) for _ in d.shapes[x][1:])]
    if len(widths) == 4 and d.chance(0.7):
        widths[1] = (0, 0)
    d.add(Pad, x, widths=tuple(widths), value=0.0 if d.chance(0.6) else 0.5)


def draw_resize(d: Draft, x: str) -> None:
    if len(d.shapes[x]) != 4 or np.prod(d.shapes[x]) > LARGEST / 8:
        return
    _, channels, height, width = d.shapes[x]
    coordinates = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")[
        int(d.rng.integers(4))
    ]
    rounding = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")[int(d.rng.integers(4))]
    mode = "nearest" if d.chance(0.5) else "bilinear"
    double = d.chance(0.5)
    size = (height * 2, width * 2) if double else (d.pick(SIZES), d.pick(SIZES))
    attributes = {"mode": mode, "coordinates": coordinates, "rounding": rounding}
    d.add(Resize, x, shape=(1, channels, *size), **attributes)


def draw_grid_sample(d: Draft, x: str) -> None:
    """Between pixels, at places that two channels of x say: a tie of nearest ones may fall either way."""
    if len(d.shapes[x]) != 4 or d.shapes[x][1] < 2:
        return
    places = d.add(Unary, d.add(Slice, x, axis=1, begin=0, end=2), kind="tanh")
    padding = ("zeros", "border", "reflection")[int(d.rng.integers(3))]
    d.add(GridSample, x, places, mode="bilinear", padding=padding, corners=d.chance(0.5))


def draw_softmax(d: Draft, x: str) -> None:
    if len(d.shapes[x]) >= 2:
        d.add(Softmax, x, axis=int(d.rng.integers(1, len(d.shapes[x]))), log=d.chance(0.3))


def draw_layer_norm(d: Draft, x: str) -> None:
    if len(shape := d.shapes[x]) >= 2:
        axis = int(d.rng.integers(1, len(shape)))
        scales = [
            d.add_constant(*shape[axis:], scale=0.3, offset=o) for o in (1.0, 0.0)[: d.pick((0, 1, 2))]
        ]
        d.add(LayerNorm, x, *scales, axis=axis, epsilon=1e-2, centred=d.chance(0.7))


def draw_group_norm(d: Draft, x: str) -> None:
    if len(shape := d.shapes[x]) == 4:
        groups = d.pick(tuple(n for n in range(1, shape[1] + 1) if shape[1] % n == 0))
        scales = [d.add_constant(shape[1], scale=0.3, offset=o) for o in (1.0, 0.0)[: d.pick((0, 1, 2))]]
        d.add(GroupNorm, x, *scales, groups=groups, epsilon=1e-2)


def draw_lrn(d: Draft, x: str) -> None:
    if len(d.shapes[x]) == 4:
        d.add(Lrn, x, size=d.pick((3, 5)), alpha=0.1, beta=0.75, bias=1.0)


WEIGHTED_STEPS: tuple[tuple[int, Callable[[Draft, str], None]], ...] = (
    (10, draw_conv2d), (2, draw_conv_transpose2d), (2, draw_matmul), (4, draw_pool2d),
    (3, draw_activation), (2, draw_arithmetic), (4, draw_binary_with_constant), (4, draw_residual),
    (2, draw_gate), (1, draw_reduce), (4, draw_concat), (2, draw_slice), (1, draw_reshape),
    (1, draw_transpose), (2, draw_channel_shuffle), (1, draw_pad), (2, draw_resize), (1, draw_softmax),
    (1, draw_lrn), (1, draw_layer_norm), (2, draw_group_norm), (1, draw_grid_sample),
)  # fmt: skip
"""How often each step is drawn, and the step."""

STEPS = [step for _, step in WEIGHTED_STEPS]
PROBABILITIES = np.array([weight for weight, _ in WEIGHTED_STEPS]) / sum(w for w, _ in WEIGHTED_STEPS)
