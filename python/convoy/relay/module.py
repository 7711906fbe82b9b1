"""Relay modules: made of what is given, and with other functions, as they are never changed in place."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tvm import relay
from tvm.ir import BaseFunc, GlobalVar, IRModule

from convoy.errors import ModelError


def functions_of(module: IRModule) -> list[tuple[GlobalVar, BaseFunc]]:
    """Its functions by name; TVM 0.14 and 0.15 have no ``functions_items``."""
    return sorted(module.functions.items(), key=lambda item: str(item[0].name_hint))


def replace_functions(
    module: IRModule, functions: Mapping[GlobalVar, BaseFunc], without: Collection[GlobalVar] = ()
) -> IRModule:
    """A module like ``module``, with ``functions`` added or in place of its own, less ``without``."""
    kept = {var: function for var, function in functions_of(module) if var not in without}
    return IRModule({**kept, **functions}, module.type_definitions, attrs=module.attrs)


def as_module(given: object) -> IRModule:
    """What is to be compiled, as a module.

    Raises
    ------
    ModelError
        If it is neither a module nor a function.
    """
    if isinstance(given, relay.Function):
        return IRModule.from_expr(given)
    if isinstance(given, IRModule):
        return given
    raise ModelError(
        "import",
        type(given).__name__,
        "expected a Relay IRModule or Function, got an object of this type",
        "pass one of them; relay.frontend makes modules of models",
    )
