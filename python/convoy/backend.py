"""The neutral half of the road: ``Graph`` → C source and packed weights.

``generate`` lists it in order.  Compiling and linking what it returns is the toolchain's work; how TVM
calls the result is ``deploy/abi.py``'s.  ``load`` does without TVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convoy.codegen.emit import emit
from convoy.codegen.pack import pack_weights
from convoy.errors import LoweringError
from convoy.graph.bytes import prepare_bytes
from convoy.graph.digest import content_hash
from convoy.graph.dynamic import quantize_steps, scale_steps
from convoy.graph.flops import count_flops
from convoy.graph.graph import Graph, OpenAxis
from convoy.graph.ops import Tensor
from convoy.graph.quantised import dequantize_constants
from convoy.graph.rewrite import simplify
from convoy.graph.sizes import hint
from convoy.graph.taps import drop_unseen_taps
from convoy.graph.verify import verify
from convoy.graph.weights import quantize_weights
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.conv2d.siblings import merge_siblings
from convoy.kernels.integers import (
    halve_where_it_pays,
    halving_pays,
    keep_integers,
    read_columns_where_it_pays,
    steps_pay,
)
from convoy.kernels.planner import make_plan
from convoy.kernels.registry import emit_step
from convoy.log import log_step
from convoy.options import Options
from convoy.plan.clock import nominal_roof, seconds
from convoy.plan.details import describe_arena, describe_steps
from convoy.report.decision import RegionReport, Report
from convoy.target import Target, host
from convoy.text import c_name
from convoy.toolchain.compiler import compile_objects, kernel_sources, link_shared, runtime_sources
from convoy.toolchain.loader import load_region, read_seconds
from convoy.toolchain.probe import as_measured
from convoy.toolchain.weights import embed_weights

Tuner = Callable[[Graph], Mapping[str, Choice]]
"""Gives the measured choices for a simplified graph's convolutions, by the names of their outputs."""


@dataclass(frozen=True)
class RegionCode:
    """One region, ready to be compiled."""

    symbol: str
    """Its C entry, see ``csrc/include/convoy/region.h``."""
    sources: tuple[str, ...]
    """C translation units."""
    weights: memoryview
    """What ``extern const char <symbol>_weights[]`` holds."""
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    """Shapes of one image; the call has ``batch`` of them."""
    batch: int | None
    report: RegionReport
    open_axes: tuple[OpenAxis, ...] = ()
    """Where sizes are read that are known at the call."""
    called: str = ""
    """What TVM, reports and messages call it; "": as it is in C."""

    @property
    def name(self) -> str:
        """What TVM, reports and messages call it."""
        return self.called or self.symbol


def generate(
    graph: Graph,
    symbol: str | None,
    target: Target,
    options: Options | None = None,
    report: Report | None = None,
    timed: bool = False,
    tuner: Tuner | None = None,
    traced: bool = False,
    name: str = "",
) -> RegionCode:
    """Decide, write and pack one region.

    Parameters
    ----------
    symbol : str | None
        The name of its C entry; None: one made of all that decides its code, which no other region has.
    timed : bool
        The region keeps the time of each of its steps.
    tuner : Tuner | None
        Measures what else would be estimated.
    traced : bool
        The region tells who listens when each of its steps begins and ends (``convoy/trace.h``).
    name : str
        What reports and messages call it; "": as it is in C.

    Raises
    ------
    GraphError
        If the graph breaks a rule of ``graph/verify.py``.
    LoweringError
        If ``symbol`` is no name in C.
    """
    options = options or Options()
    target, machine = as_measured(target.with_said(options.cores, options.l2_bytes), options.cache)
    threads = options.threads or target.cores
    check_symbol(symbol or "_")
    verify(graph)
    flops = sum(count_flops(node, graph.likely) for node in graph.likely.nodes)
    graph = simplify(dequantize_constants(graph), options.disabled_patterns)
    pays = halving_pays(target, threads, options)
    graph = quantize_weights(scale_steps(quantize_steps(graph, pays, steps_pay(target, threads, options))))
    graph = halve_where_it_pays(graph, pays, target, threads, options)
    graph = read_columns_where_it_pays(graph, target, threads, options)
    graph = keep_integers(prepare_bytes(graph), target, threads, options, report)
    graph = merge_siblings(drop_unseen_taps(graph), target, threads, report)
    verify(graph)
    if options.precision == "bf16" and not target.bfloat16:
        _report_float32(target, report)
    plan = make_plan(graph, target, options, report, tuner(graph) if tuner else None)
    symbol = symbol or f"convoy_{content_hash(graph, plan, target.flags)}"
    name = name or symbol
    told = name if traced else ""
    source = emit(plan, symbol, emit_step, title=f"Region {name}.", timed=timed, traced=told)
    weights = pack_weights(plan, graph.constants)
    images = graph.batch or 1
    arenas = threads if plan.apart and images >= threads else 1
    scratch = arenas * plan.arena_bytes + images * plan.batch_bytes + threads * plan.thread_bytes
    likely = hint(plan)
    region = RegionReport(
        symbol=name,
        machine=machine,
        steps=tuple(step.description for step in plan.steps),
        kinds=tuple(step.kind for step in plan.steps),
        ops=tuple(step.note.op for step in plan.steps),
        estimates=tuple(seconds(cycles, target) for cycles in plan.cycles),
        arena_bytes=hint(scratch),
        weight_bytes=weights.nbytes,
        flops=flops,
        source=source,
        batch=graph.batch,
        roof=nominal_roof(target, threads),
        details=describe_steps(likely, graph.likely, target),
        arena=describe_arena(likely),
    )
    if report is not None:
        report.regions.append(region)
    return RegionCode(
        symbol=symbol,
        called=name,
        sources=(source,),
        weights=weights.data,
        inputs=tuple(graph.tensors[name] for name in graph.inputs),
        outputs=tuple(graph.tensors[name] for name in graph.outputs),
        batch=graph.batch,
        report=region,
        open_axes=graph.open_axes,
    )


def _report_float32(target: Target, report: Report | None) -> None:
    """What a CPU without instructions for bfloat16 computes in its place."""
    reason = f"{target.name or target.isa} has no instructions for products of bfloat16 (avx512bf16)"
    log_step(f"precision: float32 in place of bf16: {reason}")
    if report is not None:
        report.add("precision bf16", "plan", "float32", reason)


def check_symbol(symbol: str) -> None:
    """That a symbol is a name in C.

    Raises
    ------
    LoweringError
        If it is none.
    """
    try:
        c_name(symbol)
    except ValueError as error:
        remedy = "give the function a name of these"
        raise LoweringError("emit", "global_symbol", str(error), remedy) from None


def load(
    graph: Graph,
    target: Target | None = None,
    options: Options | None = None,
    timed: bool = False,
    tuner: Tuner | None = None,
) -> LoadedRegion:
    """Compile one region and load it into this process, without TVM; parameters as ``generate``.

    Tests, fuzzing and measured searches call regions through this.

    Raises
    ------
    GraphError, ToolchainError
    """
    target, options = target or host(), options or Options()
    if not target.bfloat16:
        target = target.for_precision(options.precision)
    code = generate(graph, "region", target, options, timed=timed, tuner=tuner)
    units = [*code.sources, *kernel_sources(code.sources).values(), *runtime_sources().values()]
    objects = compile_objects(units, target, folder=options.cache)
    if code.weights:
        objects = [*objects, embed_weights(code.symbol, code.weights, target)]
    return LoadedRegion(code, load_region(link_shared(objects), code))


@dataclass(frozen=True)
class LoadedRegion:
    """A region one can call: one NumPy array per input in, one new array per output out."""

    code: RegionCode
    function: Callable[..., list[NDArray[np.float32]]]

    def __call__(self, *arrays: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        return self.function(*arrays)

    def step_seconds(self) -> list[float]:
        """The least time each step has taken so far; of a region loaded ``timed``."""
        return read_seconds(self.function, self.code, len(self.code.report.steps))
