"""Passes that write calls of TVM's ops in another way, and the loops they write."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.ir import IRModule
from tvm.ir.transform import Pass, PassContext, module_pass
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

APART = {"op_pattern": 8}
"""Attributes of a function of loops that TVM fuses with nothing."""


def rewriting(mutator: Any, name: str, those: Callable[[relax.Function], bool] = lambda _: True) -> Pass:
    """Pass that visits ``those`` functions of Relax with a ``PyExprMutator``, made of the module."""

    def run(module: IRModule, _: PassContext) -> IRModule:
        rewrite = mutator(module)
        for var, function in module.functions_items():
            visited = isinstance(function, relax.Function) and those(function)
            written = rewrite.visit_expr(function) if visited else function
            if not written.same_as(function):
                rewrite.builder_.update_func(var, written)
        return rewrite.builder_.get()

    return module_pass(run, opt_level=0, name=name)


def length(x: te.Tensor) -> Any:
    """How many elements a tensor has."""
    return math.prod(x.shape, start=tirx.IntImm("int64", 1))


def nth(numbers: Sequence[Any], i: Any) -> Any:
    """The one of some numbers at a place that a loop counts, as int64."""
    found = numbers[-1].astype("int64")
    for position, number in reversed(list(enumerate(numbers[:-1]))):
        found = tirx.if_then_else(i == position, number.astype("int64"), found)
    return found


def write_loops(
    given: Sequence[te.Tensor], shape: Sequence[Any], write: Callable[..., None], name: str
) -> te.Tensor:
    """A tensor of the type of the first, of which ``write(*given, made)`` writes the statements."""

    def build(sources: Any, made: Any) -> Any:
        with IRBuilder() as builder:
            with T.serial(0, 1):  # holds several statements; of TVM's own scope for that its LLVM warns
                write(*map(T.buffer_proxy, sources), T.buffer_proxy(made[0]))
            return builder.get()

    return te.extern([list(shape)], list(given), build, dtype=str(given[0].dtype), name=name)
