"""Whole numbers are divided as NumPy does it: the lowest by -1 is itself.  A 0 ends the call.

The division of a CPU ends the process at both.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import Call
from tvm.script.ir_builder import tirx as T

from convoy.deploy.tensors import ZERO
from convoy.relax.dataflow import is_constant
from convoy.relax.rewriting import APART, length, write_loops

QUOTIENTS = frozenset({"divide", "floor_divide"})
DIVISORS = {**dict.fromkeys((*QUOTIENTS, "mod", "floor_mod"), 1), "dynamic_strided_slice": 3}
"""Ops that divide, and by which of their arguments."""


def check_divisors(builder: relax.BlockBuilder, op: Call, name: str) -> Call:
    """The same call of an op that divides, by numbers that it can divide by."""
    at = DIVISORS[name]
    divisors, dtype = op.args[at], str(op.args[at].ty.dtype)
    if divisors.ty.shape is None or "int" not in dtype:
        return op
    turns = not dtype.startswith("uint") and name != "dynamic_strided_slice"
    if is_constant(divisors):
        numbers = divisors.value.numpy()
        if numbers.all() and not (turns and (numbers == -1).any()):
            return op
    args = list(op.args)
    args[at] = builder.emit(
        builder.call_te(_check, divisors, turns, primfunc_name_hint="check_divisors", primfunc_attrs=APART)
    )
    if turns and name in QUOTIENTS:
        negative = builder.emit(relax.op.less(divisors, relax.const(0, dtype)))
        ones = builder.emit(relax.op.equal(args[at], relax.const(1, dtype)))
        turned = builder.emit(relax.op.logical_and(negative, ones))
        args[0] = builder.emit(relax.op.where(turned, builder.emit(_negate(builder, args[0])), args[0]))
    return relax.Call(op.op, args, op.attrs, op.ty_args, op.span)


def _check(divisors: te.Tensor, turns: bool) -> te.Tensor:
    """The same divisors, 1 for -1 where that ``turns`` what is divided; the function ends at a 0."""
    one = tirx.const(1, str(divisors.dtype))

    def write(source: Any, result: Any) -> None:
        with T.serial(0, length(divisors)) as at, T.Assert(source[at] != 0, f"{ZERO}; give others"):
            result[at] = tirx.Select(source[at] == -one, one, source[at]) if turns else source[at]

    return write_loops([divisors], divisors.shape, write, "check_divisors")


def _negate(builder: relax.BlockBuilder, x: Any) -> Any:
    """What is divided with the other sign; the lowest number has none."""
    dtype = str(x.ty.dtype)
    lowest = builder.emit(relax.op.equal(x, relax.const(np.iinfo(dtype).min, dtype)))
    return relax.op.where(lowest, x, builder.emit(relax.op.negative(x)))
