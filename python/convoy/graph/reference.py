"""Any ``Graph`` computed in NumPy: the oracle of all tests.

Written to be read beside the formulas of ``ops``; windows are summed tap by tap, so that a large
network still takes seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from convoy.errors import GraphError
from convoy.graph.coordinates import bilinear_weights, nearest_indices
from convoy.graph.dtypes import ARRAYS
from convoy.graph.graph import Graph
from convoy.graph.messages import describe
from convoy.graph.ops import (
    Attention,
    Binary,
    ChannelShuffle,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Curve,
    Dequantize,
    GridSample,
    GroupNorm,
    LayerNorm,
    Lrn,
    MatMul,
    Node,
    Pad,
    Pool2d,
    Product,
    Quantize,
    Recurrent,
    Reduce,
    Reshape,
    Resize,
    Rotate,
    Slice,
    Softmax,
    Transpose,
    Unary,
)
from convoy.graph.quantised import dequantize, quantize
from convoy.graph.recurrences import run_recurrent
from convoy.graph.views import View, read_view

Values = NDArray[Any]
"""Arrays of the dtype ``run`` was asked for, float32 or float64, or of a type that is not float32."""


def run(graph: Graph, inputs: Sequence[Values], dtype: DTypeLike = np.float32) -> list[Values]:
    """Compute the graph's outputs, image by image.

    Parameters
    ----------
    inputs : Sequence[Values]
        One array per graph input, ``[images, ...]``; images is 1 where the batch is 1, and the input's
        whole shape is then the tensor's.
    dtype : DTypeLike
        Float32 or float64, in which what is float32 is computed.

    Returns
    -------
    list[Values]
        One array of ``dtype``, or of its own, per graph output, ``[images, ...]``.

    Raises
    ------
    GraphError
        If the inputs do not fit the graph.
    """
    arrays = [_held(name, array, graph, dtype) for name, array in zip(graph.inputs, inputs, strict=False)]
    images = _count_images(graph, arrays)
    constants = {name: _held(name, array, graph, dtype) for name, array in graph.constants.items()}
    if graph.batch == 1:
        return _run_image(graph, arrays, constants)
    results = [_run_image(graph, [a[i : i + 1] for a in arrays], constants) for i in range(images)]
    return [np.concatenate(parts) for parts in zip(*results, strict=True)]


def _held(name: str, array: Values, graph: Graph, dtype: DTypeLike) -> Values:
    """What a tensor is computed with: a float32 one with ``dtype``, any other with its own."""
    own = graph.dtype(name)
    return np.asarray(array, dtype if own == "float32" else ARRAYS[own])


def evaluate(graph: Graph, inputs: Sequence[Values], dtype: DTypeLike = np.float32) -> dict[str, Values]:
    """Every tensor of one image by name, the inner ones too: to find where two answers part."""
    given = {**graph.constants, **dict(zip(graph.inputs, inputs, strict=True))}
    values = {name: _held(name, array, graph, dtype) for name, array in given.items()}
    for node in graph.nodes:
        values[node.output] = compute(
            node, [values[name] for name in node.inputs], graph.shape(node.output)
        )
    return values


def compute(node: Node, inputs: Sequence[Values], shape: tuple[int, ...]) -> Values:
    """The output of one node, of the given shape, in the dtype of its inputs, or what quantises makes."""
    x = inputs[0]
    with np.errstate(all="ignore"):
        match node:
            case Conv2d():
                y = _conv2d(node, x, *inputs[1:])
            case ConvTranspose2d():
                y = _conv_transpose2d(node, x, *inputs[1:])
            case MatMul():
                y = _matmul(x, *inputs[1:])
            case Product(a=a, b=b, scale=scale):
                y = _write(scale * (read_view(x, a) @ read_view(inputs[1], b)), node.y, shape)
            case Rotate():
                turned = _rotate(*map(read_view, inputs, (node.x, node.cos, node.sin)))
                y = _write(turned, node.y, shape)
            case Attention():
                y = _write(_attention(node, *inputs), node.y, shape)
            case Recurrent():
                y = run_recurrent(node, _activate, x, *inputs[1:])
            case Pool2d():
                y = _pool2d(node, x, shape)
            case Reduce(kind=kind, axes=axes, keepdims=keepdims):
                y = _REDUCTIONS[kind](x, axis=axes, keepdims=keepdims)
            case Unary(kind=kind, a=a, b=b):
                y = _UNARY[kind](x, a, b)
            case Quantize(axis=axis):
                return quantize(x, inputs[1], inputs[2], axis)
            case Dequantize(axis=axis):
                return dequantize(x, inputs[1], inputs[2], axis)
            case Binary(kind=kind):
                y = _BINARY[kind](x, inputs[1])
            case Concat(axis=axis):
                y = np.concatenate(inputs, axis)
            case Slice(axis=axis, begin=begin, end=end, step=step):
                y = x[(slice(None),) * axis + (slice(begin, end if end >= 0 else None, step),)]
            case Reshape():
                y = x.reshape(shape)
            case Transpose(perm=perm):
                y = x.transpose(perm)
            case ChannelShuffle(groups=groups):
                _, c, h, w = x.shape
                y = x.reshape(1, groups, c // groups, h, w).swapaxes(1, 2).reshape(x.shape)
            case Pad(widths=widths, mode="constant", value=value):
                y = np.pad(x, widths, constant_values=value)
            case Pad(widths=widths, mode=mode):
                y = np.pad(x, widths, mode)
            case Resize():
                y = _resize(node, x, shape)
            case GridSample():
                y = _grid_sample(node, x, inputs[1])
            case Softmax(axis=axis, log=log):
                y = _softmax(x, axis, log)
            case Lrn():
                y = _lrn(node, x)
            case LayerNorm(axis=axis, epsilon=epsilon, centred=centred):
                y = _norm(x, math.prod(x.shape[:axis]), epsilon, centred)
                y = _scale(y, [array.reshape(x.shape[axis:]) for array in inputs[1:]])
            case GroupNorm(groups=groups, epsilon=epsilon):
                y = _norm(x, groups, epsilon)
                y = _scale(y, [array.reshape(-1, 1, 1) for array in inputs[1:]])
            case _:
                raise GraphError(
                    "reference", describe(node), "expected an op of graph/ops.py, got another", "add it"
                )
    return np.ascontiguousarray(y, x.dtype)


def _count_images(graph: Graph, arrays: Sequence[Values]) -> int:
    if len(arrays) != len(graph.inputs):
        problem = f"expected {len(graph.inputs)} inputs, got {len(arrays)}"
        raise GraphError("reference", "graph", problem, "pass one array per graph input")
    images = graph.batch if graph.batch is not None else (len(arrays[0]) if arrays else 1)
    for name, array in zip(graph.inputs, arrays, strict=True):
        shape = graph.shape(name)
        expected = shape if graph.batch == 1 else (images, *shape[1:])
        if array.shape != expected:
            problem = f"expected shape {expected}, got {array.shape}"
            raise GraphError("reference", f"input %{name}", problem, "pass an array of that shape")
    return images


def _run_image(graph: Graph, inputs: list[Values], constants: dict[str, Values]) -> list[Values]:
    """One image, each tensor dropped after its last use."""
    last = {name: node for node in graph.nodes for name in node.inputs}
    values = dict(constants)
    values.update(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        values[node.output] = compute(
            node, [values[name] for name in node.inputs], graph.shape(node.output)
        )
        for name in dict.fromkeys(node.inputs):
            if last[name] is node and name not in graph.outputs:
                del values[name]
    return [values[name] for name in graph.outputs]


def _conv2d(node: Conv2d, x: Values, w: Values, bias: Values | None = None) -> Values:
    """y[o, i, j] = Σ w[o, c, ky, kx] · x[c, i·sh + ky·dh - top, j·sw + kx·dw - left], per group."""
    groups, (out, channels, *kernel) = node.groups, w.shape
    top, left, bottom, right = node.padding
    padded = np.pad(x[0], ((0, 0), (top, bottom), (left, right)))
    size = [
        (padded.shape[1 + a] - (kernel[a] - 1) * node.dilation[a] - 1) // node.stride[a] + 1 for a in (0, 1)
    ]
    weights = _by_tap(w.reshape(groups, out // groups, channels, *kernel))
    y = np.zeros((groups, out // groups, size[0] * size[1]), x.dtype)
    for (ky, kx), rows, columns in _taps(kernel, node.stride, node.dilation, size):
        pixels = padded[:, rows, columns].reshape(groups, channels, -1)
        y += weights[ky, kx] @ pixels
    return _add_bias(y.reshape(1, out, *size), bias)


def _conv_transpose2d(node: ConvTranspose2d, x: Values, w: Values, bias: Values | None = None) -> Values:
    """Each x[c, i, j] adds w[c, o, ky, kx] · x at y[o, i·sh + ky·dh - top, j·sw + kx·dw - left]."""
    groups, (channels, out, *kernel) = node.groups, w.shape
    top, left, bottom, right = node.padding
    size = x.shape[2:]
    full = [
        (size[a] - 1) * node.stride[a] + (kernel[a] - 1) * node.dilation[a] + 1 + node.output_padding[a]
        for a in (0, 1)
    ]
    pixels = x.reshape(groups, channels // groups, -1)
    weights = _by_tap(w.reshape(groups, channels // groups, out, *kernel).swapaxes(1, 2))
    y = np.zeros((groups * out, *full), x.dtype)
    for (ky, kx), rows, columns in _taps(kernel, node.stride, node.dilation, size):
        y[:, rows, columns] += (weights[ky, kx] @ pixels).reshape(groups * out, *size)
    return _add_bias(y[None, :, top : full[0] - bottom, left : full[1] - right], bias)


def _by_tap(w: Values) -> Values:
    """[..., KH, KW] → [KH, KW, ...], contiguous: NumPy hands only such matrices to BLAS."""
    return np.ascontiguousarray(np.moveaxis(w, (-2, -1), (0, 1)))


def _taps(
    kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int], count: Sequence[int]
) -> Iterator[tuple[tuple[int, int], slice, slice]]:
    """Each tap of a window, with the rows and columns it touches in ``count`` windows a side."""
    for ky in range(kernel[0]):
        for kx in range(kernel[1]):
            starts = (ky * dilation[0], kx * dilation[1])
            rows, columns = (
                slice(start, start + (n - 1) * s + 1, s)
                for start, s, n in zip(starts, stride, count, strict=True)
            )
            yield (ky, kx), rows, columns


def _add_bias(y: Values, bias: Values | None) -> Values:
    return y if bias is None else y + bias.reshape(-1, 1, 1)


def _matmul(x: Values, w: Values, bias: Values | None = None) -> Values:
    y = x @ w
    return y if bias is None else y + bias


def _rotate(x: Values, cos: Values, sin: Values) -> Values:
    return np.asarray(x * cos + np.stack((-x[..., 1, :], x[..., 0, :]), -2) * sin)


def _attention(node: Attention, q: Values, k: Values, v: Values, mask: Values | None = None) -> Values:
    scores = node.scale * (read_view(q, node.q) @ read_view(k, node.k).swapaxes(-2, -1))
    if mask is not None and node.mask is not None:
        scores = scores + read_view(mask, node.mask)
    if node.diagonal is not None:
        m, n = scores.shape[-2:]
        visible = np.tri(m, n, node.diagonal, dtype=bool)
        scores = np.where(visible, scores, -np.inf)
    powers = _softmax(scores, -1, log=False)
    return np.asarray((np.nan_to_num(powers, nan=0) if node.safe else powers) @ read_view(v, node.v))


def _write(values: Values, view: View, shape: tuple[int, ...]) -> Values:
    """The tensor of this shape whose view the values are."""
    flat = np.empty(math.prod(shape), values.dtype)
    strides = [step * flat.itemsize for step in view.strides]
    np.lib.stride_tricks.as_strided(flat[view.offset :], view.shape, strides)[...] = values
    return flat.reshape(shape)


def _pool2d(node: Pool2d, x: Values, shape: tuple[int, ...]) -> Values:
    """The maximum over the taps inside the image, or their mean.

    A tap counts in the mean if it lies inside the image, with ``count_include_pad`` inside the
    padded image; a window of ceil mode may reach beyond both.  The maximum is taken from -inf on, tap
    by tap in row-major order, a NaN forgetting the taps before it, as in ONNX Runtime.
    """
    top, left, bottom, right = node.padding
    size = shape[2:]
    overhang = [
        (size[a] - 1) * node.stride[a]
        + (node.kernel[a] - 1) * node.dilation[a]
        + 1
        - node.padding[a]
        - x.shape[2 + a]
        for a in (0, 1)
    ]
    around = ((0, 0), (top, max(bottom, overhang[0])), (left, max(right, overhang[1])))
    padded = np.pad(x[0], around)
    counted = np.zeros(padded.shape[1:], x.dtype)
    if node.count_include_pad and node.kind == "avg":
        counted[: top + x.shape[2] + bottom, : left + x.shape[3] + right] = 1
    else:
        counted[top : top + x.shape[2], left : left + x.shape[3]] = 1
    y = np.full(shape[1:], -np.inf if node.kind == "max" else 0, x.dtype)
    count = np.zeros(size, x.dtype)
    for _, rows, columns in _taps(node.kernel, node.stride, node.dilation, size):
        pixels = padded[:, rows, columns]
        inside = counted[rows, columns]
        y = np.where((inside > 0) & ~(pixels < y), pixels, y) if node.kind == "max" else y + pixels
        count += inside
    return (y if node.kind == "max" else y / count)[None]


def _resize(node: Resize, x: Values, shape: tuple[int, ...]) -> Values:
    for axis in (0, 1):
        size, output = x.shape[2 + axis], shape[2 + axis]
        if node.mode == "nearest":
            x = np.take(x, nearest_indices(node, axis, size, output), 2 + axis)
        else:
            index, weight = bilinear_weights(node, axis, size, output)
            weight = weight.astype(x.dtype).reshape(-1, *(1,) * (1 - axis))
            low, high = (np.take(x, i, 2 + axis) for i in (index, np.minimum(index + 1, size - 1)))
            x = (1 - weight) * low + weight * high
    return x


def _grid_sample(node: GridSample, x: Values, grid: Values) -> Values:
    height, width = x.shape[2:]
    row, column = (_places(node, grid[0, i], size) for i, size in ((1, height), (0, width)))
    if node.mode == "nearest":
        return _pixels(x, row, column)
    top, left = np.floor(row), np.floor(column)
    down, right = row - top, column - left
    above, below = (
        (1 - right) * _pixels(x, at, left) + right * _pixels(x, at, left + 1) for at in (top, top + 1)
    )
    return np.asarray((1 - down) * above + down * below)


def _places(node: GridSample, at: Values, size: int) -> Values:
    """Places along an axis: between pixels, or the nearest ones, which are mirrored as such."""
    low, span = (0.0, size - 1) if node.corners else (-0.5, size)
    place = (at + 1) / 2 * (size - 1) if node.corners else ((at + 1) * size - 1) / 2
    place = np.where(np.abs(place) <= np.finfo(np.float32).max, place, low)
    if node.mode == "nearest":
        place = np.rint(place)
    if node.padding == "reflection":
        turns, rest = np.divmod(np.abs(place - low), span) if span else (place * 0, place * 0)
        place = low + np.where(turns % 2 == 0, rest, span - rest)
    return place if node.padding == "zeros" else place.clip(0, size - 1)


def _pixels(x: Values, row: Values, column: Values) -> Values:
    """x at whole places; 0 outside."""
    height, width = x.shape[2:]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    rows, columns = (np.where(inside, at, 0).astype(int) for at in (row, column))
    return np.where(inside, x[:, :, rows, columns], 0)


def _softmax(x: Values, axis: int, log: bool) -> Values:
    shifted = x - x.max(axis, keepdims=True)
    powers = np.exp(shifted)
    total = powers.sum(axis, keepdims=True)
    return np.asarray(shifted - np.log(total) if log else powers / total)


def _lrn(node: Lrn, x: Values) -> Values:
    """The window of channel c is [c - ⌊(size-1)/2⌋, c + ⌈(size-1)/2⌉]."""
    before, channels = (node.size - 1) // 2, x.shape[1]
    squares = np.pad(x * x, ((0, 0), (before, node.size - 1 - before), (0, 0), (0, 0)))
    total = np.zeros_like(x)
    for offset in range(node.size):
        total += squares[:, offset : offset + channels]
    return np.asarray(x / (node.bias + node.alpha / node.size * total) ** node.beta)


def _norm(x: Values, rows: int, epsilon: float, centred: bool = True) -> Values:
    """(x - mean) / √(variance + epsilon), of each of ``rows`` equal runs of elements."""
    flat = x.reshape(rows, -1)
    flat = flat - flat.mean(1, keepdims=True) if centred else flat
    variance = (flat * flat).mean(1, keepdims=True)
    return np.asarray(flat / np.sqrt(variance + epsilon), x.dtype).reshape(x.shape)


def _scale(y: Values, scales: Sequence[Values]) -> Values:
    """y · gamma + beta, as far as they are given."""
    for operation, array in zip((np.multiply, np.add), scales, strict=False):
        y = operation(y, array)
    return y


def _sigmoid(x: Values) -> Values:
    return np.asarray(1 / (1 + np.exp(-x)))


def _hardsigmoid(x: Values, a: float, b: float) -> Values:
    return np.asarray(np.minimum(np.maximum(a * x + b, 0), 1))


_erf = np.vectorize(math.erf, otypes=[np.float64])

_UNARY: dict[str, Callable[[Values, float, float], Values]] = {
    "relu": lambda x, a, b: np.maximum(x, 0),
    "clip": lambda x, a, b: np.minimum(np.maximum(x, a), b),
    "leaky_relu": lambda x, a, b: np.where(x < 0, a * x, x),
    "sigmoid": lambda x, a, b: _sigmoid(x),
    "tanh": lambda x, a, b: np.tanh(x),
    "silu": lambda x, a, b: x * _sigmoid(x),
    "hardswish": lambda x, a, b: x * _hardsigmoid(x, 1 / 6, 1 / 2),
    "hardsigmoid": _hardsigmoid,
    "gelu": lambda x, a, b: x / 2 * (1 + _erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x, a, b: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "exp": lambda x, a, b: np.exp(x),
    "log": lambda x, a, b: np.log(x),
    "sqrt": lambda x, a, b: np.sqrt(x),
    "rsqrt": lambda x, a, b: 1 / np.sqrt(x),
    "abs": lambda x, a, b: np.abs(x),
    "neg": lambda x, a, b: -x,
    "erf": lambda x, a, b: _erf(x),
    "square": lambda x, a, b: x * x,
    "softplus": lambda x, a, b: np.logaddexp(0, x),
    "elu": lambda x, a, b: np.where(x > 0, x, a * np.expm1(x)),
    "mish": lambda x, a, b: x * np.tanh(np.logaddexp(0, x)),
    "round": lambda x, a, b: np.rint(x),
    "floor": lambda x, a, b: np.floor(x),
    "ceil": lambda x, a, b: np.ceil(x),
    "reciprocal": lambda x, a, b: 1 / x,
    "sin": lambda x, a, b: np.sin(x),
    "cos": lambda x, a, b: np.cos(x),
    "atan": lambda x, a, b: np.arctan(x),
}
"""round is to nearest, ties to even."""


def _activate(curve: Curve, x: Values) -> Values:
    return _UNARY[curve.kind](x, curve.a, curve.b)


_BINARY: dict[str, Callable[[Values, Values], Values]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "coalesce": lambda x, y: np.where(np.isnan(x), y, x),
}

_REDUCTIONS: dict[str, Callable[..., Values]] = {
    "mean": np.mean,
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
}
