"""Where TVM's plan of memory is wrong.

Relax 0.27 plans storage of what both branches of an ``If`` make as if one ran after the other: what lies
behind it reads storage that nobody has allocated, and the process ends (SIGSEGV).
"""

from __future__ import annotations

from tvm import relax
from tvm.ir import IRModule, Op
from tvm_ffi import structural_walk

PLANS_MEMORY = "StaticPlanBlockMemory"


def can_plan_memory(module: IRModule) -> bool:
    """Do branches make no tensors by themselves?  What they call has a plan of its own."""
    branches: list[relax.If] = []
    for _, function in module.functions_items():
        if isinstance(function, relax.Function):
            structural_walk(function, (relax.If, branches.append))
    return not any(_makes_tensors(part) for one in branches for part in (one.true_branch, one.false_branch))


def _makes_tensors(branch: relax.Expr) -> bool:
    calls: list[relax.Call] = []
    structural_walk(branch, (relax.Call, calls.append))
    return any(isinstance(call.op, Op) for call in calls)
