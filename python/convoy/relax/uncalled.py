"""Uncalled: a region that no function calls is dropped, such as one whose use a pass removed.

TVM's ``RunCodegen`` leaves it marked, and the virtual machine cannot take the composites in it.  A marked
function without composites stays: a module may be made for its sake.
"""

from __future__ import annotations

from tvm import relax
from tvm.ir import IRModule
from tvm.ir.transform import Pass, PassContext, module_pass

from convoy.relax.local_functions import bindings_in
from convoy.report.decision import Report


def drop_uncalled(report: Report) -> Pass:
    """Pass that drops regions that no function calls, and says so in the report.

    Where all are marked, they are what the module is for.
    """

    def run(module: IRModule, _: PassContext) -> IRModule:
        functions = {v: f for v, f in module.functions_items() if isinstance(f, relax.Function)}
        waiting = [var for var, function in functions.items() if "Codegen" not in (function.attrs or {})]
        called = set(waiting)
        while waiting:
            read = relax.analysis.all_global_vars(functions[waiting.pop()])
            found = (functions.keys() & read) - called
            called |= found
            waiting += found
        others = functions.keys() - called if called else set()
        uncalled = {var for var in others if _has_composites(functions[var])}
        for name in sorted(str(var.name_hint) for var in uncalled):
            report.add(f"function {name}", "partition", "dropped", "expected a call of it, got none")
        kept = {var: function for var, function in module.functions_items() if var not in uncalled}
        return IRModule(kept, attrs=module.attrs, global_infos=module.global_infos)

    return module_pass(run, opt_level=0, name="convoy.drop_uncalled")


def _has_composites(function: relax.Function) -> bool:
    return any(isinstance(binding.value, relax.Function) for binding in bindings_in(function.body))
