"""Convolutions of images whose weights a run computes: products of what each window sees and the weights.

So are those of a tracker, whose template is a convolution's weight, and of layers that make weights from
what they see.  Kernels of convolutions want constant weights, and TVM's loop takes up to a hundred times as
long as a product.  Where each channel has a weight of its own, taps are multiplied and added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from tvm import relax

from convoy.relax.importer.late import expect_least
from convoy.relax.importer.sizes.algebra import Ratio
from convoy.relax.importer.slice import as_bounds

MOST_TAPS = 32
"""More than these are a product even where each channel has weights of its own."""
MOST_COLUMNS = 1 << 24
"""Values that are put beside each other for one product; of more, each tap has a product of its own."""
USUAL_PIXELS = 1 << 14
"""In place of a number of pixels that only a call knows."""


def convert_computed_weight(bb: Any, inputs: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """A Conv of images whose weight, of a known shape, depends on an input; None for any other."""
    x, weight = inputs[:2]
    sizes, taps = bb.algebra.sizes(x), bb.algebra.sizes(weight)
    kind = attrs.get("auto_pad", b"NOTSET")
    if sizes is None or taps is None or len(sizes) != 4 or kind not in (b"NOTSET", b"VALID"):
        return None
    if not all(isinstance(n, int) and n > 0 for n in (*taps, sizes[1])) or str(x.ty.dtype) != "float32":
        return None
    groups = attrs.get("group", 1)
    if sizes[1] != taps[1] * groups or taps[0] % groups or not _depends_on_input(bb, weight):
        return None
    pads = [0] * 4 if kind == b"VALID" else attrs.get("pads", [0] * 4)
    if min(pads) < 0:
        return None
    steps = [attrs.get(name, [1, 1]) for name in ("strides", "dilations")]
    image = _image(bb, sizes[2:], taps[2:], pads, *steps)
    if any(isinstance(n, int) and n < 1 for n in image):
        return None  # no convolution
    seen = _seen(bb, x, taps[2:], image, pads, *steps)
    if taps[:2] == [groups, 1] and len(seen) <= MOST_TAPS:
        made = _add_up(bb, seen, weight, taps, sizes[0])
    else:
        made = _multiply(bb, seen, weight, taps, groups, [sizes[0], *image])
    if len(inputs) < 3 or inputs[2] is None:
        return made
    return relax.op.add(bb.emit(made), bb.emit(relax.op.reshape(inputs[2], [1, taps[0], 1, 1])))


def _depends_on_input(bb: Any, expr: Any) -> bool:
    """Whether a run computes it; what is made of constants becomes one."""
    waiting, met = [expr], set()
    while waiting:
        at = waiting.pop()
        match at:
            case relax.Var():
                if at in met:
                    continue
                met.add(at)
                made = bb.lookup_binding(at)
                if made is None:
                    return True
                waiting.append(made)
            case relax.Call():
                waiting.extend(at.args)
            case relax.Tuple():
                waiting.extend(at.fields)
            case relax.TupleGetItem():
                waiting.append(at.tuple_value)
            case relax.If():
                return True
    return False


def _image(
    bb: Any,
    whole: Sequence[Any],
    window: Sequence[int],
    pads: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[Any]:
    """Rows and columns of the result."""
    algebra, image = bb.algebra, []
    for size, taps, before, after, stride, dilation in zip(
        whole, window, pads[:2], pads[2:], strides, dilations, strict=True
    ):
        lacking = (taps - 1) * dilation + 1 - before - after
        if not isinstance(size, int) and lacking > 1:
            expect_least(bb, [size], lacking)
        reach = algebra.subtract(size, lacking)
        image.append(algebra.add(algebra.round_down(Ratio(reach, stride)), 1))
    return image


def _seen(
    bb: Any,
    x: Any,
    window: Sequence[int],
    image: Sequence[Any],
    pads: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[Any]:
    """For each tap the pixels it sees, [N, C, rows, columns]."""
    algebra = bb.algebra
    if any(pads):
        x = bb.emit(relax.op.nn.pad(x, [0, 0, 0, 0, pads[0], pads[2], pads[1], pads[3]], "constant", 0.0))
    seen = []
    for row in range(window[0]):
        for column in range(window[1]):
            begins = [row * dilations[0], column * dilations[1]]
            ends = [
                algebra.add(algebra.add(begin, algebra.multiply(algebra.subtract(n, 1), stride)), 1)
                for begin, n, stride in zip(begins, image, strides, strict=True)
            ]
            cut = relax.op.strided_slice(
                x, [2, 3], as_bounds(begins), as_bounds(ends), list(strides), assume_inbound=True
            )
            seen.append(bb.emit(cut))
    return seen


def _add_up(bb: Any, seen: Sequence[Any], weight: Any, taps: Sequence[int], batch: Any) -> Any:
    apart = bb.emit(relax.op.permute_dims(weight, [2, 3, 1, 0]))
    rows = _for_each_image(bb, bb.emit(relax.op.reshape(apart, [1, len(seen) * taps[0], 1, 1])), batch)
    terms = []
    for tap, pixels in enumerate(seen):
        bounds = [tap * taps[0]], [(tap + 1) * taps[0]]
        of = bb.emit(relax.op.strided_slice(rows, [1], *bounds, [1], assume_inbound=True))
        terms.append(bb.emit(relax.op.multiply(pixels, of)))
    return reduce(lambda a, b: bb.emit(relax.op.add(a, b)), terms)


def _multiply(
    bb: Any, seen: Sequence[Any], weight: Any, taps: Sequence[int], groups: int, sizes: Sequence[Any]
) -> Any:
    batch, *image = sizes
    outputs, channels = taps[:2]
    pixels = bb.algebra.product(image)
    parts = [bb.emit(relax.op.reshape(part, [batch, groups, channels, pixels])) for part in seen]
    counted = pixels if isinstance(pixels, int) else USUAL_PIXELS
    together = len(seen) * groups * channels * counted <= MOST_COLUMNS
    if together and len(seen) > 1:
        parts = [bb.emit(relax.op.concat(parts, axis=2))]
    ordered = bb.emit(relax.op.permute_dims(weight, [0, 2, 3, 1]))
    shape = [1, groups, outputs // groups, len(seen) * channels]
    rows = bb.emit(relax.op.reshape(ordered, shape))
    width = shape[3] // len(parts)
    terms = []
    for number, columns in enumerate(parts):
        bounds = [number * width], [(number + 1) * width]
        own = bb.emit(relax.op.strided_slice(rows, [3], *bounds, [1])) if len(parts) > 1 else rows
        terms.append(bb.emit(relax.op.matmul(_for_each_image(bb, own, batch), columns)))
    made = reduce(lambda a, b: bb.emit(relax.op.add(a, b)), terms)
    return relax.op.reshape(made, [batch, outputs, *image])


def _for_each_image(bb: Any, tensor: Any, batch: Any) -> Any:
    """Repeated for a batch that is open: a region wants images in front of all it reads."""
    if isinstance(batch, int):
        return tensor
    return bb.emit(relax.op.broadcast_to(tensor, [batch, *map(int, tensor.ty.shape.values[1:])]))
