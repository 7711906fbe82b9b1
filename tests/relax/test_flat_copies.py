"""Reshapes that TVM would compute with divisions for each element are copies of memory as it lies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from convoy.relax.flat_copies import copy_flat

N, T, H, W = (tirx.Var(name, "int64") for name in "nthw")


def half(size: Any) -> Any:
    return (size - 1) // 2 + 1


def reshaped(given: Sequence[Any], made: Sequence[Any]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([*given], "float32"))
    sizes = relax.Var("sizes", relax.ShapeType([N, T, H, W]))
    with builder.function("main", [x, sizes]):
        y = builder.emit(relax.op.reshape(x, [*made]))
        builder.emit_func_output(y)
    return builder.get()


Shapes = Callable[[Any, Any, Any, Any], tuple[list[Any], list[Any]]]

CASES: dict[str, tuple[Shapes, bool]] = {
    "split": (lambda n, t, h, w: ([n * t, 6, half(h), half(w)], [n, t, 6, half(h), half(w)]), True),
    "joined": (lambda n, t, h, w: ([n, t, 6, half(h), half(w)], [n * t, 6, half(h), half(w)]), True),
    # of these TVM cannot even tell, and raised: blocks of 7, as of a PEGASUS-X of open length
    "blocks": (lambda n, t, h, w: ([n, 2, h + 7, 16], [n, 2, h // 7 + 1, 7, 16]), True),
    "whole blocks": (lambda n, t, h, w: ([n, 2, h + 7, 16], [n, 2, h // 7 * 7 + 7, 16]), True),
    "plain sizes": (lambda n, t, h, w: ([n, t, h], [n, t, h, 1]), False),
    "numbers": (lambda n, t, h, w: ([4, 6, 5], [2, 12, 5]), False),
}


@pytest.mark.parametrize("case", CASES)
def test_what_tvm_does_not_see_is_copied_as_it_lies(case: str) -> None:
    shapes, copied = CASES[case]
    module = copy_flat()(reshaped(*shapes(N, T, H, W)))
    assert any(isinstance(f, tirx.PrimFunc) for f in module.functions.values()) == copied
    given, made = shapes(2, 3, 7, 4)
    x = np.random.default_rng(1).standard_normal(given).astype(np.float32)
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    got = machine["main"](tvm.runtime.tensor(x), tvm.runtime.ShapeTuple([2, 3, 7, 4]))
    np.testing.assert_array_equal(got.numpy(), x.reshape(made))
