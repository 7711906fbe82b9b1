"""Reshapes of which TVM does not see that they keep all elements in order copy memory as it lies.

TVM computes the place of each element from the sizes.  Where it cannot prove that this is the same
place, that is a division for each axis, each written out several times: a map took minutes (0.27).  So it
is where only a call tells that the sizes fit, and with three axes or more whose sizes are computed.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx, topi
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import tirx as T

from convoy.deploy.tensors import UNLIKE
from convoy.relax.dataflow import op_name
from convoy.relax.rewriting import APART, length, rewriting, write_loops
from convoy.relax.views import is_copy


def copy_flat() -> Pass:
    """Pass that writes such reshapes as loops."""
    return rewriting(_Flat, "convoy.copy_flat")


@mutator
class _Flat(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, op: Call) -> Call:
        op = super().visit_call_(op)
        if (
            op_name(op) != "reshape"
            or not isinstance(op.args[1], relax.ShapeExpr)
            or op.args[0].ty.shape is None
        ):
            return op
        given, made = op.args[0].ty.shape, op.args[1]
        if _symbols(given) == _symbols(made) and _is_seen(given, made):
            return op
        return self.builder_.call_te(_copy, *op.args, primfunc_name_hint="reshape", primfunc_attrs=APART)


def _symbols(shape: Any) -> set[tirx.Var]:
    return {v for size in shape.values for v in tirx.analysis.undefined_vars(size)}


def _is_seen(given: relax.ShapeExpr, made: relax.ShapeExpr) -> bool:
    """Does TVM prove that each element stays where it lies?"""
    if not _symbols(made):
        return True
    x = te.placeholder(given.values, "float32")
    names = [*_symbols(given)]
    function = te.create_prim_func([*names, x, topi.reshape(x, made.values)])
    return is_copy(function) is True


def _copy(x: te.Tensor, sizes: Any) -> te.Tensor:
    """The elements of ``x`` as they lie; the function ends where there is no place for just as many."""
    there = math.prod(sizes, start=tirx.IntImm("int64", 1))
    fits = (
        tirx.bitwise_xor(length(x), there) == 0
    )  # TVM takes 300 w == 2400 for false, of [2, 10 w - 25, 15]

    def write(source: Any, result: Any) -> None:
        with T.Assert(fits, f"{UNLIKE}; give others"), T.serial(0, length(x)) as at:
            result[at] = source[at]

    return write_loops([x], sizes, write, "reshape")
