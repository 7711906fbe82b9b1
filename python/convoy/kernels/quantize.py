"""Plain quantisation of whole tensors, where no kernel computes it with what it makes or reads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from convoy.codegen.writer import Writer
from convoy.graph.ops import Dequantize, Quantize
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.buffers import Array
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step


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


def plan_quantize(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Quantize | Dequantize)
    data, scale, zero = (values.array(name) for name in node.inputs)
    shape = data.shape
    split = (1, 1, math.prod(shape))
    if scale.size > 1:
        split = (math.prod(shape[: node.axis]), shape[node.axis], math.prod(shape[node.axis + 1 :]))
    outer, axis, inner = split
    yield QuantizeArray(
        note=make_note(fusion, graph), x=data, y=values.define_array(fusion.output), scale=scale, zero=zero,
        outer=outer, axis=axis, inner=inner,
    )  # fmt: skip


def emit_quantize(step: QuantizeArray, w: Writer) -> str:
    w.headers.add("quantize_arrays")
    made = step.x.dtype == "float32"
    name = f"cv_quantize_{step.y.dtype}" if made else f"cv_dequantize_{step.x.dtype}"
    return (
        f"  {name}(t, {w.pointer(step.y)}, {w.pointer(step.x)}, {w.pointer(step.scale)}, "
        f"{w.pointer(step.zero)}, {step.outer}, {step.axis}, {step.inner});\n"
    )


KERNEL = KernelKind(emitters={QuantizeArray: emit_quantize})
