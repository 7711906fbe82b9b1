"""Functions that partitioning goes around, as TVM's passes for it fail over them.

AnnotateTarget and PartitionGraph end over a reference.  What asks for ``SkipOptimization`` they leave, but
MergeComposite then puts another function in the place of ``main``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relay
from tvm.ir import GlobalVar, IRModule

from convoy.relay.dataflow import is_asked
from convoy.relay.lets import unseen_calls
from convoy.relay.module import functions_of, replace_functions
from convoy.relay.no_touch import is_open

REFERENCES = (relay.RefCreate, relay.RefRead, relay.RefWrite)
_ASIDE = "convoy_aside"
"""The codegen that has them meanwhile: the guard keeps what is marked out of passes' way."""

Functions = Mapping[GlobalVar, relay.Function]


def holding_references(module: IRModule) -> Functions:
    """The open functions that make, read or write a reference anywhere."""
    return {var: f for var, f in functions_of(module) if is_open(f) and _holds_one(f)}


def to_leave(module: IRModule) -> Functions:
    """The open functions to go around."""
    skipped = {v: f for v, f in functions_of(module) if is_open(f) and is_asked(f, "SkipOptimization")}
    return {**holding_references(module), **skipped}


def _holds_one(function: relay.Function) -> bool:
    found: list[bool] = []
    relay.analysis.post_order_visit(function, lambda node: found.append(isinstance(node, REFERENCES)))
    return any(found)


def set_aside(module: IRModule, functions: Functions) -> IRModule:
    """``module``, in which these functions of it are marked."""
    return replace_functions(module, {v: f.with_attr("Compiler", _ASIDE) for v, f in functions.items()})


def take_back(module: IRModule, functions: Functions) -> IRModule:
    """``module``, in which they are no longer."""
    places = [module.get_global_var(var.name_hint) for var in functions]
    return replace_functions(module, {var: module[var].without_attr("Compiler") for var in places})


def calls_in(functions: Functions) -> list[relay.Call]:
    """The calls of ops in these functions, but for those a codegen has taken."""
    closed = (function.with_attr("Primitive", 1) for function in functions.values())
    return [call for function in closed for call in unseen_calls(function)]
