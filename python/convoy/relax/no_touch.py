"""Keep passes away from functions that belong to an external codegen.

TVM's passes do not skip functions marked ``Codegen`` or ``Composite``: most of them rewrite the
inside, some lose the mark, and the codegen then meets ops it never claimed.  ``no_touch`` hides such
functions from a pass; ``NoTouch`` watches a whole pipeline and names the pass that touched one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, partial
from itertools import count

import tvm_ffi
from tvm import relax
from tvm.ir import GlobalVar, IRModule, Op
from tvm.ir.instrument import PassInstrument
from tvm.ir.transform import Pass, PassContext, PassInfo, Sequential, module_pass

from convoy.offload.settings import is_disabled, read_passes
from convoy.offload.watch import GUARDED, Watch
from convoy.relax.errors_through_tvm import keep_error_types
from convoy.relax.local_functions import Replace, bindings_in, replace_local
from convoy.relax.stand_in_bodies import STANDS_FOR
from convoy.relax.stand_ins import put_back, take_out

keep_error_types()

MARKS = ("Composite", "Codegen")
"""The attributes that mark a function: by whom or what it is to be computed."""

MAKERS = frozenset(
    {
        "FuseOpsByPattern",
        "MergeCompositeFunctions",
        "RunCodegen",
        "convoy.give_back_local",
        "convoy.give_back_marked",
        "convoy.partition",
        "convoy.road",
    }
)
"""Passes whose business marked functions are: they make, merge, name and consume them."""


def no_touch(guarded: Pass | Sequence[Pass]) -> Pass:
    """``guarded``, run with every marked function taken out of the module and put back after it.

    A function is marked by the attribute ``Codegen``, whoever's it is, or ``Composite``, and may be global
    or written where it is called. While the pass runs, a stand-in of the same type is in its place, see
    ``stand_ins``. The function comes back as it was, under the name its place then has, even if the
    pass saw no use of it and removed it; so do the functions it calls. A pass that fails leaves the module
    as it was.

    Passes whose business marked functions are (``RunCodegen``, ``MergeCompositeFunctions``) see none.

    A pass that ``disabled_pass`` of the pass context names is not run. In ``required_pass`` a single one
    has the name of its guard, such as ``no_touch(FoldConstant)``. What a pass requires, TVM's
    Sequential runs before it, guarded as well.

    Parameters
    ----------
    guarded : Pass | Sequence[Pass]
        A pass, or several to run in sequence.

    Raises
    ------
    ConvoyError
        For anything else.
    GuardError
        When run: if a pass puts work into a marked function, or another function in its place.
    """
    passes = read_passes("no_touch", guarded, Pass)
    inner = passes[0] if isinstance(guarded, Pass) else Sequential(passes)

    def run(module: IRModule, context: PassContext) -> IRModule:
        if is_disabled(inner.info.name, context):
            return module
        hollow, taken = take_out(module, is_marked)
        return put_back(inner(hollow), taken)

    name, required = f"{GUARDED}{inner.info.name})", _required_by(inner)
    return module_pass(run, opt_level=inner.info.opt_level, name=name, required=required)


def _required_by(one: Pass) -> list[str]:
    """The names by which TVM's Sequential finds what a pass requires, guarded as the pass itself is."""
    return [_guarded(str(name)) for name in one.info.required]


@cache
def _guarded(required: str) -> str:
    """The name of a guard around the pass of this name, which Sequential looks for when it runs."""
    same = module_pass(lambda module, _: module, opt_level=0, name=required, required=[required])
    name = f"transform.{GUARDED}{required})"
    tvm_ffi.register_global_func(name, lambda: no_touch([same]), override=True)
    return name


def is_marked(function: object) -> bool:
    """Does this belong to an external codegen?"""
    return isinstance(function, relax.Function) and any(mark in (function.attrs or ()) for mark in MARKS)


def is_open(function: object) -> bool:
    """Is this a function that no codegen and no fusion has taken already?"""
    return (
        isinstance(function, relax.Function)
        and not is_marked(function)
        and not any(mark in (function.attrs or ()) for mark in ("Primitive", STANDS_FOR))
    )


def marked_functions(module: IRModule) -> dict[GlobalVar, relax.Function]:
    """The global functions of ``module`` that belong to an external codegen."""
    return {var: f for var, f in module.functions_items() if is_marked(f)}


class NoTouch(PassInstrument):  # type: ignore[misc]
    """Raises ``GuardError`` as soon as a pass changes or removes a marked function.

    Use as ``with tvm.transform.PassContext(instruments=[NoTouch()])``. Functions are compared by structural
    hash, weights included. The error names the pass with those that ran it, outermost first:
    ``LiftTransformParams > LambdaLift``.

    Parameters
    ----------
    makers : Iterable[str]
        Names of the passes that may change marked functions, alone or through passes they run.
    """

    __slots__ = ("watch",)

    def __init__(self, makers: Iterable[str] = MAKERS) -> None:
        remedy = "wrap the pass in convoy.relax.no_touch, or run it before partition"
        self.watch = Watch(makers, _by_name, _structural_hash, remedy, _count_outside)
        super().__init__()

    def enter_pass_ctx(self) -> None:
        self.watch.begin()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.watch.before(info.name, mod)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.watch.after(info.name, mod)


def _by_name(module: IRModule) -> dict[str, relax.Function]:
    """The marked functions, also those that are written where they are called."""
    found: dict[str, relax.Function] = {}

    def note(name: str, function: relax.Function) -> relax.Function | None:
        if not is_marked(function):
            return None
        free = next(free for i in count() if (free := f"{name} {i}" if i else name) not in found)
        found[free] = function
        return function

    for var, function in module.functions_items():
        if isinstance(function, relax.Function) and note(var.name_hint, function) is None:
            replace_local(function, partial(_note_local, note, var.name_hint))
    return found


def _note_local(note: Replace, outer: str, name: str, function: relax.Function) -> relax.Function | None:
    return note(f"{outer}.{name}", function)


def _structural_hash(function: relax.Function) -> int:
    """A local function may read variables from around it, which passes may rename."""
    return int(tvm_ffi.structural_hash(function, map_free_vars=True))


def _count_outside(module: IRModule) -> int:
    """How many ops and functions are not marked, nor in a marked one."""
    functions = [f for _, f in module.functions_items() if isinstance(f, relax.Function)]
    return sum(map(_count, functions)) - sum(map(_count, _by_name(module).values()))


def _count(function: relax.Function) -> int:
    """How many ops and functions there are in this one, and itself."""
    values = [binding.value for binding in bindings_in(function.body)]
    ops = (isinstance(value, relax.Call) and isinstance(value.op, Op) for value in values)
    return 1 + sum(ops) + sum(isinstance(value, relax.Function) for value in values)
