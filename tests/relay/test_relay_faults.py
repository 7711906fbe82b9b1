"""A step of ours that fails on a region: the region is left to TVM, with a reason and a warning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from relay_modules import module, random, weight
from relay_modules import run as run_library
from tvm import relay
from tvm.contrib import graph_executor
from tvm.relay.adt import Clause, PatternTuple, PatternVar
from tvm.runtime.vm import VirtualMachine

from convoy import backend
from convoy.errors import ConvoyError
from convoy.offload.faults import RegionWarning
from convoy.options import Options
from convoy.relay import lower as lowering
from convoy.relay import partition_for_convoy, using
from convoy.relay.dataflow import with_new_vars
from convoy.report.decision import Report


def two_regions() -> tvm.IRModule:
    """conv → cumsum, which is TVM's → conv → relu."""

    def make(x: relay.Expr) -> relay.Expr:
        first = relay.nn.conv2d(x, weight(5, 3, 3, 3), kernel_size=(3, 3), channels=5)
        summed = relay.cumsum(first, axis=2)
        return relay.nn.relu(relay.nn.conv2d(summed, weight(4, 5, 1, 1), kernel_size=(1, 1), channels=4))

    return module(make, (1, 3, 6, 7))


def run(target: str, report: Report | None = None, **options: Any) -> np.ndarray:
    with using(Options(**options), report), tvm.transform.PassContext(opt_level=3):
        built = relay.build(two_regions(), target)
    executor = graph_executor.GraphModule(built["default"](tvm.cpu()))
    executor.run(x0=random(1, 3, 6, 7))
    return executor.get_output(0).numpy()


def plant(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step fails at its first call; emit's C is no C."""
    place = lowering if stage == "lower" else backend
    name = "emit" if stage == "compile" else stage
    plain, seen = getattr(place, name), []

    def fail(*given: Any, **named: Any) -> Any:
        seen.append(given)
        if len(seen) > 1:
            return plain(*given, **named)
        if stage == "compile":
            return plain(*given, **named) + "int nonsense = ;\n"
        raise KeyError("planted")

    monkeypatch.setattr(place, name, fail)


@pytest.mark.parametrize("stage", ["lower", "make_plan", "compile"])
def test_the_region_is_left_to_tvm(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run("llvm")
    with monkeypatch.context() as planted:
        plant(stage, planted)
        report = Report()
        with pytest.warns(
            RegionWarning, match=r"region of nn\.conv2d.*: given back: expected a region that"
        ):
            found = run("convoy", report)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    words = "<stdin>" if stage == "compile" else "KeyError: 'planted'"
    assert [words in d.reason for d in report.decisions if d.refused and "conv2d" in d.node] == [True]
    assert len(report.regions) == 1
    assert 0 < report.flops_share < 1


def test_strict_raises_it_with_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    plant("make_plan", monkeypatch)
    with pytest.raises(ConvoyError, match=r"compile: region of nn\.conv2d.*KeyError: 'planted'"):
        run("convoy", strict=True)


def test_memory_that_runs_out_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError("no memory")

    monkeypatch.setattr(backend, "make_plan", fail)
    with pytest.raises(MemoryError):
        run("convoy")


def test_partition_alone_gives_back_what_cannot_be_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    plant("lower", monkeypatch)
    with pytest.warns(RegionWarning, match=r"region of nn\.conv2d"):
        found = partition_for_convoy(two_regions())
    assert sum("Compiler" in (f.attrs or ()) for _, f in found.functions.items()) == 1


def marked_layer(body: relay.Expr, x: relay.Var) -> relay.Function:
    return relay.Function([x], body).with_attr({"Compiler": "convoy", "global_symbol": "layer"})


def build_partitioned(given: tvm.IRModule, _: str) -> object:
    return relay.build(partition_for_convoy(given), "llvm")


def twice(function: relay.Function) -> tvm.IRModule:
    x = relay.var("x0", shape=(1, 4, 6, 6))
    read = relay.nn.relu(relay.nn.conv2d(x, weight(4, 4, 1, 1), kernel_size=(1, 1), channels=4))
    return tvm.IRModule.from_expr(
        relay.Function([x], relay.add(relay.Call(function, [read]), relay.Call(function, [x])))
    )


@pytest.mark.parametrize("composite", [False, True], ids=["alone", "composite"])
@pytest.mark.parametrize("before", [False, True], ids=["relay.build", "partition_for_convoy"])
def test_a_function_marked_by_hand_is_left_too(before: bool, composite: bool) -> None:
    x, y = (relay.var(name, shape=(1, 4, 6, 6)) for name in "xy")
    body: relay.Expr = relay.nn.relu(relay.sinh(x))  # sinh has no kernel
    if composite:
        inner = relay.Function([y], relay.nn.relu(relay.sinh(y))).with_attr("Composite", "convoy.own")
        body = relay.Call(inner, [x])
    given = twice(marked_layer(body, x))
    build = build_partitioned if before else relay.build
    with pytest.warns(RegionWarning, match=r"function layer.*: given back: .* sinh: expected an op Convoy"):
        built = build(given, "convoy")
    data = random(1, 4, 6, 6)
    (got,) = run_library(built, data)
    read = np.maximum(np.einsum("oi,nihw->nohw", random(4, 4, 1, 1)[..., 0, 0], data), 0)
    want = np.maximum(np.sinh(read), 0) + np.maximum(np.sinh(data), 0)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_function_marked_by_hand_is_left_in_a_match_too() -> None:
    # it was taken out of the module, and the call of it in the clause stayed
    x, data, held = (relay.var(name, shape=(1, 4, 6, 6)) for name in ("x", "x0", "held"))
    call = relay.Call(marked_layer(relay.sinh(x), x), [held])
    body = relay.Match(relay.Tuple([data]), [Clause(PatternTuple([PatternVar(held)]), call)])
    given = tvm.IRModule.from_expr(relay.Function([data], body))
    with pytest.warns(RegionWarning, match=r"function layer.*: given back"):
        executable = relay.vm.compile(given, target="convoy")
    array = random(1, 4, 6, 6)
    got = VirtualMachine(executable, tvm.cpu()).run(tvm.nd.array(array)).numpy()
    np.testing.assert_allclose(got, np.sinh(array), rtol=1e-4, atol=1e-5)


def test_strict_raises_what_is_wrong_with_a_function_marked_by_hand() -> None:
    x, data = (relay.var(name, shape=(1, 4, 6, 6)) for name in ("x", "x0"))
    call = relay.Call(marked_layer(relay.sinh(x), x), [data])
    given = tvm.IRModule.from_expr(relay.Function([data], call))
    with pytest.raises(ConvoyError, match=r"function layer, sinh.*: expected an op Convoy takes, got sinh"):
        partition_for_convoy(given, strict=True)


def test_a_marked_function_may_be_called_twice() -> None:
    # TVM's Inline wrote both into one function, with one parameter for the two: the build failed
    x, data = (relay.var(name, shape=(1, 4, 6, 6)) for name in ("x", "x0"))
    function = marked_layer(relay.nn.relu(x), x)
    made = relay.add(relay.Call(function, [relay.sinh(data)]), relay.Call(function, [data]))
    array = random(1, 4, 6, 6)
    (got,) = run_library(relay.build(tvm.IRModule.from_expr(relay.Function([data], made)), "convoy"), array)
    want = np.maximum(np.sinh(array), 0) + np.maximum(array, 0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_copy_has_variables_of_its_own() -> None:
    x, y, z = (relay.var(name, shape=(1, 4)) for name in "xyz")
    inner = relay.Function([z], relay.add(z, x))  # reads what is around it
    function = relay.Function([x], relay.Let(y, relay.tanh(x), relay.add(y, relay.Call(inner, [y]))))
    copy = with_new_vars(function)
    assert tvm.ir.structural_equal(copy, function)
    assert not set(relay.analysis.all_vars(copy)) & set(relay.analysis.all_vars(function))
