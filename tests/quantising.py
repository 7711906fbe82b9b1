"""Build quantised graphs for tests, as quantisers write them, and judge what is computed of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy import backend
from convoy.backend import LoadedRegion
from convoy.graph import Graph
from convoy.graph.builder import Builder
from convoy.graph.dtypes import DType
from convoy.graph.ops import Binary, Conv2d, ConvTranspose2d, Dequantize, MatMul, Node, Reduce, Unary
from convoy.graph.reference import run
from convoy.graph.views import broadcast_shapes
from convoy.target import InstructionSet, Target, host
from instruction_sets import HOST_SETS
from together import Asked

DOTS: dict[InstructionSet, str] = {"avx2": "avxvnni", "avx512": "avx512vnni"}


def bytes_targets() -> list[Target]:
    """One for each way that this machine has of multiplying bytes; all of them would rather do so."""
    found = [Target(isa) for isa in HOST_SETS]
    found += [Target(isa, features=frozenset({dot})) for isa, dot in DOTS.items() if dot in host().features]
    return [replace(t, direct=replace(t.direct, bytes_apart=0.0)) for t in found]


def ways_in_turn(names: Iterable[str], name: str) -> list[Target]:
    """Of ``bytes_targets`` the quickest and every second of the others, by turns of names."""
    *others, quickest = bytes_targets()
    return [*others[[*names].index(name) % 2 :: 2], quickest]


def matrix_of_bits(
    k: int, n: int, block: int, bits: int, zeros: bool = False, half: bool = False
) -> NDArray[np.float32]:
    """(q - zero) · scale in float32, as ONNX computes it; scales of float16 with ``half``."""
    random, blocks, middle = np.random.default_rng(k), -(-k // block), 2 ** (bits - 1)
    q = random.integers(0, 2**bits, (blocks * block, n))
    zero = random.integers(0, 2**bits, (blocks, n)) if zeros else np.full((blocks, n), middle)
    scale = random.uniform(0.001, 0.02, (blocks, n)).astype(np.float16 if half else np.float32)
    whole = (q - np.repeat(zero, block, axis=0)).astype(np.float32)
    return (whole * np.repeat(scale.astype(np.float32), block, axis=0))[:k]


def round_to_bits(weight: NDArray[np.float32], block: int, bits: int) -> NDArray[np.float32]:
    """The nearest whole numbers of so many bits, times a scale for each block of a column of [K, N]."""
    made = np.empty_like(weight)
    for begin in range(0, len(weight), block):
        part = weight[begin : begin + block]
        scale = np.maximum(np.abs(part).max(axis=0), 1e-6) / 2.0 ** (bits - 1)
        whole = np.clip(np.rint(part / scale), -(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)
        made[begin : begin + block] = whole.astype(np.float32) * scale.astype(np.float32)
    return made


@dataclass
class Quantised:
    """A network in the making, as a quantiser writes it: its tensors are what ``Dequantize`` gives."""

    b: Builder = field(default_factory=lambda: Builder("images"))
    inputs: list[str] = field(default_factory=list)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))

    def input(self, *shape: int) -> str:
        self.inputs.append(self.b.input(f"x{len(self.inputs)}", shape))
        return self.inputs[-1]

    def bytes(self, x: str, scale: float, zero: int = 0, dtype: DType = "uint8") -> str:
        """dequantize(quantize(x))"""
        one, point = np.float32([scale]), np.array([zero], dtype)
        return self.b.dequantize(self.b.quantize(x, one, point), one, point)

    def conv(
        self, x: str, out: int, kernel: int = 1, *, bias: bool = True, zero: int = 0, dtype: DType = "int8",
        **attributes: Any,
    ) -> str:  # fmt: skip
        _, channels, height, width = self.b.shape_of(x)
        groups, stride = attributes.get("groups", 1), attributes.get("stride", (1, 1))
        shape, bounds = (out, channels // groups, kernel, kernel), np.iinfo(dtype)
        w = self.random.integers(bounds.min + 1, bounds.max, shape).astype(dtype)
        scale = (0.5 + self.random.random(out)) / 127 / np.sqrt(np.prod(shape[1:]))
        names = [
            x,
            self.b.dequantize(self.b.constant(w), scale.astype(np.float32), np.full(out, zero, dtype)),
        ]
        if bias:
            names.append(self.b.constant(self.random.standard_normal(out).astype(np.float32)))
        reach = attributes.get("dilation", (1, 1))[0] * (kernel - 1) + 1
        pad = attributes.setdefault("padding", (reach // 2,) * 4)
        made = [
            (n + pad[0] + pad[2] - reach) // s + 1 for n, s in zip((height, width), stride, strict=True)
        ]
        return self.b.node(Conv2d, names, (1, out, *made), **attributes)

    def conv_transpose(
        self, x: str, out: int, kernel: int, *, shape: Sequence[int], **attributes: Any
    ) -> str:
        """To rows and columns of ``shape``; with a scale for each channel of a group."""
        channels, groups = self.b.shape_of(x)[1], attributes.get("groups", 1)
        w = self.random.integers(-127, 128, (channels, out // groups, kernel, kernel)).astype(np.int8)
        sums = channels // groups * kernel**2 / np.prod(attributes.get("stride", (1, 1)))
        scale = ((0.5 + self.random.random(out // groups)) / 127 / np.sqrt(sums)).astype(np.float32)
        weight = self.b.dequantize(self.b.constant(w), scale, np.zeros(out // groups, np.int8), 1)
        bias = self.b.constant(self.random.standard_normal(out).astype(np.float32))
        return self.b.node(ConvTranspose2d, (x, weight, bias), (1, out, *shape), **attributes)

    def dense(self, x: str, out: int, *, bias: bool = True, channels: bool = True) -> str:
        """A product with a matrix, of a scale for each column or for all."""
        *rows, depth = self.b.shape_of(x)
        w = self.random.integers(-127, 128, (depth, out)).astype(np.int8)
        count = out if channels else 1
        scale = ((0.5 + self.random.random(count)) / 127 / np.sqrt(depth)).astype(np.float32)
        names = [x, self.b.dequantize(self.b.constant(w), scale, np.zeros(count, np.int8), 1)]
        if bias:
            names.append(self.b.constant(self.random.standard_normal(out).astype(np.float32)))
        return self.b.node(MatMul, names, (*rows, out))

    def dynamic(self, x: str) -> tuple[str, str]:
        """held - zero and its scale, as ``DynamicQuantizeLinear`` becomes floats."""
        b, shape = self.b, self.b.shape_of(x)

        def binary(kind: str, left: str, right: str) -> str:
            made = broadcast_shapes(b.shape_of(left), b.shape_of(right))
            return b.node(Binary, (left, right), made, kind=kind)

        axes, ones = tuple(range(1, len(shape))), (1,) * len(shape)
        high, low = (b.node(Reduce, (x,), ones, kind=kind, axes=axes) for kind in ("max", "min"))
        scale = binary("div", binary("sub", high, low), b.constant(np.float32([255])))
        point = self.unary(binary("div", low, scale), "neg")
        zero = self.unary(self.unary(point, "round"), "clip", a=0.0, b=255.0)
        shifted = binary("add", self.unary(binary("div", x, scale), "round"), zero)
        return binary("sub", self.unary(shifted, "clip", a=0.0, b=255.0), zero), scale

    def unary(self, x: str, kind: str = "relu", **bounds: float) -> str:
        return self.b.node(Unary, (x,), self.b.shape_of(x), kind=kind, **bounds)

    def add(self, x: str, y: str) -> str:
        return self.b.node(Binary, (x, y), self.b.shape_of(x), kind="add")

    def op(self, op: type[Node], *xs: str, shape: Sequence[int], **attributes: Any) -> str:
        return self.b.node(op, xs, tuple(shape), **attributes)

    def graph(self, *outputs: str) -> Graph:
        return self.b.finish(self.inputs, outputs, 1)

    def numbers(self) -> list[NDArray[np.float32]]:
        """Random values for the inputs."""
        return [self.random.standard_normal(self.b.shape_of(x)).astype(np.float32) for x in self.inputs]


def each_way(graph: Graph, targets: Iterable[Target] | None = None) -> list[Asked]:
    """The regions of a graph, one for each way of multiplying bytes."""
    return [Asked(graph, target) for target in targets or bytes_targets()]


def unit_of(name: str, graph: Graph) -> float:
    """The step of an output that is dequantised."""
    made = graph.producer[name]
    assert isinstance(made, Dequantize)
    return float(graph.constants[made.inputs[1]].item())


def agree(
    graph: Graph,
    arrays: Sequence[NDArray[np.float32]],
    off: float = 0.002,
    regions: Sequence[LoadedRegion] | None = None,
) -> None:
    """Hold every way of multiplying bytes, on any threads, to one answer, and that to exact evaluation.

    ``off``: the share of bytes that may be off by one, where rounding in float meets a tie.  ``regions``:
    what ``each_way`` asks for, loaded already.
    """
    first, *others = [
        on_any_threads(region, arrays)
        for region in regions or [backend.load(graph, target) for target in bytes_targets()]
    ]
    for other in others:
        for one, another in zip(first, other, strict=True):
            np.testing.assert_array_equal(one, another)
    hold_to_exact(graph, first, arrays, off)


def on_any_threads(region: LoadedRegion, arrays: Sequence[NDArray[np.float32]]) -> list[NDArray[Any]]:
    """What one thread gives, and three threads as well."""
    found = []
    for threads in (1, 3):
        region.function.library.convoy_set_num_threads(threads)  # type: ignore[attr-defined]
        found.append([*region(*arrays)])
    for first, second in zip(*found, strict=True):
        np.testing.assert_array_equal(first, second)
    return found[0]


def hold_to_exact(
    graph: Graph, answer: Sequence[NDArray[Any]], arrays: Sequence[NDArray[np.float32]], off: float = 0.002
) -> None:
    """``answer`` of ``graph`` to these arrays beside exact evaluation, as ``agree`` does."""
    for name, got, want in zip(graph.outputs, answer, run(graph, arrays, np.float64), strict=True):
        steps = np.abs(got - want) / unit_of(name, graph)
        assert want.std() > 5 * unit_of(name, graph), "the example shows nothing"
        assert steps.max() < 1.001, f"{steps.max():.2f} units"
        assert (steps > 0.5).mean() <= off, f"{(steps > 0.5).mean():.2%} of bytes are off by one"


class Cases(dict[str, Callable[[Quantised], list[str]]]):
    """Graphs by the names of the functions that make them, each of which it decorates."""

    def __call__(self, function: Callable[[Quantised], list[str]]) -> Callable[[Quantised], list[str]]:
        self[function.__name__] = function
        return function
