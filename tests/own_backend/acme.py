"""A backend of one's own on Convoy's road, from what its library takes to the code that calls it.

The library (``library.h``) has three kernels: a 3x3 convolution, an add, a ReLU.  The page that walks
through this file is ``docs/your-own-backend.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from convoy.backend import RegionCode
from convoy.graph import Graph
from convoy.graph.ops import Binary, Conv2d, Node, Unary
from convoy.relax.codegen import current, link_regions
from convoy.relax.lower import lower
from convoy.report.decision import RegionReport

LIBRARY = Path(__file__).with_name("library.h")


# 1. What the library takes ------------------------------------------------------------------------


def refuse(call: relax.Call) -> str | None:
    """Why the library cannot compute a call; None if it can."""
    name = call.op.name
    if name == "relax.nn.conv2d":
        kernel = tuple(int(size) for size in list(call.args[1].ty.shape)[2:])
        if kernel != (3, 3):
            return f"acme has 3x3 convolutions only, this is {kernel[0]}x{kernel[1]}"
        attributes = call.attrs
        plain = [[1, 1], [1, 1, 1, 1], [1, 1], 1]
        found = [attributes.strides, attributes.padding, attributes.dilation, attributes.groups]
        if [list(f) if hasattr(f, "__len__") else f for f in found] != plain:
            return "acme has convolutions of stride 1, padding 1, dilation 1, one group only"
        return None
    return None if name in ("relax.add", "relax.nn.relu") else f"acme has no {name}"


# 2. From a region's graph to C that calls it ------------------------------------------------------


def emit(graph: Graph, symbol: str) -> RegionCode:
    """The region as C: a line a node, every tensor but the inputs and outputs in a buffer of its own."""
    weights: list[np.ndarray[Any, np.dtype[np.float32]]] = []
    lines = [
        *(f"const float *{name} = inputs[{i}];" for i, name in enumerate(graph.inputs)),
        *(f"float *{name} = outputs[{i}];" for i, name in enumerate(graph.outputs)),
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
            lines.append(f"static float {node.output}[{int(np.prod(shape))}];")
        lines.append(_call(node, graph))
    body = "\n  ".join(lines)
    source = f"""\
{LIBRARY.read_text()}
extern const float {symbol}_weights[];

int {symbol}(const float *const *inputs, float *const *outputs, long images) {{
  {body}
  return 0;
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


def _call(node: Node, graph: Graph) -> str:
    shape = graph.shape(node.output)
    size = int(np.prod(shape))
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


# 3. What TVM calls --------------------------------------------------------------------------------


def compile_functions(
    functions: Sequence[relax.Function], options: Mapping[str, Any], constants: Mapping[Any, str]
) -> list[tvm.runtime.Module]:
    """``relax.ext.acme``: the functions that belong to acme, compiled."""
    del options, constants
    regions = [emit(lower(f), str(f.attrs["global_symbol"])) for f in functions]
    return link_regions(regions, current())


tvm_ffi.register_global_func("relax.ext.acme", compile_functions, override=True)
