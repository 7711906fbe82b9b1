"""Marked functions that are known only at run time: TVM gets Convoy's, others are an error of one line."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import convoy
from convoy.errors import ModelError
from convoy.offload.faults import RegionWarning

CALLS_ITSELF = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        @R.function
        def turn(a: R.Tensor((4,), "float32"), i: R.Tensor((), "int64")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "CODEGEN"})
            c = R.less(i, R.const(3, "int64"))
            if c:
                b = R.exp(a)
                d = turn(b, R.add(i, R.const(1, "int64")))
            else:
                d = a
            return d
        y = turn(x, R.const(0, "int64"))
        return y
"""
IS_RETURNED = """
@I.ir_module
class Module:
    @R.function(private=True)
    def make(c: R.Tensor((4,), "float32")) -> R.Callable(
        (R.Tensor((4,), "float32"),), R.Tensor((4,), "float32")
    ):
        @R.function
        def made(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "CODEGEN"})
            return R.add(R.exp(a), c)
        return made
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Module
        f = cls.make(x)
        y = f(x)
        return y
"""


def parse(text: str, codegen: str) -> tvm.IRModule:
    return tvm.script.from_source(text.replace("CODEGEN", codegen), {"I": I, "R": R})


@pytest.mark.parametrize("text", [CALLS_ITSELF, IS_RETURNED], ids=["calls itself", "is returned"])
def test_one_of_another_codegen_is_an_error_of_one_line(text):
    tvm_ffi.register_global_func("relax.ext.acme_at_run_time", lambda *_: [], override=True)
    with pytest.raises(ModelError, match=r"function (turn|made): expected a marked function that is known"):
        convoy.compile(parse(text, "acme_at_run_time"))


@pytest.mark.parametrize(
    ("text", "want"),
    [(CALLS_ITSELF, lambda x: np.exp(np.exp(np.exp(x)))), (IS_RETURNED, lambda x: np.exp(x) + x)],
    ids=["calls itself", "is returned"],
)
def test_one_of_convoy_is_tvms(text, want):
    x = np.linspace(-1, 0, 4, dtype=np.float32)
    with pytest.warns(
        RegionWarning, match=r"function (turn|made): given back: .*; mark what one turn|unmark"
    ):
        executable = convoy.compile(parse(text, "convoy"))
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(found, want(x), rtol=1e-5)
    with pytest.raises(ModelError, match="calls itself or is known at run time"):
        convoy.compile(parse(text, "convoy"), strict=True)
