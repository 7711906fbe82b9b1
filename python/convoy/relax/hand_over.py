"""Marked functions go to their codegens: ``relax.ext.<codegen>``, whoever's it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tvm
from tvm import relax
from tvm.ir import IRModule

from convoy.errors import ModelError
from convoy.offload.names import KEY, check_registered
from convoy.relax.calls import Acquaintances, Strangers
from convoy.relax.errors_through_tvm import telling_whose
from convoy.relax.no_touch import marked_functions


def check_codegens(module: IRModule) -> None:
    """Each marked function has a codegen that takes it, by a name that is text.

    Raises
    ------
    ModelError
        For the first that has none.
    """
    for var, function in marked_functions(module).items():
        if "Codegen" in function.attrs:
            symbol = function.attrs.get("global_symbol", "")
            if not isinstance(symbol, str):
                problem = f"expected text in the attribute global_symbol, got {symbol!r}"
                remedy = "write its name there, or leave the attribute out"
                raise ModelError("codegen", f"function {var.name_hint!r}", problem, remedy)
            codegen = str(function.attrs["Codegen"])
            check_registered(var.name_hint, codegen, f"relax.ext.{codegen}", _is_registered)


def _is_registered(name: str) -> bool:
    return tvm.get_global_func(name, allow_missing=True) is not None


def run_codegen(module: IRModule) -> IRModule:
    """TVM's ``RunCodegen``, told of all functions.

    By itself it visits the public ones only, and leaves the regions of a private one marked, which TVM's
    virtual machine cannot take.  It visits a function at each of its calls, so these are hidden from it,
    also in a composite that no codegen took: one that calls itself it would visit without end.
    """
    callers = {
        var.name_hint: var
        for var, function in module.functions_items()
        if isinstance(function, relax.Function) and "Codegen" not in (function.attrs or ())
    }
    strangers = _visit(module, Strangers(callers), callers)
    with telling_whose(_of_others(module)):
        generated = relax.transform.RunCodegen(entry_functions=list(callers))(strangers)
    present = {name: generated.get_global_var(name) for name in callers}
    return _visit(generated, Acquaintances(present), callers)


def _of_others(module: IRModule) -> list[str]:
    """The functions of others' codegens, for a report."""
    owners = {
        var.name_hint: str(f.attrs.get("Codegen", KEY)) for var, f in marked_functions(module).items()
    }
    return [f"{name!r} (relax.ext.{owner})" for name, owner in owners.items() if owner != KEY]


def _visit(module: IRModule, mutator: Any, names: Iterable[str]) -> IRModule:
    module = module.clone()
    for name in names:
        module.update_func(module.get_global_var(name), mutator.visit_expr(module[name]))
    return module
