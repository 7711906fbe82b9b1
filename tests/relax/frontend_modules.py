"""Modules as other frontends leave them, through TVM's own door, against plain TVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

import convoy.relax
from convoy.report.decision import Report
from relax.plain import UNOPTIMISED

Array = NDArray[np.float32]

BOUND = 1e-5
"""Bound of the largest difference, relative to the largest output; these networks have a handful of ops."""


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape).astype(np.float32)


def const(array: Array) -> relax.Constant:
    return relax.const(np.ascontiguousarray(array), "float32")


def module(make: Callable[..., Any], *shapes: Sequence[int]) -> tvm.IRModule:
    """A module whose ``main`` takes tensors of these shapes and gives ``make(emit, *tensors)``."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{i}", relax.TensorType(list(s), "float32")) for i, s in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(make(builder.emit, *inputs))
        builder.emit_func_output(result)
    return builder.get()


def compile_with_convoy(module: tvm.IRModule) -> tuple[Callable[..., list[Array]], Report]:
    """``tvm.compile(module, target="convoy")``, to be called with arrays, and what it decided."""
    report = Report()
    with convoy.relax.using(report=report):
        executable = tvm.compile(module, target="convoy")
    return _callable(executable), report


def compile_with_tvm(module: tvm.IRModule) -> Callable[..., list[Array]]:
    return _callable(tvm.compile(module, target=UNOPTIMISED))


def _callable(executable: Any) -> Callable[..., list[Array]]:
    main = relax.VirtualMachine(executable, tvm.cpu())["main"]

    def call(*arrays: Array) -> list[Array]:
        found = main(*(tvm.runtime.tensor(array) for array in arrays))
        tensors = [found] if isinstance(found, tvm.runtime.Tensor) else list(found)
        return [tensor.numpy() for tensor in tensors]

    return call


def assert_near(found: Sequence[Array], expected: Sequence[Array], bound: float = BOUND) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() <= bound * np.abs(other).max()


def assert_all_offloaded(report: Report, regions: int = 1) -> None:
    assert [str(refusal) for refusal in report.refusals] == []
    assert report.flops_share == 1.0
    assert len(report.regions) == regions
