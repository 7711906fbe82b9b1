"""Marked functions, written where they are called, that call each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import convoy
from convoy.offload.faults import RegionWarning
from convoy.relax.lift import lift_marked
from convoy.relax.no_touch import marked_functions

TEXT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((LENGTH, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        n = T.int64()
        @R.function
        def one(a: R.Tensor((SIZE, 4), "float32")) -> R.Tensor((SIZE, 4), "float32"):
            R.func_attr({"Codegen": "CODEGEN"})
            with R.dataflow():
                b = R.matmul(a, w)
                R.output(b)
            return b
        @R.function
        def two(a: R.Tensor((SIZE, 4), "float32")) -> R.Tensor((SIZE, 4), "float32"):
            R.func_attr({"Codegen": "CODEGEN"})
            b = one(a)
            c = R.add(b, x)
            return c
        y = two(x)
        z = one(y)
        return z
"""


def module(codegen: str, size: str) -> tvm.IRModule:
    text = TEXT.replace("CODEGEN", codegen).replace("LENGTH", f'"{size}"' if size == "n" else size)
    return tvm.script.from_source(text.replace("SIZE", size), {"I": I, "R": R, "T": T})


@pytest.mark.parametrize("size", ["3", "n"])
def test_each_becomes_a_function_that_the_others_call(size: str) -> None:
    lifted = lift_marked()(module("acme", size))
    relax.analysis.well_formed(lifted)
    assert {var.name_hint for var in marked_functions(lifted)} == {"main_one", "main_two"}
    called = {var.name_hint for var in relax.analysis.all_global_vars(lifted["main_two"])}
    assert called == {"main_one"}


@pytest.mark.parametrize("size", ["3", "n"])
def test_it_is_computed(size: str) -> None:
    with pytest.warns(RegionWarning, match="function main_(one|two): given back"):
        executable = convoy.compile(module("convoy", size))
    rng = np.random.default_rng(0)
    x, w = rng.random((3, 4), "float32"), rng.random((4, 4), "float32")
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tvm.runtime.tensor, (x, w)))
    np.testing.assert_allclose(found.numpy(), (x @ w + x) @ w, rtol=1e-5)


def test_another_codegen_gets_both() -> None:
    received: list[str] = []

    @tvm_ffi.register_global_func("relax.ext.acme_calling", override=True)
    def generate(functions: Sequence[relax.Function], *_: object) -> list[tvm.runtime.Module]:
        received.extend(str(function.attrs["global_symbol"]) for function in functions)
        raise ValueError("that is all that is asked")

    with pytest.raises(ValueError, match="that is all that is asked"):
        convoy.compile(module("acme_calling", "3"))
    assert {"main_one", "main_two"} == set(received)
