"""Sizes of one input of a node that another says, such as channels by weights: a call with others ends.

Where those of the data are open, TVM computes with as many as there are, and reads beyond the weights.
From here on they are the weights', so regions take what reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from convoy.relax.checks import check
from convoy.relax.importer.agree import cast
from convoy.relax.importer.sizes import Algebra

Shapes: TypeAlias = Mapping[int, list[Any]]
"""The sizes of a node's inputs, by position, of those whose number is known."""
Said: TypeAlias = Iterator[tuple[int, int, Any]]
"""An input, an axis of it, and how long that has to be."""


def fit_to_weights(bb: Any, op: str, inputs: list[Any], attrs: dict[str, Any]) -> None:
    """Let the data of a node have the sizes that its weights say."""
    algebra: Algebra = bb.algebra
    if op not in _SAID:
        return
    found = {i: algebra.sizes(x) for i, x in enumerate(inputs) if x is not None}
    shapes = {i: sizes for i, sizes in found.items() if sizes is not None}
    if all(isinstance(d, int) for sizes in shapes.values() for d in sizes):
        return
    wanted: dict[int, dict[int, Any]] = {}
    for i, axis, size in _SAID[op](shapes, attrs):
        before = shapes[i][axis]
        if algebra.same(before, size):
            continue
        if not isinstance(before, int) and (isinstance(size, int) or i):
            wanted.setdefault(i, {})[axis] = size
        elif not isinstance(size, int):
            check(bb, [before], [size])
    for i, sizes in wanted.items():
        inputs[i] = cast(bb, inputs[i], [sizes.get(axis, d) for axis, d in enumerate(shapes[i])])


def _convolution(shapes: Shapes, attrs: dict[str, Any]) -> Said:
    if 0 in shapes and 1 in shapes:
        yield 0, 1, shapes[1][1] * attrs.get("group", 1)


def _transposed(shapes: Shapes, attrs: dict[str, Any]) -> Said:
    if 0 in shapes and 1 in shapes:
        yield 0, 1, shapes[1][0]


def _channels(shapes: Shapes, attrs: dict[str, Any]) -> Said:
    """Until opset 21 a GroupNormalization had a scale for each group."""
    if len(shapes.get(0, ())) < 2 or 1 not in shapes or shapes[1][0] == attrs.get("num_groups"):
        return
    if isinstance(shapes[1][0], int):
        yield 0, 1, shapes[1][0]
    else:
        yield from ((i, 0, shapes[0][1]) for i, sizes in shapes.items() if i and len(sizes) == 1)


def _features(shapes: Shapes, attrs: dict[str, Any]) -> Said:
    if 0 in shapes and 1 in shapes:
        yield 0, 2, shapes[1][2]


def _last(shapes: Shapes, attrs: dict[str, Any]) -> Said:
    """The last axes, where the scale does not broadcast."""
    for back, size in enumerate(reversed(shapes.get(1, [])), 1):
        if size != 1 and back <= len(shapes.get(0, ())):
            yield 0, len(shapes[0]) - back, size


def _scales(shapes: Shapes, attrs: dict[str, Any]) -> Said:
    """A scale for each channel."""
    axis, scales = attrs.get("axis", 1), shapes.get(1, [])
    if len(scales) == 1 and scales[0] != 1 and -len(shapes.get(0, ())) <= axis < len(shapes.get(0, ())):
        yield 0, axis % len(shapes[0]), scales[0]


def _images(shapes: Shapes, attrs: dict[str, Any]) -> Said:
    """A grid for each image."""
    if 0 in shapes and 1 in shapes:
        yield 1, 0, shapes[0][0]


def _boxes(shapes: Shapes, attrs: dict[str, Any]) -> Said:
    """The number of an image for each box."""
    if 1 in shapes and 2 in shapes:
        yield 2, 0, shapes[1][0]


def _updates(shapes: Shapes, attrs: dict[str, Any]) -> Said:
    """A row of the data, or what is left of one, for each place."""
    data, places, updates = (shapes.get(i, []) for i in range(3))
    if places and isinstance(places[-1], int) and len(updates) == len(places) - 1 + len(data) - places[-1]:
        yield from ((2, axis, size) for axis, size in enumerate([*places[:-1], *data[places[-1] :]]))


def _elements(shapes: Shapes, attrs: dict[str, Any]) -> Said:
    """An update for each place; where the number of these is open, whoever writes them asks for it."""
    if len(shapes.get(1, ())) == len(shapes.get(2, [None])):
        yield from ((2, axis, size) for axis, size in enumerate(shapes[1]) if isinstance(size, int))


def _letters(shapes: Shapes, attrs: dict[str, Any]) -> Said:
    """What has one letter is as long, but for what broadcasts."""
    terms = attrs["equation"].decode().replace(" ", "").partition("->")[0].split(",")
    said: dict[str, int] = {}
    places = [
        (i, axis, letter)
        for i, term in enumerate(terms)
        if i in shapes and term.isalpha() and len(term) == len(shapes[i])
        for axis, letter in enumerate(term)
    ]
    for i, axis, letter in places:
        if isinstance(shapes[i][axis], int) and shapes[i][axis] != 1:
            said[letter] = shapes[i][axis]
    yield from ((i, axis, said[letter]) for i, axis, letter in places if letter in said)


_SAID: dict[str, Callable[[Shapes, dict[str, Any]], Said]] = {
    "Conv": _convolution,
    "ConvTranspose": _transposed,
    "GridSample": _images,
    "RoiAlign": _boxes,
    "ScatterND": _updates,
    **dict.fromkeys(("ScatterElements", "Scatter"), _elements),
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization", "GroupNormalization"), _channels),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _features),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _last),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _scales),
    "Einsum": _letters,
}
