"""Recurrent layers (``csrc/kernels/recurrent.h``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from convoy.codegen.writer import Writer, activation, fields, number
from convoy.graph.dtypes import BYTES
from convoy.graph.ops import GATES, Recurrent, RecurrentKind
from convoy.graph.sizes import hint
from convoy.kernels.epilogue import make_activation
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan import recipes
from convoy.plan.buffers import Array
from convoy.plan.fuse import Fusion
from convoy.plan.recipes import Constants, Recipe
from convoy.plan.step import Activation, Step
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
class Recur(Step):
    """x [sequences, steps, gates · cells], y [sequences, steps (of an LSTM, and one more), cells]."""

    layer: RecurrentKind
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
    sequences: int
    steps: int
    cells: int
    back: bool
    shared: bool
    clip: float
    gate: Activation
    inner: Activation
    outer: Activation

    def least_cycles(self, target: Target) -> float:
        vectors = -(-self.cells // target.lanes) * GATES[self.layer]
        reading = vectors * target.lanes * 4 * self.cells / target.stream_rate
        each = max(self.sequences * self.cells * vectors / target.fma_units, reading)
        meetings = self.shared * (1 if self.kept is None else 2)
        return self.steps * (each + target.barrier * meetings)


def plan_recurrent(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Recurrent)
    x, r, extra, *states = node.inputs
    gates, width = GATES[node.kind], VECTORS * values.lanes
    *before, steps, _ = graph.shape(x)
    sequences = prod(before)
    cells = graph.shape(r)[0]
    h0, c0, *_ = (*(values.array(state) for state in states), None, None)
    panels = -(-cells // width)
    read = node.kind in ("lstm", "gru") and bool(graph.constants[extra].any())
    reset_first = node.kind == "gru_reset_first"

    def pack(first: int, count: int) -> Array:
        return values.weight(PackRecurrent(r, first, count, width), panels * cells * count * width)

    yield Recur(
        note=make_note(fusion, graph), layer=node.kind, x=values.array(x), h0=h0, c0=c0,
        r=pack(0, 2 if reset_first else gates), r_inner=pack(2, 1) if reset_first else None,
        kept=values.scratch_array(sequences, cells) if reset_first else None,
        extra=values.array(extra) if read else None, y=values.define_array(fusion.output),
        sequences=sequences, steps=steps, cells=cells, back=node.back, clip=node.clip,
        gate=make_activation(node.gate), inner=make_activation(node.inner),
        outer=make_activation(node.outer),
        shared=_share_steps(hint(sequences), cells * gates * cells * BYTES["float32"], values),
    )  # fmt: skip


def _share_steps(sequences: int, weights: int, values: Values) -> bool:
    """Whether threads that read a part of the weights each save more of a step than they meet for.

    Where each has a sequence of its own, that is nothing as long as all ``weights``, in bytes, are at hand
    in its core's cache.  Of two megabytes, with four to eight sequences a thread, sharing gained from one
    megabyte on.
    """
    target, threads = values.target, values.threads
    if sequences >= threads and weights <= target.l2_bytes // 4:
        return False
    return weights / target.stream_rate * (1 - 1 / threads) > target.barrier


def emit_recurrent(step: Recur, w: Writer) -> str:
    w.headers.add("recurrent")
    w.declare(f'_Static_assert(CV_RECURRENT_VECTORS == {VECTORS}, "weights are packed for other panels");')
    given = {"x": step.x, "r": step.r, "r_inner": step.r_inner, "extra": step.extra, "h0": step.h0}
    given |= {"c0": step.c0, "y": step.y, "kept": step.kept}
    pointers = {name: "NULL" if array is None else w.pointer(array) for name, array in given.items()}
    literal = fields(
        kind=f"CV_{step.layer.upper()}", sequences=step.sequences, steps=step.steps, cells=step.cells,
        back=int(step.back), shared=int(step.shared), clip=number(step.clip),
        gate=activation(step.gate), inner=activation(step.inner), outer=activation(step.outer), **pointers,
    )  # fmt: skip
    return f"  const cv_recurrent a = {literal};\n  cv_recur(t, &a);\n"


KERNEL = KernelKind(nodes=(Recurrent,), plan=plan_recurrent, emitters={Recur: emit_recurrent})
