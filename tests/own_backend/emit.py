"""From a region's graph to C that calls acme's library, whichever TVM the region comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from convoy.backend import RegionCode
from convoy.graph import Graph
from convoy.graph.ops import Binary, Conv2d, Node, Unary
from convoy.report.decision import RegionReport

LIBRARY = Path(__file__).with_name("library.h")


def emit(graph: Graph, symbol: str) -> RegionCode:
    """The region as C: for each image a line a node, every tensor within in a buffer of its own."""
    weights: list[np.ndarray[Any, np.dtype[np.float32]]] = []
    lines = [
        *(
            f"const float *{x} = inputs[{i}] + image * {_size(graph, x)};"
            for i, x in enumerate(graph.inputs)
        ),
        *(f"float *{y} = outputs[{i}] + image * {_size(graph, y)};" for i, y in enumerate(graph.outputs)),
    ]
    offset = 0
    for node in graph.nodes:
        shape = graph.shape(node.output)
        for name in node.inputs:
            if name in graph.constants and not any(f" *{name} =" in line for line in lines):
                whole = isinstance(node, Conv2d)
                value = graph.constants[name] if whole else np.broadcast_to(graph.constants[name], shape)
                lines.append(f"const float *{name} = {symbol}_weights + {offset};")
                weights.append(value.reshape(-1))
                offset += value.size
        if node.output not in graph.outputs:
            lines.append(f"static float {node.output}[{_size(graph, node.output)}];")
        lines.append(_call(node, graph))
    body = "\n    ".join(lines)
    source = f"""\
#include "convoy/region.h"
{LIBRARY.read_text()}
extern const float {symbol}_weights[];

int {symbol}(const float *const *inputs, float *const *outputs, int64_t images) {{
  for (int64_t image = 0; image < images; image++) {{
    {body}
  }}
  return CONVOY_OK;
}}
"""
    return RegionCode(
        symbol=symbol,
        sources=(source,),
        weights=np.concatenate([*weights, np.zeros(1, np.float32)]).tobytes(),
        inputs=tuple(graph.tensors[name] for name in graph.inputs),
        outputs=tuple(graph.tensors[name] for name in graph.outputs),
        batch=graph.batch,
        report=RegionReport(symbol, source=source),
    )


def _size(graph: Graph, name: str) -> int:
    """Floats of a tensor of one image."""
    return int(np.prod(graph.shape(name)))


def _call(node: Node, graph: Graph) -> str:
    shape, size = graph.shape(node.output), _size(graph, node.output)
    match node:
        case Conv2d():
            bias = node.inputs[2] if len(node.inputs) == 3 else "0"
            channels, (out, height, width) = graph.shape(node.inputs[0])[1], shape[1:]
            x, w = node.inputs[:2]
            return (
                f"acme_conv2d_3x3({x}, {channels}, {height}, {width}, {w}, {bias}, {out}, {node.output});"
            )
        case Binary(kind="add"):
            return f"acme_add({node.inputs[0]}, {node.inputs[1]}, {size}, {node.output});"
        case Unary(kind="relu"):
            return f"acme_relu({node.inputs[0]}, {size}, {node.output});"
    raise AssertionError(f"refuse let {node} through")
