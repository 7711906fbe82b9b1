"""Sibling convolutions as one: those that read one tensor in the same way become one convolution.

    relu(conv(x, w1, b1)), relu(conv(x, w2, b2))  =>  y = relu(conv(x, w1 ++ w2, b1 ++ b2)), y[..], y[..]

Siblings have whole blocks of channels, all but the last of them, so that each slice is a range of the
result's planes and costs nothing.  What it gains is that x is read once, and register tiles that blocks of
several siblings fill.  Measured (AVX-512, one thread, 2026-11-21), that is nothing as long as x comes
from a cache: Inception v1's nine families take 21.6 ms as one and 21.0 apart, Inception v2's 27.9 and
28.4.  It pays where x comes from memory and each sibling is small: two of 16 channels on 256x112x112
take a third less time.  The estimate says so, and each family is a ``Decision``.

Left out: 3x3 with stride 1, which may be Winograd's, and a sibling that is computed into its place in
a concat, which would have to be copied there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convoy.graph.fusion import ACTIVATIONS
from convoy.graph.graph import Array, Graph, drop_unread
from convoy.graph.messages import describe, origins
from convoy.graph.ops import Concat, Conv2d, Node, Slice, Tensor, Unary
from convoy.plan.tiles import choose_tiling
from convoy.report.decision import Report
from convoy.target import Target

LEAST_GAIN = 0.1
"""Least share of the siblings' time that is gained: an estimate below it is no gain."""


@dataclass(frozen=True)
class Sibling:
    """A convolution and the activation that alone reads it."""

    conv: Conv2d
    activation: Unary | None

    @property
    def output(self) -> str:
        return self.activation.output if self.activation else self.conv.output


@dataclass(frozen=True)
class Family:
    """Siblings, and the estimated cycles of them apart and as one."""

    siblings: tuple[Sibling, ...]
    apart: float
    together: float

    @property
    def pays(self) -> bool:
        return self.together < self.apart * (1 - LEAST_GAIN)

    @property
    def reason(self) -> str:
        return f"estimated kilocycles: apart {self.apart / 1e3:.0f}, as one {self.together / 1e3:.0f}"


def merge_siblings(graph: Graph, target: Target, threads: int, report: Report | None = None) -> Graph:
    """The same function with families of siblings as one convolution where that is estimated to pay.

    ``report`` receives the decision about each family.
    """
    for family in list(find_families(graph, target, threads)):
        if report is not None:
            choice = "merged with its siblings" if family.pays else "apart from its siblings"
            for sibling in family.siblings:
                report.add(
                    describe(sibling.conv), "plan", choice, family.reason, about=origins(sibling.conv)
                )
        if family.pays:
            graph = merge_family(family.siblings, graph)
    return graph


def find_families(graph: Graph, target: Target, threads: int) -> Iterator[Family]:
    """Families of two and more, each with its estimates."""
    found: dict[tuple[object, ...], list[Sibling]] = {}
    for node in graph.nodes:
        if not isinstance(node, Conv2d) or node.groups != 1 or _may_be_winograd(node, graph):
            continue
        if node.inputs[1] not in graph.constants:  # integers, whose kernels make bytes of one scale
            continue
        sibling = _with_activation(node, graph)
        if sibling is None or _joins_a_concat(sibling.output, graph):
            continue
        act = sibling.activation
        key = (
            node.inputs[0], graph.shape(node.inputs[1])[2:], node.stride, node.padding, node.dilation,
            act and (act.kind, act.a, act.b),
        )  # fmt: skip
        found.setdefault(key, []).append(sibling)
    for siblings in found.values():
        whole = [s for s in siblings if graph.shape(s.output)[1] % target.lanes == 0]
        family = [*whole, *[s for s in siblings if s not in whole][:1]]
        if len(family) > 1:
            yield Family(tuple(family), *_estimate(family, graph, target, threads))


def _may_be_winograd(conv: Conv2d, graph: Graph) -> bool:
    return graph.shape(conv.inputs[1])[2:] == (3, 3) and conv.stride == (1, 1)


def _with_activation(conv: Conv2d, graph: Graph) -> Sibling | None:
    """None where something else than an activation belongs to the convolution's epilogue."""
    if conv.output in graph.outputs:
        return None
    readers = graph.consumers[conv.output]
    if len(readers) != 1 or not isinstance(readers[0], Unary) or readers[0].kind not in ACTIVATIONS:
        # a residual, or readers of every kind: as a sibling it would lose its epilogue
        return Sibling(conv, None) if all(isinstance(r, Conv2d) for r in readers) else None
    if readers[0].output in graph.outputs:
        return None
    return Sibling(conv, readers[0])


def _joins_a_concat(name: str, graph: Graph) -> bool:
    return any(isinstance(node, Concat) for node in graph.consumers[name])


def _estimate(
    siblings: Sequence[Sibling], graph: Graph, target: Target, threads: int
) -> tuple[float, float]:
    """Cycles of one thread for the siblings apart, and as one."""
    conv, graph = siblings[0].conv, graph.likely
    channels = graph.shape(conv.inputs[0])[1]
    *_, height, width = graph.shape(conv.output)
    taps = graph.shape(conv.inputs[1])[2] * graph.shape(conv.inputs[1])[3]
    x_bytes = graph.tensors[conv.inputs[0]].bytes
    reading = x_bytes / target.far_rate if x_bytes > target.shares.last_bytes else 0.0

    def cycles(blocks: int) -> float:
        rows = (1, height * width) if taps == 1 else (height, width)
        products = rows[0] * choose_tiling(rows[1], blocks, target).cycles * channels * taps
        return max(products / target.direct.efficiency, reading) / threads

    blocks = [-(-graph.shape(s.conv.output)[1] // target.lanes) for s in siblings]
    return sum(cycles(b) for b in blocks), cycles(sum(blocks))


def merge_family(siblings: Sequence[Sibling], graph: Graph) -> Graph:
    """The siblings as one convolution where the first of them stood, each one's result a slice of it."""
    model = siblings[0]
    stem = "+".join(s.conv.output for s in siblings)
    weights = np.concatenate([graph.constants[s.conv.inputs[1]] for s in siblings])
    biases = np.concatenate([_bias(s.conv, graph) for s in siblings])
    constants: dict[str, Array] = {**graph.constants, f"{stem}.w": weights, f"{stem}.b": biases}
    inputs = (model.conv.inputs[0], f"{stem}.w", f"{stem}.b")
    tensors = {**graph.tensors, **{name: Tensor(name, constants[name].shape) for name in inputs[1:]}}
    origin = " + ".join(s.conv.origin for s in siblings if s.conv.origin)
    made: list[Node] = [replace(model.conv, inputs=inputs, output=stem, origin=origin)]
    if model.activation is not None:
        made.append(replace(model.activation, inputs=(stem,), output=f"{stem}.activated"))
    shape = (1, len(weights), *graph.shape(model.output)[2:])
    tensors |= {node.output: Tensor(node.output, shape) for node in made}
    whole = made[-1].output
    begin = 0
    for s in siblings:
        end = begin + graph.shape(s.output)[1]
        made.append(
            Slice(inputs=(whole,), output=s.output, origin=s.conv.origin, axis=1, begin=begin, end=end)
        )
        begin = end
    return _replace_nodes(graph, siblings, made, tensors, constants)


def _replace_nodes(
    graph: Graph,
    siblings: Sequence[Sibling],
    made: Sequence[Node],
    tensors: Mapping[str, Tensor],
    constants: Mapping[str, Array],
) -> Graph:
    gone = {s.conv.output for s in siblings} | {s.output for s in siblings}
    first = next(i for i, node in enumerate(graph.nodes) if node.output in gone)
    nodes = [node for node in graph.nodes if node.output not in gone]
    nodes[first:first] = made
    return drop_unread(replace(graph, nodes=tuple(nodes), tensors=tensors, constants=constants))


def _bias(conv: Conv2d, graph: Graph) -> Array:
    if len(conv.inputs) == 3:
        return graph.constants[conv.inputs[2]]
    return np.zeros(graph.shape(conv.output)[1], np.float32)
