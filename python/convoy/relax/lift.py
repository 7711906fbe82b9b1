"""Lift: a marked function that is written where it is called becomes a global one, called by its name.

``RunCodegen`` gives every function marked ``Codegen`` to its codegen, but only calls by a global name
become calls of what the codegen made (0.27).  So

    def main(x, w):                             def main_f(a, w):  Codegen "acme", global_symbol "main_f"
        def f(a):  Codegen "acme"                   return a + w
            return a + w                →
        y = f(x)                                def main(x, w):
                                                    y = main_f(x, w)

The function stays as it is written, but what it reads from around it becomes parameters.  Where it is a
value, an argument or part of a tuple, a function that calls it is the value: what the codegen made is none.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import count

from tvm import relax
from tvm.ir import BaseFunc, Expr, GlobalVar, IRModule, Type, Var
from tvm.ir.transform import Pass, PassContext, module_pass
from tvm.relax.expr import _update_type
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi import structural_equal

from convoy.relax.local_functions import bindings_in
from convoy.relax.no_touch import is_marked
from convoy.relax.stand_in_bodies import calling


def lift_marked() -> Pass:
    """Pass after which every marked function is global, and called by its name where it was by a variable.

    One marked ``Codegen`` has a ``global_symbol`` then, by which TVM calls what its codegen made: the one
    it was given, unless another function has that.  A marked function that calls itself, or is known only
    at run time, because a branch gives it say, stays where it is.
    """

    def run(module: IRModule, _: PassContext) -> IRModule:
        functions = dict(module.functions_items())
        hosts = [v for v, f in functions.items() if isinstance(f, relax.Function) and not is_marked(f)]
        for var in hosts:
            if _has_function_values(functions[var]):
                rewritten = _Lift(var.name_hint, functions).visit_expr(functions[var])
                functions[var] = relax.analysis.remove_all_unused(rewritten)
        _call_values(functions)
        return IRModule(_with_symbols(functions), attrs=module.attrs, global_infos=module.global_infos)

    return module_pass(run, opt_level=0, name="convoy.lift_marked")


def _has_function_values(function: relax.Function) -> bool:
    """Is there a marked local function, or a global one as a variable's value?"""

    def is_one(value: Expr) -> bool:
        if isinstance(value, relax.Tuple):
            return any(isinstance(item, GlobalVar) for item in value.fields)
        return isinstance(value, GlobalVar) or is_marked(value)

    return any(is_one(binding.value) for binding in bindings_in(function.body))


def _call_values(functions: dict[GlobalVar, BaseFunc]) -> None:
    """Functions that call those for codegens, among ``functions`` and where such a function is a value."""
    taken = {var: f for var, f in functions.items() if is_marked(f) and "Codegen" in f.attrs}
    for host, function in list(functions.items()):
        if (
            isinstance(function, relax.Function)
            and not is_marked(function)
            and _has_values(function, taken)
        ):
            functions[host] = _Values(taken, functions).visit_expr(function)


def _has_values(function: relax.Function, taken: Container[Expr]) -> bool:
    """Is one of those taken a value anywhere in this function?"""
    values: list[Expr] = [binding.value for binding in bindings_in(function.body)]

    def note(expr: Expr) -> None:
        if isinstance(expr, relax.Call):
            values.extend(expr.args)
        elif isinstance(expr, relax.Tuple):
            values.extend(expr.fields)
        elif isinstance(expr, relax.SeqExpr):
            values.append(expr.body)

    relax.analysis.post_order_visit(function, note)
    return any(value in taken for value in values)


@mutator
class _Values(PyExprMutator):  # type: ignore[misc]
    def __init__(
        self, taken: dict[GlobalVar, relax.Function], functions: dict[GlobalVar, BaseFunc]
    ) -> None:
        super().__init__()
        self.taken = taken
        self.functions = functions

    def visit_call_(self, call: relax.Call) -> Expr:
        if call.op not in self.taken:
            return super().visit_call_(call)
        arguments = [self.visit_expr(argument) for argument in call.args]
        if all(new.same_as(old) for new, old in zip(arguments, call.args, strict=True)):
            return call
        return relax.Call(call.op, arguments, call.attrs, call.ty_args, call.span, ret_ty=call.ty)

    def visit_global_var_(self, op: GlobalVar) -> Expr:
        function = self.taken.get(op)
        return op if function is None else self._calling(op, function)

    def _calling(self, var: GlobalVar, function: relax.Function) -> GlobalVar:
        made = calling(lambda read: relax.Call(var, read), function)
        names = {other.name_hint for other in self.functions}
        place = GlobalVar(_free_name(f"{var.name_hint}_called", names))
        _update_type(place, made.ty)
        self.functions[place] = relax.utils.copy_with_new_vars(made)
        return place


def _free_name(name: str, names: Container[str]) -> str:
    """This name, or else with a number."""
    return next(free for free in _numbered(name) if free not in names)


def _numbered(name: str) -> Iterator[str]:
    yield name
    for number in count(1):
        yield f"{name}_{number}"


def _with_symbols(functions: Mapping[GlobalVar, BaseFunc]) -> dict[GlobalVar, BaseFunc]:
    """The functions, those for codegens with symbols that stand for one function each, and its equals."""
    codegens = {var: f for var, f in functions.items() if is_marked(f) and "Codegen" in f.attrs}
    others = {var: f for var, f in functions.items() if var not in codegens}
    owners = {name: f for var, f in others.items() for name in (var.name_hint, _symbol(f))}
    named = dict(functions)
    for var in sorted(codegens, key=lambda var: not _symbol(codegens[var])):  # what has a symbol keeps it
        named[var] = _with_symbol(codegens[var], _symbol(codegens[var]) or var.name_hint, owners)
    return named


def _with_symbol(function: relax.Function, wanted: str, owners: dict[str, BaseFunc]) -> relax.Function:
    for symbol in _numbered(wanted):
        owner = owners.setdefault(symbol, function)
        if owner.same_as(function) or structural_equal(owner, function):
            break
    return function if _symbol(function) == symbol else function.with_attr("global_symbol", symbol)


def _symbol(function: BaseFunc) -> str:
    return str((function.attrs or {}).get("global_symbol", ""))


@mutator
class _Lift(PyExprMutator):  # type: ignore[misc]
    """Puts the marked functions of one function among ``functions``; leaves calls of them by name."""

    def __init__(self, host: str, functions: dict[GlobalVar, BaseFunc]) -> None:
        super().__init__()
        self.host = host
        self.functions = functions
        self.lifts = True
        """Or else only calls are of what is lifted already."""
        self.known: dict[Var, tuple[GlobalVar, list[Expr]]] = {}
        """The global function that a variable holds, and what it reads from around it."""
        self.tuples: dict[Var, relax.Tuple] = {}
        self.results: dict[GlobalVar, Type] = {}
        """What those give whose sizes are the host's: a call of a global function says nothing of them."""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        value = self._item(binding.value)
        if self.lifts and is_marked(value) and binding.var not in relax.analysis.free_vars(value):
            self.known[binding.var] = self._lift(binding.var, self._within(value))
        elif isinstance(value, GlobalVar):
            self.known[binding.var] = value, []
        elif isinstance(value, relax.Tuple):
            self.tuples[binding.var] = value
        elif value in self.known:
            self.known[binding.var] = self.known[value]
        super().visit_var_binding_(binding)

    def _within(self, function: relax.Function) -> relax.Function:
        """A marked function as it is written, but for calls of others that are lifted: they are by name."""
        if self.known.keys().isdisjoint(relax.analysis.free_vars(function)):
            return function
        inner = _Lift(self.host, self.functions)
        inner.lifts, inner.known, inner.results = False, dict(self.known), self.results
        return inner.visit_expr(function)

    def _item(self, value: Expr) -> Expr:
        """What is taken out of a tuple that is known."""
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in self.tuples:
            return self.tuples[value.tuple_value].fields[value.index]
        return value

    def visit_call_(self, call: relax.Call) -> Expr:
        if call.op not in self.known:
            return super().visit_call_(call)
        var, outside = self.known[call.op]
        arguments = [self.visit_expr(arg) for arg in (*call.args, *outside)]
        made = relax.Call(var, arguments, call.attrs, call.ty_args, call.span, ret_ty=call.ty)
        if var not in self.results:
            return made
        return self.builder_.match_cast(self.builder_.emit(made), self.results[var])

    def visit_var_(self, op: Var) -> Expr:
        return self._value(op) or super().visit_var_(op)

    def visit_dataflow_var_(self, op: Var) -> Expr:
        return self._value(op) or super().visit_dataflow_var_(op)

    def _value(self, op: Var) -> GlobalVar | None:
        var, outside = self.known.get(op, (None, []))
        return None if outside else var

    def _lift(self, local: Var, function: relax.Function) -> tuple[GlobalVar, list[Expr]]:
        outside = list(relax.analysis.free_vars(function))
        closed = relax.Function(
            [*function.params, *outside], function.body, function.ret_ty, function.is_pure, function.attrs
        )
        symbol = function.attrs.get("global_symbol") or f"{self.host}_{local.name}"
        var = GlobalVar(self._free(str(symbol)))
        _update_type(var, closed.ty)
        lengths = set(relax.analysis.tir_vars_in_type(function.ret_ty))
        if lengths and lengths.issubset(outside):
            self.results[var] = function.ret_ty
        self.functions[var] = relax.utils.copy_with_new_vars(closed).with_attr(
            "global_symbol", var.name_hint
        )
        return var, outside

    def _free(self, name: str) -> str:
        return _free_name(name, {var.name_hint for var in self.functions})
