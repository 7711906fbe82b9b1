"""A constant, or its own elements, around a tensor (``csrc/kernels/tensor.h``).

Zeros around a map of floats are what its halo holds: no step makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from convoy.codegen.writer import Writer, number
from convoy.graph.dtypes import MOVABLE, QUANTISED
from convoy.graph.graph import Graph
from convoy.graph.ops import Pad, PadMode
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.buffers import Array
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step
from convoy.plan.views import find_border


@dataclass(frozen=True, kw_only=True)
class PadArray(Step):
    x: Array
    y: Array
    before: tuple[int, ...]
    mode: PadMode
    value: float


def wants_map(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> bool:
    """Zeros around the images of a map."""
    return find_border(fusion.anchor, graph) is not None and blocked.get(fusion.anchor.inputs[0], False)


def plan_pad(fusion: Fusion, values: Values) -> Iterator[Step]:
    node = fusion.anchor
    assert isinstance(node, Pad)
    if values.blocked[fusion.output]:
        values.define_padded(node)
        return
    yield PadArray(
        note=make_note(fusion, values.graph), x=values.array(node.inputs[0]),
        y=values.define_array(fusion.output), before=tuple(w[0] for w in node.widths), mode=node.mode,
        value=node.value,
    )  # fmt: skip


def emit_pad(step: PadArray, w: Writer) -> str:
    w.headers.add("tensor")
    x_shape = w.sizes("ptrdiff_t", step.x.shape)
    before = w.sizes("ptrdiff_t", step.before)
    y_shape = w.sizes("ptrdiff_t", step.y.shape)
    of_bytes = step.y.dtype in QUANTISED
    kind = "bytes" if of_bytes else "plain"
    value = f"(uint8_t){int(step.value)}" if of_bytes else number(step.value)
    return (
        f"  cv_pad_{kind}(t, {w.pointer(step.y)}, {w.pointer(step.x)}, {len(step.before)}, {x_shape}, "
        f"{before}, {y_shape}, CV_PAD_{step.mode.upper()}, {value});\n"
    )


KERNEL = KernelKind(
    nodes=(Pad,), plan=plan_pad, emitters={PadArray: emit_pad}, wants_map=wants_map, dtypes=MOVABLE,
)  # fmt: skip
