"""Passes that write calls of TVM's ops in another way."""

from __future__ import annotations

from typing import Any

from tvm import relax
from tvm.ir import IRModule
from tvm.ir.transform import Pass, PassContext, module_pass

APART = {"op_pattern": 8}
"""Attributes of a function of loops that TVM fuses with nothing."""


def rewriting(mutator: Any, name: str) -> Pass:
    """Pass that visits each function of Relax with a ``PyExprMutator``, made of the module."""

    def run(module: IRModule, _: PassContext) -> IRModule:
        rewrite = mutator(module)
        for var, function in module.functions_items():
            written = rewrite.visit_expr(function) if isinstance(function, relax.Function) else function
            if not written.same_as(function):
                rewrite.builder_.update_func(var, written)
        return rewrite.builder_.get()

    return module_pass(run, opt_level=0, name=name)
