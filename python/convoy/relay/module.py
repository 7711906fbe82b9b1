"""A Relay module with other functions: modules are never changed in place."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tvm.ir import BaseFunc, GlobalVar, IRModule


def replace_functions(
    module: IRModule, functions: Mapping[GlobalVar, BaseFunc], without: Collection[GlobalVar] = ()
) -> IRModule:
    """A module like ``module``, with ``functions`` added or in place of its own, less ``without``."""
    kept = {var: function for var, function in module.functions_items() if var not in without}
    return IRModule({**kept, **functions}, module.type_definitions, attrs=module.attrs)
