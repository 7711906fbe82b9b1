"""Cut the regions Convoy (or a backend of your own) computes out of a module, as external functions.

annotate (which ops, by pattern) → TVM's MergeComposite, AnnotateTarget, MergeCompilerRegions and
PartitionGraph → give back what is not worth a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

import tvm
from tvm import relay
from tvm.ir import BaseFunc, GlobalVar, IRModule

from convoy.errors import ConvoyError
from convoy.offload.faults import reasons_of, report_marked
from convoy.offload.names import KEY, check_codegen, check_module_name, check_names, check_refuse, stem
from convoy.offload.reasons import OTHER_READING, UNSEEN
from convoy.offload.settings import make_settings
from convoy.offload.strict import check_strict
from convoy.offload.work import count_bytes, count_flops, not_worth_a_call, step_of
from convoy.options import Options
from convoy.relay.annotate import (
    Alone,
    Annotation,
    Reasons,
    Refuse,
    Users,
    asked_for,
    call_number,
    find_alone,
    find_reasons,
    find_users,
    is_taken,
    node_names,
    number_calls,
    using,
)
from convoy.relay.aside import calls_in, set_aside, take_back, to_leave
from convoy.relay.composites import Composites, Row, find_composites, pattern_table_for
from convoy.relay.dataflow import (
    Dataflow,
    attribute,
    composite_name,
    given_name,
    op_name,
    post_order,
    without_composites,
)
from convoy.relay.hidden import hide_op, is_hidden, new_guard, show_call
from convoy.relay.lets import open_functions, rebuild_open, unseen_calls, without_lets
from convoy.relay.marks import check_marks
from convoy.relay.module import as_module, functions_of, replace_functions
from convoy.relay.nested import flatten_results
from convoy.relay.no_touch import (
    called_functions,
    is_marked,
    is_open,
    marked_functions,
    put_back,
    rewrite_calls,
    take_out,
)
from convoy.relay.patterns import PATTERNS, TAKEN
from convoy.relay.reader import READER
from convoy.relay.readings import FLAT, Reading, choose_readings
from convoy.relay.resolve import is_external
from convoy.report.decision import Report


def partition(
    module: IRModule | relay.Function,
    options: Options | None = None,
    report: Report | None = None,
    name: str = "default",
    *,
    codegen: str = KEY,
    refuse: Refuse = lambda _: None,
) -> IRModule:
    """Move what Convoy computes, or a backend of your own, into external functions.

    Those that the module has already stay as they are; a new one whose name is taken gets another number.

    Parameters
    ----------
    module : IRModule | relay.Function
        A Relay module, or a function to make one of; ops whose weights are not bound as constants are
        left with that for a reason.
    options : Options | None
        What the user switched off or kept out; ``merge=False`` gives one external function a composite or
        op, however small.
    report : Report | None
        Receives a ``Decision`` for every op, and the FLOPs.
    name : str
        Of the module, which is part of the functions' names.
    codegen : str
        Whose the functions are: TVM's build gives them to ``relay.ext.<codegen>``.
    refuse : Refuse
        Called with each op that Convoy's patterns take; says why yours does not, or None. It is not asked
        for what you marked yourself: other ops, by their attribute ``target.<codegen>``, and composites
        of that name.

    Returns
    -------
    IRModule
        A module with types, in which the functions have the attributes ``Compiler`` and
        ``global_symbol``.

    Raises
    ------
    RefusedError
        With ``options.strict``, for the first op that is left to TVM.
    ConvoyError
        For options that are none, a pattern, op or node name that does not exist, a ``codegen`` or
        ``name`` that is no name, a ``refuse`` that cannot be called or gives a reason that is no text, or a
        ``PassContext`` without the passes that cut functions out.
    ModelError
        For a module of another type, or a mark that is none.
    """
    settings = make_settings("partition", options, report)
    chosen, kept = settings.options, settings.report
    before = len(kept.decisions)
    check_codegen(codegen)
    check_module_name(name)
    check_refuse(refuse)
    _check_passes()
    module = as_module(module)
    check_marks(module)
    aside = to_leave(module)
    numbered = _number(set_aside(module, aside))
    functions = [function for var in _own_functions(numbered) for function in open_functions(numbered[var])]
    flows = [Dataflow(function.body) for function in functions]
    calls = list(dict.fromkeys(call for flow in flows for call in flow.calls))
    names = {name for call in calls for name in node_names(call)} if chosen.exclude else set()
    check_names(chosen, PATTERNS, TAKEN, names, prefix="relay.")
    found: Reasons = {}
    users: Users = {}
    alone: Alone = {}
    for function, flow in zip(functions, flows, strict=True):
        for number, reason in find_reasons(flow, function.params, chosen, refuse).items():
            found[number] = found.get(number) or reason
        alone |= find_alone(flow, chosen)
        for number, readers in find_users(flow).items():
            users[number] = users.get(number, frozenset()) | readers
    read = _choose_readings(flows, found)
    cut = numbered
    for reading in dict.fromkeys(read.values()) or (FLAT,):
        asked = {n: why or (None if read[n] == reading else OTHER_READING) for n, why in found.items()}
        with using(Annotation(asked, alone)):
            composites: Composites = {}
            for flow in flows:
                find_composites(flow, users, chosen, composites)
            table = pattern_table_for(codegen, composites, {op_name(call) for call in calls}, chosen)
            cut = _cut_beside_marked(codegen, table, cut, found, chosen, name)
    there = {var.name_hint for var in external_functions(numbered, codegen)}
    made = {v: f for v, f in external_functions(cut, codegen).items() if v.name_hint not in there}
    _report(codegen, calls, made, {number: why or alone.get(number) for number, why in found.items()}, kept)
    unseen = [call for var in _own_functions(numbered) for call in unseen_calls(numbered[var])]
    for call in (*unseen, *calls_in(to_leave(take_back(numbered, aside)))):
        kept.flops_total += count_flops(call, READER)
        kept.add(f"{op_name(call)} {given_name(call)}", "annotate", "left", UNSEEN)
    check_strict(chosen, kept.decisions[before:])
    return take_back(cut, aside)


def external_functions(module: IRModule, codegen: str = KEY) -> dict[GlobalVar, relay.Function]:
    """The functions marked for Convoy, or for another codegen."""
    return {
        var: function
        for var, function in functions_of(module)
        if attribute(function, "Compiler") == codegen
    }


def _own_functions(module: IRModule) -> list[GlobalVar]:
    return [var for var, function in functions_of(module) if is_open(function)]


def _number(module: IRModule) -> IRModule:
    numbers = count()
    numbered = {var: number_calls(without_lets(module[var]), numbers) for var in _own_functions(module)}
    return relay.transform.InferType()(replace_functions(module, numbered))


def _check_passes() -> None:
    """TVM leaves out what ``PassContext`` disables, and fails later over what is half annotated."""
    disabled = set(map(str, tvm.transform.PassContext.current().disabled_pass))
    for name in ("AnnotateTarget", "PartitionGraph"):
        if name in disabled:
            raise ConvoyError(
                "partition",
                "PassContext",
                f"expected the passes that cut functions out, got {name} in disabled_pass",
                "take it out, or build for a target without Convoy",
            )


def _choose_readings(flows: Sequence[Dataflow], found: Reasons) -> dict[int, Reading]:
    """How axis 0 of each call that is taken is read, by its number."""
    read: dict[int, Reading] = {}
    for flow in flows:
        numbers = {call: number for call in flow.calls if (number := call_number(call)) is not None}
        taken = [call for call, number in numbers.items() if found[number] is None]
        read |= {numbers[call]: reading for call, reading in choose_readings(flow, taken).items()}
    return read


def _cut_beside_marked(
    codegen: str, table: list[Row], module: IRModule, found: Reasons, options: Options, name: str
) -> IRModule:
    """``module`` with what ``is_taken`` in functions, but for those that are not worth it.

    TVM's passes do not see what is marked already.
    """
    there = {var.name_hint for var, function in functions_of(module) if is_marked(function)}
    marked = marked_functions(module).values()  # also those written where they are called
    hidden = bool(there) or any(map(is_external, marked))
    with new_guard() as guard:
        cut = _cut(codegen, table, take_out(module, guard) if hidden else module, options, name)
        cut = _give_back(codegen, cut, found, options.merge)
        cut = _renamed(codegen, cut, there)
        cut = flatten_results(cut, external_functions(cut, codegen))
        if codegen == KEY:
            cut = _give_back_faulty(cut, found, options, there)
        return put_back(cut, module, guard) if hidden else cut


def _cut(codegen: str, table: list[Row], module: IRModule, options: Options, name: str) -> IRModule:
    passes = [relay.transform.MergeComposite(table), relay.transform.AnnotateTarget(codegen)]
    if options.merge:
        passes.append(relay.transform.MergeCompilerRegions())
    kernels = _uncalled_kernels(module)
    with asked_for(codegen), new_guard() as guard:
        hidden = _hide_left(codegen, replace_functions(module, {}, without=kernels), guard)
        annotated = _run(passes, hidden)
        beside = _without_regions(annotated)
        cut = _run([relay.transform.PartitionGraph(name)], replace_functions(annotated, {}, without=beside))
        cut = _show_left(cut, guard)
    return replace_functions(cut, {**kernels, **{var: module[var] for var in beside}})


def _hide_left(codegen: str, module: IRModule, guard: int) -> IRModule:
    """``module`` with opaque ops in place of those that are left, as their types are known.

    MergeComposite's functions have no types before its InferType ends, and not every op's relation waits:
    ``one_hot`` behind a composite is an error of TVM's, ``segment_sum`` ends the process.
    """
    asked = f"target.{codegen}"

    def change(old: relay.Call, new: relay.Call) -> relay.Expr:
        name = op_name(old)
        left = call_number(old) is not None and not is_taken(old)
        if left and (name in TAKEN or old.op.get_attr(asked) is None):
            return hide_op(old, new, guard)
        return new

    typed = relay.transform.InferType()(module)
    changed = {var: rebuild_open(typed[var], change) for var in _own_functions(typed)}
    return relay.transform.InferType()(replace_functions(typed, changed))


def _show_left(module: IRModule, guard: int) -> IRModule:
    def change(_: relay.Call, new: relay.Call) -> relay.Expr:
        return show_call(new) if is_hidden(new, guard) else new

    shown = {var: rebuild_open(module[var], change) for var in _own_functions(module)}
    return relay.transform.InferType()(replace_functions(module, shown))


def _run(passes: list[tvm.ir.transform.Pass], module: IRModule) -> IRModule:
    return tvm.transform.Sequential(passes, opt_level=0)(module)


def _without_regions(annotated: IRModule) -> set[GlobalVar]:
    """The open functions in which no region is, nor in any that calls them: no type depends on them.

    TVM's PartitionGraph infers the types of the whole module once for each function: of the 240 of TVM's
    Prelude that takes minutes.
    """
    own = _own_functions(annotated)
    waiting: list[GlobalVar] = [var for var, _ in functions_of(annotated) if var not in set(own)]
    waiting += [var for var in own if _has_region(annotated[var])]
    needed: set[GlobalVar] = set()
    while waiting:
        var = waiting.pop()
        if var not in needed:
            needed.add(var)
            function = annotated[var]
            waiting += called_functions(function) if isinstance(function, relay.Function) else []
    return set(own) - needed


def _has_region(function: relay.Function) -> bool:
    """Has AnnotateTarget, or the user, given some of it to a codegen?  The rest is TVM's, as "default"."""
    found: list[bool] = []

    def visit(node: relay.Expr) -> None:
        if op_name(node) == "annotation.compiler_begin":
            found.append(str(node.attrs.compiler) != "default")

    relay.analysis.post_order_visit(function, visit)
    return any(found)


def _uncalled_kernels(module: IRModule) -> dict[GlobalVar, BaseFunc]:
    """The functions of lower levels that none of Relay's calls: TVM's PartitionGraph fails over them."""
    functions = functions_of(module)
    called = {v for _, f in functions if isinstance(f, relay.Function) for v in called_functions(f)}
    return {v: f for v, f in functions if not isinstance(f, relay.Function) and v not in called}


def _renamed(codegen: str, module: IRModule, taken: set[str]) -> IRModule:
    """``module`` with free numbers at the ends of those names of external functions that are taken."""
    functions = external_functions(module, codegen)
    used = {var.name_hint for var in functions} | taken
    names: dict[GlobalVar, GlobalVar] = {}
    for var in sorted(functions, key=lambda var: str(var.name_hint)):
        if var.name_hint in taken:
            numbered = (f"{var.name_hint.rstrip('0123456789')}{number}" for number in count())
            names[var] = GlobalVar(next(name for name in numbered if name not in used))
            used.add(names[var].name_hint)
    if not names:
        return module

    def change(_: relay.Call, call: relay.Call) -> relay.Expr:
        named = names.get(call.op) if isinstance(call.op, GlobalVar) else None
        return call if named is None else relay.Call(named, call.args, None, None, call.span)

    moved = {new: functions[old].with_attr("global_symbol", new.name_hint) for old, new in names.items()}
    renamed = replace_functions(rewrite_calls(module, change), moved, without=names)
    return relay.transform.InferType()(renamed)


# Giving back ---------------------------------------------------------------------------------------


def _give_back(codegen: str, module: IRModule, found: Reasons, merged: bool) -> IRModule:
    """Undo the functions that are not worth a call, and note why.

    Where nothing is merged, only empty ones are undone: PartitionGraph makes them of a tuple's items.
    """
    undone: dict[GlobalVar, relay.Function] = {}
    for var, function in external_functions(module, codegen).items():
        calls = [call for _, inner in _composites(function, codegen) for call in inner]
        if calls and not merged:
            continue
        heavy = any(map(_is_heavy, calls)) or _has_own_composite(function, codegen)
        reason = not_worth_a_call([count_bytes(call, READER) for call in calls], heavy=heavy)
        if reason is not None:
            undone[var] = function
            found |= dict.fromkeys(_numbers(calls), reason)
    return _undo(module, undone)


def _give_back_faulty(module: IRModule, found: Reasons, options: Options, there: set[str]) -> IRModule:
    """Undo the functions, other than those ``there``, that do not become objects, and note why."""
    from convoy.relay.codegen import find_faults  # it brings the toolchain, which no other backend needs

    cut = {var: f for var, f in external_functions(module).items() if var.name_hint not in there}
    faults = find_faults({str(var.name_hint): function for var, function in cut.items()}, options)
    undone = {var: function for var, function in cut.items() if var.name_hint in faults}
    inside = {
        str(var.name_hint): [call for _, inner in _composites(function, KEY) for call in inner]
        for var, function in undone.items()
    }
    nodes = {name: f"{op_name(calls[0])} {given_name(calls[0])}" for name, calls in inside.items()}
    for name, reason in reasons_of(faults, nodes, options).items():
        found |= dict.fromkeys(_numbers(inside[name]), reason)
    return _undo(module, undone)


def give_back_marked(module: IRModule, names: Iterable[str], options: Options, report: Report) -> IRModule:
    """Undo those of the functions of these names, which a user marked, that do not become objects.

    Raises
    ------
    ConvoyError
        With ``options.strict``, for the first of them.
    """
    from convoy.relay.codegen import find_faults

    there = {str(var.name_hint): (var, f) for var, f in external_functions(module).items()}
    faults = find_faults({name: there[name][1] for name in names if name in there}, options)
    report_marked(faults, options, report)
    return _undo(module, dict(there[name] for name in faults))


def _undo(module: IRModule, undone: dict[GlobalVar, relay.Function]) -> IRModule:
    """Write these external functions out where they are called."""
    if not undone:
        return module
    changed = rewrite_calls(module, lambda _, call: _inlined(call, undone))
    return relay.transform.InferType()(replace_functions(changed, {}, without=undone))


def _is_heavy(call: relay.Call) -> bool:
    """Is one such call worth a region?  Convoy knows nothing of ops that an attribute of yours takes."""
    return op_name(call) not in TAKEN or TAKEN[op_name(call)].heavy


def _has_own_composite(function: relay.Function, codegen: str) -> bool:
    """Was something in it marked by another pattern table?"""
    ours = {f"{codegen}.{stem(pattern)}" for pattern in PATTERNS}
    return any(name not in ours for node in post_order(function.body) if (name := composite_name(node)))


def _inlined(call: relay.Call, functions: dict[GlobalVar, relay.Function]) -> relay.Expr:
    if not isinstance(call.op, GlobalVar) or call.op not in functions:
        return call
    function = functions[call.op]
    body = without_composites(function.body)
    return relay.bind(body, dict(zip(function.params, call.args, strict=True)))


def _composites(function: relay.Function, codegen: str) -> Iterator[tuple[str, list[relay.Call]]]:
    """The pattern and the calls of each composite in an external function, and of each op in none."""
    for node in post_order(function.body):
        if op_name(node):
            yield f"{codegen}.{stem(op_name(node))}", [node]
        elif composite_name(node):
            yield composite_name(node), Dataflow(node.op.body).calls


def _numbers(calls: Iterable[relay.Call]) -> list[int]:
    return [number for call in calls if (number := call_number(call)) is not None]


# Reporting -----------------------------------------------------------------------------------------


def _report(
    codegen: str,
    calls: list[relay.Call],
    made: dict[GlobalVar, relay.Function],
    found: Reasons,
    report: Report,
) -> None:
    places: dict[int, str] = {}
    for var, function in made.items():
        for pattern, inner in _composites(function, codegen):
            places |= dict.fromkeys(_numbers(inner), f"{pattern} in {var.name_hint}")
    for call in calls:
        number = call_number(call)
        assert number is not None
        flops = count_flops(call, READER)
        report.flops_total += flops
        report.flops_offloaded += flops if number in places else 0
        node = f"{op_name(call)} {given_name(call)}"
        if number in places:
            report.add(node, "partition", "taken", places[number])
        else:
            reason = found[number] or "its region was left by TVM's PartitionGraph"
            report.add(node, step_of(reason), "left", reason)
