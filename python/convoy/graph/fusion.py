"""Which ops become one kernel, and what it is called: the one grammar of fusion.

    anchor  bias*  activation?  (add  activation?)?        y = outer(inner(anchor + bias) + residual)

The rows of ``ANCHORS`` say which ops are anchors and what each takes.  The pattern tables of both doors are
made from them, and ``plan/fuse.py`` reads graphs by them, so a composite is called as its kernel is:
``convoy.conv2d_bias_relu_add_relu``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, Protocol, TypeVar, get_args

from convoy.graph.graph import Graph
from convoy.graph.ops import (
    ActivationKind,
    Binary,
    Conv2d,
    ConvTranspose2d,
    GroupNorm,
    MatMul,
    Node,
    Pool2d,
    Unary,
)

Op = TypeVar("Op")
"""A node of a graph, or a call of either TVM."""

Slot = Literal["scale", "bias", "inner", "add", "outer"]
Addition = Literal["bias", "add"]

EVERYTHING: tuple[Slot, ...] = ("bias", "inner", "add", "outer")
AN_ACTIVATION: tuple[Slot, ...] = ("outer",)

ANCHORS: dict[str, tuple[Slot, ...]] = {
    "conv2d": EVERYTHING,
    "conv1d": EVERYTHING,
    "conv2d_transpose": EVERYTHING,
    "conv1d_transpose": EVERYTHING,
    "matmul": EVERYTHING,
    "dense": EVERYTHING,
    "batch_matmul": EVERYTHING,
    "max_pool2d": AN_ACTIVATION,
    "avg_pool2d": AN_ACTIVATION,
    "max_pool1d": AN_ACTIVATION,
    "avg_pool1d": AN_ACTIVATION,
    "group_norm": AN_ACTIVATION,
    "instance_norm": AN_ACTIVATION,
}
"""What joins the kernel of an op, in this order, by the op's name in patterns."""

ACTIVATIONS = frozenset(get_args(ActivationKind))
"""Kinds of ``Unary`` that join a kernel."""


@dataclass(frozen=True)
class Part(Generic[Op]):
    """What joins a kernel in one place."""

    slot: Slot
    word: str
    """In the kernel's name: ``bias``, ``add``, or the activation's name; none of a scale."""
    ops: tuple[Op, ...]
    """In running order, the last one gives the result; none for a bias that the anchor itself has."""


@dataclass(frozen=True)
class Kernel(Generic[Op]):
    """An anchor and what joins it."""

    stem: str
    """The anchor's name in patterns, see ``ANCHORS``."""
    anchor: Op
    parts: tuple[Part[Op], ...] = ()

    @property
    def name(self) -> str:
        """Such as ``conv2d_bias_relu``; several biases are one word, and what scales sums has none."""
        return _name(self.stem, [part.word for part in self.parts if part.word])

    @property
    def ops(self) -> tuple[Op, ...]:
        """In running order; the last one gives the result."""
        return (self.anchor, *(op for part in self.parts for op in part.ops))


class Program(Protocol[Op]):
    """What ``share_out`` asks a graph, or a module of either TVM."""

    @property
    def claimed(self) -> set[Op]:
        """Ops that are in kernels, and so join no other."""

    def activation(self, made: Op) -> tuple[str, tuple[Op, ...]] | None:
        """The activation that alone reads what ``made`` computes: its name, and its ops in order."""

    def addition(self, made: Op, anchor: Op) -> tuple[Addition, Op] | None:
        """The add that alone reads what ``made`` computes, and what ``kind_of_addition`` says of it."""

    def reads_first(self, add: Op, made: Op) -> bool:
        """Is what ``made`` computes the first operand of this add?"""

    def may_be(self, kernel: Kernel[Op]) -> bool:
        """Can one region hold these ops?"""


def share_out(
    anchors: Iterable[Kernel[Op]], at: Program[Op], disabled: Collection[str] = ()
) -> dict[Op, Kernel[Op] | None]:
    """The largest kernel of each anchor whose pattern is not ``disabled``; None where all are.

    Of two anchors that an add reads, the kernel of its first operand takes it.
    """
    found: dict[Op, Kernel[Op] | None] = {}
    adds: dict[Op, Kernel[Op]] = {}
    for start in anchors:
        kernel = _largest(start, at, disabled)
        add = next((part.ops[0] for part in kernel.parts if part.slot == "add"), None) if kernel else None
        if kernel is not None and add is not None:
            rival = adds.get(add)
            if rival is not None:
                first = at.reads_first(add, kernel.ops[kernel.ops.index(add) - 1])
                winner, loser = (kernel, rival) if first else (rival, kernel)
                at.claimed.update(winner.ops)
                start = replace(loser, parts=tuple(part for part in loser.parts if not part.ops))
                found[loser.anchor] = _largest(start, at, disabled)
                kernel = winner
            adds[add] = kernel
        found[kernel.anchor if kernel else start.anchor] = kernel
    at.claimed.update(op for kernel in found.values() if kernel is not None for op in kernel.ops)
    return found


def _largest(kernel: Kernel[Op], at: Program[Op], disabled: Collection[str]) -> Kernel[Op] | None:
    allowed = [kernel for kernel in grow(kernel, at) if pattern_name(kernel.name) not in disabled]
    return allowed[-1] if allowed else None


def grow(kernel: Kernel[Op], at: Program[Op]) -> Iterator[Kernel[Op]]:
    """Ever larger kernels that begin with this one."""
    while at.may_be(kernel):
        yield kernel
        part = _find_next(kernel, at)
        if part is None:
            return
        kernel = replace(kernel, parts=(*kernel.parts, part))


def _find_next(kernel: Kernel[Op], at: Program[Op]) -> Part[Op] | None:
    slots = _slots_after(kernel.stem, [part.slot for part in kernel.parts])
    last = kernel.ops[-1]
    active = next((slot for slot in slots if slot in ("inner", "outer")), None)
    if active is not None and (activation := at.activation(last)) is not None:
        return Part(active, *activation)
    added = at.addition(last, kernel.anchor) if "add" in slots else None
    return None if added is None or added[0] not in slots else Part(added[0], added[0], (added[1],))


def _slots_after(stem: str, taken: Sequence[Slot]) -> list[Slot]:
    """Where something may still join; an activation after a residual is the outer one, else the inner."""
    slots, taken = ANCHORS[stem], [slot for slot in taken if slot != "scale"]
    first = slots.index(taken[-1]) + (taken[-1] != "bias") if taken else 0
    return [slot for slot in slots[first:] if slot != "outer" or "add" not in slots or "add" in taken]


def pattern_name(name: str) -> str:
    """What a user calls a kernel, a composite or an op by itself."""
    return f"convoy.{name}"


def kernel_names(stem: str, activations: Collection[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Every kernel of an anchor: its name, and the words behind the anchor's."""
    found: list[tuple[str, ...]] = [()]
    waiting: list[tuple[tuple[Slot, ...], tuple[str, ...]]] = [((), ())]
    while waiting:
        taken, words = waiting.pop()
        for slot in _slots_after(stem, taken):
            for word in activations if slot in ("inner", "outer") else (slot,):
                if taken[-1:] != (slot,):
                    found.append((*words, word))
                    waiting.append(((*taken, slot), (*words, word)))
    return [(_name(stem, words), words) for words in found]


def _name(stem: str, words: Sequence[str]) -> str:
    once = [word for i, word in enumerate(words) if i == 0 or (word, words[i - 1]) != ("bias", "bias")]
    return "_".join((stem, *once))


def kind_of_addition(
    operand: Sequence[object],
    result: Sequence[object],
    *,
    constant: bool,
    channel: int,
    per_image: bool = False,
) -> Addition | None:
    """What an add of this operand is: a bias, a residual, or neither, as where it is broadcast.

    Parameters
    ----------
    operand, result : Sequence[object]
        Shapes of what is added, and of what comes of it.
    constant : bool
        Is the operand one.
    channel : int
        Axis of the result that holds the anchor's output channels.
    per_image : bool
        Axis 0 of the result is the images, and a constant has 1 there.
    """
    if constant and len(operand) <= len(result):
        padded = (*[1] * (len(result) - len(operand)), *operand)
        if all(n == 1 or (i == channel and n == result[i]) for i, n in enumerate(padded)):
            return "bias"
    same = list(operand) == list(result)
    if constant and per_image:
        same = len(operand) == len(result) and operand[0] == 1 and list(operand[1:]) == list(result[1:])
    return "add" if same else None


# Kernels of a graph --------------------------------------------------------------------------------


def find_kernels(graph: Graph, disabled: Collection[str] = ()) -> dict[Node, Kernel[Node]]:
    """The kernel of each anchor.

    Parameters
    ----------
    disabled : Collection[str]
        Patterns that are switched off, and so no kernels.
    """
    starts = [kernel for node in graph.nodes if (kernel := _start(node)) is not None]
    found = share_out(starts, _Nodes(graph, set()), disabled)
    return {start.anchor: found[start.anchor] or start for start in starts}


def find_scaled_kernel(
    anchor: Node, graph: Graph, claimed: set[Node], disabled: Collection[str] = ()
) -> Kernel[Node] | None:
    """The largest kernel whose sums are scaled before all else by what a run computes; None without it.

        (anchor + offset) * scale  bias*  activation?  (add  activation?)?

    The offset, which need not be there, and the scale are numbers, or have one for each output channel.

    Parameters
    ----------
    claimed : set[Node]
        Nodes that are in other kernels.
    disabled : Collection[str]
        Patterns that are switched off, by the names they have without a scale.
    """
    start, at, ops = _start(anchor), _Nodes(graph, claimed), list[Node]()
    for kind in ("add", "mul"):
        made = ops[-1] if ops else anchor
        node = at.reader(made)
        if isinstance(node, Binary) and node.kind == kind and _is_of_channels(node, made, anchor, graph):
            ops.append(node)
    if start is None or start.parts or not ops or not isinstance(ops[-1], Binary) or ops[-1].kind != "mul":
        return None
    return _largest(replace(start, parts=(Part[Node]("scale", "", tuple(ops)),)), at, disabled)


def _is_of_channels(node: Binary, made: Node, anchor: Node, graph: Graph) -> bool:
    """Does a node give what ``made`` computes and a number, or one of each output channel?"""
    shape, other = graph.shape(node.output), graph.shape(other_input(node, made.output))
    channel = output_axis(anchor, graph)
    is_bias = kind_of_addition(other, shape, constant=True, channel=channel) == "bias"
    return shape == graph.shape(made.output) and is_bias


def _start(node: Node) -> Kernel[Node] | None:
    """An anchor with the bias that it has itself; None for another op."""
    stem = _stem(node)
    with_bias = "bias" in ANCHORS.get(stem, ()) and len(node.inputs) > 2
    return Kernel(stem, node, (Part[Node]("bias", "bias", ()),) * with_bias) if stem in ANCHORS else None


def _stem(node: Node) -> str:
    """What patterns call an anchor; empty for other ops."""
    match node:
        case Conv2d():
            return node.pattern or "conv2d"
        case ConvTranspose2d():
            return node.pattern or "conv2d_transpose"
        case MatMul():
            return node.pattern or "matmul"
        case Pool2d(kind=kind):
            return node.pattern or f"{kind}_pool2d"
        case GroupNorm():
            return node.pattern or "group_norm"
    return ""


def output_axis(anchor: Node, graph: Graph) -> int:
    """The axis of an anchor's output channels."""
    return len(graph.shape(anchor.output)) - 1 if isinstance(anchor, MatMul) else 1


def other_input(node: Node, name: str) -> str:
    """What a node of two inputs reads beside ``name``."""
    x, y = node.inputs
    return y if x == name else x


@dataclass(frozen=True)
class _Nodes:
    """``Program`` of a graph."""

    graph: Graph
    claimed: set[Node]

    def activation(self, made: Node) -> tuple[str, tuple[Node, ...]] | None:
        node = self.reader(made)
        if not isinstance(node, Unary) or node.kind not in ACTIVATIONS:
            return None
        return node.pattern or node.kind, (node,)

    def addition(self, made: Node, anchor: Node) -> tuple[Addition, Node] | None:
        node = self.reader(made)
        if not isinstance(node, Binary) or node.kind != "add":
            return None
        other, shape = other_input(node, made.output), self.graph.shape(node.output)
        if shape != self.graph.shape(made.output):
            return None
        channel, constant = output_axis(anchor, self.graph), other in self.graph.constants
        kind = kind_of_addition(self.graph.shape(other), shape, constant=constant, channel=channel)
        return None if kind is None else (kind, node)

    def reads_first(self, add: Node, made: Node) -> bool:
        return add.inputs[0] == made.output

    def may_be(self, kernel: Kernel[Node]) -> bool:
        return True

    def reader(self, made: Node) -> Node | None:
        """The only node that reads a result, and only once."""
        readers = self.graph.consumers[made.output]
        if made.output in self.graph.outputs or len(readers) != 1 or readers[0] in self.claimed:
            return None
        return readers[0] if readers[0].inputs.count(made.output) == 1 else None
