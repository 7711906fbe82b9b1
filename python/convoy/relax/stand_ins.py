"""Functions that stand in for others while a pass runs.

A stand-in has the signature and the name of what it stands for, and a body no pass sees into:

    def external(x: Tensor((n, 4))) -> Tensor((n, 4)):      global_symbol "external", convoy_stands_for 0
        result: Tensor((n, 4)) = call_pure_packed("convoy_stands_for_0", x)
        return result

- It is a ``relax.Function``: some of TVM's passes cast whatever is called to one, unasked (0.27).
- It reads all its parameters, and it is public even where the function is private: what has a
  ``global_symbol`` is neither inlined nor removed, nor are its parameters and results pruned or flattened.
- Its one call is of an op, as in passes that read ``call.op.name``.
- No two are equal, so that none is taken for another.
- It is known by its attribute, wherever it then is.  Where a pass has opened it, its call is left, and
  becomes a call of the function again.
- Its number is its own in the process: guards may stand within guards.

The stand-in of a local function is local, too.  It hands on what the function reads from around it, so that
its call says what has become of that in a pass that renames variables or lifts functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count

from tvm import relax
from tvm.ir import BaseFunc, Expr, GlobalVar, IRModule, Type, Var
from tvm.relax.expr import _update_type
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi import structural_equal

from convoy.errors import GuardError
from convoy.relax.calls import Calls
from convoy.relax.local_functions import bindings_in, replace_local
from convoy.relax.result_types import note_results, recall_results
from convoy.relax.stand_in_bodies import (
    STANDS_FOR,
    calling,
    handed_on,
    opened_call,
    renewed,
    stands_for,
    works_on_result,
)

STANDS_BEHIND = "convoy_stands_behind"
"""Attribute of a function that a stand-in calls: the same number."""

_numbers = count()


def take_out(module: IRModule, chosen: Callable[[object], bool]) -> tuple[IRModule, Taken]:
    """``module`` with stand-ins for the chosen functions, global and local, and what they alone call."""
    taken = Taken()
    functions = dict(module.functions_items())
    roots = [var for var, function in functions.items() if chosen(function)]
    reached = _reached(functions, roots)
    others = _reached(functions, (var for var in functions if var not in reached), around=roots)
    for var in reached:
        function = functions[var]
        if isinstance(function, relax.Function) and (chosen(function) or var not in others):
            functions[var] = taken.stand_in(function, var.name_hint, var)
        else:
            taken.callees[var] = function
    hidden = {
        var: replace_local(function, partial(_stand_in_local, taken, chosen, var.name_hint))
        for var, function in functions.items()
    }
    for var, function in hidden.items():
        for binding in bindings_in(function.body) if isinstance(function, relax.Function) else ():
            number = taken.number_of(binding.value)
            if number is not None:
                taken.variables[binding.var] = number
                taken.hosts[number] = var.name_hint
    taken.results = note_results(
        dict(module.functions_items()), {home.name_hint for home in taken.homes.values()}
    )
    return _with_functions(module, hidden | taken.behind), taken


def _stand_in_local(
    taken: Taken, chosen: Callable[[object], bool], outer: str, name: str, function: relax.Function
) -> relax.Function | None:
    return taken.stand_in(function, f"{outer}.{name}") if chosen(function) else None


def put_back(result: IRModule, taken: Taken) -> IRModule:
    """``result`` with what was taken out wherever its stand-ins are now.

    A global function whose stand-in is gone comes back where it was, and so does what it calls.
    Stand-ins of other guards stay.

    Raises
    ------
    GuardError
        If something that the functions and others call has another signature now, if a function is called
        as only its stand-in can be, or if a pass put work of its own into a stand-in, or another function
        in its place.
    """
    if not taken.functions:
        return result
    _check_places(result, taken)
    waiting = dict(taken.homes)
    given = _numbers_of_arguments(result)
    functions: dict[GlobalVar, BaseFunc] = {}
    places: dict[int, GlobalVar] = {}
    back_locally = set[int]()

    def restore(host: GlobalVar, _: str, local: relax.Function) -> relax.Function | None:
        number = taken.number_of(local)
        if number is None:
            return None
        is_copy = number in back_locally or taken.hosts.get(number) != host.name_hint
        back_locally.add(number)
        back = taken.restore(local)
        if number in taken.homes:  # and comes back there, too, by its symbol
            back = back.without_attr("global_symbol")
        return renewed(back) if is_copy else back

    for var, function in _all_but_behind(result, taken).items():
        number = taken.number_of(function)
        if number is None:
            functions[var] = replace_local(function, partial(restore, var))
        else:
            home = waiting.pop(number, var)
            place = home if home.name_hint == var.name_hint else var
            restored = taken.restore(function, given.get(var.name_hint, set()))
            back = taken.named(number, place, restored)
            is_copy = places.setdefault(number, place) is not place
            functions[place] = relax.utils.copy_with_new_vars(back) if is_copy else back
    for number, home in waiting.items():
        places[number] = place = _free(home, functions)
        function = taken.functions[number]
        functions[place] = taken.named(number, place, function if place is home else renewed(function))
    _put_back_callees(functions, taken)
    _close(functions, taken, places)
    mended = _mend(functions, {taken.homes[n]: places[n] for n in taken.homes})
    return _with_functions(result, recall_results(mended, taken.results))


@dataclass
class Taken:
    """What is out of a module."""

    functions: dict[int, relax.Function] = field(default_factory=dict)
    """By number."""
    homes: dict[int, GlobalVar] = field(default_factory=dict)
    """Where the global ones were."""
    names: dict[int, str] = field(default_factory=dict)
    """For a report: a local one is ``main.local``, by the variables of its host and its own."""
    hosts: dict[int, str] = field(default_factory=dict)
    """The global functions that the local ones were in."""
    variables: dict[Var, int] = field(default_factory=dict)
    """What the local ones are bound to."""
    behind: dict[GlobalVar, BaseFunc] = field(default_factory=dict)
    """What a stand-in of ``main`` calls: TVM's MergeCompositeFunctions knows no extern there (0.27)."""
    results: dict[str, Type] = field(default_factory=dict)
    """What calls of the global ones give, where they themselves say less."""
    callees: dict[GlobalVar, BaseFunc] = field(default_factory=dict)
    """What they call and is in the module still: kernels, and functions that others call, too."""

    def stand_in(
        self, function: relax.Function, name: str, home: GlobalVar | None = None
    ) -> relax.Function:
        """A stand-in for ``function``, which is the global one of this variable, or else a local one."""
        number = next(_numbers)
        self.functions[number] = function
        self.names[number] = name
        attributes: dict[str, object] = {STANDS_FOR: number}
        if home is not None:
            self.homes[number] = home
        if symbol := _symbol(function) or (home and home.name_hint):
            attributes["global_symbol"] = symbol
        opaque = relax.ExternFunc(f"{STANDS_FOR}_{number}")
        ty = function.ret_ty
        stand_in = calling(lambda read: relax.op.call_pure_packed(opaque, *read, ty_args=ty), function)
        if home is not None and home.name_hint == "main":
            behind = GlobalVar(f"{STANDS_FOR}_{number}")
            _update_type(behind, stand_in.ty)
            self.behind[behind] = stand_in.with_attrs(
                {"global_symbol": behind.name_hint, STANDS_BEHIND: number}
            )
            stand_in = calling(lambda read: relax.Call(behind, read), function)
        return stand_in.with_attrs(attributes)

    def number_of(self, function: object) -> int | None:
        """The number of what a stand-in of these stands for; None for any other function."""
        number = stands_for(function)
        return number if number in self.functions else None

    def restore(self, stand_in: relax.Function, given: Collection[int] = ()) -> relax.Function:
        """What ``stand_in`` stands for, in terms of the variables that are around it now.

        Parameters
        ----------
        given : Collection[int]
            How many arguments calls give it, as a global function.

        Raises
        ------
        GuardError
            If a pass put work of its own into ``stand_in``.
        """
        number = int(stand_in.attrs[STANDS_FOR])
        function = self.functions[number]
        own = [*function.params, *relax.analysis.free_vars(function)]
        now: dict[Var, Expr] = dict(zip(own, handed_on(stand_in, number) or own, strict=True))
        params = [
            next((var for var, read in now.items() if read.same_as(param)), relax.Var(param.name, param.ty))
            for param in stand_in.params
        ]
        if all(read.same_as(var) for var, read in now.items()):  # nobody knows what became of its body
            params = list(function.params)
        known = dict(zip(stand_in.params, params, strict=False))
        moved = {var: known.get(read, read) for var, read in now.items() if var not in params}
        moved = {var: read for var, read in moved.items() if not read.same_as(var)}
        closed = function
        if moved or not _are_same(params, function.params):
            closed = renewed(function, params, moved)
        inner = {binding.var for binding in bindings_in(stand_in.body)}
        is_worked_on = not inner.isdisjoint(moved.values())
        if is_worked_on and _is_called_alike(function, stand_in):
            raise self.worked_on(number, "arguments handed on to it, got work on them")
        if works_on_result(stand_in):
            raise self.worked_on(number, "result handed on as it is, got work on it")
        same = len(closed.params) == len(function.params)
        is_ever_called_so = same or number not in self.homes or len(closed.params) in given
        if is_worked_on or not is_ever_called_so or not _is_taken_by_callers(closed, stand_in):
            return function  # a pass such as LazyGetInput, which leaves calls as they were
        return closed

    def worked_on(self, number: int, what: str) -> GuardError:
        name, remedy = f"function {self.names[number]!r}", "change them where the function is called"
        return GuardError("no_touch", name, f"expected its {what} inside", remedy)

    def closed(self, number: int) -> relax.Function:
        """The function of this number as one that reads nothing from around it."""
        function = self.functions[number]
        params = [*function.params, *relax.analysis.free_vars(function)]
        closed = relax.Function(params, function.body, function.ret_ty, function.is_pure, function.attrs)
        return relax.utils.copy_with_new_vars(closed)

    def named(self, number: int, place: GlobalVar, function: relax.Function) -> relax.Function:
        """``function`` as the global function of this variable."""
        home = self.homes.get(number)
        if home is None:  # it was local: symbolic lengths belong to one global function only
            function = relax.utils.copy_with_new_vars(function)
        if (home is not None and home.name_hint == place.name_hint) or _symbol(function) is None:
            return function
        return function.with_attr("global_symbol", place.name_hint)


def _are_same(left: Sequence[Expr], right: Sequence[Expr]) -> bool:
    return len(left) == len(right) and all(a.same_as(b) for a, b in zip(left, right, strict=True))


def _is_called_alike(function: BaseFunc, other: BaseFunc) -> bool:
    return function.same_as(other) or bool(structural_equal(function.ty, other.ty, map_free_vars=True))


def _all_but_behind(result: IRModule, taken: Taken) -> dict[GlobalVar, BaseFunc]:
    """The functions without those behind stand-ins, which are called by the names they had."""
    by_name = {var.name_hint: var for var in taken.behind}
    names: dict[str, GlobalVar] = {}
    for var, function in result.functions_items():
        attributes = (function.attrs or {}) if isinstance(function, relax.Function) else {}
        known = by_name.get(f"{STANDS_FOR}_{attributes.get(STANDS_BEHIND)}") or by_name.get(var.name_hint)
        if known is not None:
            names[var.name_hint] = known
    functions = {var: f for var, f in result.functions_items() if var.name_hint not in names}
    if any(known.name_hint != name for name, known in names.items()):
        functions = {
            var: Calls(names).visit_expr(f) if any(v.name_hint in names for v in _called_by(f)) else f
            for var, f in functions.items()
        }
    return functions


def _check_places(result: IRModule, taken: Taken) -> None:
    """What called a marked function does not call another now, which a pass has put in its place.

    Functions may go, with their calls, and names that nobody calls may be taken.
    """
    functions = _all_but_behind(result, taken)
    bindings = {
        var: list(bindings_in(function.body)) if isinstance(function, relax.Function) else []
        for var, function in functions.items()
    }
    held = {
        var: {taken.number_of(functions[var])}.union(
            *(_held(binding.value, taken) for binding in bindings[var])
        )
        for var in functions
    }
    there = set().union(*held.values())
    places = {var.name_hint: var for var in functions}
    called = [read for var, f in functions.items() for read in _called_by(f) if read != var]
    names = {read.name_hint for read in called}
    for number, home in taken.homes.items():
        place = places.get(home.name_hint)
        is_asked = place == home or home in called or (number not in there and home.name_hint in names)
        if place is None or not is_asked:
            continue
        if all(number not in held[var] for var in _reached(functions, [place]) if var in held):
            raise _replaced(taken.names[number])
    for binding in chain.from_iterable(bindings.values()):
        lost = taken.variables.get(binding.var)
        if lost is None or not isinstance(binding.value, relax.Function):
            continue
        if lost not in there or taken.number_of(binding.value) not in (None, lost):
            raise _replaced(taken.names[lost])


def _held(value: Expr, taken: Taken) -> set[int | None]:
    """The numbers of what a value is a stand-in of, or calls as one does."""
    return {taken.number_of(value), (opened_call(value) or (None,))[0]}


def _replaced(name: str) -> GuardError:
    problem = "expected it where it is called, got another function in its place"
    return GuardError(
        "no_touch", f"function {name!r}", problem, "put the other beside it, and rewrite the calls"
    )


def _is_taken_by_callers(function: relax.Function, stand_in: relax.Function) -> bool:
    """Whether it is called alike, and gives what callers expect, or says more of it.

    LambdaLift makes a parameter of a symbolic length that is the host's, and forgets it in the result.
    """
    if _is_called_alike(function, stand_in):
        return True
    forgets = stand_in.ret_ty.is_base_of(function.ret_ty)
    ours, theirs = ([param.ty for param in one.params] for one in (function, stand_in))
    return bool(forgets and structural_equal(ours, theirs, map_free_vars=True))


def _other_signature(name: str, whose: str, remedy: str) -> GuardError:
    problem = f"expected the signature that {whose}, got another"
    return GuardError("no_touch", f"function {name!r}", problem, remedy)


# What a pass has opened ----------------------------------------------------------------------------


def _close(functions: dict[GlobalVar, BaseFunc], taken: Taken, places: dict[int, GlobalVar]) -> None:
    """Where a pass wrote out a stand-in, the function is called again; a local one is global by then."""
    for var, function in list(functions.items()):
        if not isinstance(function, relax.Function):
            continue
        values = [binding.value for binding in bindings_in(function.body)]
        _check_calls(values, functions, set(places.values()))
        opened = {found[0] for value in values if (found := opened_call(value))}
        numbers = opened.intersection(taken.functions)
        for number in numbers.difference(places):
            closed = taken.closed(number)
            home = GlobalVar(_symbol(closed) or f"{var.name_hint}_{number}")
            _update_type(home, closed.ty)
            places[number] = place = _free(home, functions)
            functions[place] = taken.named(number, place, closed)
        if numbers:
            functions[var] = _Close({number: places[number] for number in numbers}).visit_expr(function)


def _may_be(expected: Type, given: Type) -> bool:
    """Whether a value of one type may be one of another; nothing is known of a type that is missing."""
    if expected.is_missing():
        return True
    kinds = [relax.analysis.get_static_type(one) for one in (expected, given)]
    return bool(kinds[0].is_base_of(kinds[1]) or kinds[1].is_base_of(kinds[0]))


def _check_calls(values: Iterable[Expr], functions: Functions, places: Collection[GlobalVar]) -> None:
    """Marked functions are called as they are, by whatever variable a pass has made of theirs."""
    by_name = {place.name_hint: functions[place] for place in places}
    for value in values:
        if not isinstance(value, relax.Call) or not isinstance(value.op, GlobalVar):
            continue
        function = by_name.get(value.op.name_hint)
        if not isinstance(function, relax.Function):
            continue
        if len(value.args) != len(function.params) or not _may_be(value.ty, function.ret_ty):
            remedy = "leave parameters and results of marked functions as they are"
            raise _other_signature(value.op.name_hint, "the marked function has", remedy)


@mutator
class _Close(PyExprMutator):  # type: ignore[misc]
    def __init__(self, places: Mapping[int, GlobalVar]) -> None:
        super().__init__()
        self.places = places

    def visit_call_(self, call: relax.Call) -> Expr:
        call = super().visit_call_(call)
        number, arguments = opened_call(call) or (-1, [])
        return relax.Call(self.places[number], arguments) if number in self.places else call


# What is called ------------------------------------------------------------------------------------

Functions = Mapping[GlobalVar, BaseFunc]


def _reached(
    functions: Functions, roots: Iterable[GlobalVar], around: Collection[GlobalVar] = ()
) -> list[GlobalVar]:
    """The roots and what they call, through whatever Relax functions but those to go around."""
    reached = dict.fromkeys(roots)
    waiting = list(reached)
    while waiting:
        for var in _called_by(functions[waiting.pop()]):
            if var in functions and var not in reached and var not in around:
                reached[var] = None
                waiting.append(var)
    return list(reached)


def _called_by(function: BaseFunc) -> list[GlobalVar]:
    return list(relax.analysis.all_global_vars(function)) if isinstance(function, relax.Function) else []


def _numbers_of_arguments(module: IRModule) -> dict[str, set[int]]:
    """By the name of a global function, how many arguments calls give it."""
    found: dict[str, set[int]] = {}
    for _, function in module.functions_items():
        for binding in bindings_in(function.body) if isinstance(function, relax.Function) else ():
            if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, GlobalVar):
                found.setdefault(binding.value.op.name_hint, set()).add(len(binding.value.args))
    return found


def _put_back_callees(functions: dict[GlobalVar, BaseFunc], taken: Taken) -> None:
    """A pass that saw no caller of them, because the callers were out, may have removed them."""
    present = {var.name_hint: function for var, function in functions.items()}
    for var, function in taken.callees.items():
        now = present.get(var.name_hint)
        if now is None:
            functions[var] = function
        elif not _is_called_alike(now, function):
            raise _other_signature(
                var.name_hint, "a marked function calls it by", "give the marked function a copy of its own"
            )


# Names ---------------------------------------------------------------------------------------------


def _symbol(function: relax.Function) -> str | None:
    symbol = (function.attrs or {}).get("global_symbol")
    return None if symbol is None else str(symbol)


def _free(home: GlobalVar, functions: Functions) -> GlobalVar:
    """``home``, or a variable like it if its name is in use."""
    names = {var.name_hint for var in functions}
    if home.name_hint not in names:
        return home
    place = GlobalVar(next(name for i in count(1) if (name := f"{home.name_hint}_{i}") not in names))
    _update_type(place, home.ty)
    return place


def _mend(
    functions: dict[GlobalVar, BaseFunc], places: Mapping[GlobalVar, GlobalVar]
) -> dict[GlobalVar, BaseFunc]:
    """Where a pass put another variable of the same name, calls are calls of the one that is there.

    So are calls between marked functions where it gave them other names.
    """
    present = {home.name_hint: place for home, place in places.items()}
    present |= {var.name_hint: var for var in functions}
    for var, function in functions.items():
        if var.ty.is_missing():
            _update_type(var, function.ty)

    def is_lost(var: GlobalVar) -> bool:
        return var not in functions and var.name_hint in present

    return {
        var: Calls(present).visit_expr(function) if any(map(is_lost, _called_by(function))) else function
        for var, function in functions.items()
    }


def _with_functions(module: IRModule, functions: Functions) -> IRModule:
    return IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
