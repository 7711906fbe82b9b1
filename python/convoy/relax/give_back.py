"""Functions that a user marked for Convoy, and that do not become objects, are TVM's again."""

from __future__ import annotations

from tvm import relax
from tvm.ir import IRModule
from tvm.ir.transform import Pass, PassContext, module_pass

from convoy.errors import ModelError
from convoy.offload.faults import report_marked
from convoy.offload.names import KEY
from convoy.options import Options
from convoy.relax.codegen import find_faults
from convoy.relax.extract import AXIS_ZERO
from convoy.relax.local_functions import replace_local
from convoy.relax.no_touch import MARKS, is_marked, marked_functions, no_touch
from convoy.report.decision import Report

FORGOTTEN = (*MARKS, "Primitive", "global_symbol", AXIS_ZERO)
"""Attributes that an ordinary private function has not."""


def give_back_marked(options: Options, report: Report) -> Pass:
    """Pass that takes the mark from functions of which ``relax.ext.convoy`` could make nothing.

    Their bodies are ordinary Relax. What partitioning cut out has been tried already.

    Raises
    ------
    ConvoyError
        With ``options.strict``, for the first of them.
    """

    def run(module: IRModule, _: PassContext) -> IRModule:
        marked = {
            str(function.attrs["global_symbol"]): (var, function)
            for var, function in marked_functions(module).items()
            if function.attrs.get("Codegen") == KEY
        }
        faults = find_faults({symbol: function for symbol, (_, function) in marked.items()})
        if not faults:
            return module
        report_marked(faults, options, report)
        module = module.clone()
        for symbol in faults:
            var, function = marked[symbol]
            module.update_func(var, _plain(function))
        return no_touch(relax.transform.LambdaLift())(module)  # the virtual machine takes no local ones

    return module_pass(run, opt_level=0, name="convoy.give_back_marked")


def give_back_local(options: Options, report: Report) -> Pass:
    """Pass that takes the mark from functions for Convoy that ``lift_marked`` left where they are.

    Raises
    ------
    ModelError
        If another codegen has such a function, or with ``options.strict``.
    """

    def run(module: IRModule, _: PassContext) -> IRModule:
        faults: dict[str, Exception] = {}

        def replace(name: str, function: relax.Function) -> relax.Function | None:
            attributes = function.attrs or {}
            if "Codegen" not in attributes:
                return None
            fault = ModelError(
                "partition",
                f"function {name}",
                "expected a marked function that is known where it is called, got one that calls itself or "
                "is known at run time",
                "mark what one turn computes, and leave the loop around it",
            )
            if attributes["Codegen"] != KEY:
                raise fault
            faults[name] = fault
            return _plain(function)

        functions = {
            var: function if is_marked(function) else replace_local(function, replace)
            for var, function in module.functions_items()
        }
        if not faults:
            return module
        report_marked(faults, options, report)
        plain = IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)
        return no_touch(relax.transform.LambdaLift())(plain)  # no pass after it takes local ones

    return module_pass(run, opt_level=0, name="convoy.give_back_local")


def _plain(function: relax.Function) -> relax.Function:
    for attribute in FORGOTTEN:
        function = function.without_attr(attribute)
    return replace_local(function, lambda _, local: _plain(local))
