"""Every op has one kernel, and every step one emitter."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

import convoy.kernels
from building import Builder
from convoy.errors import GraphError
from convoy.graph import ops
from convoy.graph.ops import Conv2d, Node, Tensor
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.conv2d.schedules import schedules
from convoy.kernels.planner import make_plan
from convoy.kernels.registry import KERNELS, find_kernel
from convoy.options import Options
from convoy.plan.fuse import Fusion
from convoy.plan.maps import make_map
from convoy.plan.step import Step
from convoy.target import Target


def subclasses(kind: type) -> Iterator[type]:
    for below in kind.__subclasses__():
        if below.__module__.startswith("convoy."):
            yield below
            yield from subclasses(below)


def test_every_op_of_a_graph_has_one_kernel() -> None:
    floats = [kernel for kernel in KERNELS if not kernel.takes_bytes]
    counts = Counter(node for kernel in floats for node in kernel.nodes)
    assert counts == Counter(node for node in subclasses(Node) if node.__module__ == ops.__name__)


def test_no_op_has_two_kernels_of_bytes() -> None:
    counts = Counter(node for kernel in KERNELS if kernel.takes_bytes for node in kernel.nodes)
    assert max(counts.values()) == 1


def test_every_step_has_one_emitter() -> None:
    for module in pkgutil.walk_packages(convoy.kernels.__path__, "convoy.kernels."):
        importlib.import_module(module.name)
    counts = Counter(step for kernel in KERNELS for step in kernel.emitters)
    assert counts == Counter(subclasses(Step))


def test_an_op_without_a_kernel_is_refused_by_name() -> None:
    class Fft(Node):
        """An op that nobody computes."""

    with pytest.raises(GraphError, match=r"plan: Fft y: expected an op with a kernel, got none; leave"):
        find_kernel(Fusion([Fft(inputs=("x",), output="y")]))


def test_steps_of_one_algorithm_are_of_one_kind() -> None:
    # U stored in slabs, or streamed; a table of times has one row for both
    target, b = Target("avx512"), Builder([1, 64, 7, 7])
    y = b.add(Conv2d, "x0", b.weight(64, 64, 3, 3), padding=(1, 1, 1, 1))
    graph = b.graph(y)
    size = make_map(0, 64, 7, 7, target.lanes)
    found = {s.share: Choice("winograd", {}, s) for s in schedules(size, size, 4, target, 1)}
    steps = {
        share: make_plan(graph, target, Options(threads=1), measured={y: choice}).steps
        for share, choice in found.items()
    }
    kinds = {share: [step.kind for step in plan] for share, plan in steps.items()}
    assert len(kinds) == 4
    assert set(map(tuple, kinds.values())) == {("pack", "winograd F(4x4, 3x3)", "unpack")}
    assert steps["streamed"][1].method == "winograd F(4x4, 3x3), 4x1 tiles, streamed"


def test_the_kind_of_a_step_is_its_op_however_its_tensor_is_called() -> None:
    # names of tensors and nodes may hold anything, also what separates words elsewhere
    b = Builder([1, 4, 6, 6])
    graph = b.graph(b.add(ops.Softmax, "x0", axis=1))
    name = "strips of 4 rows, winograd F(4x4, 3x3), direct"
    (node,) = graph.nodes
    odd = ops.Softmax(inputs=node.inputs, output=name, axis=1, origin=name)
    tensors = {"x0": graph.tensors["x0"], name: Tensor(name, graph.shape(node.output))}
    (step,) = make_plan(
        replace(graph, nodes=(odd,), outputs=(name,), tensors=tensors), Target("avx2")
    ).steps
    assert step.kind == "softmax"
