"""Which inputs TVM's own kernels may read is found in a built module: others are read where they lie."""

from __future__ import annotations

import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import convoy
from convoy.relax.inputs_of_kernels import inputs_of_kernels


def built(module: tvm.IRModule) -> tvm.IRModule:
    return relax.get_default_pipeline(tvm.target.Target("llvm"))(module)


@I.ir_module
class Views:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32"), z: R.Tensor((4,), "float32")):
        with R.dataflow():
            pair = (x, y)
            column = R.reshape(pair[1], (4, 1))
            made = R.sinh(column)
            R.output(made)
        return (made, x, z)


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        if c:  # noqa: SIM108
            one = x
        else:
            one = y
        return R.sinh(one)


@I.ir_module
class Calls:
    @R.function(private=True)
    def second(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        made = R.sinh(y)
        return (made, x)

    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        cls = Calls
        return cls.second(y, x)


@I.ir_module
class CallsItself:
    @R.function(private=True)
    def turns(
        c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")
    ) -> R.Tensor((4,), "float32"):
        cls = CallsItself
        if c:  # noqa: SIM108
            made = cls.turns(c, y, x)
        else:
            made = R.sinh(x)
        return made

    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        cls = CallsItself
        made = cls.turns(c, y, x)
        return (made, c)


@pytest.mark.parametrize(
    ("module", "expected"),
    [(Views, {1}), (Branches, {0, 1}), (Calls, {0}), (CallsItself, {1, 2})],
    ids=["views", "branches", "calls", "calls-itself"],
)
def test_what_an_input_becomes_is_followed(module: tvm.IRModule, expected: set[int]) -> None:
    assert inputs_of_kernels(built(module)) == expected


def test_what_a_closure_takes_may_be_read() -> None:
    @I.ir_module
    class Closure:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32"), z: R.Tensor((4,), "float32")):
            @R.function
            def inner(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                return R.add(a, y)

            made = inner(x)
            return (made, z)

    assert inputs_of_kernels(built(relax.transform.LambdaLift()(Closure))) == {0, 1}


def test_a_module_without_main_has_none() -> None:
    assert inputs_of_kernels(tvm.IRModule()) == set()


def test_only_what_a_kernel_reads_is_copied() -> None:
    x, z = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 6]) for n in "xz")
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["a"]),
        helper.make_node("CumSum", ["z", "axis"], ["b"]),
    ]
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [1])
    outs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 6]) for n in "ab"]
    weights = helper.make_tensor("w", TensorProto.FLOAT, [6, 6], [0.5] * 36)
    graph = helper.make_graph(nodes, "two", [x, z], outs, [axis, weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    runner = convoy.Runner(convoy.compile(model))
    assert runner.description.alignments == (4, 64)
