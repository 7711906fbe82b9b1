"""Ops on windows that TVM's frontend lacks: Col2Im, DeformConv, and where MaxPool found what it gives."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx

from convoy.relax.checks import check
from convoy.relax.dataflow import is_constant
from convoy.relax.importer.idioms.definitions import static_shape
from convoy.relax.importer.late import expect_least
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.pool import convert_pool
from convoy.relax.importer.reshape import read_whole
from convoy.relax.importer.same import least_of, pad_map
from convoy.relax.importer.sizes import is_late
from convoy.relax.importer.sizes.algebra import Ratio

BEYOND = 2**62
"""Added to the places of pixels that are not the largest."""


def convert_max_pool(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """With a second output the places of the largest pixels, counted through the whole tensor."""
    if attrs["tvm_custom"]["num_outputs"] == 1:
        return convert_pool(bb, inputs, attrs)
    padded = x = inputs[0]
    ones = [1] * len(attrs["kernel_shape"])
    pads = [*(attrs.get("pads") or [0] * (2 * len(ones)))]
    fronts: list[Any] = pads[: len(ones)]
    if attrs.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):  # its sizes open
        padded, fronts = pad_map(bb, x, attrs, least_of(x))
        pads = [0] * len(pads)
        attrs.pop("ceil_mode", None)  # SAME says how many windows there are
    else:
        convert_pool(bb, inputs, attrs)
        pads = [*(attrs.get("pads") or pads)]
    kernel = [*attrs["kernel_shape"]]
    strides, dilations = [*attrs.get("strides", ones)], [*attrs.get("dilations", ones)]
    pool = getattr(relax.op.nn, f"max_pool{len(kernel)}d")
    best = bb.emit(pool(padded, kernel, strides, pads, dilations, bool(attrs.get("ceil_mode", 0))))
    places = bb.emit_te(_places, x, best, relax.ShapeExpr(fronts), kernel, strides, dilations)
    if attrs.get("storage_order", 0):
        places = bb.emit_te(_turn, places, relax.ShapeExpr(list(x.ty.shape.values[2:])))
    return relax.Tuple([best, places])


def _places(
    x: te.Tensor, best: te.Tensor, fronts: Any, kernel: Any, strides: Any, dilations: Any
) -> te.Tensor:
    """The first pixel of a window that is as large as its largest."""
    sizes, taps = x.shape[2:], [te.reduce_axis((0, int(k)), name=f"k{i}") for i, k in enumerate(kernel)]

    def at(n: Any, c: Any, *out: Any) -> Any:
        pixel = [
            o * int(s) - p + k * int(d)
            for o, s, p, k, d in zip(out, strides, fronts, taps, dilations, strict=True)
        ]
        inside = tirx.all(*(b for p, d in zip(pixel, sizes, strict=True) for b in (p >= 0, p < d)))
        flat = n * x.shape[1] + c
        for p, d in zip(pixel, sizes, strict=True):
            flat = flat * d + p
        found = tirx.if_then_else(inside, x(n, c, *pixel), tirx.min_value(x.dtype)) == best(n, c, *out)
        other = tirx.Select(inside, flat, tirx.IntImm("int64", BEYOND // 2)) + tirx.IntImm("int64", BEYOND)
        return te.min(tirx.Select(tirx.all(inside, found), flat, other), axis=taps)

    found = te.compute(best.shape, at, name="found")
    # of nothing but -inf or NaN none is the largest, and the first stands for it
    return te.compute(
        best.shape, lambda *i: tirx.floormod(found(*i), tirx.IntImm("int64", BEYOND)), name="places"
    )


def _turn(places: te.Tensor, sizes: Any) -> te.Tensor:
    """Places in images whose rows are counted fastest."""
    whole = prod(sizes, start=tirx.IntImm("int64", 1))

    def at(*i: Any) -> Any:
        rest, turned = tirx.floormod(places(*i), whole), tirx.IntImm("int64", 0)
        step = whole
        for d in reversed(sizes):
            step = tirx.floordiv(step, d)
            turned += tirx.floormod(rest, d) * step
            rest = tirx.floordiv(rest, d)
        return places(*i) - tirx.floormod(places(*i), whole) + turned

    return te.compute(places.shape, at, name="turned")


def convert_max_unpool(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Pixels back where they were found, in a map whose sizes are open; the frontend's own for others."""
    x, places, kernel = inputs[0], inputs[1], attrs["kernel_shape"]
    sizes, pads = bb.algebra.sizes(x), attrs.get("pads") or [0] * (2 * len(kernel))
    if (
        (len(inputs) > 2 and inputs[2] is not None)
        or sizes is None
        or all(isinstance(d, int) for d in sizes)
    ):
        return None
    made = sizes[:2]
    for i, (d, k, s) in enumerate(
        zip(sizes[2:], kernel, attrs.get("strides", [1] * len(kernel)), strict=True)
    ):
        grown = bb.algebra.multiply(bb.algebra.subtract(d, 1), s)
        made.append(bb.algebra.add(grown, k - pads[i] - pads[i + len(kernel)]))
    dtype = str(x.ty.dtype)
    zeros = bb.emit(relax.op.zeros(relax.ShapeExpr([bb.algebra.product(made)]), dtype))
    count = relax.ShapeExpr([bb.algebra.product(sizes)])
    flat = [bb.emit(relax.op.reshape(i, count)) for i in (places, x)]
    filled = bb.emit(relax.op.scatter_elements(zeros, *flat, axis=0))
    return relax.op.reshape(filled, relax.ShapeExpr(made))


def convert_col2im(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Sums of the pixels of windows, each where it was taken."""
    x, image, block = inputs[0], read_whole(inputs[1]), read_whole(inputs[2])
    if image is None or block is None or not all(isinstance(b, int) for b in block):
        raise NodeError(
            "expected a known window, and an image whose sizes are known at a call", "export it so"
        )
    axes = len(block)
    strides, dilations, pads = (
        attrs.get(n, [d] * axes) for n, d in (("strides", 1), ("dilations", 1), ("pads", 0))
    )
    pads = pads if len(pads) == 2 * axes else [0] * (2 * axes)
    expect_least(bb, [size for size in image if is_late(size)])
    _, rows, columns = bb.algebra.sizes(x)
    padding = [before + after for before, after in zip(pads[:axes], pads[axes:], strict=True)]
    along = zip(image, block, strides, padding, dilations, strict=True)
    _expect(bb, [columns], [bb.algebra.product([_windows(bb.algebra, *each) for each in along])])
    if isinstance(rows, int) and rows % prod(block):
        raise NodeError(f"expected channels of {prod(block)} pixels, got {rows} rows", "give it that shape")

    def compute(x: te.Tensor, sizes: Any) -> te.Tensor:
        counts = [
            tirx.floordiv(size + pads[i] + pads[axes + i] - ((block[i] - 1) * dilations[i] + 1), strides[i])
            + 1
            for i, size in enumerate(sizes)
        ]
        taps = [te.reduce_axis((0, b), name=f"k{i}") for i, b in enumerate(block)]
        channels = tirx.floordiv(x.shape[1], prod(block))

        def at(n: Any, c: Any, *out: Any) -> Any:
            from_ = [o + pads[i] - k * dilations[i] for i, (o, k) in enumerate(zip(out, taps, strict=True))]
            windows = [tirx.floordiv(f, s) for f, s in zip(from_, strides, strict=True)]
            hits = [tirx.floormod(f, s) == 0 for f, s in zip(from_, strides, strict=True)]
            hits += [b for w, count in zip(windows, counts, strict=True) for b in (w >= 0, w < count)]
            row, column = c, tirx.IntImm("int64", 0)
            for k, b, w, count in zip(taps, block, windows, counts, strict=True):
                row, column = row * b + k, column * count + w
            return te.sum(
                tirx.if_then_else(tirx.all(*hits), x(n, row, column), tirx.const(0, x.dtype)), axis=taps
            )

        return te.compute((x.shape[0], channels, *sizes), at, name="col2im")

    return bb.emit_te(compute, x, relax.ShapeExpr(image), primfunc_name_hint="col2im")


def convert_deform_conv(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """Pixels between others, one for each tap of a window, and a convolution of one pixel over them."""
    x, weight, offset, bias, mask = [*inputs, None, None][:5]
    shape = static_shape(weight)
    if x.ty.ndim != 4 or shape is None or str(x.ty.dtype) != "float32":
        raise NodeError("expected float32 images, and weights of a known shape", "export it so")
    taps, group = shape[2] * shape[3], attrs.get("group", 1)
    how = [attrs.get("strides", [1, 1]), attrs.get("pads", [0] * 4), attrs.get("dilations", [1, 1])]
    sampled = [offset] if mask is None else [offset, mask]
    channels = shape[1] * group
    entries = attrs.get("offset_group", 1) * taps
    n, c, *sides = bb.algebra.sizes(x)
    ends = [
        _windows(bb.algebra, side, *along)
        for side, *along in zip(sides, shape[2:], *_by_axis(*how), strict=True)
    ]
    _expect(bb, [c], [channels])
    for given, rows in zip(sampled, (2 * entries, entries), strict=False):
        _expect(bb, bb.algebra.sizes(given), [n, rows, *ends])

    def compute(x: te.Tensor, offset: te.Tensor, *mask: te.Tensor) -> te.Tensor:
        return _sample(x, offset, mask, shape[2:], channels // attrs.get("offset_group", 1), *how)

    columns = bb.emit_te(compute, x, *sampled, primfunc_name_hint="deformed_columns")
    flat = [shape[0], shape[1] * taps, 1, 1]
    if is_constant(weight):
        kernel = relax.const(weight.value.numpy().reshape(flat))
    else:
        kernel = bb.emit(relax.op.reshape(weight, flat))
    y = relax.op.nn.conv2d(columns, kernel, groups=group)
    if bias is None:
        return y
    return relax.op.add(bb.emit(y), bb.emit(relax.op.reshape(bias, [1, shape[0], 1, 1])))


def _by_axis(strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int]) -> list[Sequence[int]]:
    return [strides, [before + after for before, after in zip(pads[:2], pads[2:], strict=True)], dilations]


def _windows(algebra: Any, size: Any, taps: int, stride: int, padding: int, dilation: int) -> Any:
    span = algebra.add(size, padding - (taps - 1) * dilation - 1)
    return algebra.add(algebra.round_down(Ratio(span, stride)), 1)


def _expect(bb: Any, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """What lies beyond a tensor would be read else: refused here, or at the call."""
    apart = [(f, w) for f, w in zip(found, wanted, strict=True) if not bb.algebra.same(f, w)]
    if any(isinstance(f, int) and isinstance(w, int) for f, w in apart):
        raise NodeError(f"expected a tensor of {list(wanted)}, got {list(found)}", "give it that shape")
    if apart:
        check(bb, *zip(*apart, strict=True))


def _sample(
    x: te.Tensor, offset: te.Tensor, mask: Sequence[te.Tensor], kernel: Sequence[int], shared: int,
    strides: Sequence[int], pads: Sequence[int], dilations: Sequence[int],
) -> te.Tensor:  # fmt: skip
    """[N, C · taps, height, width]: each channel at each tap, moved by an offset; zeros lie around x."""
    taps, zero = kernel[0] * kernel[1], tirx.const(0, x.dtype)

    def pixel(n: Any, c: Any, y: Any, x_: Any) -> Any:
        inside = tirx.all(y >= 0, y < x.shape[2], x_ >= 0, x_ < x.shape[3])
        return tirx.if_then_else(inside, x(n, c, y, x_), zero)

    def at(n: Any, row: Any, i: Any, j: Any) -> Any:
        channel, tap = tirx.floordiv(row, taps), tirx.floormod(row, taps)
        entry = tirx.floordiv(channel, shared) * taps + tap
        steps = (tirx.floordiv(tap, kernel[1]), tirx.floormod(tap, kernel[1]))
        places, firsts, rests = [], [], []
        for axis, (o, step) in enumerate(zip((i, j), steps, strict=True)):
            grid = o * strides[axis] - pads[axis] + step * dilations[axis]
            place = grid.astype("float32") + offset(n, entry * 2 + axis, i, j)
            size = x.shape[2 + axis].astype("float32")
            place = tirx.max(tirx.min(place, size + tirx.const(1, "float32")), tirx.const(-2, "float32"))
            places.append(place)
            firsts.append(tirx.floor(place).astype("int64"))
            rests.append(place - tirx.floor(place))
        (top, left), (down, right) = firsts, rests
        one = tirx.const(1, "float32")
        upper = pixel(n, channel, top, left) * (one - right) + pixel(n, channel, top, left + 1) * right
        lower = (
            pixel(n, channel, top + 1, left) * (one - right) + pixel(n, channel, top + 1, left + 1) * right
        )
        found = upper * (one - down) + lower * down
        return found * mask[0](n, entry, i, j) if mask else found

    return te.compute((x.shape[0], x.shape[1] * taps, *offset.shape[2:]), at, name="sample")
