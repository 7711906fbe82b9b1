"""Convolutions of one or two channels of bytes read columns that follow one another as four channels.

    x · w  =>  (x, x from column d on, from 2 d, from 3 d) · v, where v[o][j][:][a] = w[o][0][:][4 a + j]

for one channel and a dilation of d, which is 4 d behind; of two channels it is two columns.  Four bytes are
multiplied at once, and two or three of them were zeros.  Networks of sounds begin so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from convoy.graph.dtypes import cell_elements
from convoy.graph.graph import Array, Graph, drop_unread
from convoy.graph.ops import Concat, Conv2d, Dequantize, Node, Pad, Slice, Tensor
from convoy.graph.quantised import is_dequantised_constant

CELL = cell_elements("uint8")


def read_columns(graph: Graph, pays: Callable[[Conv2d, Graph], bool]) -> Graph:
    """The graph with columns as channels where a convolution of one or two channels multiplies bytes.

    Parameters
    ----------
    pays : Callable[[Conv2d, Graph], bool]
        Whether that is quicker.
    """
    nodes: list[Node] = []
    constants, tensors = dict(graph.constants), dict(graph.tensors)
    for node in graph.nodes:
        if isinstance(node, Conv2d) and _reads_few_channels(node, graph) and pays(node, graph):
            made = _Columns(node, graph)
            nodes += made.nodes
            constants |= made.constants
            tensors |= made.tensors
        else:
            nodes.append(node)
    return drop_unread(replace(graph, nodes=tuple(nodes), constants=constants, tensors=tensors))


def _reads_few_channels(node: Conv2d, graph: Graph) -> bool:
    """Does it multiply bytes of one scale, of half a cell of channels at most, by a cell of columns?"""
    data, weight = (graph.producer.get(name) for name in node.inputs[:2])
    if not isinstance(data, Dequantize) or not is_dequantised_constant(node.inputs[1], graph):
        return False
    assert isinstance(weight, Dequantize)
    whole = {graph.dtype(made.inputs[0]) for made in (data, weight)} <= {"uint8", "int8"}
    _, channels, _, taps = graph.shape(node.inputs[1])
    few = graph.shape(data.inputs[1]) == (1,) and node.groups == 1 and 2 * channels <= CELL
    return whole and few and taps >= CELL and weight.axis == 0 and data.inputs[0] not in graph.constants


class _Columns:
    """What comes in place of such a convolution."""

    def __init__(self, node: Conv2d, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {}
        self.tensors: dict[str, Tensor] = {}
        data, weight = (graph.producer[name] for name in node.inputs[:2])
        assert isinstance(data, Dequantize)
        assert isinstance(weight, Dequantize)
        held, step = graph.constants[weight.inputs[0]], node.dilation[1]
        out, channels, rows, columns = held.shape
        self.together = CELL // channels
        more = -columns % self.together
        taps = np.pad(held, ((0, 0), (0, 0), (0, 0), (0, more)))
        taps[..., columns:] = graph.constants[weight.inputs[2]].reshape(-1, 1, 1, 1)
        taps = taps.reshape(out, channels, rows, -1, self.together).transpose(0, 4, 1, 2, 3)
        taps = taps.reshape(out, self.together * channels, rows, -1)
        name = f"{node.output}.columns"
        top, left, bottom, right = node.padding
        zero = float(graph.constants[data.inputs[2]].item())
        x = self._padded(data.inputs[0], graph, (left, right + more * step), zero, name)
        made = self._side_by_side(x, step, name)
        self.tensors[name] = Tensor(name, self.tensors[made].shape)
        self.nodes.append(replace(data, inputs=(made, *data.inputs[1:]), output=name))
        whole, scaled = f"{name}.taps", f"{name}.weight"
        self.constants[whole] = np.ascontiguousarray(taps)
        self.tensors[whole] = Tensor(whole, taps.shape, graph.dtype(weight.inputs[0]))
        self.tensors[scaled] = Tensor(scaled, taps.shape)
        self.nodes.append(replace(weight, inputs=(whole, *weight.inputs[1:]), output=scaled))
        self.nodes.append(
            replace(
                node, inputs=(name, scaled, *node.inputs[2:]), padding=(top, 0, bottom, 0),
                dilation=(node.dilation[0], step * self.together),
            )
        )  # fmt: skip

    def _padded(self, x: str, graph: Graph, sides: tuple[int, int], zero: float, name: str) -> str:
        self.tensors[x] = graph.tensors[x]
        if not any(sides):
            return x
        *before, width = graph.shape(x)
        padded = f"{name}.padded"
        self.tensors[padded] = Tensor(padded, (*before, width + sum(sides)), graph.dtype(x))
        self.nodes.append(Pad(inputs=(x,), output=padded, widths=((0, 0),) * 3 + (sides,), value=zero))
        return padded

    def _side_by_side(self, x: str, step: int, name: str) -> str:
        """The bytes of columns that follow one another, each with all channels."""
        one, channels, height, width = self.tensors[x].shape
        width, dtype = width - (self.together - 1) * step, self.tensors[x].dtype
        parts = [f"{name}.{j}" for j in range(self.together)]
        for j, part in enumerate(parts):
            self.tensors[part] = Tensor(part, (one, channels, height, width), dtype)
            self.nodes.append(Slice(inputs=(x,), output=part, axis=3, begin=j * step, end=j * step + width))
        held = f"{name}.bytes"
        self.tensors[held] = Tensor(held, (one, self.together * channels, height, width), dtype)
        self.nodes.append(Concat(inputs=tuple(parts), output=held, axis=1))
        return held
