"""Mark: a function of the user's stays one op, whole, until the codegen it names gets it."""

from __future__ import annotations

from tvm import relax
from tvm.ir import IRModule
from tvm.ir.transform import Pass, PassContext, module_pass

from convoy.errors import ConvoyError
from convoy.offload.names import check_codegen


def mark(function: str, codegen: str) -> Pass:
    """Pass that gives a global Relax function of the module to ``relax.ext.<codegen>``.

    From here on it is a marked function: Convoy's folds and partitioning leave it alone, ``no_touch`` keeps
    other passes from it, and ``tvm.compile(module, target="convoy")`` hands it over as it is now.
    Its weights are arguments of the call, unless they are constants in it.

    Parameters
    ----------
    function : str
        Its name; a submodule of ``relax.frontend.nn`` with ``define_subroutine`` becomes a function named
        after its class, in lower case.
    codegen : str
        Whose it is from now on.

    Raises
    ------
    ConvoyError
        If the module has no Relax function of this name, or it belongs to another codegen already.
        At once, for a name that is no text or a codegen that is none.
    """
    check_codegen(codegen)
    if not isinstance(function, str):
        problem = f"expected a name, got {function!r}"
        raise ConvoyError("mark", "function", problem, "name one; several are marked one after the other")

    def run(module: IRModule, _: PassContext) -> IRModule:
        functions = {v.name_hint: v for v, f in module.functions_items() if isinstance(f, relax.Function)}
        if function not in functions:
            names = ", ".join(sorted(functions))
            problem = (
                f"expected one of {names}" if names else "expected a Relax function, got a module without"
            )
            raise ConvoyError("mark", function, problem, "name a function of the module")
        var = functions[function]
        owner = _owner(module[var])
        if owner not in ("", codegen):
            problem = f"expected a function that belongs to no codegen, or to {codegen}, got one of {owner}"
            remedy = "mark another, or take its attributes Codegen and Composite away first"
            raise ConvoyError("mark", function, problem, remedy)
        marked = module.clone()
        marked.update_func(var, module[var].with_attrs({"Codegen": codegen, "global_symbol": function}))
        return marked

    return module_pass(run, opt_level=0, name="convoy.mark")


def _owner(function: relax.Function) -> str:
    """The codegen that a function belongs to; a composite is of the backend that its name begins with."""
    marks = function.attrs or {}
    return str(marks["Codegen"] if "Codegen" in marks else marks.get("Composite", "")).partition(".")[0]
