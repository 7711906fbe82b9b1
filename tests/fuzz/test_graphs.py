"""The random graphs themselves: legal, replayable, tame, and of every op."""

import numpy as np
import pytest

from convoy.graph import ops
from convoy.graph.reference import run
from fuzz.graphs import generate, print_graph, random_inputs, replayable, seeds


@pytest.mark.parametrize("seed", seeds(60))
def test_float32_agrees_with_float64(seed: int) -> None:
    # tame values: what the random graphs are for is telling rounding from a wrong result
    with replayable(seed) as graph:
        inputs = random_inputs(graph, seed)
        single, double = run(graph, inputs, np.float32), run(graph, inputs, np.float64)
        for a, b in zip(single, double, strict=True):
            assert np.isfinite(b).all()
            assert np.abs(a - b).max() <= 2e-5 * max(np.abs(b).max(), 1e-3)


def test_a_seed_names_one_graph() -> None:
    assert print_graph(generate(7)) == print_graph(generate(7))
    assert print_graph(generate(7)) != print_graph(generate(8))


def test_every_op_is_drawn() -> None:
    drawn = {type(node) for seed in range(150) for node in generate(seed).nodes}
    assert drawn == set(ops.Node.__subclasses__())


def test_batches_and_several_outputs_are_drawn() -> None:
    graphs = [generate(seed) for seed in range(50)]
    assert {graph.batch for graph in graphs} == {1, 2, None}
    assert any(len(graph.outputs) > 1 for graph in graphs)
    assert any(len(graph.inputs) > 1 for graph in graphs)


def test_failure_prints_its_replay_seed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssertionError), replayable(3):
        raise AssertionError
    assert "CONVOY_FUZZ_SEED=3" in capsys.readouterr().out
