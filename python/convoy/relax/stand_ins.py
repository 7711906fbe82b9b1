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
- What a pass makes of its body does not matter: it is known by its attribute, wherever it then is.

The stand-in of a local function is local, too.  It hands on what the function reads from around it, so that
its call says what has become of that in a pass that renames variables or lifts functions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count

from tvm import relax
from tvm.ir import BaseFunc, Expr, GlobalVar, IRModule, Op
from tvm.relax.expr import _update_type
from tvm_ffi import structural_equal

from convoy.errors import GuardError
from convoy.relax.calls import Calls
from convoy.relax.local_functions import replace_local

STANDS_FOR = "convoy_stands_for"
"""Attribute of a stand-in: the number of the function it stands for."""


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
            functions[var] = taken.stand_in(function, var)
        else:
            taken.callees[var] = function
    hidden = {
        var: replace_local(function, lambda _, local: taken.stand_in(local) if chosen(local) else None)
        for var, function in functions.items()
    }
    return _with_functions(module, hidden), taken


def put_back(result: IRModule, taken: Taken) -> IRModule:
    """``result`` with what was taken out wherever its stand-ins are now.

    A global function whose stand-in is gone comes back where it was, and so does what it calls.

    Raises
    ------
    GuardError
        If something that the functions and others call has another signature now.
    """
    if not taken.functions:
        return result
    waiting = dict(taken.homes)
    functions: dict[GlobalVar, BaseFunc] = {}
    for var, function in result.functions_items():
        number = stands_for(function)
        if number is None:
            functions[var] = replace_local(
                function, lambda _, local: None if stands_for(local) is None else taken.restore(local)
            )
        else:
            home = waiting.pop(number, var)
            place = home if home.name_hint == var.name_hint else var
            functions[place] = taken.named(number, place, taken.restore(function))
    for number, home in waiting.items():
        place = _free(home, functions)
        functions[place] = taken.named(number, place, taken.functions[number])
    _put_back_callees(functions, taken)
    return _with_functions(result, _mend(functions))


@dataclass
class Taken:
    """What is out of a module."""

    functions: list[relax.Function] = field(default_factory=list)
    """By number."""
    homes: dict[int, GlobalVar] = field(default_factory=dict)
    """Where the global ones were."""
    callees: dict[GlobalVar, BaseFunc] = field(default_factory=dict)
    """What they call and is in the module still: kernels, and functions that others call, too."""

    def stand_in(self, function: relax.Function, home: GlobalVar | None = None) -> relax.Function:
        """A stand-in for ``function``, which is the global one of this variable, or else a local one."""
        number = len(self.functions)
        self.functions.append(function)
        attributes: dict[str, object] = {STANDS_FOR: number}
        if home is not None:
            self.homes[number] = home
        if symbol := _symbol(function) or (home and home.name_hint):
            attributes["global_symbol"] = symbol
        params = [relax.Var(param.name, param.ty) for param in function.params]
        read = [*params, *relax.analysis.free_vars(function)]
        opaque = relax.ExternFunc(f"{STANDS_FOR}_{number}")
        call = relax.op.call_pure_packed(opaque, *read, ty_args=function.ret_ty)
        result = relax.Var("result", function.ret_ty)
        body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, call)])], result)
        # else TVM adds the types later, in place, and what it knew by hash is lost
        for expr in (call, body):
            _update_type(expr, function.ret_ty)
        return relax.Function(params, body, function.ret_ty, function.is_pure).with_attrs(attributes)

    def restore(self, stand_in: relax.Function) -> relax.Function:
        """What ``stand_in`` stands for, in terms of the variables that are around it now."""
        function = self.functions[int(stand_in.attrs[STANDS_FOR])]
        outside = relax.analysis.free_vars(function)
        if not outside:
            return function
        now = dict(zip([*function.params, *outside], _handed_on(stand_in), strict=True))
        params = [var for param in stand_in.params for var, read in now.items() if read.same_as(param)]
        moved = {var: read for var, read in now.items() if var not in params and not read.same_as(var)}
        if len(params) == len(function.params) and not moved:
            return function
        closed = relax.Function(
            [*params, *moved], function.body, function.ret_ty, function.is_pure, function.attrs
        )
        return relax.utils.copy_with_new_vars(closed.bind_params(moved) if moved else closed)

    def named(self, number: int, place: GlobalVar, function: relax.Function) -> relax.Function:
        """``function`` as the global function of this variable."""
        home = self.homes.get(number)
        if home is None:  # it was local: symbolic lengths belong to one global function only
            function = relax.utils.copy_with_new_vars(function)
        if (home is not None and home.name_hint == place.name_hint) or _symbol(function) is None:
            return function
        return function.with_attr("global_symbol", place.name_hint)


def stands_for(function: object) -> int | None:
    """The number of what a stand-in stands for; None for any other function."""
    if isinstance(function, relax.Function) and STANDS_FOR in (function.attrs or ()):
        return int(function.attrs[STANDS_FOR])
    return None


def _handed_on(stand_in: relax.Function) -> list[Expr]:
    """The arguments of the opaque call in a stand-in."""
    symbol = f"{STANDS_FOR}_{stands_for(stand_in)}"
    found: list[list[Expr]] = []

    def look(expr: Expr) -> None:
        if isinstance(expr, relax.Call):
            read = [expr.op, *expr.args]
            called, *arguments = read[1:] if isinstance(expr.op, Op) and expr.args else read
            if isinstance(called, relax.ExternFunc) and called.global_symbol == symbol:
                found.append(arguments)

    relax.analysis.post_order_visit(stand_in.body, look)
    (arguments,) = found
    return arguments


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


def _put_back_callees(functions: dict[GlobalVar, BaseFunc], taken: Taken) -> None:
    """A pass that saw no caller of them, because the callers were out, may have removed them."""
    present = {var.name_hint: function for var, function in functions.items()}
    for var, function in taken.callees.items():
        now = present.get(var.name_hint)
        if now is None:
            functions[var] = function
        elif not now.same_as(function) and not structural_equal(now.ty, function.ty, map_free_vars=True):
            raise GuardError(
                "no_touch",
                f"function {var.name_hint!r}",
                "expected the signature that a marked function calls it by, got another",
                "give the marked function a copy of its own",
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


def _mend(functions: dict[GlobalVar, BaseFunc]) -> dict[GlobalVar, BaseFunc]:
    """Where a pass put another variable of the same name, calls are calls of the one that is there."""
    present = {var.name_hint: var for var in functions}
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
