"""What open sizes of a function are at least: by its first checks, and by what is noted on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tvm import relax, tirx
from tvm.ir import IRModule

from convoy.relax.dataflow import computes_nothing, number, op_name
from convoy.relax.sizes import least_variable

NOTED = "tir_var_lower_bound"
"""TVM's attribute of a function: what its open sizes are at least, by their names."""


def least_sizes(function: relax.Function, module: IRModule) -> dict[tirx.Var, int]:
    """What open sizes are at least where a function's ops begin; not of those that may be 1.

    No call is held to what is noted: what is made by it holds its own calls to what it needs.
    """
    every = (binding for block in function.body.blocks for binding in block.bindings)
    checked = least_variables(expected_sizes(every, module))
    noted = noted_sizes(function)
    return {v: max(checked.get(v, 1), noted.get(v, 1)) for v in checked | noted}


def noted_sizes(function: relax.Function) -> dict[tirx.Var, int]:
    """Those of ``NOTED``, of names that one size alone has."""
    noted = (function.attrs or {}).get(NOTED) or {}
    found: dict[str, list[tirx.Var]] = {}
    for variable in variables_of(function) if noted else ():
        found.setdefault(str(variable.name), []).append(variable)
    return {own[0]: int(noted[name]) for name, own in found.items() if name in noted and len(own) == 1}


def note_sizes(function: relax.Function, least: Mapping[tirx.Var, int]) -> relax.Function:
    """The function with that noted of the sizes it has."""
    noted = {str(v.name): least[v] for v in variables_of(function) if least.get(v, 1) > 1}
    return function.with_attr(NOTED, noted) if noted else function


def variables_of(function: relax.Function) -> list[tirx.Var]:
    """The open sizes of a function, known from outside or by its parameters."""
    free, defined = relax.analysis.free_symbolic_vars, relax.analysis.defined_symbolic_vars
    return list(dict.fromkeys([*defined(function), *free(function)]))


def expected_sizes(bindings: Iterable[relax.Binding], module: IRModule) -> Iterator[tuple[Any, int]]:
    """Sizes that a check before all ops has a call end for, and what they are at least."""
    for binding in bindings:
        value = binding.value
        if not (isinstance(value, relax.ShapeExpr | relax.Var) or computes_nothing(value)):
            return
        if op_name(value) == "call_tir":
            check, given = module[value.args[0]], value.args[1].fields
            check = check.specialize(dict(zip(check.params[: len(given)], given, strict=True)))
            for condition in _asserted(check.body):
                if isinstance(condition, tirx.GE) and number(condition.b) is not None:
                    yield condition.a, int(number(condition.b) or 0)


def least_variables(sizes: Iterable[tuple[Any, int]]) -> dict[tirx.Var, int]:
    """What variables are at least where these sizes are at least so much."""
    found = filter(None, (least_variable(size, least) for size, least in sizes))
    return dict(sorted(found, key=lambda of: of[1]))  # the last of a variable, the largest, is kept


def _asserted(statement: Any) -> Iterator[Any]:
    if isinstance(statement, tirx.AssertStmt):
        yield statement.condition
    parts = (getattr(statement, name, None) for name in ("block", "body"))
    for inner in (*parts, *getattr(statement, "seq", ())):
        if inner is not None:
            yield from _asserted(inner)
