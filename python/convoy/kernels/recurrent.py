"""Recurrent layers (``csrc/kernels/recurrent.h``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from convoy.codegen.writer import Writer, activation, fields, number
from convoy.graph.dtypes import BYTES
from convoy.graph.graph import Graph
from convoy.graph.ops import GATES, Recurrent, RecurrentKind
from convoy.graph.sizes import hint
from convoy.kernels.epilogue import make_activation
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan import recipes
from convoy.plan.buffers import Array, Operand
from convoy.plan.fuse import Fusion
from convoy.plan.recipes import Constants, Recipe
from convoy.plan.step import Activation, Note, Step
from convoy.target import Target

VECTORS = 2
"""CV_RECURRENT_VECTORS of kernels/recurrent.h."""


@dataclass(frozen=True)
class PackRecurrent(Recipe):
    """Some gates of [H, all · H] → panels [ceil(H / width)][H][gates][width], zero-padded."""

    constant: str
    first: int
    gates: int
    width: int

    def pack(self, constants: Constants) -> recipes.Array:
        r = constants[self.constant]
        cells = len(r)
        r = r[:, self.first * cells : (self.first + self.gates) * cells]
        panels = -(-cells // self.width)
        padded = np.zeros((cells, self.gates, panels * self.width), np.float32)
        padded[:, :, :cells] = r.reshape(cells, self.gates, cells)
        packed: recipes.Array = padded.reshape(cells, self.gates, panels, self.width).transpose(2, 0, 1, 3)
        return packed


@dataclass(frozen=True, kw_only=True)
class Layer:
    """What a layer has of its own.

    x is [sequences, steps, gates · cells], y [sequences, steps (of an LSTM, and one more), cells].
    """

    x: Array
    r: Array
    r_inner: Array | None
    """The gate g of what is reset first, whose ``r`` has the others."""
    kept: Array | None
    """Scratch of what is reset first."""
    extra: Array | None
    h0: Array | None
    c0: Array | None
    y: Array
    back: bool
    clip: float
    gate: Activation
    inner: Activation
    outer: Activation

    @property
    def reads(self) -> tuple[Array, ...]:
        given = (self.x, self.r, self.r_inner, self.extra, self.h0, self.c0)
        return tuple(array for array in given if array is not None)


@dataclass(frozen=True, kw_only=True)
class Recur(Step):
    """Layers that do not read each other, side by side; ``y`` is that of the first."""

    layers: tuple[Layer, ...]
    recurrence: RecurrentKind
    sequences: int
    steps: int
    cells: int
    shared: bool

    @property
    def reads(self) -> tuple[Operand, ...]:
        return tuple(array for layer in self.layers for array in layer.reads)

    @property
    def writes(self) -> tuple[Operand, ...]:
        return (*(layer.y for layer in self.layers), *self.scratch)

    def least_cycles(self, target: Target) -> float:
        vectors = -(-self.cells // target.lanes) * GATES[self.recurrence]
        reading = vectors * target.lanes * 4 * self.cells / target.stream_rate
        each = max(self.sequences * self.cells * vectors / target.fma_units, reading)
        meetings = self.shared * (2 if self.recurrence == "gru_reset_first" else 1)
        return self.steps * (len(self.layers) * each + target.barrier * meetings)


def run_beside(fusion: Fusion, other: Fusion, graph: Graph) -> bool:
    """Whether both are layers that may run side by side, if neither reads the other."""
    one, two = fusion.anchor, other.anchor
    if not (isinstance(one, Recurrent) and isinstance(two, Recurrent)):
        return False
    return one.kind == two.kind and graph.shape(one.output) == graph.shape(two.output)


def plan_recurrent(fusion: Fusion, values: Values) -> Iterator[Step]:
    return plan_beside([fusion], values)


def plan_beside(fusions: Sequence[Fusion], values: Values) -> Iterator[Step]:
    """The step of layers that run side by side, or of one."""
    node, graph = fusions[0].anchor, values.graph
    assert isinstance(node, Recurrent)
    *before, steps, _ = graph.shape(node.inputs[0])
    sequences, cells = prod(before), graph.shape(node.inputs[1])[0]
    layers = tuple(_plan_layer(fusion, sequences, cells, values) for fusion in fusions)
    notes = [make_note(fusion, graph) for fusion in fusions]
    yield Recur(
        note=Note(notes[0].op, ", beside ".join(note.text for note in notes)), y=layers[0].y,
        scratch=tuple(layer.kept for layer in layers if layer.kept is not None),
        layers=layers, recurrence=node.kind, sequences=sequences, steps=steps, cells=cells,
        shared=_share_steps(
            len(layers), hint(sequences), cells * GATES[node.kind] * cells * BYTES["float32"], values
        ),
    )  # fmt: skip


def _plan_layer(fusion: Fusion, sequences: int, cells: int, values: Values) -> Layer:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Recurrent)
    x, r, extra, *states = node.inputs
    gates, width = GATES[node.kind], VECTORS * values.lanes
    h0, c0, *_ = (*(values.array(state) for state in states), None, None)
    panels = -(-cells // width)
    read = node.kind in ("lstm", "gru") and bool(graph.constants[extra].any())
    reset_first = node.kind == "gru_reset_first"

    def pack(first: int, count: int) -> Array:
        return values.weight(PackRecurrent(r, first, count, width), panels * cells * count * width)

    return Layer(
        x=values.array(x), h0=h0, c0=c0,
        r=pack(0, 2 if reset_first else gates), r_inner=pack(2, 1) if reset_first else None,
        kept=values.scratch_array(sequences, cells) if reset_first else None,
        extra=values.array(extra) if read else None, y=values.define_array(fusion.output),
        back=node.back, clip=node.clip, gate=make_activation(node.gate), inner=make_activation(node.inner),
        outer=make_activation(node.outer),
    )  # fmt: skip


def _share_steps(layers: int, sequences: int, weights: int, values: Values) -> bool:
    """Whether threads that read a part of the weights each save more of a step than they meet for.

    Where each has a sequence of its own, that is nothing as long as all ``weights`` of a layer, in bytes,
    are at hand in its core's cache.  Of two megabytes, with four to eight sequences a thread, sharing
    gained from one megabyte on.  Where each has a layer of its own, all read as much as they would share.
    """
    target, threads = values.target, values.threads
    if layers * sequences >= threads and weights <= target.l2_bytes // 4:
        return False
    saved = max(1, layers / threads) - layers / threads
    return weights / target.stream_rate * saved > target.barrier


def emit_recurrent(step: Recur, w: Writer) -> str:
    w.headers.add("recurrent")
    w.declare(f'_Static_assert(CV_RECURRENT_VECTORS == {VECTORS}, "weights are packed for other panels");')
    literals = "".join(f"      {_layer_literal(layer, step, w)},\n" for layer in step.layers)
    return (
        f"  const cv_recurrent layers[] = {{\n{literals}  }};\n  cv_recur(t, layers, {len(step.layers)});\n"
    )


def _layer_literal(layer: Layer, step: Recur, w: Writer) -> str:
    given = {"x": layer.x, "r": layer.r, "r_inner": layer.r_inner, "extra": layer.extra, "h0": layer.h0}
    given |= {"c0": layer.c0, "y": layer.y, "kept": layer.kept}
    pointers = {name: "NULL" if array is None else w.pointer(array) for name, array in given.items()}
    return fields(
        kind=f"CV_{step.recurrence.upper()}", sequences=step.sequences, steps=step.steps,
        cells=step.cells, back=int(layer.back), shared=int(step.shared), clip=number(layer.clip),
        gate=activation(layer.gate), inner=activation(layer.inner), outer=activation(layer.outer),
        **pointers,
    )  # fmt: skip


KERNEL = KernelKind(nodes=(Recurrent,), plan=plan_recurrent, emitters={Recur: emit_recurrent})
