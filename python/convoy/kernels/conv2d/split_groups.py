"""A convolution by few groups as one convolution a group, where Winograd's algorithm makes that faster.

    relu(conv(x, w, groups=2))  =>  concat(relu(conv(x[:c/2], w[:o/2])), relu(conv(x[c/2:], w[o/2:])))

Groups have whole blocks of channels, so that slices are ranges of planes, results are computed in their
place, and neither costs anything.
"""

from __future__ import annotations

from dataclasses import replace

from convoy.graph.graph import Graph
from convoy.graph.messages import describe, origins
from convoy.graph.ops import Concat, Conv2d, Node, Slice, Tensor
from convoy.kernels.conv2d.choose import LEAST_GAIN, choose_algorithm, winograd_tiles
from convoy.kernels.conv2d.siblings import Sibling, bias_of, replace_nodes, with_activation
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import Target

MOST_GROUPS = 4
"""Each is a step of its own, and many small ones fill few tiles: not tried beyond two."""


def split_groups(
    graph: Graph, target: Target, threads: int, options: Options, report: Report | None = None
) -> Graph:
    """The same function with convolutions by groups apart where that is estimated to pay."""
    for node in graph.nodes:
        if not isinstance(node, Conv2d) or not _can_split(node, graph, target, options):
            continue
        found = with_activation(node, graph)
        if found is None:
            continue
        split = split_convolution(found, graph)
        parts = [n for n in split.nodes if isinstance(n, Conv2d) and n.output not in graph.producer]
        whole, *each = (
            choose_algorithm(n, g, target, threads, options, blocked=True).chosen_cycles
            for n, g in [(node, graph), *((part, split) for part in parts)]
        )
        pays = sum(each) * LEAST_GAIN < whole
        if report is not None:
            reason = f"estimated kilocycles: apart {sum(each) / 1e3:.0f}, as one {whole / 1e3:.0f}"
            choice = "groups apart" if pays else "groups as one"
            report.add(describe(node), "plan", choice, reason, about=origins(node))
        if pays:
            graph = split
    return graph


def _can_split(node: Conv2d, graph: Graph, target: Target, options: Options) -> bool:
    """Whether Winograd's algorithm could compute each group, which has whole blocks."""
    if not 1 < node.groups <= MOST_GROUPS or any(name not in graph.constants for name in node.inputs[1:]):
        return False
    out_channels, each = graph.shape(node.inputs[1])[:2]
    whole = out_channels // node.groups % target.lanes == 0 and each % target.lanes == 0
    return whole and bool(winograd_tiles(replace(node, groups=1), graph, options))


def split_convolution(found: Sibling, graph: Graph) -> Graph:
    """Each group of a convolution apart, with its activation."""
    conv, act = found.conv, found.activation
    weights, bias = graph.constants[conv.inputs[1]], bias_of(conv, graph)
    out_each, in_each = len(weights) // conv.groups, weights.shape[1]
    constants, tensors = dict(graph.constants), dict(graph.tensors)
    made: list[Node] = []
    for group in range(conv.groups):
        stem = f"{conv.output}.group{group}"
        outputs = slice(group * out_each, (group + 1) * out_each)
        x, w, b = f"{stem}.x", f"{stem}.w", f"{stem}.b"
        constants |= {w: weights[outputs], b: bias[outputs]}
        tensors |= {name: Tensor(name, constants[name].shape) for name in (w, b)}
        made += [
            Slice(
                inputs=(conv.inputs[0],), output=x, origin=conv.origin, axis=1, begin=group * in_each,
                end=(group + 1) * in_each,
            ),
            replace(conv, inputs=(x, w, b), output=stem, groups=1),
        ]  # fmt: skip
        if act is not None:
            made.append(replace(act, inputs=(stem,), output=f"{stem}.activated"))
        in_size, out_size = graph.shape(conv.inputs[0])[2:], graph.shape(conv.output)[2:]
        tensors[x] = Tensor(x, (1, in_each, *in_size))
        results = [node.output for node in made if node.output not in tensors]
        tensors |= {name: Tensor(name, (1, out_each, *out_size)) for name in results}
    step = 2 + (act is not None)
    parts = tuple(node.output for node in made[step - 1 :: step])
    made.append(Concat(inputs=parts, output=found.output, origin=conv.origin, axis=1))
    return replace_nodes(graph, [found], made, tensors, constants)
