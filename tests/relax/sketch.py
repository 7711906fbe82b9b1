"""Small Relax modules for the partition tests, what was cut out of them, and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import Expr

from convoy.graph import Graph, reference
from convoy.graph.verify import verify
from convoy.options import Options
from convoy.relax import partition
from convoy.relax.lower import lower
from convoy.report.decision import Report
from relax.plain import machine_of

Array = NDArray[np.float32]
Shape = Sequence[object]
KEEP_ALL = Options(merge=False)
"""One external function per composite, however small."""


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def const(array: object) -> Expr:
    return relax.const(np.asarray(array, np.float32), "float32")


def weight(*shape: int, seed: int = 0) -> Expr:
    return const(random(*shape, seed=seed))


Make = Callable[..., Expr | Sequence[Expr]]


def module(make: Make, *inputs: Shape | relax.TensorType) -> tvm.IRModule:
    """``make(bind, x0, …)`` returns the outputs; ``bind(expr)`` gives an expression a variable."""
    builder = relax.BlockBuilder()
    types = [i if isinstance(i, relax.TensorType) else relax.TensorType(i, "float32") for i in inputs]
    params = [relax.Var(f"x{i}", ty) for i, ty in enumerate(types)]
    with builder.function("main", params):
        with builder.dataflow():
            made = make(builder.emit, *params)
            result = builder.emit_output(made if isinstance(made, Expr) else relax.Tuple(list(made)))
        builder.emit_func_output(result)
    return relax.transform.CanonicalizeBindings()(builder.get())


class Cut:
    """A module after ``partition``."""

    def __init__(self, make: Make, *inputs: Shape | relax.TensorType, options: Options | None = None):
        self.report = Report()
        self.before = module(make, *inputs)
        self.module = partition(options, self.report)(self.before)
        relax.analysis.well_formed(self.module)
        self.functions = {
            var.name_hint: f
            for var, f in self.module.functions_items()
            if f.attrs and f.attrs.get("Codegen") == "convoy"
        }

    @property
    def composites(self) -> list[list[str]]:
        """The patterns inside each external function, without ``convoy.``."""
        return [
            [
                str(b.value.attrs["Composite"]).removeprefix("convoy.")
                for b in function.body.blocks[0].bindings
                if isinstance(b.value, relax.Function)
            ]
            for function in self.functions.values()
        ]

    @property
    def left(self) -> list[str]:
        """Ops of ``main`` that stay with TVM."""
        return [
            str(b.value.op.name).removeprefix("relax.")
            for b in self.module["main"].body.blocks[0].bindings
            if isinstance(b.value, relax.Call) and isinstance(b.value.op, tvm.ir.Op)
        ]

    @property
    def reasons(self) -> list[str]:
        return [d.reason for d in self.report.refusals]

    @property
    def graph(self) -> Graph:
        """The graph of the only external function."""
        (function,) = self.functions.values()
        graph = lower(function)
        verify(graph)
        return graph

    def run(self, *arrays: Array) -> list[Array]:
        """What the only external function computes, by the reference."""
        return reference.run(self.graph, arrays)

    def run_tvm(self, *arrays: Array) -> list[Array]:
        """What the module computed before, by TVM."""
        result = machine_of(self.before)["main"](*map(tvm.runtime.tensor, arrays))
        return [r.numpy() for r in ([result] if hasattr(result, "numpy") else result)]


def compare(cut: Cut, *arrays: Array) -> None:
    """The region computes what TVM computes of the module it was cut from."""
    got, expected = cut.run(*arrays), cut.run_tvm(*arrays)
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
