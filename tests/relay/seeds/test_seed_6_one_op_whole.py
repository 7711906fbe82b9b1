"""Seed 6: a part of a model that stays one op, from the model to its own code generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relay
from tvm.relay import transform
from tvm.relay.dataflow_pattern import is_constant, is_op, wildcard

import convoy.relay
from convoy.relay import NoTouch, no_touch
from convoy.relay.dataflow import Dataflow, op_name
from convoy.relay.no_touch import marked_functions
from relay.relay_modules import random, run, run_plain, weight

IMAGE = (1, 4, 8, 8)
nn = relay.nn


def attention(x: relay.Expr) -> relay.Expr:
    """The module of the question, as an importer shreds it: a gate per channel, times x."""
    gate = relay.sigmoid(nn.conv2d(nn.global_avg_pool2d(x), weight(4, 4, 1, 1)))
    return x * gate


def attention_pattern() -> object:
    x = wildcard()
    return x * is_op("sigmoid")(is_op("nn.conv2d")(is_op("nn.global_avg_pool2d")(x), is_constant()))


def model() -> tvm.IRModule:
    x = relay.var("x0", shape=IMAGE)
    before = nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1), channels=4, kernel_size=(3, 3))
    after = nn.conv2d(
        attention(nn.relu(before)), weight(4, 4, 3, 3, seed=1), channels=4, kernel_size=(3, 3)
    )
    return transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], nn.relu(after))))


@tvm.ir.register_op_attr("nn.global_avg_pool2d", "target.attention")
def takes_single_op(_: relay.Call) -> bool:
    """No single op is for ``attention``: only the whole composite."""
    return False


def keep_attention(module: tvm.IRModule) -> tvm.IRModule:
    """What the user does: one pattern, one annotation, one partition, before anything else runs."""
    passes = [
        transform.MergeComposite([("attention.gate", attention_pattern())]),
        transform.AnnotateTarget("attention"),
        transform.PartitionGraph(),
    ]
    return tvm.transform.Sequential(passes, opt_level=0)(module)


@pytest.fixture
def seen() -> Iterator[list[relay.Function]]:
    """What the code generator of ``attention`` got.  It leaves the work to TVM, as one function."""
    functions: list[relay.Function] = []

    def generate(function: relay.Function) -> tvm.runtime.Module:
        functions.append(function)
        compile_: Callable[[relay.Function], tvm.runtime.Module] = tvm.get_global_func("relay.ext.convoy")
        return compile_(function)

    tvm.register_func("relay.ext.attention", generate, override=True)
    tvm.register_func("relay.ext.attention.constant_updater", lambda *_: {}, override=True)
    yield functions
    for name in ("relay.ext.attention", "relay.ext.attention.constant_updater"):
        tvm._ffi.registry.remove_global_func(name)


def ops_of(function: relay.Function) -> list[str]:
    found: list[str] = []
    relay.analysis.post_order_visit(
        function, lambda node: found.append(op_name(node)) if op_name(node) else None
    )
    return found


WHOLE = ["nn.global_avg_pool2d", "nn.conv2d", "sigmoid", "multiply"]


def test_it_survives_the_optimizer() -> None:
    # guarded, TVM's whole pipeline leaves it as it is; watched, so does Convoy's partition of the rest
    kept = keep_attention(model())
    (function,) = marked_functions(kept).values()
    assert ops_of(function) == WHOLE
    with tvm.target.Target("llvm"), tvm.transform.PassContext(opt_level=3, instruments=[NoTouch()]):
        passes = [transform.FoldConstant(), transform.SimplifyExpr(), transform.AlterOpLayout()]
        after = no_touch(passes)(kept)
    (same,) = marked_functions(after).values()
    tvm.ir.assert_structural_equal(same, function)


@pytest.mark.slow
def test_it_reaches_its_code_generator_whole(seen: list[relay.Function]) -> None:
    # Convoy takes the convolutions before and after, the composite goes to its own generator
    kept = keep_attention(model())
    cut = convoy.relay.partition_for_convoy(kept)
    by_compiler = sorted(str(function.attrs["Compiler"]) for function in marked_functions(cut).values())
    assert by_compiler == ["attention", "convoy", "convoy"]
    assert not [op for op in map(op_name, Dataflow(cut["main"].body).calls) if op]
    library = relay.build(cut, target="llvm")
    assert [ops_of(function) for function in seen] == [WHOLE]
    (got,), (want,) = run(library, random(*IMAGE)), run_plain(model(), random(*IMAGE))
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


# From a frontend ------------------------------------------------------------------------------------


def gated(gate: Callable[..., relay.Expr]) -> tvm.IRModule:
    """conv2d → relu → gate → tanh → gate → relu; ``gate`` is called as a frontend calls a converter."""
    x = relay.var("x0", shape=IMAGE)
    y = nn.relu(nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1), channels=4, kernel_size=(3, 3)))
    y = gate([relay.tanh(gate([y], ["float32"]))], ["float32"])
    return tvm.IRModule.from_expr(relay.Function([x], nn.relu(y)))


def test_a_converter_keeps_a_module_whole(seen: list[relay.Function]) -> None:
    # as from_pytorch calls an op's entry of custom_convert_map: with inputs and their types; needs no torch
    module = gated(convoy.relay.one_op(attention, codegen="attention", name="gate"))
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(module, "convoy")
    assert [ops_of(function) for function in seen] == [WHOLE]
    (got,) = run(library, random(*IMAGE))
    (want,) = run_plain(gated(lambda inputs, _: attention(*inputs)), random(*IMAGE))
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


def test_an_onnx_op_of_ones_own_stays_whole(
    seen: list[relay.Function], monkeypatch: pytest.MonkeyPatch
) -> None:
    # TVM's ONNX frontend has no custom_convert_map, but a table that an op may be added to
    from tvm.relay.frontend import onnx as frontend

    convert = convoy.relay.one_op(attention, codegen="attention", name="gate")
    table = frontend._get_convert_map
    monkeypatch.setattr(frontend, "_get_convert_map", lambda opset: {**table(opset), "Gate": convert})
    value = partial(helper.make_tensor_value_info, elem_type=TensorProto.FLOAT, shape=IMAGE)
    nodes = [
        helper.make_node("Relu", ["x0"], ["a"]),
        helper.make_node("Gate", ["a"], ["y"], domain="mine"),
    ]
    graph = helper.make_graph(nodes, "gated", [value("x0")], [value("y")])
    module, params = relay.frontend.from_onnx(helper.make_model(graph), opset=13)
    relay.build(module, "convoy", params=params)
    assert [ops_of(function) for function in seen] == [WHOLE]


def test_a_pytorch_op_of_ones_own_stays_whole(seen: list[relay.Function]) -> None:
    torch = pytest.importorskip("torch", reason="this environment has no PyTorch")
    library = torch.library.Library("mine", "DEF")
    library.define("gate(Tensor x) -> Tensor")
    library.impl("gate", lambda x: x * torch.sigmoid(x.mean((2, 3), keepdim=True)), "CPU")

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: object) -> object:
            return torch.relu(torch.ops.mine.gate(torch.relu(x)))

    traced = torch.jit.trace(Model().eval(), torch.zeros(IMAGE))
    convert = convoy.relay.one_op(attention, codegen="attention", name="gate")
    module, params = relay.frontend.from_pytorch(traced, [("x0", IMAGE)], {"mine::gate": convert})
    relay.build(module, "convoy", params=params)
    assert [ops_of(function) for function in seen] == [WHOLE]
