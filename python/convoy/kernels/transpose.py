"""Axes in another order, and any other copy with strides (``csrc/kernels/tensor.h``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from convoy.codegen.writer import Writer
from convoy.graph.dtypes import MOVABLE, QUANTISED
from convoy.graph.ops import Transpose
from convoy.graph.views import View, permuted
from convoy.kernels.kernel import KernelKind
from convoy.kernels.moved import Moved
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.buffers import Array, row_major
from convoy.plan.fuse import Fusion
from convoy.plan.step import Note, Step


@dataclass(frozen=True, kw_only=True)
class TransposeArray(Step):
    """y[i…] = x[Σ i·strides]: permutation, slice and broadcast."""

    x: Array
    y: Array
    strides: tuple[int, ...]
    start: int = 0


def permute(note: Note, x: Array, y: Array, perm: Sequence[int]) -> TransposeArray:
    """The step that makes axis i of y of axis ``perm[i]`` of x."""
    strides = row_major(x.shape)
    return TransposeArray(note=note, x=x, y=y, strides=tuple(strides[p] for p in perm))


def copy_view(note: Note, x: Array, y: Array, view: View) -> TransposeArray:
    """The step that makes y of what ``view`` sees of x."""
    return TransposeArray(note=note, x=x, y=y, strides=view.strides, start=view.offset)


def plan_transpose(fusion: Fusion, values: Values) -> Iterator[Step]:
    node = fusion.anchor
    assert isinstance(node, Transpose)
    source, view = values.seen_as(node.inputs[0])
    moved = Moved(source, permuted(view, node.perm), make_note(fusion, values.graph), copy_view)
    values.move(fusion.output, moved)
    yield from ()


def emit_transpose(step: TransposeArray, w: Writer) -> str:
    w.headers.add("tensor")
    shape = w.sizes("ptrdiff_t", step.y.shape)
    strides = w.sizes("ptrdiff_t", step.strides)
    start = f" + {step.start}" if step.start != 0 else ""
    kind = "bytes" if step.y.dtype in QUANTISED else "plain"
    return (
        f"  cv_transpose_{kind}(t, {w.pointer(step.y)}, {w.pointer(step.x)}{start}, {len(step.strides)}, "
        f"{shape}, {strides});\n"
    )


KERNEL = KernelKind(
    nodes=(Transpose,), plan=plan_transpose, emitters={TransposeArray: emit_transpose}, dtypes=MOVABLE
)
