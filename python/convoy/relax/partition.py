"""Cut the regions Convoy (or a backend of your own) computes out of a module, as external functions.

annotate (``annotate``: which ops, by pattern) → grow (``regions``: maximal convex regions) → give
back what is not worth a call → cut out.  A region becomes

    convoy_<hash of its content>(inputs): Codegen "convoy"
        one local function a composite: Composite "convoy.conv2d_bias_relu", …

the form TVM's own MergeCompositeFunctions leaves.  TVM's FuseOpsByPattern is not used: it runs
every pattern over the whole module, gives no reasons, and raises on a cycle instead of splitting.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from tvm import relax, tirx
from tvm.ir import GlobalVar, IRModule, Op
from tvm.ir.transform import Pass, PassContext, module_pass
from tvm.relax.expr import _update_type

from convoy.errors import UnknownSizeError
from convoy.offload.faults import reasons_of
from convoy.offload.names import KEY, check_codegen, check_names, check_refuse, stem
from convoy.offload.reasons import IN_BRANCH, IN_LOCAL
from convoy.offload.settings import make_settings
from convoy.offload.strict import check_strict
from convoy.offload.work import count_bytes, count_flops, not_worth_a_call, step_of
from convoy.options import Options
from convoy.relax.annotate import Annotator, Composite, Refuse
from convoy.relax.blocks import end_blocks_at_writes
from convoy.relax.dataflow import Dataflow, computes_nothing, node_name, op_name
from convoy.relax.expected import least_sizes
from convoy.relax.extract import cut_out
from convoy.relax.images import OPEN
from convoy.relax.no_touch import is_marked, is_open, no_touch
from convoy.relax.patterns import PATTERNS, TAKEN
from convoy.relax.reader import BlockReader
from convoy.relax.regions import Region, grow_regions
from convoy.report.decision import Report

DISPATCHER = "convoy_dispatcher"
"""Attribute of a function that only calls others: nothing in it is an op of the network."""


def partition(
    options: Options | None = None,
    report: Report | None = None,
    *,
    codegen: str = KEY,
    refuse: Refuse = lambda _: None,
) -> Pass:
    """Pass that moves what Convoy computes, or a backend of your own, into external functions.

    Parameters
    ----------
    options : Options | None
        What the user switched off or kept out; ``merge=False`` gives one external function a composite,
        however small.
    report : Report | None
        Receives a ``Decision`` for every op, and the FLOPs.
    codegen : str
        Whose the functions are: ``RunCodegen`` gives them to ``relax.ext.<codegen>``.
    refuse : Refuse
        Called with each op that Convoy's patterns take; says why yours does not, or None.

    Raises
    ------
    RefusedError
        With ``options.strict``, for the first op that is left to TVM.
    ConvoyError
        For options that are none, a pattern, op or node name that does not exist, a ``codegen`` that is
        no name, a ``refuse`` that cannot be called or gives a reason that is no text.
    """
    check_codegen(codegen)
    check_refuse(refuse)
    settings = make_settings("partition", options, report)
    chosen, kept = settings.options, settings.report

    def run(module: IRModule, _: PassContext) -> IRModule:
        nodes = _names(module) if chosen.exclude else ()
        check_names(chosen, PATTERNS, TAKEN, nodes, prefix="relax.")
        return _partition_module(module, chosen, kept, Owner(codegen, refuse))

    return module_pass(run, opt_level=0, name="convoy.partition")


@dataclass(frozen=True)
class Owner:
    """Whose the external functions are."""

    codegen: str
    refuse: Refuse
    given_back: dict[str, str] = field(default_factory=dict)
    """Why functions that were cut out before were given back, by their names."""
    left: dict[str, str] = field(default_factory=dict)
    """Why ops of such are left, the rest of which is tried again, by their names."""


def _partition_module(module: IRModule, options: Options, report: Report, owner: Owner) -> IRModule:
    if any(flow.has_renamings for flow in _blocks(module)):
        module = no_touch(relax.transform.CanonicalizeBindings())(module)
    module = no_touch(end_blocks_at_writes())(module)
    while True:
        found = Report()
        changed = _cut_module(module, options, found, owner)
        nodes = _first_nodes(found)
        faults = _find_faults(changed, nodes) if owner.codegen == KEY else {}
        if not faults:
            break
        for name, error in list(faults.items()):
            if isinstance(error, UnknownSizeError) and error.node not in owner.left:
                owner.left[error.node] = f"{error.problem}; {error.remedy}"
                del faults[name]
        owner.given_back.update(reasons_of(faults, nodes, options))
    report.extend(found)
    check_strict(options, found.decisions)
    return changed


def _cut_module(module: IRModule, options: Options, report: Report, owner: Owner) -> IRModule:
    functions = dict(module.functions_items())
    changed = IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
    for var, function in functions.items():
        if is_open(function) and DISPATCHER not in (function.attrs or ()):
            changed[var] = _partition_function(function, changed, options, report, owner)
    return changed


def _first_nodes(report: Report) -> dict[str, str]:
    """The first op of each function that was cut out, by the function's name."""
    nodes: dict[str, str] = {}
    for decision in report.decisions:
        if decision.choice == "taken":
            nodes.setdefault(decision.reason.rpartition(" in ")[2], decision.node)
    return nodes


def _find_faults(module: IRModule, names: Iterable[str]) -> dict[str, Exception]:
    """The functions of these names that do not become objects, and why."""
    from convoy.relax.codegen import find_faults  # it brings the planner, which no other backend needs

    return find_faults({name: module[name] for name in names})


def _blocks(module: IRModule) -> Iterator[Dataflow]:
    for _, function in module.functions_items():
        if isinstance(function, relax.Function) and isinstance(function.body, relax.SeqExpr):
            for block in function.body.blocks:
                if isinstance(block, relax.DataflowBlock) and is_open(function):
                    yield Dataflow(block)


def _names(module: IRModule) -> set[str]:
    """What nodes may be called: as in the model, or by their variable."""
    bindings = [binding for flow in _blocks(module) for binding in flow.bindings]
    return {name for b in bindings for name in (node_name(b), str(b.var.name))}


def _partition_function(
    function: relax.Function, module: IRModule, options: Options, report: Report, owner: Owner
) -> relax.Function:
    if not isinstance(function.body, relax.SeqExpr):
        return function
    blocks = []
    least = least_sizes(function, module)
    known = {v for p in function.params for v in relax.analysis.definable_tir_vars_in_type(p.ty)}
    for block in function.body.blocks:
        if isinstance(block, relax.DataflowBlock):
            blocks.append(_partition_block(block, known, least, module, options, report, owner))
        else:
            _report_outside(block, report)
            blocks.append(block)
        known |= _sizes_found(block.bindings, known).keys()
    body = relax.SeqExpr(blocks, function.body.body)
    _update_type(body, function.body.ty)
    return relax.Function(
        function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span
    )


@dataclass(frozen=True)
class Unit:
    """A node of the graph that regions grow in: a composite, or one binding that is left."""

    positions: tuple[int, ...]
    composite: Composite | None

    @property
    def last(self) -> int:
        return self.positions[-1]


def _partition_block(
    block: relax.DataflowBlock,
    known: Set[tirx.Var],
    least: Mapping[tirx.Var, int],
    module: IRModule,
    options: Options,
    report: Report,
    owner: Owner,
) -> relax.DataflowBlock:
    """A block with its regions cut out.

    ``known`` are the sizes that are found before it; those in ``least`` are at least so much.
    """
    flow = Dataflow(block, least)
    annotator = Annotator(flow, options, owner.refuse, owner.left)
    units = _units(flow, annotator.run(), annotator.taken)
    regions = _grow(flow, units, known, options.merge)
    reasons = dict(annotator.reasons)
    bindings: list[relax.Binding] = []
    for region in regions:
        composites = [c for node in region.nodes if (c := units[node].composite) is not None]
        reason = None if not options.merge else _not_worth_a_call(flow, composites)
        inside = sorted({p for node in region.nodes for p in units[node].positions})
        if not composites or reason is not None:
            bindings += [flow.bindings[i] for i in inside]
            reasons |= dict.fromkeys(inside if composites else (), reason or "")
            continue
        members = set(region.nodes)
        outside = {p for node, u in enumerate(units) if node not in members for p in u.positions}
        cut = cut_out(flow, composites, _outputs(flow, composites, outside), region.labels, owner.codegen)
        if cut.name in owner.given_back:
            bindings += [flow.bindings[i] for i in inside]
            reasons |= dict.fromkeys(inside, owner.given_back[cut.name])
            continue
        function = _add_function(module, cut.function, cut.name)
        bindings += cut.call(function)
        for composite in composites:
            for i in composite.positions:
                _report(flow, i, f"{owner.codegen}.{stem(composite.pattern)} in {cut.name}", True, report)
    # no reason is given, and nothing counted, of what computes nothing
    reasons = {i: r for i, r in reasons.items() if not computes_nothing(flow.bindings[i].value)}
    for i in sorted(reasons):
        if not _calls_marked(flow.bindings[i].value, module):
            _report(flow, i, reasons[i], False, report)
    for binding in flow.bindings:
        _report_within(binding.value, report)
    _count_flops(flow, reasons, report)
    return relax.DataflowBlock(_without_repeats(bindings))


def _calls_marked(value: relax.Expr, module: IRModule) -> bool:
    """Is it the call of a function that is some codegen's already?"""
    called = value.op if isinstance(value, relax.Call) else None
    return isinstance(called, GlobalVar) and is_marked(module[called])


def _units(flow: Dataflow, composites: list[Composite], taken: dict[int, Composite]) -> list[Unit]:
    """Composites and the bindings that are in none, in an order they can run in."""
    units = [Unit(c.positions, c) for c in composites]
    units += [Unit((i,), None) for i in range(len(flow.bindings)) if i not in taken]
    return sorted(units, key=lambda unit: unit.last)


def _grow(flow: Dataflow, units: list[Unit], known: Set[tirx.Var], merge: bool) -> list[Region]:
    labels = [u.composite.readings if u.composite else frozenset[str]() for u in units]
    if not merge:
        return [Region((i,), label) for i, label in enumerate(labels)]
    maker = {unit.last: i for i, unit in enumerate(units)}
    finders = {size: maker[i] for size, i in _sizes_found(flow.bindings, known).items() if i in maker}
    reads: list[list[int]] = []
    operands: list[list[Hashable]] = []
    for unit in units:
        variables = flow.reads_of(unit.positions)
        makers = [maker.get(flow.position.get(v, -1)) for v in variables]
        sizes = _sizes_in([flow.bindings[i] for i in unit.positions]) if finders else ()
        found = [finders[size] for size in sizes if finders.get(size, len(reads)) < len(reads)]
        reads.append([m for m in [*makers, *found] if m is not None])
        # What Convoy computes itself is no reason to join: that pair touches already.
        operands.append([v for v, m in zip(variables, makers, strict=True) if m is None or not labels[m]])
    return grow_regions(reads, labels, operands, late=OPEN)


def _sizes_found(bindings: Sequence[relax.Binding], known: Set[tirx.Var]) -> dict[tirx.Var, int]:
    """Which cast finds each size that was not known before."""
    found: dict[tirx.Var, int] = {}
    for i, binding in enumerate(bindings):
        if isinstance(binding, relax.MatchCast):
            for size in relax.analysis.definable_tir_vars_in_type(binding.ty):
                if size not in known:
                    found.setdefault(size, i)
    return found


def _sizes_in(bindings: Sequence[relax.Binding]) -> Set[tirx.Var]:
    """The sizes that bindings speak of: what runs before these are found would not know them."""
    calls = [b.value for b in bindings if isinstance(b.value, relax.Call)]
    types = [*(b.var.ty for b in bindings), *(arg.ty for call in calls for arg in call.args)]
    return {size for kind in types for size in relax.analysis.tir_vars_in_type(kind)}


def _outputs(flow: Dataflow, composites: Iterable[Composite], outside: set[int]) -> list[int]:
    """Positions of the results that are read outside of the region.

    A split may be in several regions, in each for some of its items: what it reads is read in all of them.
    """
    lasts = sorted({c.positions[-1] for c in composites})
    return [i for i in lasts if flow.escapes(i) or not outside.isdisjoint(flow.users[i])]


def _not_worth_a_call(flow: Dataflow, composites: list[Composite]) -> str | None:
    """Why these composites are given back; None if they are worth a call of their own."""
    values = [flow.bindings[i].value for c in composites for i in c.positions]
    at = BlockReader(flow)
    moved = [count_bytes(value, at) for value in values if isinstance(value, relax.Call)]
    return not_worth_a_call(moved, heavy=any(c.heavy for c in composites))


def _add_function(module: IRModule, function: relax.Function, name: str) -> GlobalVar:
    """Put an external function into the module; one of the same content is there only once."""
    for var in module.get_global_vars():
        if var.name_hint == name:
            return var
    var = GlobalVar(name)
    _update_type(var, function.ty)
    module[var] = function
    return var


def _without_repeats(bindings: list[relax.Binding]) -> list[relax.Binding]:
    """Each binding once: a split whose items were given back one by one comes with each."""
    return list({binding.var: binding for binding in bindings}.values())


# Reporting -----------------------------------------------------------------------------------------


def _report(flow: Dataflow, i: int, reason: str, taken: bool, report: Report) -> None:
    binding = flow.bindings[i]
    if isinstance(binding.value, relax.Call):
        step = "partition" if taken else step_of(reason)
        report.add(_node(binding), step, "taken" if taken else "left", reason)


_OUTSIDE = "expected an op in a dataflow block, got one outside; run ConvertToDataflow"
_EFFECT = "expected an op that computes and does nothing else, got one with an effect"


def _report_outside(block: relax.BindingBlock, report: Report, reason: str = _OUTSIDE) -> None:
    reader = BlockReader(Dataflow(block))
    for binding in block.bindings:
        if op_name(binding.value) and not computes_nothing(binding.value):
            why = reason if _is_pure(binding.value) else _EFFECT  # no block of dataflow takes one
            report.add(_node(binding), "annotate", "left", why)
            report.flops_total += count_flops(binding.value, reader)
        else:
            _report_within(binding.value, report)


def _is_pure(value: relax.Expr) -> bool:
    op = value.op if isinstance(value, relax.Call) else None
    return not isinstance(op, Op) or op.get_attr("FPurity") is not False


def _report_within(value: relax.Expr, report: Report) -> None:
    """The same of what a branch does, or a function that is written where it is called."""
    if isinstance(value, relax.If):
        bodies, reason = [value.true_branch, value.false_branch], IN_BRANCH
    elif is_open(value):
        bodies, reason = [value.body], IN_LOCAL
    else:
        return
    for body in bodies:
        for block in body.blocks:
            _report_outside(block, report, reason)


def _count_flops(flow: Dataflow, left: Iterable[int], report: Report) -> None:
    outside = set(left)
    for i, binding in enumerate(flow.bindings):
        if op_name(binding.value) and not computes_nothing(binding.value):
            flops = count_flops(binding.value, BlockReader(flow))
            report.flops_total += flops
            report.flops_offloaded += 0 if i in outside else flops


def _node(binding: relax.Binding) -> str:
    return f"{op_name(binding.value) or 'call'} {node_name(binding)}"
