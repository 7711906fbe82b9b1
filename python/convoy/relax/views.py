"""Whether TVM's pass that makes views of copies can be run.

It asks each loop that reads one tensor whether it is a copy.  Of some open sizes TVM cannot tell, and
raises (0.27).
"""

from __future__ import annotations

from collections.abc import Iterator

import tvm
from tvm import relax, tirx
from tvm.ir import IRModule, Op
from tvm.tirx.buffer import BufferType
from tvm_ffi import structural_walk

MAKES_VIEWS = "RewriteDataflowReshape"
"""The pass."""


def can_tell_views(module: IRModule) -> bool:
    """Can TVM tell of each loop of ``module`` that it asks whether it is a copy?"""
    return all(map(_can_tell, _asked(module)))


def _can_tell(function: tirx.PrimFunc) -> bool:
    return is_copy(function) is not None


def is_copy(function: tirx.PrimFunc) -> bool | None:
    """Does TVM see that a loop copies memory as it lies?  None: it cannot tell."""
    try:
        return bool(relax.analysis.has_reshape_pattern(function))
    except (tvm.error.InternalError, AssertionError):
        return None


def _asked(module: IRModule) -> Iterator[tirx.PrimFunc]:
    calls: list[relax.Call] = []
    for _, function in module.functions_items():
        if isinstance(function, relax.Function):
            structural_walk(function, (relax.Call, calls.append))
    call_tir = Op.get("relax.call_tir")
    for call in calls:
        if call.op.same_as(call_tir) and isinstance(call.args[1], relax.Tuple):
            function = module[call.args[0]]
            if _tensors_read(function, len(call.args[1].fields)) == 1:
                yield function


def _tensors_read(function: tirx.PrimFunc, inputs: int) -> int:
    used = set(tirx.analysis.undefined_vars(function.body))
    given = list(function.params)[:inputs]
    return sum(isinstance(param.ty, BufferType) and param in used for param in given)
