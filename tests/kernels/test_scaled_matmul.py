"""Products with matrices of 4 or 8 bits and a scale for each block, against the reference of floats."""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.backend import LoadedRegion
from convoy.graph import Graph
from convoy.graph.ops import Binary, MatMul, Unary
from convoy.graph.reference import run
from convoy.graph.sizes import open_size
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import MACHINES, Target
from instruction_sets import HOST_SETS
from quantising import matrix_of_bits
from together import Asked

BOUND = 1e-5
ROWS = [1, 2, 3, 5, 9, 16, 17, 40]


def mlp(bits: int = 4, block: int = 32, zeros: bool = False, rows: int | None = None) -> Graph:
    """Two products with a bias, an activation, and a residual; of open rows where none are given."""
    b = Builder([1, rows or open_size("size[0]", 4), 100])
    first = b.constant(matrix_of_bits(100, 70, block, bits, zeros))
    x = b.add(Unary, b.add(MatMul, "x0", first, b.weight(70)), kind="relu")
    x = b.add(MatMul, x, b.constant(matrix_of_bits(70, 100, block, bits, zeros)), b.weight(100))
    return b.graph(b.add(Binary, x, "x0", kind="add"))


def algorithms(graph: Graph, target: Target | None = None) -> list[str]:
    """What multiplies each product, in running order."""
    report = Report()
    backend.generate(graph, "region", target or MACHINES["znver4"], Options(threads=1), report)
    (region,) = report.regions
    return [step for step, op in zip(region.steps, region.ops, strict=True) if op == "matmul"]


def agree(region: LoadedRegion, graph: Graph, *data: np.ndarray) -> None:
    wanted = run(graph.bound({axis.symbol: data[0].shape[1] for axis in graph.open_axes}), data, np.float64)
    for found, value in zip(region(*data), wanted, strict=True):
        assert np.abs(found - value).max() <= BOUND * np.abs(value).max()


def asked(isa: str, bits: int, block: int, zeros: bool, threads: int) -> list[Asked]:
    return [Asked(mlp(bits, block, zeros), Target(isa), Options(threads=threads))]


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize("isa", HOST_SETS)
@pytest.mark.parametrize(
    ("bits", "block", "zeros", "threads"),
    [(4, 32, False, 1), (4, 16, True, 2), (4, 128, False, 3), (8, 32, True, 2), (8, 100, False, 1)],
)
def test_any_number_of_rows(isa, bits, block, zeros, threads, regions) -> None:
    (region,) = regions
    graph, random = mlp(bits, block, zeros), np.random.default_rng(bits)
    for rows in ROWS:
        agree(region, graph, random.standard_normal((1, rows, 100)).astype(np.float32))


@pytest.mark.slow
def test_a_call_of_several_images_reads_the_weights_once_for_all_rows() -> None:
    b = Builder([1, 64], batch=None)
    graph = b.graph(b.add(MatMul, "x0", b.constant(matrix_of_bits(64, 40, 16, 4)), b.weight(40)))
    region = backend.load(graph)
    for images in (1, 3, 21):
        x = np.random.default_rng(images).standard_normal((images, 64)).astype(np.float32)
        (found,), (wanted,) = region(x), run(graph, [x], np.float64)
        np.testing.assert_allclose(found, wanted, atol=BOUND * np.abs(wanted).max())


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, -3e38])
@pytest.mark.parametrize("zeros", [False, True])
def test_large_numbers_are_as_large_as_of_floats(zeros: bool, value: float) -> None:
    b = Builder([1, 3, 64])
    graph = b.graph(b.add(MatMul, "x0", b.constant(matrix_of_bits(64, 40, 16, 4, zeros))))
    (x,) = b.arrays()
    x[0, 1, 33] = value
    with np.errstate(invalid="ignore"):
        (wanted,) = run(graph, [x])
    (found,) = backend.load(graph)(x)
    np.testing.assert_allclose(found, wanted, rtol=BOUND, atol=BOUND)


def test_weights_take_as_many_bits_as_they_have() -> None:
    def size(graph: Graph) -> int:
        return backend.generate(graph, "region", MACHINES["znver4"]).report.weight_bytes

    floats = Builder([1, 1, 1024])
    whole = size(floats.graph(floats.add(MatMul, "x0", floats.weight(1024, 1024))))
    for bits, parts in ((4, 6.3), (8, 3.5)):  # with a float for each block of 32
        b = Builder([1, 1, 1024])
        few = b.graph(b.add(MatMul, "x0", b.constant(matrix_of_bits(1024, 1024, 32, bits))))
        assert size(few) < whole / parts


def test_matrices_of_few_bits_say_so() -> None:
    four, eight = algorithms(mlp(4)), algorithms(mlp(8))
    assert all("weights of 4 bits" in step for step in four)
    assert all("weights of 8 bits" in step for step in eight)
    b = Builder([1, 1, 100])
    (floats,) = algorithms(b.graph(b.add(MatMul, "x0", b.weight(100, 70))))
    assert "bits" not in floats


def test_many_rows_at_hand_multiply_floats() -> None:
    # the weights wait in L2, and to unpack them for each call costs
    assert not any("bits" in step for step in algorithms(mlp(rows=64)))
    assert all("bits" in step for step in algorithms(mlp(rows=16)))
