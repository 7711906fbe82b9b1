"""A marked function whose codegen nobody registered: one line that names both, before anything is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule

import convoy
from convoy.errors import ModelError

DOORS = {
    "tvm.compile": lambda module: tvm.compile(module, target="convoy"),
    "convoy.compile": convoy.compile,
}


def module(marks: dict[str, str]) -> IRModule:
    builder, ty = relax.BlockBuilder(), relax.TensorType((4,), "float32")
    x, y = relax.Var("x", ty), relax.Var("y", ty)
    with builder.function("gate", [x], attrs=marks, private=True):
        with builder.dataflow():
            out = builder.emit_output(builder.emit(relax.op.exp(x)))
        builder.emit_func_output(out)
    gate = builder.get().get_global_var("gate")
    with builder.function("main", [y]):
        builder.emit_func_output(builder.emit(relax.Call(gate, [y])))
    return builder.get()


@pytest.mark.parametrize("compile", DOORS.values(), ids=DOORS)
def test_it_is_named_with_its_codegen(compile: Callable[[IRModule], Any]) -> None:
    message = (
        "^codegen: function 'gate': expected a codegen that is registered, got nobody, for which there is "
        r"no relax\.ext\.nobody; import what registers relax\.ext\.nobody, or take the mark off the"
    )
    with pytest.raises(ModelError, match=message):
        compile(module({"Codegen": "nobody"}))


@pytest.mark.parametrize("compile", DOORS.values(), ids=DOORS)
def test_one_without_a_name_is_told_so(compile: Callable[[IRModule], Any]) -> None:
    with pytest.raises(
        ModelError, match=r"^codegen: function 'gate': expected .* registered, got no name, "
    ):
        compile(module({"Codegen": ""}))


@pytest.mark.parametrize("compile", DOORS.values(), ids=DOORS)
@pytest.mark.parametrize("marks", [{"Codegen": "convoy"}, {"Composite": "nobody.exp"}])
def test_convoys_and_those_that_are_no_codegens_compile(
    compile: Callable[[IRModule], Any], marks: dict[str, str]
) -> None:
    compile(module(marks))
