"""The same elements in another shape: no step, but where the result is the region's."""

from __future__ import annotations

from collections.abc import Iterator

from convoy.graph.dtypes import MOVABLE
from convoy.graph.ops import Reshape
from convoy.kernels.copy import copy_whole
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step


def plan_reshape(fusion: Fusion, values: Values) -> Iterator[Step]:
    x = values.array(fusion.anchor.inputs[0])
    if fusion.output in values.graph.outputs:
        yield copy_whole(make_note(fusion, values.graph), x, values.define_array(fusion.output))
    else:
        values.alias_array(fusion.output, x)


KERNEL = KernelKind(nodes=(Reshape,), plan=plan_reshape, dtypes=MOVABLE)
