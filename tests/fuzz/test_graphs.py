"""The random graphs themselves: legal, replayable, tame, and of every op."""

import numpy as np
import pytest

from convoy.graph import ops
from convoy.graph.builder import Builder
from convoy.graph.ops import Unary
from convoy.graph.reference import run
from fuzz.graphs import generate, print_graph, random_inputs, replayable, seeds
from fuzz.ties import FLOAT32, worst_error


@pytest.mark.parametrize("seed", seeds(60))
def test_float32_agrees_with_float64(seed: int) -> None:
    # tame values: what the random graphs are for is telling rounding from a wrong result
    with replayable(seed) as graph:
        inputs = random_inputs(graph, seed)
        single, double = run(graph, inputs, np.float32), run(graph, inputs, np.float64)
        assert all(np.isfinite(b).all() for b in double)
        assert worst_error(graph, inputs, single, double) <= FLOAT32


def test_ties_fall_either_way_and_nothing_else_is_forgiven() -> None:
    b = Builder("flat")
    x = b.input("x", (1, 4))
    scale, zero = np.array([0.5], np.float32), np.array([10], np.uint8)
    q = b.quantize(x, scale, zero)
    y = b.node(Unary, (b.dequantize(q, scale, zero),), (1, 4), kind="neg")
    graph = b.finish((x,), (q, y), 1)
    inputs = [np.array([[0.25, 0.75, 0.4, 1.0]], np.float32)]  # quotients 0.5, 1.5, 0.8, 2.0
    want = run(graph, inputs, np.float64)

    def error(bytes_of: list[int], floats: list[float]) -> float:
        got = [np.array([bytes_of], np.uint8), np.array([floats], np.float32)]
        return worst_error(graph, inputs, got, want)

    assert error([10, 12, 11, 12], [0.0, -1.0, -0.5, -1.0]) == 0, "as the reference has them"
    assert error([11, 11, 11, 12], [-0.5, -0.5, -0.5, -1.0]) == 0, "both ties the other way"
    assert error([12, 12, 11, 12], [0.0, -1.0, -0.5, -1.0]) == 1 / 12, "two units at a tie"
    assert error([10, 12, 12, 12], [0.0, -1.0, -0.5, -1.0]) == 1 / 12, "a unit where no tie is"
    assert error([10, 12, 11, 12], [0.0, -1.0, -0.501, -1.0]) == pytest.approx(1e-3, 1e-4), "between bytes"


def test_a_seed_names_one_graph() -> None:
    assert print_graph(generate(7)) == print_graph(generate(7))
    assert print_graph(generate(7)) != print_graph(generate(8))


@pytest.mark.slow
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
