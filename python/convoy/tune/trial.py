"""The time of one convolution under each candidate, measured on this machine.

A trial is a region of its own: the input in the layout it will have, the convolution with its
epilogue, its steps timed.  Caches are emptied before each run, so that weights are cold as they are
in a network; the input is then written by the step before, so that it is as warm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from convoy.backend import LoadedRegion, load
from convoy.graph.graph import Graph
from convoy.graph.ops import Binary, ChannelShuffle, Conv2d, Node, Reduce, Tensor
from convoy.kernels.conv2d.choose import Choice
from convoy.options import Options
from convoy.plan.fuse import Fusion
from convoy.target import Target

RUNS = 5
"""Runs of each candidate, in turns; the best one counts."""
FLUSH_BYTES = 64 << 20
"""Read between runs: more than the caches hold."""


@dataclass
class _Draft:
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def tensor(self, name: str, shape: Sequence[int]) -> str:
        self.tensors[name] = Tensor(name, tuple(shape))
        return name


def draw_trial(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> Graph:
    """The convolution of ``fusion`` alone, with random weights; its output is ``y``.

    ``blocked``: the tensors of ``graph`` that are made in blocks.
    """
    conv = fusion.anchor
    assert isinstance(conv, Conv2d)
    draft = _Draft()
    x = _input("x", conv.inputs[0], graph, blocked, draft)
    shapes = {"w": graph.shape(conv.inputs[1]), "b": (graph.shape(conv.output)[1],)}
    random = np.random.default_rng(0)
    constants = {
        name: random.standard_normal(draft.tensors[draft.tensor(name, shape)].shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    y = draft.tensor("sums", graph.shape(conv.output))
    draft.nodes.append(replace(conv, inputs=(x, "w", "b"), output=y))
    inputs = ["x"]
    if fusion.inner is not None:
        draft.nodes.append(replace(fusion.inner, inputs=(y,), output="inner"))
        y = draft.tensor("inner", graph.shape(conv.output))
    if fusion.residual is not None:
        inputs.append("r")
        residual = _input("r", fusion.residual, graph, blocked, draft)
        draft.nodes.append(Binary(inputs=(y, residual), output="joined", kind="add"))
        y = draft.tensor("joined", graph.shape(conv.output))
    if fusion.outer is not None:
        draft.nodes.append(replace(fusion.outer, inputs=(y,), output="outer"))
        y = draft.tensor("outer", graph.shape(conv.output))
    return Graph(tuple(inputs), (y,), tuple(draft.nodes), draft.tensors, constants)


def _input(name: str, original: str, graph: Graph, blocked: Mapping[str, bool], draft: _Draft) -> str:
    """An input in the layout it has in ``graph``: row-major, or in blocks."""
    draft.tensor(name, graph.shape(original))
    if not blocked.get(original, True):
        return name
    draft.nodes.append(ChannelShuffle(inputs=(name,), output=f"{name}.blocked", groups=1))
    return draft.tensor(f"{name}.blocked", graph.shape(original))


def measure_candidates(
    trial: Graph, candidates: Mapping[str, Choice], target: Target, threads: int, options: Options
) -> dict[str, float]:
    """Seconds of each candidate, by its name.

    Raises
    ------
    ToolchainError
    """
    plain = Options(threads=threads, accuracy=options.accuracy, cache=options.cache)
    output = next(node.output for node in trial.nodes if isinstance(node, Conv2d))

    def compile(choice: Choice) -> LoadedRegion:
        return load(trial, target, plain, timed=True, tuner=lambda _: {output: choice})

    with ThreadPoolExecutor() as pool:
        regions = dict(zip(candidates, pool.map(compile, candidates.values()), strict=True))
    random = np.random.default_rng(1)
    arrays = [random.standard_normal(trial.shape(name)).astype(np.float32) for name in trial.inputs]
    flush, memory = _flush(target, threads)
    for _ in range(RUNS):
        for region in regions.values():
            flush(memory)
            region(*arrays)
    return {name: _seconds(region) for name, region in regions.items()}


def _seconds(region: LoadedRegion) -> float:
    """Seconds of the convolution's steps."""
    times = zip(region.code.report.ops, region.step_seconds(), strict=True)
    return sum(seconds for op, seconds in times if op == "conv2d")


@cache
def _flush(target: Target, threads: int) -> tuple[LoadedRegion, NDArray[np.float32]]:
    """A region whose threads read ``FLUSH_BYTES`` of memory, and that memory."""
    shape = (1, threads, FLUSH_BYTES // 4 // threads)
    tensors = {"x": Tensor("x", shape), "y": Tensor("y", (1, threads, 1))}
    node = Reduce(inputs=("x",), output="y", kind="max", axes=(2,))
    graph = Graph(("x",), ("y",), (node,), tensors)
    return load(graph, target, Options(threads=threads)), np.ones(shape, np.float32)
