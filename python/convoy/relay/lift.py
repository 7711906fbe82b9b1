"""Marked functions, however they are bound, become global ones: the only ones TVM's passes leave alone.

``relay.build`` and ``relay.vm.compile`` open a function that is written where it is called, although it is
marked ``Compiler``: batch norms are taken apart and layouts changed before its codegen gets it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count

from tvm import ir, relay
from tvm.ir import BaseFunc, GlobalVar, IRModule
from tvm.ir.transform import module_pass
from tvm.tir import IntImm

from convoy.errors import ModelError
from convoy.offload.names import KEY
from convoy.relay.dataflow import attribute, is_asked, rebuild, with_new_vars
from convoy.relay.errors_through_tvm import remember_error
from convoy.relay.module import functions_of, replace_functions
from convoy.relay.nested import is_nested
from convoy.relay.no_touch import is_marked, is_open
from convoy.relay.reader import flat_types
from convoy.relay.resolve import Resolver, is_external

_ASKED = ("Primitive", "Inline")
"""What TVM asks of a global function, beside ``Compiler`` and a symbol, to give it to a codegen."""


def lift(module: IRModule) -> IRModule:
    """The module with a global function for each call of a function that is marked ``Compiler``.

    Functions come to codegen as they are; one that has no ``global_symbol``, or that of another function,
    is given one.  What a function uses from around it is written into it if it is a function or a literal,
    else it becomes a further argument.  TVM's Inline, which runs last of all, fails over a global function
    that is called twice, so each call has its own; TVM compiles equal functions once.

    Raises
    ------
    ModelError
        For a marked function that calls itself, or a function known at run time, that gives a tuple in a
        tuple, or that takes or makes what is no tensor.
    """
    found: list[bool] = []
    for _, function in functions_of(module):
        if isinstance(function, relay.Function):
            relay.analysis.post_order_visit(function, lambda node: found.append(is_external(node)))
    if not any(found):
        return module
    module = relay.transform.InferType()(module)
    functions = {
        var: function for var, function in functions_of(module) if isinstance(function, relay.Function)
    }
    external = {var: function for var, function in functions.items() if is_external(function)}
    resolver, places = Resolver(functions), _Places(module, external)
    own = {var: resolver.resolve(function) for var, function in functions.items() if is_open(function)}
    lifted = {var: places.lift(function) for var, function in own.items()}
    return relay.transform.InferType()(replace_functions(module, {**lifted, **places.functions}))


def lift_written(module: IRModule | relay.Function) -> IRModule | relay.Function:
    """``lift`` where a function of Convoy's is written in place, as ``relay.optimize`` leaves all of them.

    For builds that do not take the road, which would change layouts in it.
    """
    written: list[bool] = []
    for _, function in functions_of(module) if isinstance(module, IRModule) else ():
        if isinstance(function, relay.Function) and is_open(function):
            relay.analysis.post_order_visit(function, lambda node: written.append(_is_convoys(node)))
    run = module_pass(remember_error(lambda given, _: lift(given)), opt_level=0, name="convoy.lift")
    return run(module) if any(written) else module


def _is_convoys(node: relay.Expr) -> bool:
    return is_external(node) and attribute(node, "Compiler") == KEY


def beside_main(module: IRModule) -> IRModule:
    """``module`` with a main that calls the marked function that it was: TVM runs none as a network."""
    main = next((var for var in module.get_global_vars() if var.name_hint == "main"), None)
    if main is None or not is_external(module[main]):
        return module
    module = relay.transform.InferType()(module)
    functions = dict(functions_of(module))
    marked = functions[main]
    taken = {str(var.name_hint) for var in functions}
    place = GlobalVar(next(name for name in numbered(_symbol(marked, main)) if name not in taken))
    params = [relay.Var(param.name_hint, param.type_annotation) for param in marked.params]
    network = relay.Function(params, relay.Call(place, params), marked.ret_type)
    return replace_functions(module, {main: network, place: marked})


def _called(function: relay.Function) -> relay.Function:
    """``function`` with a function that calls it in place of each external one that is a value in it."""

    def enter(inner: relay.Function) -> relay.Function:
        if is_external(inner):
            params = [relay.Var(param.name_hint, param.type_annotation) for param in inner.params]
            return relay.Function(params, relay.Call(inner, params), inner.ret_type)
        return inner if is_marked(inner) else rebuild(inner, call, enter, everywhere=True)

    def call(old: relay.Call, new: relay.Call) -> relay.Expr:
        return relay.Call(old.op, new.args, None, None, new.span) if is_external(old.op) else new

    return enter(function)


class _Places:
    """The global functions of calls, and their names."""

    def __init__(self, module: IRModule, external: Mapping[GlobalVar, relay.Function]) -> None:
        self.functions: dict[GlobalVar, relay.Function] = {}
        self._free = {function: var for var, function in external.items()}
        """The names that functions have already, for their first calls."""
        self._taken = {str(var.name_hint) for var in module.get_global_vars()}
        own = {_symbol(function, var): function for var, function in external.items()}
        # TVM calls what a codegen made by a variable named like the symbol
        self._symbols = Symbols(own | {str(var.name_hint): one for var, one in functions_of(module)})
        self._wanted = _symbols_in(module)
        self._complete: dict[relay.Function, relay.Function] = {}

    def lift(self, function: relay.Function) -> relay.Function:
        """``function`` with calls of global functions in place of calls of external ones written in it."""

        def enter(inner: relay.Function) -> relay.Function:
            return inner if is_marked(inner) else rebuild(inner, name, enter, everywhere=True)

        def name(_: relay.Call, call: relay.Call) -> relay.Expr:
            if not is_external(call.op):
                return call
            return relay.Call(self._place(call.op), call.args, None, None, call.span)

        return enter(_called(function))

    def _place(self, function: relay.Function) -> GlobalVar:
        """The global function of one more call."""
        var = self._free.pop(function, None)
        if function not in self._complete:
            self._complete[function] = self._completed(function, _symbol(function, var))
        complete = self._complete[function]
        if var is None:
            if any(complete.same_as(there) for there in self.functions.values()):
                complete = with_new_vars(complete)  # TVM's Inline writes all of them into one function
            var = GlobalVar(self._free_name(complete))
            self._taken.add(str(var.name_hint))
        self.functions[var] = complete
        return var

    def _free_name(self, function: relay.Function) -> str:
        """A name for one more place of this function: its symbol, or what is the symbol of none."""
        symbol = attribute(function, "global_symbol")
        for name in numbered(symbol):
            free = name not in self._wanted and self._symbols.gives(name, function)
            if name not in self._taken and (name == symbol or free):
                break
        return name

    def _completed(self, function: relay.Function, wanted: str) -> relay.Function:
        """``function`` with all that TVM asks of it, and a symbol that no other function has."""
        _check_tensors(function, wanted)
        missing = {name: IntImm("int32", 1) for name in _ASKED if not is_asked(function, name)}
        named = self._symbols.named(function, wanted)
        return named.with_attr(missing) if missing else named


def _check_tensors(function: relay.Function, name: str) -> None:
    """TVM calls external functions of tensors, and its errors over others do not say so."""
    if is_nested(function.ret_type):
        problem = "expected tensors or one tuple of them as its result, got a tuple in a tuple"
        remedy = "return one tuple of all, and nest them where it is called"
        raise ModelError("partition", f"function {name!r}", problem, remedy)
    if beyond := _beyond_tensors(function):
        problem = f"expected a marked function of tensors, got one with {beyond}"
        remedy = "mark what is computed of tensors, and leave the rest around it"
        raise ModelError("partition", f"function {name!r}", problem, remedy)


_OTHER_TYPES = {
    ir.FuncType: "a function for an argument",
    ir.TypeCall: "a data type",
    ir.RelayRefType: "a reference for an argument",
    ir.TypeVar: "a type that only calls know",
}


def _beyond_tensors(function: relay.Function) -> str:
    """What there is in this that no function of TVM's lower levels knows."""
    made: list[relay.Expr] = []

    def visit(node: relay.Expr) -> None:
        if isinstance(node, relay.Constructor):
            made.append(node)

    relay.analysis.post_order_visit(function, visit)
    types = flat_types([param.type_annotation for param in function.params])
    others = (name for kind, name in _OTHER_TYPES.items() if any(isinstance(ty, kind) for ty in types))
    return _OTHER_TYPES[ir.TypeCall] if made else next(others, "")


class Symbols:
    """The names that codegens know functions by: each stands for one function, and those equal to it.

    Parameters
    ----------
    taken : Mapping[str, BaseFunc] | None
        Functions that keep their names.
    """

    def __init__(self, taken: Mapping[str, BaseFunc] | None = None) -> None:
        self._functions = dict(taken or {})

    def gives(self, symbol: str, function: relay.Function) -> bool:
        """Does this name stand for ``function`` from now on, or an equal one?"""
        other = self._functions.setdefault(symbol, function)
        return bool(other == function or ir.structural_equal(other, function))

    def named(self, function: relay.Function, wanted: str = "") -> relay.Function:
        """``function`` with a name of its own: the one it has, the one wanted, or one that is free.

        TVM calls the network ``main``.
        """
        for symbol in numbered(wanted or attribute(function, "global_symbol")):
            if symbol != "main" and self.gives(symbol, function):
                break
        has = attribute(function, "global_symbol") == symbol
        return function if has else function.with_attr("global_symbol", symbol)


def _symbols_in(module: IRModule) -> set[str]:
    """The names by which codegens know the functions of this module, wherever they are written."""
    found: set[str] = set()

    def note(node: relay.Expr) -> None:
        if is_external(node):
            found.add(attribute(node, "global_symbol"))

    for _, function in functions_of(module):
        if isinstance(function, relay.Function):
            relay.analysis.post_order_visit(function, note)
    return found


def _symbol(function: relay.Function, var: GlobalVar | None) -> str:
    """The name its codegen knows it by, or what may become that."""
    named = attribute(function, "global_symbol")
    return named or (str(var.name_hint) if var is not None else f"{attribute(function, 'Compiler')}_0")


def numbered(first: str) -> Iterator[str]:
    """A name, and then the same with numbers behind it."""
    yield first
    for number in count(1):
        yield f"{first}_{number}"
