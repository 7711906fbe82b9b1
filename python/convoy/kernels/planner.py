"""From a ``Graph`` to a ``Plan``: the planner's road, in order.

Read ``make_plan`` first: fuse nodes into fusions, choose each tensor's layout, append the steps of
each fusion, place memory and barriers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from convoy.graph.graph import Graph
from convoy.graph.ops import Node
from convoy.kernels.conv2d.choose import Choice, choose_algorithms, report_choices
from convoy.kernels.conv2d.pools import choose_pools, estimate_pools, report_pools
from convoy.kernels.copy import copy_whole
from convoy.kernels.recurrent import plan_beside, run_beside
from convoy.kernels.registry import check_types, choose_layouts, find_kernel, find_narrow, find_takers
from convoy.kernels.strips.chains import choose_chains, report_chains
from convoy.kernels.strips.strips import plan_strips
from convoy.kernels.strips.window import Chain
from convoy.kernels.values import Values
from convoy.options import Options
from convoy.plan.alone import find_alone, gather
from convoy.plan.batch import find_batched, give_images_their_own
from convoy.plan.beside import bring_together
from convoy.plan.estimate import estimate_steps, estimate_work, images_worth_a_team, work_worth_a_team
from convoy.plan.fuse import Fusion, fuse
from convoy.plan.memory import Slot, place_barriers, place_buffers, place_open_buffers
from convoy.plan.plan import Plan
from convoy.plan.step import Note, Step
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
    graph : Graph
        Verified and simplified.
    options : Options | None
        The threads to plan for (0: the target's cores), the accuracy asked for.
    report : Report | None
        Receives the choice of each convolution's algorithm.
    measured : Mapping[str, Choice] | None
        Choices that were found by measuring, by the names of the convolutions' outputs.
    """
    options = options or Options()
    threads = options.threads or target.cores
    fusions = fuse(graph, options.disabled_patterns, find_takers(graph, target, threads, options))
    fusions, beside = bring_together(fusions, threads, lambda one, other: run_beside(one, other, graph))
    check_types(graph, fusions)
    blocked = choose_layouts(graph, fusions)
    choices = choose_algorithms(graph, fusions, blocked, target, threads, options, measured or {})
    estimated = estimate_pools(graph, fusions, choices, target, threads)
    pools = choose_pools(estimated)
    narrow = find_narrow(graph, fusions, choices)
    values = Values(graph, fusions, blocked, choices, pools, target, threads, narrow)
    pooled = {pool.fusion.output for pool in pools.values()}
    fusions = [fusion for fusion in fusions if fusion.output not in pooled]
    chains = choose_chains(
        graph.likely, fusions, blocked, values.views, choices, target, threads, values.narrow, narrow
    )
    if report is not None:
        report_choices(choices, graph, target, report)
        report_pools(estimated, pools, target, report)
        report_chains(chains, report)
    nodes: list[tuple[Node, ...]] = []
    for computed, made in _plan_fusions(fusions, chains, beside, values):
        for step in made:
            values.steps.append(step)
        also = [pools[f.output].fusion for f in computed if f.output in pools]
        these = tuple(node for fusion in (*computed, *also) for node in fusion.nodes)
        nodes += [these] * (len(values.steps) - len(nodes))
    cycles = estimate_steps(values.steps, target, threads)
    alone = find_alone(values.steps, cycles, target, threads)
    order = gather(values.steps, alone, values.buffers)
    steps, nodes = [values.steps[i] for i in order], [nodes[i] for i in order]
    cycles, alone = tuple(cycles[i] for i in order), [alone[i] for i in order]
    batched = find_batched(values.buffers, steps) if graph.batch != 1 else len(steps)
    buffers = give_images_their_own(values.buffers, steps[batched:])
    slots: tuple[Slot, ...] = ()
    if graph.is_open:
        buffers, sizes, slots = place_open_buffers(buffers, steps)
    else:
        buffers, sizes = place_buffers(buffers, steps)
    work = estimate_work(cycles, target, threads)
    return Plan(
        lanes=target.lanes,
        threads=options.threads,
        batch=graph.batch,
        buffers=tuple(buffers),
        weights=tuple(values.weights),
        steps=tuple(steps),
        barriers=tuple(place_barriers(buffers, steps, alone, batched)),
        alone=tuple(alone),
        inputs=tuple(graph.tensors[name].size for name in graph.inputs),
        outputs=tuple(graph.tensors[name].size for name in graph.outputs),
        arena_bytes=sizes["arena"],
        weight_bytes=sizes["weights"],
        thread_bytes=sizes["thread"],
        batch_bytes=sizes["batch"],
        batched=batched,
        places_weights=sizes["weights"] >= target.placed_bytes,
        team_images=images_worth_a_team(work, target, threads),
        sizes=tuple(axis.symbol for axis in graph.open_axes),
        slots=slots,
        team_work=work_worth_a_team(target, threads) if graph.is_open else 0.0,
        cycles=cycles,
        work=work,
        nodes=tuple(nodes),
    )


def _plan_fusions(
    fusions: Sequence[Fusion],
    chains: Sequence[Chain],
    beside: Sequence[tuple[Fusion, ...]],
    values: Values,
) -> Iterator[tuple[Sequence[Fusion], Iterator[Step]]]:
    """All fusions, chains and groups in running order, each with its steps; then those for the outputs."""
    chain_of = {fusion.output: chain for chain in chains for fusion in chain.fusions}
    group_of = {fusion.output: group for group in beside for fusion in group}
    for fusion in fusions:
        chain, group = chain_of.get(fusion.output), group_of.get(fusion.output)
        if chain is not None:
            if chain.fusions[-1] is fusion:
                yield chain.fusions, plan_strips(chain, values, _plan_member)
        elif group is not None:
            if group[-1] is fusion:
                yield group, plan_beside(group, values)
        else:
            yield [fusion], _plan_fusion(fusion, values)
    yield [], _finish_outputs(values)


def _plan_fusion(fusion: Fusion, values: Values) -> Iterator[Step]:
    plan = find_kernel(fusion).plan
    assert plan is not None
    return plan(fusion, values)


def _plan_member(fusion: Fusion, values: Values) -> Iterator[Step]:
    plan = find_kernel(fusion).plan_member
    assert plan is not None, f"{fusion.anchor} is no member of a chain"
    return plan(fusion, values)


def _finish_outputs(values: Values) -> Iterator[Step]:
    """Every output in row-major form in its own argument, also one that is an input, or twice one."""
    for index, name in enumerate(values.graph.outputs):
        x = values.array(name)
        buffer = values.buffers[x.buffer]
        if (buffer.space, buffer.index) != ("output", index):
            yield copy_whole(Note("copy", f"copy {name}"), x, values.output_array(index))
