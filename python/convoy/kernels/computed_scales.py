"""The scale of a product of bytes where a run computes it (``csrc/kernels/computed_scales.h``)."""

from __future__ import annotations

from dataclasses import dataclass

from convoy.codegen.writer import Writer, number
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.buffers import Array
from convoy.plan.fuse import Fusion
from convoy.plan.step import Note, Step


@dataclass(frozen=True, kw_only=True)
class ComputeScales(Step):
    """y [2][padded]: the scale, and the shift, of each of ``channels``."""

    factor: Array
    by: Array
    offset: tuple[Array, ...]
    unit: float
    bias: Array
    channels: int
    y: Array

    @property
    def unshared(self) -> bool:
        return True


def compute_scales(
    fusion: Fusion, factor: Array, bias: Array, unit: float, channels: int, values: Values
) -> tuple[Array, Array]:
    """Scale and shift of a fusion's sums, padded as ``factor`` and ``bias`` are; appends the step.

    ``unit``: by which both are multiplied already.
    """
    assert fusion.scale is not None
    offset = () if fusion.offset is None else (values.array(fusion.offset),)
    y = values.scratch_array(2, factor.size)
    note = Note("scales", f"scales of {make_note(fusion, values.graph).text}")
    values.steps.append(
        ComputeScales(
            note=note, factor=factor, by=values.array(fusion.scale), offset=offset, unit=unit,
            bias=bias, channels=channels, y=y,
        )
    )  # fmt: skip
    return Array(y.buffer, 0, factor.shape), Array(y.buffer, factor.size, factor.shape)


def emit_compute_scales(step: ComputeScales, w: Writer) -> str:
    w.headers.add("computed_scales")
    padded = step.factor.size
    offset, each = (w.pointer(step.offset[0]), step.offset[0].size > 1) if step.offset else ("NULL", False)
    return (
        f"  float *scale = {w.pointer(step.y)};\n"
        f"  cv_compute_scales(scale, scale + {padded}, {w.pointer(step.factor)}, {w.pointer(step.by)}, "
        f"{int(step.by.size > 1)}, {offset}, {int(each)}, {number(step.unit)}, {w.pointer(step.bias)}, "
        f"{step.channels}, {padded});\n"
    )


KERNEL = KernelKind(emitters={ComputeScales: emit_compute_scales})
