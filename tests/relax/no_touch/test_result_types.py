"""A pass that builds calls anew finds what functions say they give; what the caller knew is told again."""

from __future__ import annotations

import tvm
from tvm import relax, tirx

from convoy.relax import no_touch

ANEW = relax.transform.ToNonDataflow()
"""A pass that builds each call of a function anew."""


def calling(*cuts: int) -> tvm.IRModule:
    """Main cuts as much of a row, and calls a marked function with what is left.

    That has a row of max(w - 3, 0), which no w of its own can be read from.
    """
    w = tirx.Var("w", "int64")

    def row(cut: int) -> relax.TensorType:
        return relax.TensorType([tirx.max(w - cut, 0) if cut else w], "float32")

    builder = relax.BlockBuilder()
    inner = relax.Var("row", row(3))
    with builder.function("double", [inner], attrs={"Codegen": "mine"}):
        builder.emit_func_output(builder.emit(relax.op.add(inner, inner)))
    (double,) = builder.get().get_global_vars()
    x = relax.Var("x", row(0))
    with builder.function("main", [x]):
        made = []
        with builder.dataflow():
            for cut in cuts:
                call = builder.normalize(relax.Call(double, [builder.match_cast(x, row(cut))]))
                known = relax.DataflowVar("known", row(cut))
                builder.emit_normalized(relax.VarBinding(known, call))
                made.append(builder.emit_output(known))
        builder.emit_func_output(relax.Tuple(made))
    return builder.get()


def sizes_of_calls(module: tvm.IRModule) -> list[str]:
    """The shapes that main's calls of functions have."""
    return [
        str(binding.var.ty.shape)
        for block in module["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, tvm.ir.GlobalVar)
    ]


def test_sizes_that_the_caller_alone_knows_come_back() -> None:
    module = calling(3)
    known = sizes_of_calls(module)
    assert "w - 3" in known[0]
    assert sizes_of_calls(ANEW(module)) == ["None"]
    assert sizes_of_calls(no_touch(ANEW)(module)) == known


def test_those_of_calls_that_give_different_ones_do_not() -> None:
    module = calling(3, 4)
    assert len(set(sizes_of_calls(module))) == 2
    assert sizes_of_calls(no_touch(ANEW)(module)) == ["None", "None"]
