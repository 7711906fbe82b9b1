"""Which outputs lie in memory of their own is read off a built module."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from convoy.relax.own_memory import own_outputs


def built(module: tvm.IRModule) -> tvm.IRModule:
    return relax.get_default_pipeline(tvm.target.Target("llvm"))(module)


@I.ir_module
class Calls:
    @R.function(private=True)
    def inner(x: R.Tensor((4,), "float32")) -> R.Tuple(
        R.Tensor((4,), "float32"), R.Tensor((4,), "float32")
    ):
        y = R.sinh(x)
        return (x, y)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        cls = Calls
        first = cls.inner(x)
        second = cls.inner(first[1])
        return (first, second, R.const(1.0))


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        if c:
            made = R.sinh(x)
            both = (made, x)
        else:
            other = R.cosh(x)
            both = (other, other)
        return both


@I.ir_module
class Same:
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        made = R.sinh(x)
        if c:  # noqa: SIM108
            one = made
        else:
            one = R.cosh(x)
        return (made, one)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (Calls, (1, 3)),  # the inner of the second call is the first's own: its output, and an output here
        (Branches, ()),  # one branch gives the second what the other gives the first
        (Same, ()),
    ],
)
def test_only_what_a_call_makes_for_one_output(module: tvm.IRModule, expected: tuple[int, ...]) -> None:
    assert own_outputs(built(module)) == expected


def test_a_module_without_main_has_none() -> None:
    assert own_outputs(tvm.IRModule()) == ()


def test_functions_that_call_others_twice_are_read_once() -> None:
    # as the steps of a Loop: read anew at each call, these would be 2^40
    builder = relax.BlockBuilder()
    below = None
    for name in (*(f"steps_{i}" for i in range(40)), "main"):
        x = relax.Var("x", relax.TensorType((4,), "float32"))
        with builder.function(name, [x]):
            once = builder.emit(relax.op.sinh(x) if below is None else relax.Call(below, [x]))
            twice = builder.emit(relax.op.cosh(once) if below is None else relax.Call(below, [once]))
            below = builder.emit_func_output(twice)
    assert own_outputs(built(builder.finalize())) == (0,)
