"""Samples of an image at places that are computed (``csrc/kernels/grid_sample.h``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

from convoy.codegen.writer import Writer
from convoy.graph.ops import GridSample
from convoy.kernels.kernel import KernelKind, follows
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.buffers import Array, Map
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """At the places of ``grid`` [2, points]."""

    grid: Array
    mode: Literal["nearest", "bilinear"]
    padding: Literal["zeros", "border", "reflection"]
    corners: bool


@dataclass(frozen=True, kw_only=True)
class SampleMap(Sampling, Step):
    """Where x is in blocks, y is, too."""

    x: Map
    y: Map


@dataclass(frozen=True, kw_only=True)
class SampleArray(Sampling, Step):
    """x is [channels, height, width], y [channels, points]: few points are not worth blocks of all of x."""

    x: Array
    y: Array
    channels: int
    height: int
    width: int
    points: int


def plan_grid_sample(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, GridSample)
    note, (data, places) = make_note(fusion, graph), node.inputs
    if values.blocked[fusion.output]:
        x, grid = values.map(data), values.array(places)
        yield SampleMap(
            note=note, x=x, y=values.define_map(fusion.output), grid=grid, mode=node.mode,
            padding=node.padding, corners=node.corners,
        )  # fmt: skip
        return
    _, channels, height, width = graph.shape(data)
    flat, grid = values.array(data), values.array(places)
    yield SampleArray(
        note=note, x=flat, y=values.define_array(fusion.output), grid=grid, mode=node.mode,
        padding=node.padding, corners=node.corners, channels=channels, height=height, width=width,
        points=prod(graph.shape(fusion.output)[2:]),
    )  # fmt: skip


def emit_map(step: SampleMap, w: Writer) -> str:
    w.headers.add("grid_sample")
    return (
        f"{w.maps(step.x, step.y)}  cv_grid_sample_map_{step.mode}(t, y, x, {w.pointer(step.grid)}, "
        f"{_form(step)});\n"
    )


def emit_array(step: SampleArray, w: Writer) -> str:
    w.headers.add("grid_sample")
    return (
        f"  cv_grid_sample_{step.mode}(t, {w.pointer(step.y)}, {w.pointer(step.x)}, {step.channels}, "
        f"{step.height}, {step.width}, {w.pointer(step.grid)}, {step.points}, {_form(step)});\n"
    )


def _form(step: Sampling) -> str:
    return f"(cv_grid_form){{CV_GRID_{step.padding.upper()}, {int(step.corners)}}}"


KERNEL = KernelKind(
    nodes=(GridSample,),
    plan=plan_grid_sample,
    emitters={SampleMap: emit_map, SampleArray: emit_array},
    wants_map=follows,
)
