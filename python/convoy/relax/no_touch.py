"""Keep passes away from functions that belong to an external codegen.

TVM's passes do not skip functions marked ``Codegen`` or ``Composite``: most of them rewrite the
inside, some lose the mark, and the codegen then meets ops it never claimed.  ``no_touch`` hides such
functions from a pass; ``NoTouch`` watches a whole pipeline and names the pass that touched one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import GlobalVar, IRModule
from tvm.ir.instrument import PassInstrument
from tvm.ir.transform import Pass, PassContext, PassInfo, Sequential, module_pass

from convoy.offload.watch import Watch
from convoy.relax.crossing import let_errors_cross

let_errors_cross()

MARKS = ("Composite", "Codegen")
"""The attributes that mark a function: by whom or what it is to be computed."""

MAKERS = frozenset(
    {"FuseOpsByPattern", "MergeCompositeFunctions", "RunCodegen", "convoy.partition", "convoy.road"}
)
"""Passes whose business marked functions are: they make, merge, name and consume them."""


def no_touch(guarded: Pass | Sequence[Pass]) -> Pass:
    """``guarded``, run with every marked function taken out of the module and put back after it.

    A function is marked by the attribute ``Codegen``, whoever's it is, or ``Composite``. While the
    pass runs, an external function of the same type stands in its place, so that calls stay valid.
    The function comes back as it was, under the name its place then has, even if the pass saw no
    use of it and removed it; so do the functions it calls.

    Parameters
    ----------
    guarded : a pass, or several to run in sequence
    """
    inner = guarded if isinstance(guarded, Pass) else Sequential(list(guarded))

    def run(module: IRModule, _: PassContext) -> IRModule:
        marked = marked_functions(module)
        return _put_back(inner(_take_out(module, marked)), module, marked)

    return module_pass(run, opt_level=inner.info.opt_level, name=f"no_touch({inner.info.name})")


def is_marked(function: object) -> bool:
    """Does this belong to an external codegen?"""
    return isinstance(function, relax.Function) and any(mark in (function.attrs or ()) for mark in MARKS)


def is_open(function: object) -> bool:
    """Is this a function that no codegen and no fusion has taken already?"""
    return (
        isinstance(function, relax.Function)
        and not is_marked(function)
        and "Primitive" not in (function.attrs or ())
    )


def marked_functions(module: IRModule) -> dict[GlobalVar, relax.Function]:
    """The functions of ``module`` that belong to an external codegen."""
    return {var: f for var, f in module.functions_items() if is_marked(f)}


def _take_out(module: IRModule, marked: Iterable[GlobalVar]) -> IRModule:
    hollow = module.clone()
    for var in marked:
        hollow.update_func(var, relax.ExternFunc(var.name_hint, module[var].ty))
    return hollow


def _put_back(result: IRModule, module: IRModule, marked: dict[GlobalVar, relax.Function]) -> IRModule:
    if not marked:
        return result
    result = result.clone()
    places = {
        str(f.global_symbol): var for var, f in result.functions_items() if isinstance(f, relax.ExternFunc)
    }
    for var, function in marked.items():
        result.update_func(places.get(var.name_hint, var), function)
    _restore_callees(result, module, marked.values())
    return result


def _restore_callees(result: IRModule, module: IRModule, functions: Iterable[relax.Function]) -> None:
    """A pass that saw no caller of a function, because the caller was out, may have removed it."""
    waiting = list(functions)
    while waiting:
        for var in _called_functions(waiting.pop()):
            if var not in result.functions and var in module.functions:
                result.update_func(var, module[var])
                waiting.append(module[var])


def _called_functions(function: tvm.ir.BaseFunc) -> list[GlobalVar]:
    """The global functions a Relax function refers to."""
    found: list[GlobalVar] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, GlobalVar):
            found.append(expr)

    if isinstance(function, relax.Function):
        relax.analysis.post_order_visit(function, visit)
    return found


class NoTouch(PassInstrument):  # type: ignore[misc]
    """Raises ``GuardError`` as soon as a pass changes or removes a marked function.

    Use as ``with tvm.transform.PassContext(instruments=[NoTouch()])``. Functions are compared by structural
    hash, weights included. The error names the pass with those that ran it, outermost first:
    ``LiftTransformParams > LambdaLift``.

    Parameters
    ----------
    makers : names of the passes that may change marked functions, alone or through passes they run
    """

    __slots__ = ("watch",)

    def __init__(self, makers: Iterable[str] = MAKERS) -> None:
        remedy = "wrap the pass in convoy.relax.no_touch, or run it before partition"
        self.watch = Watch(makers, _by_name, tvm_ffi.structural_hash, remedy)
        super().__init__()

    def enter_pass_ctx(self) -> None:
        self.watch.begin()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.watch.before(info.name, mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.watch.after(info.name, mod)


def _by_name(module: IRModule) -> dict[str, relax.Function]:
    return {var.name_hint: function for var, function in marked_functions(module).items()}
