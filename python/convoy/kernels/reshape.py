"""The same elements in another shape: no step, but where the result is the region's."""

from __future__ import annotations

from collections.abc import Iterator

from convoy.graph.ops import Reshape
from convoy.kernels.copy import copy_whole
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.fuse import Group
from convoy.plan.step import Step


def plan_reshape(group: Group, values: Values) -> Iterator[Step]:
    x = values.array(group.anchor.inputs[0])
    if group.output in values.graph.outputs:
        yield copy_whole(make_note(group, values.graph), x, values.define_array(group.output))
    else:
        values.alias_array(group.output, x)


KERNEL = KernelKind(nodes=(Reshape,), plan=plan_reshape)
