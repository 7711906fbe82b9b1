"""Plain quantisation of whole tensors, where no kernel computes it with what it makes or reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from convoy.codegen.writer import Writer, fill_halo, write_scale
from convoy.graph.dtypes import DType, range_of
from convoy.graph.graph import Graph
from convoy.graph.ops import Dequantize, Quantize
from convoy.kernels.kernel import KernelKind, follows
from convoy.kernels.layout import Unpack
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.buffers import Array, Map
from convoy.plan.cost import conversion_cycles
from convoy.plan.fuse import Fusion
from convoy.plan.step import Scale, Step
from convoy.target import Target


@dataclass(frozen=True, kw_only=True)
class QuantizeArray(Step):
    """[outer, axis, inner], with a scale and zero point for each number along the middle axis."""

    x: Array
    y: Array
    scale: Array
    zero: Array
    outer: int
    axis: int
    inner: int

    def least_cycles(self, target: Target) -> float:
        return _cycles(self.x.size, self.y.dtype, target)


@dataclass(frozen=True, kw_only=True)
class QuantizeMap(Step):
    """Between a map of floats and one of bytes, whichever of them y is, of one scale."""

    x: Map
    y: Map
    scale: Scale

    def least_cycles(self, target: Target) -> float:
        return _cycles(self.x.size, self.y.dtype, target)


def _cycles(size: float, dtype: DType, target: Target) -> float:
    """To convert so many elements to a type."""
    floats = dtype == "float32"
    return conversion_cycles(size if floats else 0, 0 if floats else size, target)


def wants_map(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> bool:
    """What is quantised in blocks, of one scale, stays there, but for a result that nothing else reads.

    Its bytes are a quarter of what the floats would be to take out of their blocks.
    """
    made = fusion.output
    is_result = made in graph.outputs and not graph.consumers.get(made)
    if isinstance(fusion.anchor, Dequantize) and is_result:
        return False
    return follows(fusion, graph, blocked) and graph.scalar(fusion.anchor.inputs[1]) is not None


def plan_quantize(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Quantize | Dequantize)
    if values.blocked[fusion.output]:
        x = values.map(node.inputs[0])
        y = values.define_map(fusion.output)
        yield QuantizeMap(note=make_note(fusion, graph), x=x, y=y, scale=scale_of(node, graph))
        return
    home = values.map_alone(node.inputs[0]) if isinstance(node, Dequantize) else None
    if home is not None and home.dtype == "uint8" and graph.scalar(node.inputs[1]) is not None:
        yield Unpack(
            note=make_note(fusion, graph), x=home, y=values.define_array(fusion.output),
            strides=(home.height * home.width, home.width, 1), scale=scale_of(node, graph),
        )  # fmt: skip
        return
    data, scale, zero = (values.array(name) for name in node.inputs)

    def convert() -> Step:
        shape, split = data.shape, (1, 1, math.prod(data.shape))
        if scale.size > 1:
            split = (math.prod(shape[: node.axis]), shape[node.axis], math.prod(shape[node.axis + 1 :]))
        outer, axis, inner = split
        return QuantizeArray(
            note=make_note(fusion, graph), x=data, y=values.define_array(fusion.output), scale=scale,
            zero=zero, outer=outer, axis=axis, inner=inner,
        )  # fmt: skip

    if isinstance(node, Quantize) and scale.size == 1 and fusion.output not in graph.outputs:
        values.quantize_when_read(fusion.output, data, scale_of(node, graph), convert)
    else:
        yield convert()


def emit_quantize(step: QuantizeArray, w: Writer) -> str:
    w.headers.add("quantize_arrays")
    made = step.x.dtype == "float32"
    name = f"cv_quantize_{step.y.dtype}" if made else f"cv_dequantize_{step.x.dtype}"
    return (
        f"  {name}(t, {w.pointer(step.y)}, {w.pointer(step.x)}, {w.pointer(step.scale)}, "
        f"{w.pointer(step.zero)}, {step.outer}, {step.axis}, {step.inner});\n"
    )


def emit_quantize_map(step: QuantizeMap, w: Writer) -> str:
    w.headers.add("layout_bytes")
    if step.y.dtype == "float32":
        scale = write_scale(step.scale)
        return f"{w.bytes_map('x', step.x)}{w.result('y', step.y)}  cv_dequantize_map(t, y, x, {scale});\n"
    scale = write_scale(step.scale)
    return (
        f"{w.source('x', step.x)}{w.bytes_map('y', step.y)}{fill_halo('y', step.y, w)}"
        f"  cv_quantize_map(t, y, x, {scale});\n"
    )


def scale_of(node: Quantize | Dequantize, graph: Graph) -> Scale:
    """What the bytes stand for that a node of one scale makes or reads."""
    whole = node.output if isinstance(node, Quantize) else node.inputs[0]
    return Scale(*numbers(node, graph), *range_of(graph.dtype(whole)))


def numbers(node: Quantize | Dequantize, graph: Graph) -> tuple[float, int]:
    """The one scale and zero point of what quantises or dequantises a tensor."""
    scale, zero = (graph.constants[name].item() for name in node.inputs[1:])
    return float(scale), int(zero)


KERNEL = KernelKind(emitters={QuantizeArray: emit_quantize, QuantizeMap: emit_quantize_map})
