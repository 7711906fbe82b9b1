"""The shape of every op's output, from those of its inputs.

Where the output's own shape is part of the op's meaning (``Pool2d``, ``Resize``, ``Reshape``), it
is read from ``shapes`` and checked for compatibility.  So it is for ops whose output is a view.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import prod

from convoy.errors import GraphError
from convoy.graph.attributes import check_attributes
from convoy.graph.messages import describe, require
from convoy.graph.ops import (
    Attention,
    Binary,
    ChannelShuffle,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Dequantize,
    GridSample,
    GroupNorm,
    LayerNorm,
    Lrn,
    MatMul,
    Node,
    Pad,
    PadMode,
    Pair,
    Pool2d,
    Product,
    Quantize,
    Recurrent,
    Reduce,
    Reshape,
    Resize,
    Rotate,
    Sides,
    Slice,
    Softmax,
    Strided,
    Transpose,
    Unary,
)
from convoy.graph.recurrences import recurrent_shape
from convoy.graph.sizes import Size, is_open, largest
from convoy.graph.views import View, broadcast_shapes

Shape = tuple[int, ...]


def infer_shape(node: Node, shapes: Mapping[str, Shape]) -> Shape:
    """The shape of ``node.output``.

    Parameters
    ----------
    shapes : Mapping[str, Shape]
        The shapes of the node's inputs by name; of its output too if it is known. ``Reshape``, ops of
        views and a ``Resize`` without scales need it; for ``Pool2d`` the floor size is the default.

    Raises
    ------
    GraphError
        Naming the node, if its attributes or the shapes do not fit together.
    """
    check_attributes(node)
    for name in node.inputs:
        require(name in shapes, node, f"a defined input %{name}", "none", "define it before this node")
    inputs = [shapes[name] for name in node.inputs]
    x, output = inputs[0], shapes.get(node.output)
    match node:
        case Conv2d():
            return _conv2d(node, x, *inputs[1:])
        case ConvTranspose2d():
            return _conv_transpose2d(node, x, *inputs[1:])
        case MatMul():
            return _matmul(node, x, *inputs[1:])
        case Product():
            return _product(node, inputs, output)
        case Attention():
            return _attention(node, inputs, output)
        case Rotate():
            return _rotate(node, inputs, output)
        case Recurrent():
            return recurrent_shape(node, inputs)
        case Pool2d():
            return _pool2d(node, x, output)
        case Reduce():
            return _reduce(node, x)
        case Unary():
            return x
        case Quantize() | Dequantize():
            return _quantised(node, x, *inputs[1:])
        case Binary():
            return _broadcast(node, x, inputs[1])
        case Concat():
            return _concat(node, inputs)
        case Slice():
            return _slice(node, x)
        case Reshape():
            return _reshape(node, x, output)
        case Transpose(perm=perm):
            _require_rank(node, x, len(perm))
            return tuple(x[axis] for axis in perm)
        case ChannelShuffle(groups=groups):
            _require_rank(node, x, 4)
            require(x[1] % groups == 0, node, f"channels divisible by {groups}", x[1], "check the groups")
            return x
        case Pad(widths=widths, mode=mode):
            _require_rank(node, x, len(widths))
            fits = all(w <= widest_pad(d, mode) for d, width in zip(x, widths, strict=True) for w in width)
            require(fits, node, f"widths that {mode} has pixels for", widths, "pad twice")
            return tuple(before + d + after for d, (before, after) in zip(x, widths, strict=True))
        case Resize():
            return _resize(node, x, output)
        case GridSample():
            grid = inputs[1]
            legal = len(x) == 4 and len(grid) == 4 and grid[1] == 2
            require(legal, node, "x [1, C, H, W] and a grid [1, 2, h, w]", (x, grid), "see graph/ops.py")
            return (*x[:2], *grid[2:])
        case Softmax(axis=axis):
            require(axis < len(x), node, f"an axis < {len(x)}", axis, "check the axis")
            return x
        case Lrn():
            _require_rank(node, x, 4)
            return x
        case LayerNorm(axis=axis, epsilon=epsilon):
            require(
                1 <= axis < len(x), node, f"an axis in 1..{len(x) - 1}", axis, "axis 0 is the image axis"
            )
            return _norm(node, epsilon, x, prod(x[axis:]), inputs[1:])
        case GroupNorm(groups=groups, epsilon=epsilon):
            _require_rank(node, x, 4)
            legal = groups >= 1 and x[1] % groups == 0
            require(legal, node, f"groups that divide {x[1]} channels", groups, "check the groups")
            return _norm(node, epsilon, x, x[1], inputs[1:])
    raise GraphError(
        "verify", describe(node), "expected an op of graph/ops.py, got another", "add its rule"
    )


def pool_bounds(
    size: int, kernel: int, stride: int, dilation: int, before: int, after: int
) -> tuple[int, int]:
    """The output sizes of a pooling in floor and in ceil mode, along one axis.

    In ceil mode no window starts past the last pixel, which may leave fewer than in floor mode.
    """
    floor, ceil = _count_windows(size, kernel, stride, dilation, before, after)
    if (ceil - 1) * stride >= size + before:
        ceil -= 1
    return floor, ceil


def _count_windows(
    size: int, kernel: int, stride: int, dilation: int, before: int, after: int
) -> tuple[int, int]:
    """The same, wherever the last window starts: so TVM counts them."""
    span = size + before + after - (kernel - 1) * dilation - 1
    return span // stride + 1, -(-span // stride) + 1


def _require_rank(node: Node, x: Shape, rank: int) -> None:
    require(len(x) == rank, node, f"an input of rank {rank}", x, "reshape it first")


def _conv2d(node: Conv2d, x: Shape, w: Shape, bias: Shape | None = None) -> Shape:
    _check_conv_operands(node, x, w)
    out, in_per_group, *kernel = w
    channels = in_per_group * node.groups
    require(x[1] == channels, node, f"{channels} input channels", x[1], "check the weight and groups")
    legal = out % node.groups == 0
    require(legal, node, f"output channels divisible by groups {node.groups}", out, "check the weight")
    _check_bias(node, bias, out)
    top, left, bottom, right = node.padding
    spans = (x[2] + top + bottom, x[3] + left + right)
    sizes = []
    for span, k, d, s in zip(spans, kernel, node.dilation, node.stride, strict=True):
        reach = (k - 1) * d + 1
        require(span >= reach, node, f"a padded size ≥ {reach}, the kernel's", span, "pad the input")
        sizes.append((span - reach) // s + 1)
    return (x[0], out, *sizes)


def _conv_transpose2d(node: ConvTranspose2d, x: Shape, w: Shape, bias: Shape | None = None) -> Shape:
    _check_conv_operands(node, x, w)
    channels, out_per_group, *kernel = w
    require(x[1] == channels, node, f"{channels} input channels", x[1], "check the weight")
    legal = channels % node.groups == 0
    require(legal, node, f"input channels divisible by groups {node.groups}", channels, "check the groups")
    out = out_per_group * node.groups
    _check_bias(node, bias, out)
    top, left, bottom, right = node.padding
    sizes = []
    for axis, cropped in enumerate((top + bottom, left + right)):
        full = (x[2 + axis] - 1) * node.stride[axis] + (kernel[axis] - 1) * node.dilation[axis] + 1
        size = full - cropped + node.output_padding[axis]
        require(size >= 1, node, "an output size ≥ 1", size, "reduce the padding")
        sizes.append(size)
    return (x[0], out, *sizes)


def _check_conv_operands(node: Node, x: Shape, w: Shape) -> None:
    _require_rank(node, x, 4)
    require(len(w) == 4, node, "a weight of rank 4", w, "give it two spatial axes")


def _check_bias(node: Node, bias: Shape | None, out: int) -> None:
    require(bias in (None, (out,)), node, f"a bias of shape {(out,)}", bias, "reshape the bias")


def _matmul(node: MatMul, x: Shape, w: Shape, bias: Shape | None = None) -> Shape:
    require(len(x) >= 2, node, "an input of rank ≥ 2", x, "reshape it first")
    require(len(w) == 2, node, "a weight of rank 2", w, "make it a product")
    require(x[-1] == w[0], node, f"{w[0]} columns, the weight's rows", x[-1], "check the operands")
    _check_bias(node, bias, w[1])
    return (*x[:-1], w[1])


def _product(node: Product, inputs: list[Shape], output: Shape | None) -> Shape:
    *lead, m, k = node.a.shape
    n = node.b.shape[-1]
    named = (("a", node.a, (*lead, m, k)), ("b", node.b, (*lead, k, n)), ("y", node.y, (*lead, m, n)))
    for role, view, expected in named:
        _check_view_shape(node, role, view, expected)
    return _check_views(node, dict(zip(("a", "b"), (node.a, node.b), strict=True)), inputs, output)


def _attention(node: Attention, inputs: list[Shape], output: Shape | None) -> Shape:
    *lead, m, d = node.q.shape
    n, e = node.v.shape[-2:]
    named = [("q", node.q, (*lead, m, d)), ("k", node.k, (*lead, n, d)), ("v", node.v, (*lead, n, e))]
    if node.mask is not None:
        named.append(("mask", node.mask, (*lead, m, n)))
    for role, view, expected in (*named, ("y", node.y, (*lead, m, e))):
        _check_view_shape(node, role, view, expected)
    return _check_views(node, {role: view for role, view, _ in named}, inputs, output)


def _rotate(node: Rotate, inputs: list[Shape], output: Shape | None) -> Shape:
    *lead, _, count = node.x.shape
    views = {"x": node.x, "cos": node.cos, "sin": node.sin}
    for role, view in (*views.items(), ("y", node.y)):
        _check_view_shape(node, role, view, (*lead, 2, count))
    return _check_views(node, views, inputs, output)


def _check_view_shape(node: Node, role: str, view: View, expected: Shape) -> None:
    fits = f"a view {role} of shape {expected}"
    require(view.shape == expected, node, fits, view.shape, "check the operands")


def _check_views(
    node: Strided, views: Mapping[str, View], inputs: list[Shape], output: Shape | None
) -> Shape:
    """The shape of the output of an op that reads and makes tensors through views."""
    for (role, view), shape in zip(views.items(), inputs, strict=True):
        within = f"a view {role} of elements < {prod(shape)}"
        require(view.last < prod(shape), node, within, view.last, "check the strides")
    if output is None:
        raise _unknown_output(node)
    legal = node.y.covers(prod(output))
    require(legal, node, f"each element of {output} once in y", node.y, "check the strides")
    return output


def _unknown_output(node: Node) -> GraphError:
    problem = "expected the output's shape, got none"
    return GraphError("verify", describe(node), problem, "put it into the tensors")


def _pool2d(node: Pool2d, x: Shape, output: Shape | None) -> Shape:
    _require_rank(node, x, 4)
    top, left, bottom, right = node.padding
    sides = ((top, bottom), (left, right))
    ranges = []
    for axis in (0, 1):
        along = (node.kernel[axis], node.stride[axis], node.dilation[axis], *sides[axis])
        counts = _count_windows(x[2 + axis], *along)
        ranges.append(counts if is_open(counts) else sorted((*pool_bounds(x[2 + axis], *along), *counts)))
    if output is None:
        output = (*x[:2], *(floor for floor, *_ in ranges))
    legal = len(output) == 4 and output[:2] == x[:2]
    legal = legal and all(_is_among(n, counts) for n, counts in zip(output[2:], ranges, strict=True))
    sides_of = [f"{counts[0]!r}..{counts[-1]!r}" for counts in ranges]
    expected = f"an output ({x[0]}, {x[1]}, {', '.join(sides_of)})"
    legal = legal and all(d >= 1 for d in output)
    require(legal, node, expected, output, "check kernel, stride and padding")
    _check_windows_see_input(node, x, output)
    return output


def _is_among(windows: int, counts: Sequence[int]) -> bool:
    """Is a number of windows between these? One known at the call is one of them."""
    return (
        windows in counts
        if is_open(windows) or is_open(tuple(counts))
        else counts[0] <= windows <= counts[-1]
    )


def _check_windows_see_input(node: Pool2d, x: Shape, output: Shape) -> None:
    counts_padding = node.kind == "avg" and node.count_include_pad
    blind = find_blind_window(
        x[2:], output[2:], node.kernel, node.stride, node.dilation, node.padding, counts_padding
    )
    require(blind is None, node, "a pixel in every window", f"none in window {blind}", "reduce the padding")


def find_blind_window(
    size: Shape, windows: Shape, kernel: Pair, stride: Pair, dilation: Pair, padding: Sides, padded: bool
) -> int | None:
    """The first window of a pool, along H or W, that sees no pixel: it has no maximum and no mean.

    Parameters
    ----------
    size, windows : Shape
        H and W of the input and of the output.
    padded : bool
        The padding is seen too.
    """
    for axis in (0, 1):
        before, after = padding[axis], padding[axis + 2]
        if isinstance(size[axis], Size):
            if not padded and not _always_see(
                size[axis], windows[axis], kernel[axis], stride[axis], dilation[axis], before, after
            ):
                return 0
            continue
        low, high = (-before, size[axis] + after) if padded else (0, size[axis])
        for window in range(windows[axis]):
            start = window * stride[axis] - before
            taps = range(start, start + kernel[axis] * dilation[axis], dilation[axis])
            if not any(low <= tap < high for tap in taps):
                return window
    return None


def _always_see(
    size: int, windows: int, kernel: int, stride: int, dilation: int, before: int, after: int
) -> bool:
    """Has every window a pixel, however many there are: the first one, and the last one?"""
    floor, _ = _count_windows(size, kernel, stride, dilation, before, after)
    past = after if windows == floor else after + stride - 1
    return before < kernel and past < kernel and (dilation == 1 or before == past == 0)


def _reduce(node: Reduce, x: Shape) -> Shape:
    require(node.axes[-1] < len(x), node, f"axes < {len(x)}", node.axes, "check the axes")
    if node.keepdims:
        return tuple(1 if axis in node.axes else d for axis, d in enumerate(x))
    return tuple(d for axis, d in enumerate(x) if axis not in node.axes)


def _broadcast(node: Node, x: Shape, y: Shape) -> Shape:
    try:
        return broadcast_shapes(x, y)
    except ValueError:
        problem = f"expected shapes that broadcast, {x} with its like, got {y}"
        raise GraphError("verify", describe(node), problem, "reshape one") from None


def _quantised(node: Quantize | Dequantize, x: Shape, scale: Shape, zero: Shape) -> Shape:
    legal = node.axis < max(1, len(x))
    require(legal, node, f"an axis < {len(x)}", node.axis, "check the axis")
    each = (x[node.axis],) if x else (1,)
    legal = scale in ((1,), each)
    require(
        legal, node, f"a scale of shape (1,) or {each}", scale, "give one number, or one along the axis"
    )
    require(zero == scale, node, f"a zero point of the scale's shape {scale}", zero, "broadcast it")
    return x


def widest_pad(length: int, mode: PadMode) -> float:
    """How wide the padding of an axis can be."""
    if mode in ("constant", "edge"):
        return math.inf
    return length - 1 if mode == "reflect" else length


def _concat(node: Concat, inputs: list[Shape]) -> Shape:
    first = inputs[0]
    require(node.axis < len(first), node, f"an axis < {len(first)}", node.axis, "check the axis")
    before, after = first[: node.axis], first[node.axis + 1 :]
    for shape in inputs[1:]:
        legal = len(shape) == len(first) and (shape[: node.axis], shape[node.axis + 1 :]) == (before, after)
        require(legal, node, f"inputs equal to {first} but in axis {node.axis}", shape, "check the inputs")
    return (*before, sum(shape[node.axis] for shape in inputs), *after)


def _slice(node: Slice, x: Shape) -> Shape:
    require(node.axis < len(x), node, f"an axis < {len(x)}", node.axis, "check the axis")
    last = node.end - 1 if node.step > 0 else node.begin
    most = x[node.axis] - 1
    require(last <= most, node, f"elements up to {most}", last, "normalise the bounds")
    size = largest(0, -(-(node.end - node.begin) // node.step))
    return (*x[: node.axis], size, *x[node.axis + 1 :])


def _reshape(node: Reshape, x: Shape, output: Shape | None) -> Shape:
    if output is None:
        raise _unknown_output(node)
    require(prod(output) == prod(x), node, f"a shape of {prod(x)} elements", output, "check the shape")
    return output


def _norm(node: Node, epsilon: float, x: Shape, size: int, scales: list[Shape]) -> Shape:
    require(0 <= epsilon < math.inf, node, "an epsilon ≥ 0", epsilon, "see graph/ops.py")
    for role, shape in zip(node.weights, scales, strict=False):
        require(prod(shape) == size, node, f"a {role} of {size} numbers", shape, "reshape it")
    return x


def _resize(node: Resize, x: Shape, output: Shape | None) -> Shape:
    _require_rank(node, x, 4)
    if output is None:
        if node.scales is None:
            raise GraphError(
                "verify", describe(node), "expected the output's shape or scales, got neither", "give one"
            )
        output = (x[0], x[1], *(int(d * s) for d, s in zip(x[2:], node.scales, strict=True)))
    legal = len(output) == 4 and output[:2] == x[:2] and all(d >= 1 for d in output)
    require(legal, node, f"an output ({x[0]}, {x[1]}, H ≥ 1, W ≥ 1)", output, "resize H and W only")
    if node.scales is not None:
        near = all(abs(d * s - o) <= 1 for d, s, o in zip(x[2:], node.scales, output[2:], strict=True))
        require(near, node, f"sizes that fit the scales {node.scales}", output[2:], "leave scales out")
    return output
