"""Composites that no codegen took and that call themselves, or each other, are functions of TVM's."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import convoy

TEXT = """
@I.ir_module
class Module:
    @R.function(private=True)
    def halve(x: R.Tensor((4,), "float32"), i: R.Tensor((), "int64")) -> R.Tensor((4,), "float32"):
        R.func_attr(MARK)
        cls = Module
        if R.less(i, R.const(1, "int64")):
            y: R.Tensor((4,), "float32") = x
        else:
            half = R.multiply(x, R.const(0.5, "float32"))
            y: R.Tensor((4,), "float32") = cls.NEXT(half, R.subtract(i, R.const(1, "int64")))
        return y
    @R.function(private=True)
    def third(x: R.Tensor((4,), "float32"), i: R.Tensor((), "int64")) -> R.Tensor((4,), "float32"):
        R.func_attr(MARK)
        cls = Module
        if R.less(i, R.const(1, "int64")):
            y: R.Tensor((4,), "float32") = x
        else:
            less = R.divide(x, R.const(3.0, "float32"))
            y: R.Tensor((4,), "float32") = cls.halve(less, R.subtract(i, R.const(1, "int64")))
        return y
    @R.function
    def main(x: R.Tensor((4,), "float32"), i: R.Tensor((), "int64")) -> R.Tensor((4,), "float32"):
        cls = Module
        y = cls.halve(x, i)
        z = R.exp(y)
        return z
"""


@pytest.mark.parametrize("mark", ['{"Composite": "acme.halve"}', '{"kind": "plain"}'])
@pytest.mark.parametrize(("following", "factor"), [("halve", 1 / 8), ("third", 1 / 12)])
def test_it_is_computed(mark: str, following: str, factor: float) -> None:
    text = TEXT.replace("MARK", mark).replace("NEXT", following)
    executable = convoy.compile(tvm.script.from_source(text, {"I": I, "R": R}))
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    given = [tvm.runtime.tensor(value) for value in (x, np.array(3, np.int64))]
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](*given).numpy()
    np.testing.assert_allclose(found, np.exp(x * factor), rtol=1e-5)
