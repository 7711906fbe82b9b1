"""A step of ours that fails on a region: the region is left to TVM, with a reason and a warning.

Faults are planted in each step between a region and its object, in the first of two regions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import convoy
from convoy import backend
from convoy.errors import ConvoyError, GraphError, ToolchainError
from convoy.offload.faults import RegionWarning
from convoy.options import Options
from convoy.relax import lower as lowering
from convoy.relax.partition import partition
from convoy.report.decision import Report

Plant = Callable[[pytest.MonkeyPatch], object]


def two_regions() -> tvm.IRModule:
    """conv → cumsum, which is TVM's → conv → relu."""
    random, builder = np.random.default_rng(0), relax.BlockBuilder()
    weights = [relax.const(random.standard_normal((5, c, 3, 3)).astype(np.float32)) for c in (3, 5)]
    x = relax.Var("x", relax.TensorType((1, 3, 6, 7), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            first = builder.emit(relax.op.nn.conv2d(x, weights[0], padding=1), name_hint="first")
            summed = builder.emit(relax.op.cumsum(first, axis=2))
            second = builder.emit(relax.op.nn.conv2d(summed, weights[1]), name_hint="second")
            result = builder.emit_output(relax.op.nn.relu(second))
        builder.emit_func_output(result)
    return builder.get()


def run(executable: Any) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((1, 3, 6, 7)).astype(np.float32)
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()


def failing_once(place: Any, name: str, error: BaseException) -> Plant:
    """``place.name`` raises ``error`` at its first call of each compilation."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        plain, seen = getattr(place, name), []

        def fail(*given: Any, **named: Any) -> Any:
            seen.append(given)
            if len(seen) == 1:
                raise error
            return plain(*given, **named)

        monkeypatch.setattr(place, name, fail)

    return plant


def emitting_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, seen = backend.emit, []

    def emit(*given: Any, **named: Any) -> str:
        seen.append(given)
        return plain(*given, **named) + ("int nonsense = ;\n" if len(seen) == 1 else "")

    monkeypatch.setattr(backend, "emit", emit)


BAD_GRAPH = GraphError(
    "verify", "add %t1", "expected an output of shape (1,), got (2,)", "correct the tensor"
)

FAULTS = {
    "lower": (failing_once(lowering, "lower", KeyError("lv3")), "KeyError: 'lv3'"),
    "verify": (
        failing_once(backend, "verify", BAD_GRAPH),
        "verify: add %t1: expected an output of shape (1,)",
    ),
    "simplify": (failing_once(backend, "simplify", RecursionError("too deep")), "RecursionError: too deep"),
    "plan": (failing_once(backend, "make_plan", AssertionError("no tile")), "AssertionError: no tile"),
    "emit": (
        failing_once(backend, "emit", ZeroDivisionError("division by zero")),
        "ZeroDivisionError: division",
    ),
    "pack": (failing_once(backend, "pack_weights", ValueError("one\nother")), r"ValueError: one\nother"),
    "compile": (emitting_nonsense, ".c: expected a unit the C compiler accepts, got <stdin>:"),
}


@pytest.mark.slow
@pytest.mark.parametrize("stage", FAULTS)
def test_the_region_is_left_to_tvm(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, words = FAULTS[stage]
    plant(monkeypatch)
    report = Report()
    with pytest.warns(RegionWarning) as warned:
        executable = convoy.compile(two_regions(), report=report)
    np.testing.assert_allclose(run(executable), run(tvm.compile(two_regions(), "llvm")), atol=1e-4)
    (left,) = (d for d in report.decisions if d.refused and d.node == "nn.conv2d first")
    assert (left.step, left.reason[:11]) == ("partition", "given back:")
    assert words in left.reason
    assert [str(w.message) for w in warned] == [
        f"partition: region of nn.conv2d first: {left.reason}; report it"
    ]
    taken = {d.node for d in report.decisions if d.choice == "taken"}
    assert {"nn.conv2d second"} <= taken
    assert len(report.regions) == 1
    assert 0 < report.flops_share < 1


@pytest.mark.parametrize("stage", FAULTS)
def test_strict_raises_it_with_the_node(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[stage][0](monkeypatch)
    # in a module in which all else is taken
    with pytest.raises(ConvoyError, match=r"region of nn\.conv2d first"):
        convoy.compile(two_regions(), strict=True)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no memory"),
        OSError(28, "No space left on device"),
        ToolchainError("compile", "C compiler", "expected one, got none", "install one"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_wrong_with_the_machine_is_an_error(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_once(backend, "make_plan", error)(monkeypatch)
    with pytest.raises((type(error), RuntimeError), match=str(error.args[-1]) if error.args else None):
        convoy.compile(two_regions())


@pytest.mark.slow
def test_a_compiler_that_rejects_the_runtime_too_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from convoy.toolchain import compiler

    monkeypatch.setattr(compiler, "run", lambda command, text: "error: no such option")
    with pytest.raises(ToolchainError, match="expected a unit the C compiler accepts"):
        convoy.compile(two_regions(), options=Options(cache=tmp_path))


def test_partition_alone_gives_back_what_cannot_be_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS["lower"][0](monkeypatch)
    with pytest.warns(RegionWarning, match=r"region of nn\.conv2d first"):
        module = partition()(two_regions())
    assert sum("Codegen" in (f.attrs or ()) for f in module.functions.values()) == 1


@pytest.mark.slow
def test_a_constant_of_more_axes_than_what_it_meets() -> None:
    # the first step of a GRU that torch.export wrote out: the state is constant [1, 1, 64], a gate [1, 64]
    random, builder = np.random.default_rng(0), relax.BlockBuilder()
    weight = relax.const(random.standard_normal((16, 64)).astype(np.float32))
    state = relax.const(random.standard_normal((1, 1, 64)).astype(np.float32))
    x = relax.Var("x", relax.TensorType((3, 1, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            rows = builder.emit(relax.op.reshape(x, (3, 16)))
            product = builder.emit(relax.op.reshape(relax.op.matmul(rows, weight), (3, 1, 64)))
            steps = [
                builder.emit(relax.op.squeeze(relax.op.strided_slice(product, [0], [i], [i + 1]), [0]))
                for i in range(3)
            ]
            gates = [builder.emit(relax.op.sigmoid(relax.op.add(state, step))) for step in steps]
            joined = builder.emit(relax.op.concat([state, *gates], axis=0))
            result = builder.emit_output(relax.op.permute_dims(joined, [1, 0, 2]))
        builder.emit_func_output(result)
    module, report = builder.get(), Report()
    executable = convoy.compile(module, report=report)
    data = tvm.runtime.tensor(random.standard_normal((3, 1, 16)).astype(np.float32))
    found, expected = (
        relax.VirtualMachine(made, tvm.cpu())["main"](data).numpy()
        for made in (executable, tvm.compile(module, "llvm"))
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert report.regions
