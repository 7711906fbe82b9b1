"""The same elements in another shape: no step, but where the result is the region's."""

from __future__ import annotations

from collections.abc import Iterator

from convoy.graph.dtypes import MOVABLE
from convoy.graph.ops import Reshape
from convoy.graph.views import view_whole
from convoy.kernels.kernel import KernelKind
from convoy.kernels.moved import Moved, reshaped
from convoy.kernels.note import make_note
from convoy.kernels.transpose import copy_view
from convoy.kernels.values import Values
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step


def plan_reshape(fusion: Fusion, values: Values) -> Iterator[Step]:
    name, shape = fusion.anchor.inputs[0], values.graph.shape(fusion.output)
    source, view = values.seen_as(name)
    moved = reshaped(view, shape)
    if moved is None:
        source, moved = name, view_whole(shape)
    values.move(fusion.output, Moved(source, moved, make_note(fusion, values.graph), copy_view))
    yield from ()


KERNEL = KernelKind(nodes=(Reshape,), plan=plan_reshape, dtypes=MOVABLE)
