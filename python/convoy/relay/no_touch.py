"""Keep passes away from functions that belong to an external codegen.

TVM's function passes skip global functions marked ``Compiler``, and nothing else: module passes such as
DeadCodeElimination rewrite those too, and functions marked ``Compiler`` or ``Composite`` that are called
where they are written, as every codegen sees them before PartitionGraph, are open to all passes.
``no_touch`` hides marked functions from a pass; ``NoTouch`` watches a whole pipeline and names the pass
that touched one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import count

import tvm
from tvm import ir, relay
from tvm.ir import BaseFunc, GlobalVar, IRModule
from tvm.ir.instrument import pass_instrument
from tvm.ir.transform import Pass, PassContext, PassInfo, Sequential, module_pass

from convoy.errors import GuardError
from convoy.offload.settings import is_disabled, read_passes
from convoy.offload.watch import GUARDED, Watch
from convoy.relay.dataflow import (
    Change,
    attribute,
    has_attribute,
    is_asked,
    op_name,
    post_order,
    rebuild,
    rebuild_body,
    replaced,
    with_body,
    without_composites,
)
from convoy.relay.errors_through_tvm import remember_error
from convoy.relay.hidden import hide_call, is_hidden, new_guard, show_call
from convoy.relay.module import functions_of, replace_functions
from convoy.relay.opaque import parts

MARKS = ("Composite", "Compiler")
"""The attributes that mark a function: by whom or what it is to be computed."""

_STANDS_IN = "convoy_stands_in"
"""The attribute of a function that is in a marked one's place while a pass runs: its guard's number."""

_NOTES = ("annotation.compiler_begin", "annotation.compiler_end", "on_device")
"""Ops that say of a value where it is computed, and compute nothing."""

MAKERS = frozenset(
    {
        *("MergeComposite", "AnnotateTarget", "MergeCompilerRegions", "PartitionGraph"),
        *("InferType", "NameMangleExtFuncs", "LabelOps", "AnnotateUsedMemory", "LowerTE"),
        *("convoy.road", "convoy.lift"),
        "RemoveUnusedFunctions",
    }
)
"""Passes whose business marked functions are: they make, move, type, name, label, measure and consume them.

RemoveUnusedFunctions, which all builds run, takes those away that nobody calls, and changes none.
"""


def no_touch(guarded: Pass | Sequence[Pass]) -> Pass:
    """``guarded``, run with every marked function taken out of the module and put back after it.

    A function is marked by the attribute ``Compiler``, whoever's it is, or ``Composite``; it may be
    global or written where it is called. While the pass runs, a call of it is a call of an op no pass
    knows, with the same arguments and result, and, where it is a value (bound by a let, in a tuple, an
    argument), a function of that one call. A global function comes back as it was even if the pass saw no
    use of it; so do the functions it calls. A function of the pass's own with such a name gets another.

    A pass that ``disabled_pass`` of the pass context names is not run. In ``required_pass`` a single one
    has the name of its guard, such as ``no_touch(FoldConstant)``. What a pass requires, as ConvertLayout
    does CanonicalizeOps, TVM's Sequential runs before it, guarded as well.

    Parameters
    ----------
    guarded : Pass | Sequence[Pass]
        A pass, or several to run in sequence.

    Raises
    ------
    ConvoyError
        For anything else.
    GuardError
        When run: if a pass puts another function in a marked one's place.
    """
    passes = read_passes("no_touch", guarded, Pass)
    inner = passes[0] if isinstance(guarded, Pass) else Sequential(passes)

    def run(module: IRModule, context: PassContext) -> IRModule:
        if is_disabled(inner.info.name, context):
            return module
        if not marked_functions(module):
            return inner(module)
        typed = relay.transform.InferType()(module)
        with new_guard() as guard:
            return put_back(inner(take_out(typed, guard)), typed, guard)

    name, required = f"{GUARDED}{inner.info.name})", _required_by(inner)
    return module_pass(remember_error(run), opt_level=inner.info.opt_level, name=name, required=required)


def _required_by(one: Pass) -> list[str]:
    """The names by which TVM's Sequential finds what a pass requires, guarded as the pass itself is."""
    names = map(str, one.info.required)
    return [_guarded(name) for name in names if name != "InferType"]  # which every guard runs


@cache
def _guarded(required: str) -> str:
    """The name of a guard around the pass of this name, which Sequential looks for when it runs."""
    same = module_pass(lambda module, _: module, opt_level=0, name=required, required=[required])
    name = f"transform.{GUARDED}{required})"
    tvm.register_func(name, remember_error(lambda: no_touch([same])), override=True)
    return name


def is_marked(function: object) -> bool:
    """Does this belong to an external codegen?"""
    return isinstance(function, relay.Function) and any(has_attribute(function, mark) for mark in MARKS)


def is_open(function: object) -> bool:
    """Is this a function that no codegen and no fusion has taken already?"""
    return (
        isinstance(function, relay.Function)
        and not is_marked(function)
        and not is_asked(function, "Primitive")
    )


def marked_functions(module: IRModule) -> dict[str, relay.Function]:
    """The functions of ``module`` that belong to an external codegen, by a name for a report.

    Those within another marked function are not listed.
    """
    found: dict[str, relay.Function] = {}
    for var, function in functions_of(module):
        if is_marked(function):
            found[var.name_hint] = function
        elif isinstance(function, relay.Function):
            inside = Counter[str]()
            for closure in _closures(function):
                name = _named(closure, inside)
                found[f"{var.name_hint}: {name}"] = closure
    return found


def _named(function: relay.Function, seen: Counter[str]) -> str:
    """Its symbol, with a number from the second on, or ``Composite convoy.conv2d_relu 0``."""
    symbol = attribute(function, "global_symbol")
    name = symbol or next(
        f"{mark} {attribute(function, mark)}" for mark in MARKS if has_attribute(function, mark)
    )
    seen[name] += 1
    return name if symbol and seen[name] == 1 else f"{name} {seen[name] - 1}"


def _closures(function: relay.Function) -> Iterator[relay.Function]:
    """The outermost marked functions written inside ``function``."""
    waiting = [function.body]
    while waiting:
        for node in post_order(waiting.pop()):
            waiting += parts(node)
            for part in (node, node.op) if isinstance(node, relay.Call) else (node,):
                if is_marked(part):
                    yield part
                elif isinstance(part, relay.Function):
                    waiting.append(part.body)


def take_out(module: IRModule, guard: int) -> IRModule:
    """``module``, which has types, with ops that no pass knows in place of its marked functions.

    ``guard`` is the number by which ``put_back`` knows them.
    """
    marked = {var: function for var, function in functions_of(module) if is_marked(function)}
    values = {var: _stand_in(var, function, guard) for var, function in marked.items()}

    def hide(old: relay.Call, new: relay.Call) -> relay.Expr:
        if is_marked(old.op) or (isinstance(old.op, GlobalVar) and old.op in marked):
            call = relay.Call(old.op, new.args, None, None, new.span)
            return hide_call(call, old.checked_type, guard)
        return new

    def enter(function: relay.Function) -> relay.Function:
        if is_marked(function):
            return _stand_in(function, function, guard)
        return with_body(function, rebuild_body(function.body, hide, enter, dict(values), everywhere=True))

    functions = functions_of(module)
    own = {v: enter(f) for v, f in functions if v not in marked and isinstance(f, relay.Function)}
    own |= {var: _stand_in(var, function, guard) for var, function in marked.items() if _is_main(var)}
    gone = set(marked) - {var for function in own.values() for var in called_functions(function)} - set(own)
    return relay.transform.InferType()(replace_functions(module, own, without=gone))


def _stand_in(callee: relay.Expr, function: relay.Function, guard: int) -> relay.Function:
    """A function that calls ``callee``, this marked function or its name, by an op no pass knows."""
    params = [relay.Var(param.name_hint, param.checked_type) for param in function.params]
    result = function.checked_type.ret_type
    body = hide_call(relay.Call(callee, params), result, guard)
    return relay.Function(params, body, result).with_attr(_STANDS_IN, guard)


def put_back(result: IRModule, module: IRModule, guard: int) -> IRModule:
    """``result``, made of what ``take_out`` left of ``module``, with the functions it took.

    Raises
    ------
    GuardError
        If a pass put another function in a marked one's place.
    """
    hidden = [var for var, function in functions_of(module) if is_marked(function)]
    result = _clear(_without_main(result, hidden, guard), hidden)

    def show(_: relay.Call, new: relay.Call) -> relay.Expr:
        return show_call(new) if is_hidden(new, guard) else new

    def enter(function: relay.Function) -> relay.Expr:
        if is_marked(function) and not _hides(function, guard):
            return function
        whole = rebuild(function, show, enter, everywhere=True)
        return _opened(whole) if attribute(whole, _STANDS_IN) == str(guard) else whole

    def enter_global(function: relay.Function) -> relay.Function:
        entered = enter(function)  # a copy of what stood for main calls main
        return entered if isinstance(entered, relay.Function) else _calls(entered, function)

    functions = functions_of(result)
    own = {var: enter_global(f) for var, f in functions if isinstance(f, relay.Function)}
    whole = replace_functions(result, own)
    there = {var.name_hint for var in whole.get_global_vars()}
    back: dict[GlobalVar, relay.Function] = {}
    waiting = [var for var, function in functions_of(module) if is_marked(function)]
    for function in marked_functions(module).values():
        waiting += [v for v in called_functions(function) if v.name_hint not in there]
    while waiting:
        var = waiting.pop()
        back[var] = module[var]
        waiting += [v for v in called_functions(module[var]) if v.name_hint not in there and v not in back]
    return relay.transform.InferType()(_called_anew(replace_functions(whole, back), module))


def _called_anew(result: IRModule, module: IRModule) -> IRModule:
    """``result``, in which marked functions call by the variables that a pass made anew, too."""
    there = {str(var.name_hint): var for var in result.get_global_vars()}
    new: dict[relay.Expr, relay.Expr] = {}
    for var in module.get_global_vars():
        now = there.get(str(var.name_hint), var)
        if not now.same_as(var):
            new[var] = now
    return _rename(result, new) if new else result


def _rename(module: IRModule, new: Mapping[relay.Expr, relay.Expr]) -> IRModule:
    """``module`` whose functions call others by other variables."""
    functions = {var: f for var, f in functions_of(module) if isinstance(f, relay.Function)}
    return replace_functions(module, {v: with_body(f, replaced(f.body, new)) for v, f in functions.items()})


def _calls(callee: relay.Expr, like: relay.Function) -> relay.Function:
    params = [relay.Var(param.name_hint, param.checked_type) for param in like.params]
    return relay.Function(params, relay.Call(callee, params), like.ret_type)


def _hides(function: relay.Function, guard: int) -> bool:
    """Is there a call that this guard has hidden?  A pass may mark what it does not know."""
    found: list[bool] = []
    relay.analysis.post_order_visit(
        function,
        lambda node: (
            found.append(True) if isinstance(node, relay.Call) and is_hidden(node, guard) else None
        ),
    )
    return bool(found)


def _is_main(var: GlobalVar) -> bool:
    """Passes ask for this one by its name, and fail where there is none."""
    return str(var.name_hint) == "main"


def _without_main(result: IRModule, hidden: Collection[GlobalVar], guard: int) -> IRModule:
    """``result`` without what stood for a marked ``main``, so that main can come back.

    Raises
    ------
    GuardError
        If a pass made something else of it.
    """
    home = next(filter(_is_main, hidden), None)
    place = next(filter(_is_main, result.get_global_vars()), None)
    if home is None or place is None:
        return result
    opened = without_composites(result[place].body)  # what fusion puts around a call, as well

    def show(_: relay.Call, call: relay.Call) -> relay.Expr:
        if op_name(call) in _NOTES:
            return call.args[0]
        return show_call(call) if is_hidden(call, guard) else call

    whole = rebuild(with_body(result[place], opened), show)
    if not home.same_as(_opened(whole)):
        problem = "expected it unchanged, got work on its arguments or its result"
        remedy = "mark a function that main calls, and leave that work in main"
        raise GuardError("no_touch", "function 'main'", problem, remedy)
    return replace_functions(result, {}, without=[place])


def _opened(stand_in: relay.Function) -> relay.Expr:
    """What this calls with its own arguments and nothing else; itself if a pass put more into it."""
    values: dict[relay.Expr, relay.Expr] = {}

    def read(expr: relay.Expr) -> relay.Expr:
        while expr in values:
            expr = values[expr]
        return expr

    body = stand_in.body
    while isinstance(body, relay.Let):
        values[body.var] = body.value
        body = body.body
    calls = [
        value for value in (*values.values(), body) if not isinstance(value, relay.Var | relay.Function)
    ]
    call = read(body)
    if (
        calls == [call]
        and isinstance(call, relay.Call)
        and [*map(read, call.args)] == list(stand_in.params)
    ):
        return read(call.op)
    return stand_in.without_attr(_STANDS_IN)


def _clear(result: IRModule, hidden: Collection[GlobalVar]) -> IRModule:
    """``result`` with free names for functions that a pass gave the names of hidden ones."""
    names = {str(var.name_hint) for var in hidden}
    taken = names | {str(var.name_hint) for var in result.get_global_vars()}
    new: dict[relay.Expr, relay.Expr] = {}
    for var in result.get_global_vars():
        name = str(var.name_hint)
        if any(var.same_as(place) for place in hidden):
            problem = "expected it where it is called, got another function in its place"
            remedy = "put the other beside it, and rewrite the calls"
            raise GuardError("no_touch", f"function {name!r}", problem, remedy)
        if name in names:
            free = next(free for i in count(1) if (free := f"{name}_{i}") not in taken)
            new[var] = GlobalVar(free)
            taken.add(free)
    if not new:
        return result

    functions: dict[GlobalVar, BaseFunc] = {}
    for var, function in functions_of(_rename(result, new)):
        place = new.get(var, var)
        named_like_it = attribute(function, "global_symbol") == var.name_hint != place.name_hint
        functions[place] = (
            function.with_attr("global_symbol", place.name_hint) if named_like_it else function
        )
    return replace_functions(result, functions, without=new)


def rewrite_calls(module: IRModule, change: Change) -> IRModule:
    """The calls of all functions that are not marked, rewritten."""

    def enter(function: relay.Function) -> relay.Function:
        return function if is_marked(function) else rebuild(function, change, enter, everywhere=True)

    functions = functions_of(module)
    return replace_functions(module, {v: enter(f) for v, f in functions if isinstance(f, relay.Function)})


def called_functions(function: relay.Function) -> list[GlobalVar]:
    """The global functions a function refers to."""
    found: list[GlobalVar] = []
    relay.analysis.post_order_visit(
        function, lambda node: found.append(node) if isinstance(node, GlobalVar) else None
    )
    return found


def _hash(function: relay.Function) -> int:
    """Hash of all but the attributes that TVM asks of a global function, which one may be given.

    Passes may rename what a function reads from around it.
    """
    for name in ("Primitive", "Inline"):
        if has_attribute(function, name):
            function = function.without_attr(name)
    return int(ir.structural_hash(function, map_free_vars=True))


def _count_outside(module: IRModule) -> int:
    """How many ops and functions are not marked, nor in a marked one."""
    functions = [function for _, function in functions_of(module) if isinstance(function, relay.Function)]
    return _count(functions) - _count(marked_functions(module).values())


def _count(functions: Iterable[relay.Function]) -> int:
    """How many ops and functions there are in these, and themselves; what they share counts once."""
    found: set[relay.Expr] = set()

    def note(node: relay.Expr) -> None:
        if isinstance(node, relay.Function) or (isinstance(node, relay.Call) and op_name(node)):
            found.add(node)

    for function in functions:
        relay.analysis.post_order_visit(function, note)
    return len(found)


@pass_instrument
class NoTouch:
    """Raises ``GuardError`` as soon as a pass changes or removes a marked function.

    Use as ``with tvm.transform.PassContext(instruments=[NoTouch()])``. Functions are compared by structural
    hash, weights included. The error names the pass with those that ran it, outermost first.

    Parameters
    ----------
    makers : Iterable[str]
        Names of the passes that may change marked functions, alone or through passes they run.
    """

    def __init__(self, makers: Iterable[str] = MAKERS) -> None:
        remedy = "wrap the pass in convoy.relay.no_touch, or run it before partition"
        self.watch = Watch(makers, marked_functions, _hash, remedy, _count_outside)

    def enter_pass_ctx(self) -> None:
        self.watch.begin()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.watch.before(info.name, mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.watch.after(info.name, mod)
