"""Small Relay functions for the fold tests, and their evaluation by plain TVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relay
from tvm.contrib import graph_executor

from convoy.relay.dataflow import Dataflow, op_name, rebuild_body
from convoy.relay.fold import fold
from convoy.report.decision import Report

Array = NDArray[np.floating]
Make = Callable[..., relay.Expr]

EPSILON = 1e-5
UNOPTIMISED = "llvm -opt-level=0"
"""To make and run code that is not optimised takes two thirds of the time."""


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape).astype(dtype)


def const(array: Array | float, dtype: str = "float32") -> relay.Constant:
    return relay.const(np.asarray(array, dtype=dtype), dtype)


def per_channel(vector: Array) -> relay.Constant:
    """[C] as [C, 1, 1]."""
    return const(np.asarray(vector).reshape(-1, 1, 1))


def as_bias(vector: Array) -> relay.Constant:
    """[C] as the fold writes it: [1, C, 1, 1]."""
    return const(np.asarray(vector).reshape(1, -1, 1, 1))


def parameters(channels: int, seed: int = 7, dtype: str = "float32") -> list[Array]:
    """gamma (either sign), beta, mean, variance of a batch norm."""
    rng = np.random.default_rng([seed, channels])
    gamma = rng.uniform(0.5, 2, channels) * np.where(np.arange(channels) % 2, -1, 1)
    values = (gamma, rng.normal(size=channels), rng.normal(size=channels), rng.uniform(0.2, 3, channels))
    return [value.astype(dtype) for value in values]


def scale_shift(channels: int) -> tuple[Array, Array]:
    """The affine map of ``parameters(channels)``, in float64."""
    gamma, beta, mean, variance = (p.astype(np.float64) for p in parameters(channels))
    scale = gamma / np.sqrt(variance + EPSILON)
    return scale, beta - mean * scale


def norm(x: relay.Expr, values: Sequence[Array], **attrs: object) -> relay.Expr:
    """The batch norm of x by gamma, beta, mean and variance."""
    operands = [value if isinstance(value, relay.Expr) else relay.const(value) for value in values]
    return relay.nn.batch_norm(x, *operands, epsilon=attrs.pop("epsilon", EPSILON), **attrs)[0]


def module(make: Make, *shapes: Sequence[int | str], dtype: str = "float32") -> tvm.IRModule:
    """A module whose ``main`` takes tensors of these shapes and returns ``make(*tensors)``."""
    inputs = [
        relay.var(f"x{i}", shape=[n if isinstance(n, int) else relay.Any() for n in shape], dtype=dtype)
        for i, shape in enumerate(shapes)
    ]
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(inputs, make(*inputs))))


def ops(mod: tvm.IRModule) -> list[str]:
    """The ops of ``main`` in running order, ``nn.`` left out."""
    return [op_name(call).removeprefix("nn.") for call in Dataflow(mod["main"].body).calls]


def constants(mod: tvm.IRModule) -> list[Array]:
    """The literal operands of ``main`` in running order."""
    calls = Dataflow(mod["main"].body).calls
    return [a.data.numpy() for call in calls for a in call.args if isinstance(a, relay.Constant)]


def largest_error(got: Array, want: Array) -> float:
    """Largest difference over the largest magnitude."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-30))


def run(mod: tvm.IRModule, *inputs: Array) -> list[Array]:
    """The outputs of ``main``, computed by plain TVM, unoptimised."""
    with tvm.transform.PassContext(opt_level=0):
        executor = graph_executor.GraphModule(relay.build(mod, target=UNOPTIMISED)["default"](tvm.cpu()))
    executor.run(**{f"x{i}": array for i, array in enumerate(inputs)})
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def assert_same_numbers(
    before: tvm.IRModule, after: tvm.IRModule, *inputs: Array, bound: float = 2e-6
) -> None:
    """Both modules compute the same, within rounding: one compilation of both side by side."""
    first, second = before["main"], after["main"]
    other = relay.bind(second.body, dict(zip(second.params, first.params, strict=True)))
    both = relay.Tuple([first.body, other])
    if isinstance(first.body, relay.Tuple):
        both = relay.Tuple([*first.body.fields, *other.fields])
    results = run(tvm.IRModule.from_expr(relay.Function(first.params, both)), *inputs)
    half = len(results) // 2
    for want, got in zip(results[:half], results[half:], strict=True):
        assert largest_error(got, want) <= bound


def check(before: tvm.IRModule, expected: Sequence[str], seed: int = 0, bound: float = 2e-6) -> Report:
    """``fold`` gives these ops and the same numbers."""
    report = Report()
    after = fold(report)(before)
    assert ops(after) == list(expected)
    shapes = [p.checked_type for p in before["main"].params]
    inputs = [random(*(int(n) for n in t.shape), seed=seed, dtype=t.dtype) for t in shapes]
    assert_same_numbers(before, after, *inputs, bound=bound)
    return report


def check_module(before: tvm.IRModule, expected: tvm.IRModule) -> Report:
    """``fold`` gives ``expected``, constants within rounding."""
    report = Report()
    after = fold(report)(before)
    assert ops(after) == ops(expected)
    for got, want in zip(constants(after), constants(expected), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-6 if got.dtype == np.float32 else 2e-3, atol=1e-6)
    tvm.ir.assert_structural_equal(_blank(after), _blank(expected))
    return report


def check_untouched(before: tvm.IRModule) -> Report:
    """``fold`` changes nothing."""
    report = Report()
    tvm.ir.assert_structural_equal(fold(report)(before), before)
    return report


def _blank(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with every literal set to zero."""

    def blank(_: relay.Call, call: relay.Call) -> relay.Expr:
        args = [
            relay.const(np.zeros_like(a.data.numpy())) if isinstance(a, relay.Constant) else a
            for a in call.args
        ]
        return relay.Call(call.op, args, call.attrs)

    function = mod["main"]
    body = rebuild_body(function.body, blank)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(list(function.params), body)))
