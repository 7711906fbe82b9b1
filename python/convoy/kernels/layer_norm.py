"""Layer and RMS normalisation of rows (``csrc/kernels/layer_norm.h``)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from convoy.codegen.writer import Writer, number
from convoy.graph.ops import LayerNorm, Node
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.buffers import Array
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step


@dataclass(frozen=True, kw_only=True)
class LayerNormArray(Step):
    """x and y are [rows, columns]."""

    x: Array
    gamma: Array | None
    beta: Array | None
    rows: int
    columns: int
    epsilon: float
    centred: bool


def scales(node: Node, values: Values) -> tuple[Array | None, Array | None]:
    """gamma and beta of a norm, as far as it has them."""
    given = [values.array(name) for name in node.inputs[1:]]
    gamma, beta, *_ = (*given, None, None)
    return gamma, beta


def scale_pointers(gamma: Array | None, beta: Array | None, w: Writer) -> str:
    """The arguments of a kernel for them."""
    return ", ".join("NULL" if array is None else w.pointer(array) for array in (gamma, beta))


def plan_layer_norm(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, LayerNorm)
    shape = graph.shape(node.output)
    gamma, beta = scales(node, values)
    yield LayerNormArray(
        note=make_note(fusion, graph), x=values.array(node.inputs[0]), gamma=gamma, beta=beta,
        y=values.define_array(fusion.output), rows=math.prod(shape[: node.axis]),
        columns=math.prod(shape[node.axis :]), epsilon=node.epsilon, centred=node.centred,
    )  # fmt: skip


def emit_layer_norm(step: LayerNormArray, w: Writer) -> str:
    w.headers.add("layer_norm")
    kernel = "cv_layer_norm" if step.centred else "cv_rms_norm"
    return (
        f"  {kernel}(t, {w.pointer(step.y)}, {w.pointer(step.x)}, "
        f"{scale_pointers(step.gamma, step.beta, w)}, {step.rows}, {step.columns}, "
        f"{number(step.epsilon)});\n"
    )


KERNEL = KernelKind(nodes=(LayerNorm,), plan=plan_layer_norm, emitters={LayerNormArray: emit_layer_norm})
