"""Small Relax functions for the fold tests, and their evaluation by plain TVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import Call, Expr, GenericConst, Var

from convoy.relax.fold import fold
from convoy.report.decision import Report
from relax.plain import machine_of

Array = NDArray[np.floating]


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng([seed, *shape]).uniform(-1, 1, shape).astype(dtype)


def const(array: Array | float, dtype: str = "float32") -> Expr:
    return relax.const(np.asarray(array, dtype=dtype), dtype)


class Body:
    """Collects the bindings of one dataflow block; ``body(expr)`` binds and returns a variable."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.builder = builder

    def __call__(self, value: Expr) -> Var:
        return self.builder.emit(value)

    def batch_norm(self, x: Expr, parameters: Sequence[Expr], axis: int = 1, **attrs: object) -> Var:
        attrs.setdefault("training", False)
        return self(self(relax.op.nn.batch_norm(x, *parameters, axis=axis, **attrs))[0])


def parameters(channels: int, seed: int = 7, dtype: str = "float32") -> list[Array]:
    """gamma (either sign), beta, mean, variance of a batch norm."""
    rng = np.random.default_rng([seed, channels])
    gamma = rng.uniform(0.5, 2, channels) * np.where(np.arange(channels) % 2, -1, 1)
    values = (gamma, rng.normal(size=channels), rng.normal(size=channels), rng.uniform(0.2, 3, channels))
    return [value.astype(dtype) for value in values]


def module(
    make: Callable[..., Expr],
    *shapes: Sequence[int | str],
    dtype: str = "float32",
) -> tvm.IRModule:
    """A module whose ``main`` takes tensors of these shapes and returns ``make(body, *tensors)``."""
    builder = relax.BlockBuilder()
    symbols: dict[str, object] = {}

    def dim(size: int | str) -> object:
        return size if isinstance(size, int) else symbols.setdefault(size, tvm.tirx.Var(size, "int64"))

    inputs = [
        relax.Var(f"x{i}", relax.TensorType([dim(size) for size in shape], dtype))
        for i, shape in enumerate(shapes)
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = make(Body(builder), *inputs)
            items = result if isinstance(result, (list, tuple)) else [result]
            outputs = [builder.emit_output(item) for item in items]
        builder.emit_func_output(outputs if isinstance(result, (list, tuple)) else outputs[0])
    return builder.finalize()


def run(mod: tvm.IRModule, *inputs: Array) -> list[Array]:
    """The outputs of ``main``, computed by plain TVM."""
    return _call(machine_of(mod), "main", inputs)


def _call(machine: relax.VirtualMachine, name: str, inputs: Sequence[Array]) -> list[Array]:
    result = machine[name](*(tvm.runtime.tensor(x) for x in inputs))
    items = [result] if hasattr(result, "numpy") else list(result)
    return [item.numpy() for item in items]


def largest_error(got: Array, want: Array) -> float:
    """Largest difference over the largest magnitude."""
    got, want = got.astype(np.float64), want.astype(np.float64)
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-30))


def assert_same_numbers(
    before: tvm.IRModule, after: tvm.IRModule, *inputs: Array, bound: float = 2e-6
) -> None:
    """Both modules compute the same, within rounding: one compilation by plain TVM, unoptimised."""
    both = tvm.IRModule(
        {
            name: mod["main"].with_attr("global_symbol", name)
            for name, mod in (("before", before), ("after", after))
        }
    )
    machine = machine_of(both)
    results = (_call(machine, name, inputs) for name in ("after", "before"))
    for got, want in zip(*results, strict=True):
        assert largest_error(got, want) <= bound


def ops(mod: tvm.IRModule) -> list[str]:
    """The ops of ``main`` in order, ``nn.`` left out."""
    return [
        str(binding.value.op.name).removeprefix("relax.").removeprefix("nn.")
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, Call)
    ]


def constants(mod: tvm.IRModule) -> list[Array]:
    """The literal operands of ``main`` in order."""
    return [
        argument.value.numpy()
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, Call)
        for argument in binding.value.args
        if isinstance(argument, GenericConst)
    ]


def fold_and_check(
    before: tvm.IRModule, expected: tvm.IRModule, *inputs: Array, bound: float = 2e-6
) -> Report:
    """``fold`` gives ``expected`` (constants within rounding) and the same numbers."""
    report = Report()
    after = fold(report)(before)
    relax.analysis.well_formed(after)
    assert_same_module(after, expected)
    if inputs:
        assert_same_numbers(before, after, *inputs, bound=bound)
    return report


def assert_same_module(got: tvm.IRModule, want: tvm.IRModule) -> None:
    """Structurally equal, once computed constants are found to agree."""
    assert ops(got) == ops(want)
    for g, w in zip(constants(got), constants(want), strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=1e-6 if g.dtype == np.float32 else 2e-3, atol=1e-6)
    tvm.ir.assert_structural_equal(_blank(got), _blank(want))


def assert_untouched(before: tvm.IRModule) -> Report:
    """``fold`` changes nothing (an alias of an output may go)."""
    report = Report()
    aliases = relax.transform.CanonicalizeBindings()
    tvm.ir.assert_structural_equal(aliases(fold(report)(before)), aliases(before))
    return report


def _blank(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with every literal set to zero, and aliases of outputs resolved."""
    builder = relax.BlockBuilder()
    function = mod["main"]

    def blank(value: Expr) -> Expr:
        if isinstance(value, GenericConst):
            array = value.value.numpy()
            return relax.const(np.zeros_like(array), str(array.dtype))
        if isinstance(value, Call):
            args = [blank(argument) for argument in value.args]
            return builder.normalize(Call(value.op, args, value.attrs, value.ty_args))
        return value

    blocks = [
        type(block)([relax.VarBinding(binding.var, blank(binding.value)) for binding in block.bindings])
        for block in function.body.blocks
    ]
    body = builder.normalize(relax.SeqExpr(blocks, function.body.body))
    blanked = relax.Function(function.params, body, function.ret_ty, attrs=function.attrs)
    return relax.transform.CanonicalizeBindings()(tvm.IRModule({"main": blanked}))
