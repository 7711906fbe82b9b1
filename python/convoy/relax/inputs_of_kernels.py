"""Which inputs of a built module TVM's own kernels may read: these ask more of memory than regions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import relax, tirx
from tvm.ir import GlobalVar, IRModule

from convoy.relax.dataflow import CHECK
from convoy.relax.partition import DISPATCHER

_READ_NO_DATA = ("tirx.is_host_func", CHECK, DISPATCHER)
"""Attributes of functions of TIR that look at shapes and at nothing else."""
_CALLS_ANYTHING = "vm.builtin.invoke_closure"
_NEW = ("relax.vm.alloc_tensor", "relax.vm.alloc_storage")


def inputs_of_kernels(module: IRModule) -> frozenset[int]:
    """Places, among the inputs of ``main``, of those that a function of TIR may read.

    What such an input becomes is followed: views, tuples, branches and calls of functions.

    Parameters
    ----------
    module : IRModule
        After TVM's own passes: its calls allocate what they write.
    """
    functions = {var.name_hint: function for var, function in module.functions_items()}
    kernels = {name for name, function in functions.items() if _is_kernel(function)}
    flows = {name: _Flow(f, kernels) for name, f in functions.items() if isinstance(f, relax.Function)}
    callers: dict[str, set[str]] = {}
    for name, flow in flows.items():
        for callee, _ in flow.calls:
            callers.setdefault(callee, set()).add(name)
    waiting = set(flows)
    while waiting:
        name = waiting.pop()
        flow, found = flows[name], flows[name].read
        for callee, arguments in flow.calls:
            inner = flows[callee].read if callee in flows else 0
            for i, given in enumerate(arguments):
                found |= given if inner >> i & 1 else 0
        if found != flow.read:
            flow.read = found
            waiting |= callers.get(name, set())
    read = flows["main"].read if "main" in flows else 0
    return frozenset(i for i in range(read.bit_length()) if read >> i & 1)


def _is_kernel(function: Any) -> bool:
    return isinstance(function, tirx.PrimFunc) and not any(name in function.attrs for name in _READ_NO_DATA)


class _Flow:
    """Where the parameters of a function go: sets of them are the bits of a number."""

    def __init__(self, function: relax.Function, kernels: set[str]) -> None:
        self.kernels = kernels
        self.read = 0
        """Those that kernels read."""
        self.calls: list[tuple[str, list[int]]] = []
        """The functions it calls, each with what its arguments may be."""
        self.known: dict[relax.Var, int] = {p: 1 << i for i, p in enumerate(function.params)}
        self._follow(function.body)

    def _follow(self, expr: relax.Expr) -> int:
        """What a value may be, after its bindings are noted."""
        for block in expr.blocks if isinstance(expr, relax.SeqExpr) else ():
            for binding in block.bindings:
                self.known[binding.var] = self._follow(binding.value)
        if isinstance(expr, relax.SeqExpr):
            return self._follow(expr.body)
        if isinstance(expr, relax.Var):
            return self.known.get(expr, 0)
        if isinstance(expr, relax.Call):
            return self._call(expr)
        found = 0
        for part in _parts(expr):
            found |= self._follow(part)
        return found

    def _call(self, call: relax.Call) -> int:
        arguments = [self._follow(argument) for argument in call.args]
        found = 0
        for argument in arguments:
            found |= argument
        op = call.op
        name = op.name_hint if isinstance(op, GlobalVar) else ""
        if name in self.kernels or _is_indirect(call):
            self.read |= found
        elif isinstance(op, GlobalVar):
            self.calls.append((name, arguments))
        return 0 if getattr(op, "name", "") in _NEW else found


def _is_indirect(call: relax.Call) -> bool:
    """Does it take a function, to be called there or later, or call one that was made so?"""
    symbols = (getattr(part, "global_symbol", "") for part in (call.op, *call.args))
    return _CALLS_ANYTHING in symbols or any(isinstance(part, GlobalVar) for part in call.args)


def _parts(expr: relax.Expr) -> Iterator[relax.Expr]:
    if isinstance(expr, relax.Tuple):
        yield from expr.fields
    elif isinstance(expr, relax.TupleGetItem):
        yield expr.tuple_value
    elif isinstance(expr, relax.If):
        yield from (expr.true_branch, expr.false_branch)
