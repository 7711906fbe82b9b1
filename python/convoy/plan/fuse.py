"""Fuse nodes: an anchor op with what joins it, or a chain of elementwise ops.

A fusion runs where its last node stood, so whatever it reads is ready by then.

Where a kernel knows bytes, its fusion swallows what quantises around it: each ``Dequantize`` of what it
reads, and the ``Quantize`` that alone reads its result.  Then it reads and makes bytes.  A ``Dequantize``
is in each fusion that reads bytes in its place, and in one of its own where somebody else reads floats.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from convoy.graph.fusion import ACTIVATIONS, Kernel, find_kernels, find_scaled_kernel, other_input
from convoy.graph.graph import Graph
from convoy.graph.messages import op_name
from convoy.graph.ops import Binary, Conv2d, ConvTranspose2d, Dequantize, MatMul, Node, Quantize, Unary
from convoy.graph.quantised import same_numbers


@dataclass
class Fusion:
    """out = outer(inner(scaled + bias) + residual); or the nodes of a chain, one after another.

    scaled = (anchor + offset) * scale where a run computes the scale of bytes, else the anchor itself.
    """

    nodes: list[Node]
    name: str = ""
    """``conv2d_bias_relu``, or the ops of a chain."""
    offset: str | None = None
    scale: str | None = None
    bias: list[str] = field(default_factory=list)
    """Constants of one value per output channel, summed."""
    inner: Unary | None = None
    residual: str | None = None
    outer: Unary | None = None
    dequantized: tuple[Dequantize, ...] = ()
    """What it reads as bytes, in place of what these make; the first of its nodes."""
    held: tuple[Quantize, Dequantize] | None = None
    """What rounds inner(anchor + bias) to bytes before the residual is added."""
    quantize: Quantize | None = None
    """What makes bytes of its result; the last of its nodes."""

    @property
    def anchor(self) -> Node:
        return self.nodes[len(self.dequantized)]

    @property
    def of_bytes(self) -> bool:
        """Does it read or make bytes, where its nodes compute floats?"""
        return bool(self.dequantized) or self.quantize is not None

    def bytes_of(self, name: str) -> Dequantize | None:
        """What would dequantise the bytes that it reads in place of a tensor of floats."""
        return next((node for node in self.dequantized if node.output == name), None)

    def source(self, name: str) -> str:
        """What it reads where its nodes read ``name``: that, or bytes."""
        made = self.bytes_of(name)
        return made.inputs[0] if made else name

    @property
    def output(self) -> str:
        return self.nodes[-1].output

    @property
    def reads(self) -> tuple[str, ...]:
        """What the fusion reads and does not make itself, constants too."""
        made = {node.output for node in self.nodes}
        return tuple(dict.fromkeys(n for node in self.nodes for n in node.inputs if n not in made))


Takes = Callable[[Fusion], bool]
"""Whether there is a kernel that computes a fusion of bytes, and is the one to do so."""


def fuse(graph: Graph, disabled: Collection[str] = (), takes: Takes = lambda fusion: False) -> list[Fusion]:
    """Every node of the graph in a fusion, in running order.

    Anchors come first: a residual is added by the kernel of an anchor, not by a chain that reads it, too.

    Parameters
    ----------
    disabled : Collection[str]
        Patterns, such as ``convoy.conv2d_relu``, that are not to become kernels.
    takes : Takes
        Which fusions of bytes become kernels; the others compute floats.
    """
    fusions: list[Fusion] = []
    anchored = [_make_fusion(kernel) for kernel in find_kernels(graph, disabled).values()]
    claimed = {node.output for fusion in anchored for node in fusion.nodes}
    computed: set[str] = set()

    def of_bytes(fusion: Fusion) -> Fusion | None:
        return next(filter(takes, _forms_of_bytes(fusion, graph, claimed, computed, disabled)), None)

    def add(fusion: Fusion) -> None:
        fusions.append(fusion)
        claimed.update(node.output for node in fusion.nodes)
        computed.update(node.output for node in fusion.nodes[len(fusion.dequantized) :])

    for fusion in anchored:
        add(of_bytes(fusion) or fusion)
    tried: set[str] = set()
    for node in graph.nodes:  # what reads bytes, before the kernels of floats that would round to them
        if node.output not in claimed | tried and not isinstance(node, Quantize | Dequantize):
            chain = _find_chain(node, graph, claimed)
            while isinstance(chain[-1], Dequantize):  # its result is bytes, and read as floats
                chain = chain[:-2]
            tried.update(member.output for member in chain)
            found = of_bytes(_make_chain(chain))
            if found and (
                found.quantize or all(_is_made(n.inputs[0], graph, claimed) for n in found.dequantized)
            ):
                add(found)
    for node in graph.nodes:
        if node.output not in claimed and not isinstance(node, Dequantize):
            fusion = _make_chain(_find_chain(node, graph, claimed))
            add(of_bytes(fusion) or fusion)
    read = {name for fusion in fusions for name in fusion.reads} | set(graph.outputs)
    for node in graph.nodes:
        if isinstance(node, Dequantize) and node.output in read - computed:
            fusions.append(Fusion([node], op_name(node)))
    position = {node.output: i for i, node in enumerate(graph.nodes)}
    return sorted(fusions, key=lambda g: position[g.output])


def _is_made(data: str, graph: Graph, claimed: Collection[str]) -> bool:
    """Whether bytes are there, so that nothing is won by rounding floats to them in a kernel of floats."""
    return data in claimed or not isinstance(graph.producer.get(data), Quantize)


def _forms_of_bytes(
    fusion: Fusion,
    graph: Graph,
    claimed: Collection[str],
    computed: Collection[str],
    disabled: Collection[str],
) -> Iterator[Fusion]:
    """What a fusion is with what quantises around it, the largest first; none where nothing does.

    The largest adds something to its own bytes, rounded as they would be in memory.
    """
    if isinstance(fusion.anchor, Dequantize):
        return
    alone = isinstance(fusion.anchor, Conv2d | MatMul) and len(fusion.nodes) == 1
    if alone and isinstance(_only_reader(fusion.output, graph), Binary):
        taken = {node for node in graph.nodes if node.output in claimed}
        scaled = find_scaled_kernel(fusion.anchor, graph, taken, disabled)
        if scaled is not None:
            yield _with_dequantize(_with_quantize(_make_fusion(scaled), graph), graph, computed)
    whole = _with_quantize(fusion, graph)
    if whole.quantize and whole.residual is None and isinstance(whole.anchor, Conv2d | ConvTranspose2d):
        summed = _with_sum(whole, whole.quantize, graph, claimed)
        yield from (_with_dequantize(form, graph, computed) for form in summed)
    whole = _with_dequantize(whole, graph, computed)
    if whole.of_bytes:
        yield whole


def _with_dequantize(fusion: Fusion, graph: Graph, computed: Collection[str]) -> Fusion:
    """With those of what it reads, but for what a kernel gives as floats and never stores as bytes."""
    read = [made for name in fusion.reads if (made := graph.producer.get(name))]
    found = tuple(made for made in read if isinstance(made, Dequantize) and made.output not in computed)
    return replace(fusion, nodes=[*found, *fusion.nodes], dequantized=found)


def _with_quantize(fusion: Fusion, graph: Graph) -> Fusion:
    reader = _only_reader(fusion.output, graph)
    if not isinstance(reader, Quantize) or graph.scalar(reader.inputs[1]) is None:
        return fusion
    return replace(fusion, nodes=[*fusion.nodes, reader], quantize=reader)


def _with_sum(
    fusion: Fusion, quantize: Quantize, graph: Graph, claimed: Collection[str]
) -> Iterator[Fusion]:
    """dequantize(quantize(anchor)) + other, and what it is rounded to."""
    back = _only_reader(quantize.output, graph)
    if not isinstance(back, Dequantize) or not same_numbers(quantize, back, graph):
        return
    add = _only_reader(back.output, graph)
    if not isinstance(add, Binary) or add.kind != "add" or add.output in claimed:
        return
    other = other_input(add, back.output)
    if graph.shape(other) != graph.shape(add.output) or other in graph.constants:
        return
    nodes: list[Node] = [*fusion.nodes, back, add]
    outer = _only_reader(add.output, graph)
    if not isinstance(outer, Unary) or outer.kind not in ACTIVATIONS or outer.output in claimed:
        outer = None
    summed = Fusion(
        [*nodes, outer] if outer else nodes, f"{fusion.name}_add{f'_{outer.kind}' if outer else ''}",
        bias=fusion.bias, inner=fusion.inner, residual=other, outer=outer, held=(quantize, back),
    )  # fmt: skip
    whole = _with_quantize(summed, graph)
    if whole.quantize:
        yield whole


def _only_reader(name: str, graph: Graph) -> Node | None:
    """The only node that reads a tensor, and only once."""
    readers = graph.consumers[name]
    if name in graph.outputs or len(readers) != 1 or readers[0].inputs.count(name) != 1:
        return None
    return readers[0]


def _make_fusion(kernel: Kernel[Node]) -> Fusion:
    fusion = Fusion(list(kernel.ops), kernel.name)
    data = kernel.anchor.output
    for part in kernel.parts:
        node = part.ops[-1] if part.ops else kernel.anchor
        if part.slot == "scale":
            *added, scaled = part.ops
            fusion.offset = other_input(added[0], data) if added else None
            fusion.scale = other_input(scaled, added[0].output if added else data)
        elif part.slot == "bias":
            fusion.bias.append(other_input(node, data) if part.ops else node.inputs[2])
        elif part.slot == "add":
            fusion.residual = other_input(node, data)
        else:
            assert isinstance(node, Unary)
            setattr(fusion, part.slot, node)
        data = node.output
    return fusion


def _make_chain(chain: list[Node]) -> Fusion:
    return Fusion(chain, "_".join(map(op_name, chain)))


def _find_chain(node: Node, graph: Graph, claimed: Collection[str]) -> list[Node]:
    """The node and, if it is elementwise, the elementwise ops of its shape that alone read one another.

    Quantising is one of them with the ``Dequantize`` that alone reads it.
    """
    chain = _elementwise(node, graph, claimed)
    last = chain
    while last and last[-1].output not in graph.outputs:
        readers = graph.consumers[last[-1].output]
        if len(readers) != 1 or readers[0].output in claimed:
            break
        same = graph.shape(readers[0].output) == graph.shape(last[-1].output)
        if readers[0].inputs.count(last[-1].output) != 1 or not same:
            break
        last = _elementwise(readers[0], graph, claimed)
        chain += last
    return chain or [node]


def _elementwise(node: Node, graph: Graph, claimed: Collection[str]) -> list[Node]:
    """The nodes of one operation of a chain that begins here; none where that is no such."""
    if isinstance(node, Unary | Binary):
        return [node]
    readers = graph.consumers[node.output]
    if not isinstance(node, Quantize) or node.output in graph.outputs or len(readers) != 1:
        return []
    (back,) = readers
    if not isinstance(back, Dequantize) or back.output in claimed or graph.scalar(node.inputs[1]) is None:
        return []
    return [node, back] if same_numbers(node, back, graph) else []
