"""Branches that make tensors: TVM's plan of memory ends the process there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import convoy  # noqa: F401  -- registers the target
from convoy.relax.memory_plan import can_plan_memory


@I.ir_module
class Making:
    @R.function
    def main(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
        above = R.less(R.const(0.0, "float32"), R.sum(x))
        if above:
            a = R.matmul(x, x)
            y = R.matmul(a, x)
        else:
            b = R.tanh(x)
            c = R.matmul(b, b)
            y = R.add(c, b)
        z = R.matmul(y, y)
        return R.matmul(z, x)


@I.ir_module
class Calling:
    @R.function
    def cube(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
        a = R.matmul(x, x)
        return R.matmul(a, x)

    @R.function
    def square(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
        return R.matmul(x, x)

    @R.function
    def main(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
        cls = Calling
        above = R.less(R.const(0.0, "float32"), R.sum(x))
        if above:
            y: R.Tensor((8, 8), "float32") = cls.cube(x)
        else:
            y: R.Tensor((8, 8), "float32") = cls.square(x)
        z = R.matmul(y, y)
        return R.matmul(z, x)


def making(x: np.ndarray) -> np.ndarray:
    y = x @ x @ x if x.sum() > 0 else np.tanh(x) @ np.tanh(x) + np.tanh(x)
    return y @ y @ x


def calling(x: np.ndarray) -> np.ndarray:
    y = x @ x @ x if x.sum() > 0 else x @ x
    return y @ y @ x


@pytest.mark.parametrize(("module", "want"), [(Making, making), (Calling, calling)])
def test_either_branch_computes(module: tvm.IRModule, want: Callable[[np.ndarray], np.ndarray]) -> None:
    machine = relax.VirtualMachine(tvm.compile(module, target="convoy"), tvm.cpu())
    rng = np.random.default_rng(0)
    for shift in (0.1, -0.1):
        x = (0.1 * rng.standard_normal((8, 8)) + shift).astype("float32")
        found = machine["main"](tvm.runtime.tensor(x)).numpy()
        np.testing.assert_allclose(found, want(x), rtol=1e-4, atol=1e-6)


def test_memory_is_planned_where_branches_only_call() -> None:
    assert not can_plan_memory(Making)
    assert can_plan_memory(Calling)
