"""Convolutions of volumes of which only a call knows how deep they are: images, one for each depth.

The slices that a kernel of depth K reads lie side by side as channels of one image [N·D, C·K, H, W], so the
convolution is a 2-D one of as many images.  Of a kernel of one depth or one pixel nothing lies side by
side: images are slices then, or each slice a row of one image.  A transposed one makes K slices of each,
side by side, which are put where they belong.  Of a known depth both are left whole: a region takes them
apart without copies (``graph/volumes.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx

from convoy.relax.dataflow import is_constant, read_array
from convoy.relax.importer.late import expect_least
from convoy.relax.importer.read import Array
from convoy.relax.importer.sizes.algebra import Ratio


def convert_open_depth(bb: Any, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """A Conv of open depth with constant weights; None for any other."""
    x, weight = inputs[:2]
    sizes = bb.algebra.sizes(x)
    if sizes is None or len(sizes) != 5 or isinstance(sizes[2], int):
        return None
    if any(bias is not None for bias in inputs[2:]):
        return None
    kind = attrs.get("auto_pad", b"NOTSET")
    if not is_constant(weight) or kind not in (b"NOTSET", b"VALID"):
        return None
    taps = read_array(weight)
    if not taps.shape[0]:  # a result of no channels
        return None
    pads = [0] * 6 if kind == b"VALID" else attrs.get("pads", [0] * 6)
    strides, dilations = (attrs.get(name, [1] * 3) for name in ("strides", "dilations"))
    outputs, channels, depth, *window = taps.shape
    deep = (depth, pads[0], pads[3], strides[0], dilations[0])
    if [*window, *pads[1:3], *pads[4:], *strides[1:]] == [1, 1, 0, 0, 0, 0, 1, 1]:
        return _convolve_rows(bb, x, taps, attrs.get("group", 1), *deep)
    images, count = _slices(bb, x) if deep == (1, 0, 0, 1, 1) else _side_by_side(bb, x, *deep)
    made = bb.emit(
        relax.op.nn.conv2d(
            images,
            relax.const(taps.reshape(outputs, channels * depth, *window), str(taps.dtype)),
            strides=strides[1:],
            padding=[*pads[1:3], *pads[4:]],
            dilation=dilations[1:],
            groups=attrs.get("group", 1),
        )
    )
    apart = bb.emit(relax.op.reshape(made, [sizes[0], count, *made.ty.shape.values[1:]]))
    return relax.op.permute_dims(apart, [0, 2, 1, 3, 4])


def convert_open_depth_transposed(bb: Any, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """A ConvTranspose of open depth with constant weights; None for any other."""
    x, weight = inputs[:2]
    sizes = bb.algebra.sizes(x)
    if sizes is None or len(sizes) != 5 or isinstance(sizes[2], int):
        return None
    kind = attrs.get("auto_pad", b"NOTSET")
    if not is_constant(weight) or any(inputs[2:]) or kind not in (b"NOTSET", b"VALID"):
        return None
    taps = read_array(weight)
    if not taps.size:
        return None
    batch, channels, size, *image = sizes
    pads = [0] * 6 if kind == b"VALID" else attrs.get("pads", [0] * 6)
    strides, dilations = (attrs.get(name, [1] * 3) for name in ("strides", "dilations"))
    longer, groups = attrs.get("output_padding", [0] * 3), attrs.get("group", 1)
    each, depth = taps.shape[1:3]
    slices = bb.emit(relax.op.permute_dims(x, [0, 2, 1, 3, 4]))
    made = bb.emit(
        relax.op.nn.conv2d_transpose(
            bb.emit(relax.op.reshape(slices, [bb.algebra.product([batch, size]), channels, *image])),
            relax.const(taps.reshape(channels, each * depth, *taps.shape[3:]), str(taps.dtype)),
            strides=strides[1:],
            padding=[*pads[1:3], *pads[4:]],
            output_padding=longer[1:],
            dilation=dilations[1:],
            groups=groups,
        )
    )
    image = list(made.ty.shape.values[2:])
    apart = bb.emit(relax.op.reshape(made, [batch, size, each * groups, depth, *image]))
    if (strides[0], dilations[0], longer[0], pads[0], pads[3]) == (depth, 1, 0, 0, 0):
        in_order = bb.emit(relax.op.permute_dims(apart, [0, 2, 1, 3, 4, 5]))
        whole = bb.algebra.product([size, depth])
        return relax.op.reshape(in_order, [batch, each * groups, whole, *image])
    reach = (depth - 1) * dilations[0] + 1 + longer[0] - pads[0] - pads[3]
    last = bb.algebra.product([bb.algebra.subtract(size, 1), strides[0]])
    count = bb.algebra.add(last, reach)
    if reach < 1:
        expect_least(bb, [count], 1)

    def add(made: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, depth), "k")

        def element(n: Any, channel: Any, at: Any, *pixel: Any) -> Any:
            ahead = at + pads[0] - k * dilations[0]
            is_there = tirx.all(ahead >= 0, ahead < size * strides[0], ahead % strides[0] == 0)
            value = made(n, ahead // strides[0], channel, k, *pixel)
            return te.sum(tirx.if_then_else(is_there, value, tirx.const(0, made.dtype)), axis=k)

        return te.compute((batch, each * groups, count, *image), element, "slices")

    return bb.emit_te(add, apart, primfunc_name_hint="slices_added")


def _convolve_rows(
    bb: Any, x: Any, taps: Array, groups: int, depth: int, front: int, back: int, stride: int, dilation: int
) -> Any:
    """A convolution along the depth alone: every slice is a row."""
    algebra, (batch, channels, size, *image) = bb.algebra, bb.algebra.sizes(x)
    count = _count_places(bb, size, depth, front, back, stride, dilation)
    rows = bb.emit(relax.op.reshape(x, [batch, channels, size, algebra.product(image)]))
    made = bb.emit(
        relax.op.nn.conv2d(
            rows,
            relax.const(taps.reshape(*taps.shape[:3], 1), str(taps.dtype)),
            strides=[stride, 1],
            padding=[front, 0, back, 0],
            dilation=[dilation, 1],
            groups=groups,
        )
    )
    return relax.op.reshape(made, [batch, taps.shape[0], count, *image])


def _slices(bb: Any, x: Any) -> tuple[Any, Any]:
    """The slices of a volume as images, and how many of them each volume has."""
    algebra, (batch, channels, size, *image) = bb.algebra, bb.algebra.sizes(x)
    apart = bb.emit(relax.op.permute_dims(x, [0, 2, 1, 3, 4]))
    return bb.emit(relax.op.reshape(apart, [algebra.product([batch, size]), channels, *image])), size


def _count_places(bb: Any, size: Any, depth: int, front: int, back: int, stride: int, dilation: int) -> Any:
    """How many places a kernel has along the depth; a call ends where a volume is less deep than it."""
    least = (depth - 1) * dilation + 1 - front - back
    if least > 1:  # without a slice there is none in the result, either
        expect_least(bb, [size], least)
    reach = bb.algebra.subtract(size, least)
    return bb.algebra.add(bb.algebra.round_down(Ratio(reach, stride)), 1)


def _side_by_side(
    bb: Any, x: Any, depth: int, front: int, back: int, stride: int, dilation: int
) -> tuple[Any, Any]:
    """What a kernel reads at each place as the channels of an image, and how many places there are."""
    algebra, (batch, channels, size, *image) = bb.algebra, bb.algebra.sizes(x)
    count = _count_places(bb, size, depth, front, back, stride, dilation)

    def read(volumes: te.Tensor) -> te.Tensor:
        def element(i: Any, channel: Any, row: Any, column: Any) -> Any:
            at = i % count * stride + channel % depth * dilation - front
            value = volumes[i // count, channel // depth, at, row, column]
            is_inside = tirx.all(at >= 0, at < size)
            return tirx.if_then_else(is_inside, value, tirx.const(0, volumes.dtype))

        return te.compute((algebra.product([batch, count]), channels * depth, *image), element, "slices")

    return bb.emit_te(read, x, primfunc_name_hint="slices_side_by_side"), count
