"""Volumes [1, C, D, H, W] as images: at each depth lies an image [1, C, H, W], a *slice* of the volume.

A kernel of depth K reads K neighbouring slices as the channels of one image, so that a 3-D convolution is a
2-D one for each slice it makes, with the weights of its depths side by side:

    y[:, :, d] = conv2d(slices d·s .. d·s + K-1 of x as [1, K·C, H, W], w as [O, K·C, KH, KW])

The slices of a volume lie one after the other in one image [1, D·C, H, W], the *stack*.  The planner gives
out ranges of its channels without a copy.  Everything behind the convolution is computed slice by slice,
and so joins its kernels.  Depths in the padding have no weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from convoy.errors import LoweringError
from convoy.graph.making import Array, Making
from convoy.graph.ops import Binary, Concat, Conv2d, ConvTranspose2d, Node, Pool2d, Reduce, Slice, Unary

MOST_NODES = 20_000
"""In a graph with volumes: each is a kernel, and a long network of deep volumes would have millions."""


class Volumes:
    """The volumes of a graph in the making, by the names of their tensors."""

    def __init__(self, build: Making) -> None:
        self.build = build
        self._slices: dict[str, Sequence[str]] = {}
        self._stacks: dict[str, str] = {}

    def slices(self, name: str) -> Sequence[str]:
        """The slices of a tensor of five axes, front to back."""
        if name not in self._slices:
            _, channels, depth, height, width = self.build.shape_of(name)
            turned = self.build.transpose(name, (0, 2, 1, 3, 4))
            stack = self.build.reshape(turned, (1, depth * channels, height, width))
            self._stacks[name] = stack
            self._slices[name] = [self._range(stack, d * channels, channels, depth) for d in range(depth)]
        return self._slices[name]

    def between(self, name: str, begin: int, end: int) -> str:
        """The slices from ``begin`` to before ``end`` as the channels of one image."""
        slices = self.slices(name)
        if end - begin == 1:
            return slices[begin]
        channels = self.build.shape_of(slices[0])[1]
        return self._range(self._stacks[name], begin * channels, (end - begin) * channels, len(slices))

    def _range(self, stack: str, begin: int, count: int, depth: int) -> str:
        _, whole, height, width = self.build.shape_of(stack)
        if count == whole:
            return stack
        shape = (1, count, height, width)
        return self.build.node(Slice, (stack,), shape, axis=1, begin=begin, end=begin + count)

    def join(self, slices: Sequence[str]) -> str:
        """The volume of these slices.

        Raises
        ------
        LoweringError
            If the graph has become too large.
        """
        if len(self.build.nodes) > MOST_NODES:
            raise LoweringError(
                "lower",
                self.build.origin,
                f"expected at most {MOST_NODES} ops on slices of volumes in a region, got more",
                "make the volumes less deep, or exclude some of their nodes",
            )
        _, channels, height, width = self.build.shape_of(slices[0])
        depth, stack = len(slices), slices[0]
        if depth > 1:
            shape = (1, depth * channels, height, width)
            stack = self.build.node(Concat, tuple(slices), shape, axis=1)
        split = self.build.reshape(stack, (1, depth, channels, height, width))
        name = self.build.transpose(split, (0, 2, 1, 3, 4))
        self._slices[name], self._stacks[name] = slices, stack
        return name

    # Ops behind those on volumes -------------------------------------------------------------------

    def through(
        self, op: type[Node], inputs: Sequence[str], shape: Sequence[int], given: Mapping[str, Any]
    ) -> str | None:
        """An op that reads a volume, computed slice by slice; None where it cannot be, as of several.

        A volume of one slice, as a gate, may meet one of which only a call knows the slices.
        """
        if not any(name in self._slices for name in inputs) or len(shape) != 5 or shape[0] != 1:
            return None
        met = (*(self.build.shape_of(name) for name in inputs), shape)
        if not all(isinstance(sizes[2], int) for sizes in met if len(sizes) == 5):
            return None
        if op is Unary:
            return self._each(op, self.slices(inputs[0]), given)
        if op is Binary:
            return self._binary(inputs, shape, given)
        if op is Concat:
            return self._concat(inputs, tuple(shape), given["axis"])
        if op is Slice:
            return self._slice(inputs[0], **given)
        if op is Reduce and given["axes"] == (2, 3, 4):
            return self._reduce(inputs[0], given["kind"], tuple(shape))
        return None

    def _each(self, op: type[Node], slices: Iterable[str], given: Mapping[str, Any]) -> str:
        return self.join([self.build.node(op, (x,), self.build.shape_of(x), **given) for x in slices])

    def _binary(self, inputs: Sequence[str], shape: Sequence[int], given: Mapping[str, Any]) -> str | None:
        operands = [self._operand(name, shape[2]) for name in inputs]
        if None in operands:
            return None
        pairs = zip(*(operand for operand in operands if operand), strict=True)
        _, channels, _, height, width = shape
        flat = (1, channels, height, width)
        return self.join([self.build.node(Binary, pair, flat, **given) for pair in pairs])

    def _operand(self, name: str, depth: int) -> Sequence[str] | None:
        """What each slice of the result reads of an operand."""
        array = self.build.constants.get(name)
        if array is not None and array.ndim <= 5:
            whole: Array = array.reshape((1,) * (5 - array.ndim) + array.shape)
            slices: Sequence[str] = [self.build.constant(whole[:, :, d]) for d in range(whole.shape[2])]
        elif len(self.build.shape_of(name)) == 5:
            slices = self.slices(name)
        else:
            return None
        return slices if len(slices) == depth else [slices[0]] * depth

    def _concat(self, inputs: Sequence[str], shape: tuple[int, ...], axis: int) -> str | None:
        depths = [self.build.shape_of(name)[2] for name in inputs]
        operands = [self._operand(name, depth) for name, depth in zip(inputs, depths, strict=True)]
        known = [operand for operand in operands if operand is not None]
        if axis == 2:
            return self.join([name for operand in known for name in operand])
        flat, along = (*shape[:2], *shape[3:]), axis - (axis > 2)
        pairs = zip(*known, strict=True)
        return self.join([self.build.node(Concat, slices, flat, axis=along) for slices in pairs])

    def _slice(self, name: str, axis: int, begin: int, end: int, step: int = 1) -> str:
        slices = self.slices(name)
        if axis == 2:
            return self.join([slices[depth] for depth in range(begin, end, step)])
        shape = list(self.build.shape_of(slices[0]))
        flat = axis - (axis > 2)
        shape[flat] = len(range(begin, end, step))
        cut = {"axis": flat, "begin": begin, "end": end, "step": step}
        return self.join([self.build.node(Slice, (x,), tuple(shape), **cut) for x in slices])

    def _reduce(self, name: str, kind: str, shape: tuple[int, ...]) -> str:
        """Over each slice, then over these results: all slices have as many pixels."""
        each = (*shape[:2], 1, 1)
        slices = self.slices(name)
        parts = [self.build.node(Reduce, (x,), each, kind=kind, axes=(2, 3)) for x in slices]
        if len(parts) > 1:
            column = self.build.node(Concat, tuple(parts), (*each[:2], len(parts), 1), axis=2)
            parts = [self.build.node(Reduce, (column,), each, kind=kind, axes=(2,))]
        return self.build.reshape(parts[0], shape)

    # Ops on volumes --------------------------------------------------------------------------------

    def convolve(
        self, data: str, weight: Array, depth: int, place: Callable[[int], Sequence[int]],
        shape: tuple[int, ...], *, transposed: bool = False, groups: int = 1, **given: Any,
    ) -> str:  # fmt: skip
        """A convolution of a volume, or a transposed one.

        Parameters
        ----------
        weight : Array
            [O, C/groups, KD, KH, KW]; transposed [C, O/groups, KD, KH, KW].
        depth : int
            Slices of the result.
        place : Callable[[int], Sequence[int]]
            Where the slice d of the result meets each slice of the data: ``place(d)[i]`` is the tap in
            depth, or -1.
        shape : tuple[int, ...]
            Of a slice of the result.
        given
            The other attributes of the 2-D op.
        """
        op = ConvTranspose2d if transposed else Conv2d
        weights: dict[tuple[int, ...], str] = {}

        def compute(slices: Sequence[int], taps: tuple[int, ...]) -> str:
            """What these slices, as neighbouring channels, add to the result through these taps."""
            if taps not in weights:
                beside = np.concatenate([weight[:, :, tap] for tap in taps], axis=0 if transposed else 1)
                weights[taps] = self.build.constant(beside)
            x = self._gather(data, slices)
            return self.build.node(op, (x, weights[taps]), shape, groups=groups, **given)

        made = []
        for d in range(depth):
            met = [(i, tap) for i, tap in enumerate(place(d)) if tap >= 0]
            slices, taps = [i for i, _ in met], tuple(tap for _, tap in met)
            if groups == 1:
                made.append(compute(slices, taps))
            else:  # the channels of a group lie apart in neighbouring slices
                made.append(self._fold("add", [compute([i], (tap,)) for i, tap in met]))
        return self.join(made)

    def _gather(self, name: str, slices: Sequence[int]) -> str:
        """These slices as the channels of one image."""
        first, last = slices[0], slices[-1]
        if list(slices) == list(range(first, last + 1)):
            return self.between(name, first, last + 1)
        parts = self.slices(name)
        _, channels, height, width = self.build.shape_of(parts[0])
        shape = (1, len(slices) * channels, height, width)
        return self.build.node(Concat, tuple(parts[i] for i in slices), shape, axis=1)

    def pool(
        self, data: str, kind: Literal["max", "avg"], windows: Sequence[Sequence[int]],
        counts: Sequence[int], shape: tuple[int, ...], **given: Any,
    ) -> str:  # fmt: skip
        """A pool of a volume.

        Parameters
        ----------
        windows : Sequence[Sequence[int]]
            The slices of the data in each slice of the result.
        counts : Sequence[int]
            By how many slices each mean is divided.
        shape : tuple[int, ...]
            Of a slice of the result.
        given
            The other attributes of the 2-D op.
        """
        slices = self.slices(data)
        pooled: dict[int, str] = {}
        made = []
        for window, count in zip(windows, counts, strict=True):
            for i in window:
                if i not in pooled:
                    pooled[i] = self.build.node(Pool2d, (slices[i],), shape, kind=kind, **given)
            result = self._fold("max" if kind == "max" else "add", [pooled[i] for i in window])
            if kind == "avg" and count > 1:
                share = self.build.constant(np.full(1, 1 / count, np.float32))
                result = self.build.node(Binary, (result, share), shape, kind="mul")
            made.append(result)
        return self.join(made)

    def _fold(self, kind: str, parts: Sequence[str]) -> str:
        made = parts[0]
        for part in parts[1:]:
            made = self.build.node(Binary, (made, part), self.build.shape_of(made), kind=kind)
        return made
