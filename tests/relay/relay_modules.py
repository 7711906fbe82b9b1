"""Small Relay modules for the tests, what was cut out of them, and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relay
from tvm.contrib import graph_executor

from convoy.graph import Graph, reference
from convoy.graph.verify import verify
from convoy.options import Options
from convoy.relay.dataflow import Dataflow, composite_name, op_name
from convoy.relay.lower import lower
from convoy.relay.partition import external_functions, partition
from convoy.report.decision import Report

Array = NDArray[np.float32]
Make = Callable[..., relay.Expr]
KEEP_ALL = Options(merge=False)
"""One external function per composite, however small."""


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def const(array: object) -> relay.Constant:
    return relay.const(np.asarray(array, np.float32))


def weight(*shape: int, seed: int = 0) -> relay.Constant:
    return const(random(*shape, seed=seed))


def module(make: Make, *inputs: Sequence[int]) -> tvm.IRModule:
    """``make(x0, …)`` returns the output, or the outputs."""
    params = [relay.var(f"x{i}", shape=tuple(shape)) for i, shape in enumerate(inputs)]
    made = make(*params)
    body = made if isinstance(made, relay.Expr) else relay.Tuple(list(made))
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, body)))


class Cut:
    """A module after ``partition``."""

    def __init__(self, make: Make, *inputs: Sequence[int], options: Options | None = None):
        self.report = Report()
        self.before = module(make, *inputs)
        self.module = partition(self.before, options, self.report)
        self.functions = list(external_functions(self.module).values())

    @property
    def composites(self) -> list[list[str]]:
        """The patterns and ops inside each external function, without ``convoy.`` and ``nn.``."""
        names = [
            [composite_name(node) or op_name(node) for node in Dataflow(function.body).nodes]
            for function in self.functions
        ]
        return [[name.rpartition(".")[2] for name in inside if name] for inside in names]

    @property
    def left(self) -> list[str]:
        """Ops of ``main`` that stay with TVM."""
        return [op_name(call) for call in Dataflow(self.module["main"].body).calls]

    @property
    def reasons(self) -> list[str]:
        return [d.reason for d in self.report.refusals]

    @property
    def graph(self) -> Graph:
        """The graph of the only external function."""
        (function,) = self.functions
        graph = lower(function)
        verify(graph)
        return graph

    def run(self, *arrays: Array) -> list[Array]:
        """What the only external function computes, by the reference."""
        return reference.run(self.graph, arrays)

    def run_tvm(self, *arrays: Array) -> list[Array]:
        """What the module computed before, by TVM."""
        return run_plain(self.before, *arrays)


def compare(cut: Cut, *arrays: Array) -> None:
    """The region computes what TVM computes of the module it was cut from."""
    close(cut.run(*arrays), cut.run_tvm(*arrays))


def close(got: Sequence[Array], expected: Sequence[Array]) -> None:
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def run_plain(mod: tvm.IRModule, *arrays: Array) -> list[Array]:
    """What TVM computes of a module without any optimization."""
    mod = relay.qnn.transform.CanonicalizeOps()(mod)  # it has no schedules for ops of qnn
    with tvm.transform.PassContext(opt_level=0):
        return run(relay.build(mod, target="llvm -opt-level=0"), *arrays)


def run(library: object, *arrays: Array, name: str = "default") -> list[Array]:
    """Run a built library, its module of that name, by the graph executor."""
    executor = graph_executor.GraphModule(library[name](tvm.cpu()))
    for i, array in enumerate(arrays):
        executor.set_input(f"x{i}", array)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]
