"""Ops that move data: joins, splits, slices, reshapes, transposes, pads."""

from __future__ import annotations

from math import prod

import numpy as np

from fuzz.networks.draft import Draft, Unsuitable


def draw_concat(d: Draft, x: str) -> None:
    shape = d.shapes[x]
    axis = 1 if d.chance(0.7) and len(shape) > 1 else d.pick_axis(x)
    fitting = [n for n in d.made if _fits(d.shapes[n], shape, axis)]
    parts = [x, *(d.pick(fitting) for _ in range(d.pick((1, 1, 2, 3))))]
    if d.chance(0.1) and not d.symbolic:
        parts.append(d.constant_like(*shape[:axis], d.pick((1, 2, 3)), *shape[axis + 1 :]))
    d.rng.shuffle(parts)
    d.add("Concat", *parts, axis=axis - len(shape) * d.chance(0.2))


def _fits(shape: tuple[int, ...], target: tuple[int, ...], axis: int) -> bool:
    pairs = zip(shape, target, strict=False)
    return len(shape) == len(target) and all(a == b for i, (a, b) in enumerate(pairs) if i != axis)


def draw_split(d: Draft, x: str) -> None:
    """Two to four parts; some stay unread and become outputs, some are worked on and joined again."""
    axis = d.pick_axis(x)
    size = d.shapes[x][axis]
    if size < 2:
        raise Unsuitable("nothing to split")
    count = d.pick([n for n in (2, 2, 3, 4) if n <= size])
    cuts = sorted(int(c) + 1 for c in d.rng.choice(size - 1, count - 1, replace=False))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    even = size % count == 0 and d.chance(0.5)
    if even:
        sizes = [size // count] * count
    given = [] if even and d.chance(0.5) else [d.add_numbers(*sizes)]
    parts = d.add_several("Split", count, x, *given, axis=axis)
    if d.chance(0.6):
        parts = [d.add(d.pick(("Relu", "Sigmoid", "Neg")), p) if d.chance(0.6) else p for p in parts]
        if d.chance(0.4):
            d.rng.shuffle(parts)
        d.add("Concat", *parts, axis=axis)


def draw_slice(d: Draft, x: str) -> None:
    rank = d.rank(x)
    axes = sorted({d.pick_axis(x) for _ in range(d.pick((1, 1, 2)))})
    starts, ends, steps = [], [], []
    for axis in axes:
        size = d.shapes[x][axis]
        if size < 1:
            raise Unsuitable("nothing to slice")
        begin = d.below(size)
        end = int(d.rng.integers(begin + 1, size + 1))
        step = d.pick((1, 1, 1, 2, 3))
        if end == size and d.chance(0.5):
            end = 2**63 - 1
        elif d.chance(0.2) and end < size:
            begin, end = begin - size, end - size
        if d.chance(0.1):
            begin, end, step = size - 1, -(2**31), -step
        starts.append(begin), ends.append(end), steps.append(step)
    named = [a - rank if d.chance(0.2) else a for a in axes]
    given = [d.add_numbers(*v) for v in (starts, ends, named)]
    if any(step != 1 for step in steps) or d.chance(0.3):
        given.append(d.add_numbers(*steps))
    d.add("Slice", x, *given)


def draw_transpose(d: Draft, x: str) -> None:
    rank = d.rank(x)
    if rank < 2:
        raise Unsuitable("nothing to turn")
    if rank == 4 and d.chance(0.4):  # to NHWC, something there, and back
        y = d.add("Transpose", x, perm=[0, 2, 3, 1])
        y = d.add(d.pick(("Relu", "Sigmoid", "Identity")), y)
        if d.chance(0.5):
            y = d.add("Add", y, d.constant_like(d.shapes[y][-1]))
        d.add("Transpose", y, perm=[0, 3, 1, 2])
        return
    first = 1 if d.symbolic or d.chance(0.8) else 0
    rest = [int(a) for a in first + d.rng.permutation(rank - first)]
    d.add("Transpose", x, perm=[*range(first), *rest])


def draw_reshape(d: Draft, x: str) -> None:
    shape = d.shapes[x]
    if 0 in shape:
        raise Unsuitable("no element")
    rest = prod(shape[1:])
    form = d.below(6)
    if form == 0:
        d.add("Flatten", x, axis=1)
    elif form == 1 and len(shape) == 4:
        d.add("Reshape", x, d.add_numbers(0, 0, -1))
    elif form == 2:
        d.add("Reshape", x, d.add_numbers(-1, rest) if d.chance(0.5) else d.add_numbers(0, -1))
    elif form == 3 and len(shape) > 2 and 1 in shape[1:]:
        axis = int(d.pick([a for a in range(1, len(shape)) if shape[a] == 1]))
        d.add("Squeeze", x, d.add_numbers(axis))
    elif form == 4 and len(shape) < 4:
        d.add("Unsqueeze", x, d.add_numbers(d.pick((1, len(shape), -1))))
    else:
        c = d.pick_divisor(rest)
        h = d.pick_divisor(rest // c)
        d.add(
            "Reshape",
            x,
            d.add_numbers(0 if d.symbolic or d.chance(0.5) else shape[0], c, h, rest // c // h),
        )


def draw_channel_shuffle(d: Draft, x: str) -> None:
    """Reshape, transpose, reshape; or an op that moves pixels into channels or back."""
    _, channels, height, width = d.expect_rank(x, 4)
    form = d.below(3)
    if form == 0 and not height % 2 and not width % 2:
        d.add("SpaceToDepth", x, blocksize=2)
    elif form == 1 and not channels % 4:
        d.add("DepthToSpace", x, blocksize=2, mode=d.pick(("DCR", "CRD")))
    else:
        g = d.pick_divisor(channels)
        y = d.add("Reshape", x, d.add_numbers(0, g, channels // g, height, width))
        y = d.add("Transpose", y, perm=[0, 2, 1, 3, 4])
        d.add("Reshape", y, d.add_numbers(0, channels, height, width))


def draw_pad(d: Draft, x: str) -> None:
    shape = d.shapes[x]
    rank = len(shape)
    if rank < 2 or 0 in shape:
        raise Unsuitable("nothing to pad")
    mode = d.pick(("constant", "constant", "constant", "reflect", "edge"))
    first = 2 if rank == 4 and d.chance(0.7) else 1
    most = [min(3, n - 1) if mode == "reflect" else 3 for n in shape]
    widths = [d.below(most[a] + 1) if a >= first else 0 for _ in range(2) for a in range(rank)]
    if mode == "constant" and d.chance(0.1):  # a crop
        widths[-1] = -d.below(shape[-1])
    given = [d.add_numbers(*widths)]
    if mode == "constant" and d.chance(0.5):
        given.append(d.add_array(np.array(d.pick((0.0, 0.5, -1.0)), np.float32)))
    d.add("Pad", x, *given, mode=mode)


def draw_expand(d: Draft, x: str) -> None:
    """An op that repeats, or picks by constant indices."""
    shape = d.shapes[x]
    if len(shape) < 2 or 0 in shape:
        raise Unsuitable("nothing to repeat")
    axis = d.pick_axis(x)
    form = d.below(3)
    if form == 0:
        repeats = [1] * len(shape)
        repeats[axis] = d.pick((2, 3))
        d.add("Tile", x, d.add_numbers(*repeats))
    elif form == 1:
        indices = d.rng.integers(-shape[axis], shape[axis], d.pick((1, 2, 5)))
        d.add("Gather", x, d.add_array(indices.astype(np.int64)), axis=axis)
    elif 1 in shape[1:]:
        axis = int(d.pick([a for a in range(1, len(shape)) if shape[a] == 1]))
        target = [1] * len(shape)
        target[axis] = d.pick((2, 3, 4))
        d.add("Expand", x, d.add_numbers(*target))
    else:
        raise Unsuitable("no axis of length 1")
