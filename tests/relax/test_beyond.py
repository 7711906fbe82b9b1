"""Modules that no pass of TVM's builds: one line says what it is, in place of TVM's words."""

# ruff: noqa: RET504  (TVMScript's functions are read, not run: one op a line, as TVM prints them)

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from convoy.errors import ModelError
from convoy.relax.beyond import explain


def local() -> IRModule:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4), "float32")) -> R.Tensor((1, 4), "float32"):
            @R.function
            def twice(a: R.Tensor((1, 4), "float32")) -> R.Tensor((1, 4), "float32"):
                b = R.add(a, a)
                return b

            y = twice(x)
            return y

    return Module


def widening(mark: str | None) -> IRModule:
    """A local function whose result has the length of its host's argument, and an add behind it."""
    attributes = {"Codegen": mark} if mark else {"plain": True}

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            n = T.int64()

            @R.function
            def wide(a: R.Tensor((4,), "float32")) -> R.Tensor((n, 4), "float32"):
                R.func_attr(attributes)
                b = R.broadcast_to(a, R.shape([n, 4]))
                return b

            m = R.mean(x, axis=[0])
            y = wide(m)
            z = R.add(x, y)
            return z

    return Module


def test_a_local_function_is_named() -> None:
    message = "^build: function main.twice: expected functions of the module, got one that is written where"
    with pytest.raises(ModelError, match=message):
        tvm.compile(local(), target="convoy")


def test_a_tensor_whose_sizes_nobody_knows_is_named() -> None:
    lifted = relax.transform.LambdaLift()(widening(None))
    message = (
        "^build: add z: expected sizes that are numbers or symbols, got y, whose sizes nobody knows; write"
    )
    with pytest.raises(ModelError, match=message):
        tvm.compile(lifted, target="convoy")


def test_a_local_function_is_named_whatever_tvm_says() -> None:
    # as FuseOps does of branches and marked functions in one: no function of its group
    found = explain(AssertionError("(it_creator != group2func_.end()) is false"), local())
    assert found is not None
    assert str(found).startswith("build: function main.twice: expected functions of the module, got one")


def test_other_errors_are_not_explained() -> None:
    lifted = relax.transform.LambdaLift()(local())
    assert explain(AssertionError("something else"), lifted) is None


@pytest.mark.filterwarnings("ignore::convoy.offload.faults.RegionWarning")
def test_a_marked_function_of_its_hosts_length_is_computed() -> None:
    # TVM forgot the length of its result where it was made global
    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    machine = relax.VirtualMachine(tvm.compile(widening("convoy"), target="convoy"), tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(got, x + x.mean(axis=0), rtol=1e-5, atol=1e-6)
