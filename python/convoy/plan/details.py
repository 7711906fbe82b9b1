"""What a report says of the steps and the memory of a plan; it decides nothing."""

from __future__ import annotations

from convoy.graph.flops import count_flops
from convoy.graph.graph import Graph
from convoy.graph.messages import op_name
from convoy.plan.buffers import Array, Operand
from convoy.plan.memory import extent, lifetimes
from convoy.plan.plan import Plan
from convoy.plan.step import Step
from convoy.report.decision import Held, StepDetail
from convoy.target import Target


def describe_steps(plan: Plan, graph: Graph, target: Target) -> tuple[StepDetail, ...]:
    """One detail per step; the FLOPs of a node that several steps compute are shared by their cycles."""
    return tuple(
        StepDetail(
            nodes=tuple(dict.fromkeys(node.origin for node in plan.nodes[i] if node.origin)),
            sources=sources,
            results=tuple(sorted(_results(step, plan))),
            shape=_shape(step.y),
            dtype=step.y.dtype,
            precision=step.precision,
            tiling=step.tiling,
            flops=_flops(i, plan, graph),
            products=step.share_of_products,
            at_once=target.products_at_once(step.precision),
            bytes=sum(o.bytes for o in dict.fromkeys((*step.reads, *step.writes)) if o not in step.scratch),
        )
        for i, (step, sources) in enumerate(zip(plan.steps, _find_sources(plan), strict=True))
    )


def describe_arena(plan: Plan) -> tuple[Held, ...]:
    """Who lies where in the arena, from which step to which."""
    makers: dict[int, str] = {}
    for step in plan.steps:
        for operand in step.writes:
            makers.setdefault(operand.buffer, step.note.text)
    return tuple(
        Held(makers.get(i, ""), plan.buffers[i].index, plan.buffers[i].bytes, first, last)
        for i, (first, last) in sorted(lifetimes(plan.steps).items())
        if plan.buffers[i].space == "arena"
    )


def _flops(number: int, plan: Plan, graph: Graph) -> int:
    """None of a step that only packs, pads or clears for those that compute."""
    nodes = plan.nodes[number]
    total, ops = sum(count_flops(node, graph) for node in nodes), {op_name(node) for node in nodes}
    if not total or plan.steps[number].note.op not in ops:
        return 0
    computing = [
        plan.cycles[i]
        for i, step in enumerate(plan.steps)
        if plan.nodes[i] is nodes and step.note.op in ops
    ]
    cycles = sum(computing)
    return round(total * plan.cycles[number] / cycles if cycles else total / len(computing))


def _shape(operand: Operand) -> tuple[int, ...]:
    if isinstance(operand, Array):
        return operand.shape
    return (1, operand.channels, operand.height, operand.width)


def _find_sources(plan: Plan) -> list[tuple[int, ...]]:
    """For each step the steps whose results it reads; -1 - i is input i."""
    written: dict[int, list[tuple[int, int, int]]] = {}  # of a buffer: begin, end, step
    found: list[tuple[int, ...]] = []
    for number, step in enumerate(plan.steps):
        sources: dict[int, None] = {}
        for operand in step.reads:
            space, begin, end = extent(operand, plan.buffers)
            if space == "input":
                sources[-1 - begin] = None
                continue
            for low, high, writer in reversed(written.get(operand.buffer, [])):
                if begin < high and low < end:
                    sources[writer] = None
                    if low <= begin and end <= high:
                        break
        found.append(tuple(sources))
        for operand in step.writes:
            _, begin, end = extent(operand, plan.buffers)
            written.setdefault(operand.buffer, []).append((begin, end, number))
    return found


def _results(step: Step, plan: Plan) -> set[int]:
    """The outputs of the region that it writes, or a part of them."""
    buffers = (plan.buffers[operand.buffer] for operand in step.writes)
    return {buffer.index for buffer in buffers if buffer.space == "output"}
