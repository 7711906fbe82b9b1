"""Which marked function a call calls, written where it is called.

A function may be bound by a let, put into a tuple or a branch, handed to a function or returned by one.
TVM's executors know few of these forms, and a codegen gets what is called directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tvm import ir, relay
from tvm.ir import GlobalVar

from convoy.errors import ModelError
from convoy.relay.dataflow import (
    attribute,
    has_attribute,
    post_order,
    rebuild,
    renewed,
    replaced,
    with_body,
)
from convoy.relay.no_touch import is_open
from convoy.relay.opaque import OPAQUE, bound_in, parts, with_parts


def is_external(function: object) -> bool:
    """Does an external codegen compile this function?"""
    return isinstance(function, relay.Function) and has_attribute(function, "Compiler")


@dataclass
class _Scope:
    """The expressions of one body, and what took their places."""

    new: dict[relay.Expr, relay.Expr] = field(default_factory=dict)
    values: dict[relay.Var, relay.Expr] = field(default_factory=dict)
    """What lets bind variables to."""
    kept: set[relay.Var] = field(default_factory=set)
    """The variables that are still read."""
    copied: bool = False
    """It is a copy: its variables are bound elsewhere too, so here they are others."""


class Resolver:
    """Rewrites functions so that external ones are called where they are written.

    What passes them around is written out: lets and tuples of them, calls of functions that hold them or
    are handed them, calls of what an ``If`` or a match chooses.  A function that calls itself is not, nor
    what a match binds or a global function passes around: there the external function stays a value.

    Parameters
    ----------
    functions : Mapping[GlobalVar, relay.Function]
        The module's global functions.
    """

    def __init__(self, functions: Mapping[GlobalVar, relay.Function]) -> None:
        self.functions = functions
        self._holding: dict[relay.Function, bool] = {}
        self._globals: dict[GlobalVar, relay.Expr] = {}

    def resolve(self, function: relay.Function) -> relay.Function:
        """A global function, which has types, rewritten.

        Raises
        ------
        ModelError
            For an external function that calls itself, or a function known at run time.
        """
        return with_body(function, self._body(function.body, _Scope()))

    def _body(self, body: relay.Expr, scope: _Scope) -> relay.Expr:
        nodes = list(post_order(body))
        scope.values |= {node.var: node.value for node in nodes if isinstance(node, relay.Let)}
        for node in nodes:
            self._new(node, scope)
        return scope.new[body]

    def _new(self, node: relay.Expr, scope: _Scope) -> relay.Expr:
        """What takes the place of ``node``, whose operands have been replaced."""
        if node not in scope.new:
            scope.new[node] = self._renew(node, scope)
        return scope.new[node]

    def _renew(self, node: relay.Expr, scope: _Scope) -> relay.Expr:
        if isinstance(node, relay.Var):
            return self._variable(node, scope)
        if isinstance(node, GlobalVar):
            return self._global(node)
        if isinstance(node, relay.Function):
            return self._function(node, scope)
        if isinstance(node, relay.Let):
            value, body = scope.new[node.value], scope.new[node.body]
            unread = node.var not in scope.kept
            if unread and (isinstance(value, relay.Function | relay.Tuple) or self._passes_on(value)):
                return body
            return relay.Let(self._new(node.var, scope), value, body, node.span)
        if isinstance(node, OPAQUE):
            variables = {var: _like(var) for var in bound_in(node)} if scope.copied else {}
            scope.new |= variables
            return with_parts(node, [self._body(part, scope) for part in parts(node)], variables)
        if isinstance(node, relay.Call):
            op = node.op if isinstance(node.op, ir.Op) else self._new(node.op, scope)
            return self._call(op, [scope.new[arg] for arg in node.args], node)
        return renewed(node, scope.new, lambda _, call: call, lambda function: function)

    def _variable(self, var: relay.Var, scope: _Scope) -> relay.Expr:
        value = scope.values.get(var)
        if value in scope.new and self._passes_on(scope.new[value]):
            return scope.new[value]
        scope.kept.add(var)
        return _like(var) if scope.copied and value is not None else var

    def _call(self, op: relay.Expr, args: Sequence[relay.Expr], call: relay.Call) -> relay.Expr:
        if isinstance(op, relay.If) and self._passes_on(op):
            chosen = (self._call(branch, args, call) for branch in (op.true_branch, op.false_branch))
            return relay.If(op.cond, *chosen, call.span)
        if isinstance(op, relay.Match) and self._passes_on(op):
            variables = {var: _like(var) for var in bound_in(op)}
            data, *found = (replaced(part, variables) for part in parts(op))
            return with_parts(op, [data, *(self._call(part, args, call) for part in found)], variables)
        if is_open(op) and (self._passes_on(op) or any(map(self._passes_on, args))):
            scope = _Scope(dict(zip(op.params, args, strict=True)), copied=True)
            return self._body(op.body, scope)
        same = op.same_as(call.op) and all(
            new.same_as(arg) for new, arg in zip(args, call.args, strict=True)
        )
        return call if same else relay.Call(op, list(args), call.attrs, call.type_args, call.span)

    def _function(self, function: relay.Function, scope: _Scope) -> relay.Function:
        if is_external(function):
            return self._closed(function, scope)
        if not is_open(function):
            found = {var: self._new(var, scope) for var in relay.analysis.free_vars(function)}
            return _bound(function, {var: new for var, new in found.items() if not new.same_as(var)})
        params = [_like(param) if scope.copied else param for param in function.params]
        scope.new |= dict(zip(function.params, params, strict=True))
        body = self._body(function.body, scope)
        if not scope.copied:
            return with_body(function, body)
        return relay.Function(
            params, body, function.ret_type, function.type_params, function.attrs, function.span
        )

    def _global(self, var: GlobalVar) -> relay.Expr:
        """The external function of this name; the name of any other."""
        if var not in self._globals:
            function = self.functions.get(var)
            self._globals[var] = self._closed(function, _Scope()) if is_external(function) else var
        return self._globals[var]

    def _closed(self, function: relay.Function, scope: _Scope) -> relay.Function:
        """An external function that uses nothing around it.

        Functions and literals it uses are written into it, as its codegen is told of no others; other
        values are handed to it as further arguments.
        """
        closed = self._with_globals(function, (function,))
        while found := self._functions_used(closed, scope):
            closed = _bound(closed, found)
        used = {
            var: _value(var, scope) or self._new(var, scope) for var in relay.analysis.free_vars(closed)
        }
        literals = {var: new for var, new in used.items() if isinstance(new, relay.Constant)}
        captured = {var: _like(var) for var in used if var not in literals}
        closed = _bound(closed, {**literals, **captured}, list(captured.values()))
        if not captured:
            return closed
        params = [_like(param) for param in function.params]
        return self._function(relay.Function(params, relay.Call(closed, [*params, *captured])), scope)

    def _functions_used(self, function: relay.Function, scope: _Scope) -> dict[relay.Var, relay.Expr]:
        """What the variables of functions that ``function`` uses from around it are bound to."""
        found: dict[relay.Var, relay.Expr] = {}
        for var in relay.analysis.free_vars(function):
            if isinstance(var.type_annotation, ir.FuncType):
                new = _value(var, scope) or self._new(var, scope)
                if not isinstance(new, relay.Function) or var in relay.analysis.free_vars(new):
                    raise _unknown(function, var.name_hint)
                found[var] = new
        return found

    def _with_globals(self, function: relay.Function, around: Sequence[relay.Function]) -> relay.Function:
        """``function`` with the global functions it calls written into it."""

        def enter(inner: relay.Function) -> relay.Function:
            return rebuild(inner, write, enter, everywhere=True)

        def write(_: relay.Call, call: relay.Call) -> relay.Expr:
            if not isinstance(call.op, GlobalVar) or call.op not in self.functions:
                return call
            called = self.functions[call.op]
            if called in around:
                raise _unknown(function, call.op.name_hint)
            called = self._with_globals(called, (*around, called))
            if is_open(called):
                return relay.bind(called.body, dict(zip(called.params, call.args, strict=True)))
            return relay.Call(called, call.args, None, None, call.span)

        return enter(function)

    def _passes_on(self, value: relay.Expr) -> bool:
        """Is this an external function, or something that holds one or is handed functions?"""
        if isinstance(value, relay.Tuple):
            return any(map(self._passes_on, value.fields))
        if isinstance(value, relay.If):
            return self._passes_on(value.true_branch) or self._passes_on(value.false_branch)
        if isinstance(value, relay.Match):
            return any(self._passes_on(clause.rhs) for clause in value.clauses)
        if not isinstance(value, relay.Function):
            return False
        if value not in self._holding:
            inside: list[bool] = []
            relay.analysis.post_order_visit(value, lambda node: inside.append(is_external(node)))
            handed = any(isinstance(param.type_annotation, ir.FuncType) for param in value.params)
            self._holding[value] = any(inside) or handed
        return self._holding[value]


def _value(var: relay.Var, scope: _Scope) -> relay.Expr | None:
    """What a let binds ``var`` to, if one does and it has been replaced."""
    return scope.new.get(scope.values.get(var))


def _bound(
    function: relay.Function, found: Mapping[relay.Var, relay.Expr], more: Sequence[relay.Var] = ()
) -> relay.Function:
    """``function`` with ``found`` in the places of variables it uses, and with more parameters."""
    if not found:
        return function
    return relay.Function(
        [*function.params, *more],
        relay.bind(function.body, dict(found)),
        function.ret_type,
        function.type_params,
        function.attrs,
        function.span,
    )


def _unknown(function: relay.Function, name: str) -> ModelError:
    return ModelError(
        "partition",
        f"function {attribute(function, 'global_symbol') or attribute(function, 'Compiler')!r}",
        f"expected a marked function that calls only functions known by now, got a call of {name}, "
        "which is the function itself or known at run time",
        "mark what one turn computes, and leave the loop around it",
    )


def _like(var: relay.Var) -> relay.Var:
    return relay.Var(var.name_hint, var.type_annotation)
