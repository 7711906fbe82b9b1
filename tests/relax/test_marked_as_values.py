"""Marked functions that are arguments, parts of tuples or results: their codegens get them all the same."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import convoy

TEXT = """
@I.ir_module
class Module:
    @R.function(private=True)
    def apply(
        f: R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32")), x: R.Tensor((4,), "float32")
    ) -> R.Tensor((4,), "float32"):
        return f(x)
    @R.function(private=True)
    def grow(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        R.func_attr({"Codegen": "CODEGEN"})
        with R.dataflow():
            y = R.exp(x)
            R.output(y)
        return y
    @R.function(private=True)
    def give(x: R.Tensor((4,), "float32")) -> R.Callable(
        (R.Tensor((4,), "float32"),), R.Tensor((4,), "float32")
    ):
        cls = Module
        return cls.grow
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        cls = Module
        @R.function
        def local(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"Codegen": "CODEGEN"})
            with R.dataflow():
                b = R.tanh(a)
                R.output(b)
            return b
        VALUE
        return y
"""
VALUES = {
    "argument": ("y = cls.apply(cls.grow, x)", np.exp),
    "local, as an argument": ("y = cls.apply(local, x)", np.tanh),
    "argument and called": (
        "z = cls.apply(cls.grow, x)\n        y = cls.grow(z)",
        lambda x: np.exp(np.exp(x)),
    ),
    "result": ("f = cls.give(x)\n        y = f(x)", np.exp),
}


@pytest.mark.filterwarnings("error::convoy.offload.faults.RegionWarning")
@pytest.mark.parametrize("codegen", ["convoy", "acme_values"])
@pytest.mark.parametrize("name", VALUES)
def test_codegen_gets_it(name: str, codegen: str) -> None:
    received: list[str] = []

    @tvm_ffi.register_global_func("relax.ext.acme_values", override=True)
    def generate(functions: Sequence[relax.Function], *rest: object) -> list[tvm.runtime.Module]:
        received.extend(str(function.attrs["global_symbol"]) for function in functions)
        return list(tvm.get_global_func("relax.ext.convoy")(functions, *rest))

    value, compute = VALUES[name]
    text = TEXT.replace("CODEGEN", codegen).replace("VALUE", value)
    executable = convoy.compile(tvm.script.from_source(text, {"I": I, "R": R}))
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(found, compute(x), rtol=1e-5)
    assert codegen == "convoy" or {"main_local", "grow"}.intersection(received)
