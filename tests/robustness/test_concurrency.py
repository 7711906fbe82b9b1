"""Several threads in one model, two models in one process, and the same bits in every run."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import convoy
from building import Builder
from command import tiny_model
from convoy import backend
from convoy.deploy.runner import Runner
from convoy.graph import Graph
from convoy.graph.ops import Binary, Concat, Conv2d, MatMul, Pool2d, Reduce, Softmax, Unary
from convoy.options import Options

Array = NDArray[np.float32]
CALLERS, CALLS = 6, 60


def network(seed: int = 0) -> Graph:
    """Winograd, direct, depthwise, pool, matmul and softmax; 48 channels, weights by ``seed``."""
    b = Builder([1, 16, 19, 21], seed=seed)
    pad = (1, 1, 1, 1)
    x = b.add(Unary, b.add(Conv2d, "x0", b.weight(48, 16, 3, 3), b.weight(48), padding=pad), kind="relu")
    y = b.add(Conv2d, x, b.weight(48, 1, 3, 3), b.weight(48), padding=pad, groups=48)
    y = b.add(Binary, b.add(Conv2d, y, b.weight(48, 48, 1, 1), b.weight(48)), x, kind="add")
    y = b.add(Concat, b.add(Unary, y, kind="silu"), x, axis=1)
    y = b.add(Pool2d, y, kind="max", kernel=(3, 3), stride=(2, 2))
    y = b.add(Reduce, y, kind="mean", axes=(2, 3), keepdims=False)
    return b.graph(b.add(Softmax, b.add(MatMul, y, b.weight(96, 40), b.weight(40)), axis=1))


def inputs(shape: Sequence[int], count: int = CALLERS) -> list[Array]:
    random = np.random.default_rng(3)
    return [random.standard_normal(shape).astype(np.float32) for _ in range(count)]


def call_at_once(functions: Sequence[Callable[[Array], Array]], arrays: Sequence[Array]) -> int:
    """Thread i calls ``functions[i]`` on ``arrays[i]`` again and again; how many answers were others
    than that of a call alone."""
    expected = [f(x) for f, x in zip(functions, arrays, strict=True)]
    start = Barrier(len(functions))

    def call(i: int) -> int:
        start.wait()
        answers = (functions[i](arrays[i]) for _ in range(CALLS))
        return sum(not np.array_equal(answer, expected[i]) for answer in answers)

    with ThreadPoolExecutor(len(functions)) as pool:
        return sum(pool.map(call, range(len(functions))))


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_a_region_answers_several_threads_at_once(threads: int) -> None:
    region = backend.load(network(), options=Options(threads=threads))
    wrong = call_at_once([lambda x: region(x)[0]] * CALLERS, inputs([1, 16, 19, 21]))
    assert wrong == 0


@pytest.mark.slow
def test_regions_of_two_networks_answer_side_by_side() -> None:
    # both define the same symbols; each must find its own weights, arena and threads
    regions = [backend.load(network(seed), options=Options(threads=2)) for seed in (0, 1)]
    arrays = inputs([1, 16, 19, 21], 2)
    assert not np.array_equal(regions[0](arrays[0])[0], regions[1](arrays[0])[0])
    functions = [lambda x, r=region: r(x)[0] for region in regions]
    assert call_at_once(functions * 2, [*arrays, *arrays]) == 0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "tiny.so"
    convoy.compile(tiny_model(batch="N")).export_library(str(path))
    return path


def test_a_library_answers_several_threads_at_once(library: Path) -> None:
    runner = Runner(library)
    functions = [lambda x: np.asarray(runner.run([x])[0])] * CALLERS
    # batches of different sizes: what one call leaves behind would not fit another
    arrays = [np.concatenate([x] * (1 + i % 3)) for i, x in enumerate(inputs([1, 3, 8, 8]))]
    assert call_at_once(functions, arrays) == 0


@pytest.mark.slow
def test_two_libraries_answer_side_by_side(library: Path, tmp_path: Path) -> None:
    model = tiny_model(batch="N")
    for tensor in model.graph.initializer:
        scaled = onnx.numpy_helper.to_array(tensor) * np.float32(0.5)
        tensor.CopyFrom(onnx.numpy_helper.from_array(scaled, tensor.name))
    convoy.compile(model).export_library(str(tmp_path / "half.so"))
    runners = [Runner(library), Runner(tmp_path / "half.so")]
    functions = [lambda x, r=runner: np.asarray(r.run([x])[0]) for runner in runners]
    arrays = inputs([1, 3, 8, 8], 2)
    assert not np.array_equal(functions[0](arrays[0]), functions[1](arrays[0]))
    assert call_at_once(functions * 2, [*arrays, *arrays]) == 0


HASH = """
import sys, hashlib, numpy as np
sys.path[:0] = {paths!r}
from robustness.test_concurrency import digest
print(digest(int(sys.argv[1])))
"""


def digest(threads: int) -> str:
    """The bits of two runs, the second one on a dirty arena; both are the same."""
    region = backend.load(network(), options=Options(threads=threads))
    (x,) = inputs([1, 16, 19, 21], 1)
    first, second = (region(x)[0].tobytes() for _ in range(2))
    assert first == second
    return hashlib.sha256(first).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_threads_give_the_same_bits_in_every_process(threads: int) -> None:
    tests = Path(__file__).parents[1]
    script = HASH.format(paths=[str(tests), str(Path(convoy.__file__).parents[1])])
    other = subprocess.run(
        [sys.executable, "-c", script, str(threads)], capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == digest(threads)
