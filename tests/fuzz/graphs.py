"""Random graphs: chains and DAGs of every op, with odd channel counts and sizes.

``generate(seed)`` gives the same verified graph for the same seed, on every machine.  Values stay near
1, and the one op that is discontinuous is ``Quantize``, so that two correct computations of a graph agree
closely but where a number falls between two bytes: ``ties`` says how far those differ.

    @pytest.mark.parametrize("seed", seeds(100))
    def test_region_equals_reference(seed):
        with replayable(seed) as graph:
            ...

A failure prints the graph and ``CONVOY_FUZZ_SEED=<seed>``, which makes ``seeds`` give that one alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from convoy.graph import Graph
from convoy.graph.dtypes import ARRAYS, QUANTISED, range_of
from convoy.graph.graph import Array
from convoy.graph.messages import describe
from convoy.graph.verify import verify
from fuzz.draft import Draft
from fuzz.quantise import quantise
from fuzz.steps import PROBABILITIES, STEPS
from fuzz.views import draw_views


def seeds(count: int) -> list[int]:
    """``count`` seeds from CONVOY_FUZZ_START (0) on, or CONVOY_FUZZ_SEED alone where it is set."""
    if "CONVOY_FUZZ_SEED" in os.environ:
        return [int(os.environ["CONVOY_FUZZ_SEED"])]
    start = int(os.environ.get("CONVOY_FUZZ_START", "0"))
    return list(range(start, start + count))


@contextmanager
def replayable(seed: int, steps: int = 10) -> Iterator[Graph]:
    """The graph of ``seed``; on a failure inside, how to replay it is printed."""
    graph = generate(seed, steps)
    try:
        yield graph
    except BaseException:
        print(f"replay with CONVOY_FUZZ_SEED={seed}\n{print_graph(graph)}")
        raise


def random_inputs(graph: Graph, seed: int, images: int = 3) -> list[Array]:
    """Normal inputs of the graph, or any bytes; ``images`` of them where the batch is known at run time."""
    rng = np.random.default_rng(seed)
    batch = images if graph.batch is None else graph.batch
    found: list[Array] = []
    for name in graph.inputs:
        first, *rest = graph.shape(name)
        shape, dtype = (batch * first, *rest), graph.dtype(name)
        if dtype in QUANTISED:
            least, most = range_of(dtype)
            found.append(rng.integers(least, most + 1, shape).astype(ARRAYS[dtype]))
        else:
            found.append(rng.standard_normal(shape, np.float32))
    return found


def print_graph(graph: Graph) -> str:
    """One line a node, for failures."""
    lines = [f"batch {graph.batch}", *(f"input {graph.tensors[name]}" for name in graph.inputs)]
    for node in graph.nodes:
        shapes = [graph.shape(name) for name in node.inputs]
        lines.append(f"{describe(node)} {graph.shape(node.output)} of {shapes}: {node}")
    return "\n".join([*lines, f"outputs {graph.outputs}"])


def generate(seed: int, steps: int = 10) -> Graph:
    """A verified graph of about ``steps`` ops; its outputs are all tensors nobody reads."""
    draft = Draft(np.random.default_rng(seed))
    for _ in range(draft.pick((1, 1, 2))):
        draft.add_input()
    while len(draft.nodes) < steps:
        step = STEPS[int(draft.rng.choice(len(STEPS), p=PROBABILITIES))]
        x = draft.pick_tensor()
        if x is not None:
            step(draft, x)
    draw_views(draft, np.random.default_rng((seed, 1)))
    graph = quantise(draft.finish(), np.random.default_rng((seed, 2)))
    verify(graph)
    return graph
