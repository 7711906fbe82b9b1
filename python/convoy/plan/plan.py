"""From a ``Graph`` to a ``Plan``: the planner's road, in order.

Read ``make_plan`` first: fuse nodes into groups, choose each tensor's layout, append the steps of
each group, place memory and barriers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from convoy.errors import GraphError
from convoy.graph.graph import Graph
from convoy.graph.ops import (
    Binary,
    ChannelShuffle,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Lrn,
    MatMul,
    Pad,
    Pool2d,
    Reduce,
    Reshape,
    Resize,
    Slice,
    Softmax,
    Transpose,
    Unary,
)
from convoy.options import Options
from convoy.plan import movement
from convoy.plan.algorithm import Choice, choose_algorithms, report_choices
from convoy.plan.batch import find_batched, give_images_their_own
from convoy.plan.chains import choose_chains, report_chains
from convoy.plan.convolution import plan_conv2d, plan_conv2d_transpose
from convoy.plan.elementwise import plan_elementwise
from convoy.plan.estimate import (
    estimate_convolution,
    estimate_others,
    estimate_work,
    images_worth_a_team,
)
from convoy.plan.fuse import Group, fuse
from convoy.plan.maps import choose_layouts
from convoy.plan.memory import place_barriers, place_buffers
from convoy.plan.pools import add_pool, choose_pools, report_pools
from convoy.plan.steps import Array, CopyRows, Plan
from convoy.plan.strips import plan_strips
from convoy.plan.values import Values
from convoy.report.decision import Report
from convoy.target import Target


def make_plan(
    graph: Graph,
    target: Target,
    options: Options | None = None,
    report: Report | None = None,
    measured: Mapping[str, Choice] | None = None,
) -> Plan:
    """Decide everything about a region.

    Parameters
    ----------
    graph : verified and simplified
    options : the threads to plan for (0: the target's cores), the accuracy asked for
    report : receives the choice of each convolution's algorithm
    measured : choices that were found by measuring, by the names of the convolutions' outputs
    """
    options = options or Options()
    threads = options.threads or target.cores
    groups = fuse(graph)
    blocked = choose_layouts(graph, groups)
    choices = choose_algorithms(graph, groups, blocked, target, threads, options, measured or {})
    if report is not None:
        report_choices(choices, graph, report)
    values = Values(graph, groups, blocked, choices, target.lanes)
    pools = choose_pools(graph, groups, choices, target, threads)
    pooled = {pool.group.output for pool in pools.values()}
    groups = [group for group in groups if group.output not in pooled]
    chains = choose_chains(graph, groups, blocked, values.views, choices, target, threads)
    if report is not None:
        report_pools(pools, report)
        report_chains(chains, report)
    chain_of = {group.output: chain for chain in chains for group in chain.groups}
    for group in groups:
        chain = chain_of.get(group.output)
        if chain is None:
            _plan_group(group, values, target, threads)
        elif chain.groups[-1] is group:
            plan_strips(chain, values, target)
            values.steps[-1] = replace(values.steps[-1], cycles=chain.estimate.together)
        if group.output in pools:
            add_pool(pools[group.output], values)
    _finish_outputs(values)
    batched = find_batched(values.buffers, values.steps) if graph.batch != 1 else len(values.steps)
    buffers = give_images_their_own(values.buffers, values.steps[batched:])
    buffers, sizes = place_buffers(buffers, values.steps)
    steps = estimate_others(values.steps, threads)
    work = estimate_work(steps, threads)
    return Plan(
        lanes=target.lanes,
        threads=options.threads,
        batch=graph.batch,
        buffers=tuple(buffers),
        weights=tuple(values.weights),
        steps=tuple(steps),
        barriers=tuple(place_barriers(buffers, values.steps)),
        inputs=tuple(graph.tensors[name].size for name in graph.inputs),
        outputs=tuple(graph.tensors[name].size for name in graph.outputs),
        arena_size=sizes["arena"],
        weights_size=sizes["weights"],
        thread_size=sizes["thread"],
        batch_size=sizes["batch"],
        batched=batched,
        work=work,
        team_images=images_worth_a_team(work, threads),
    )


def _plan_group(group: Group, values: Values, target: Target, threads: int) -> None:
    first = len(values.steps)
    _append_steps(group, values, target, threads)
    choice = values.choices.get(group.anchor.output)
    if choice is not None:
        values.steps[first:] = estimate_convolution(values.steps[first:], choice)


def _append_steps(group: Group, values: Values, target: Target, threads: int) -> None:
    match group.anchor:
        case Conv2d():
            plan_conv2d(group, values, target, threads)
        case ConvTranspose2d():
            plan_conv2d_transpose(group, values, target, threads)
        case MatMul():
            movement.plan_matmul(group, values)
        case Pool2d():
            movement.plan_pool(group, values)
        case Unary() | Binary():
            plan_elementwise(group, values)
        case Concat():
            movement.plan_concat(group, values)
        case Slice():
            movement.plan_slice(group, values)
        case Reshape():
            movement.plan_reshape(group, values)
        case Transpose():
            movement.plan_transpose(group, values)
        case Reduce():
            movement.plan_reduce(group, values)
        case Softmax():
            movement.plan_softmax(group, values)
        case Resize():
            movement.plan_resize(group, values)
        case Pad():
            movement.plan_pad(group, values)
        case Lrn():
            movement.plan_lrn(group, values)
        case ChannelShuffle():
            movement.plan_shuffle(group, values)
        case other:
            raise GraphError(
                "plan", f"{type(other).__name__} {other.output}", "expected an op with a kernel, got none",
                "leave the op to TVM",
            )  # fmt: skip


def _finish_outputs(values: Values) -> None:
    """Every output in row-major form in its own argument, also one that is an input, or twice one."""
    graph = values.graph
    for index, name in enumerate(graph.outputs):
        x = values.array(name)
        if values.buffers[x.buffer].space == "output" and values.buffers[x.buffer].index == index:
            continue
        y: Array = values.output_array(index, x.shape)
        values.steps.append(
            CopyRows(
                note=f"copy {name}", x=x, y=y, rows=1, columns=x.size, y_start=0, y_stride=x.size,
                x_stride=x.size,
            )
        )  # fmt: skip
