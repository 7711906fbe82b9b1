"""AMX tiles: which code has them, and that what it computes is right, on machines without them, too."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Conv2d, MatMul
from convoy.graph.reference import run
from convoy.kernels.conv2d.direct import DirectConv
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.target import MACHINES, host
from convoy.toolchain.compiler import compile_objects, kernel_sources
from convoy.toolchain.driver import find_compiler
from quantising import Quantised

Arrays = list[NDArray[np.float32]]
SAPPHIRE = MACHINES["sapphirerapids"].for_precision("bf16")
WITHOUT = replace(SAPPHIRE, features=SAPPHIRE.features - {"amx-tile"})
BOUND = 2e-2
"""Error of a few layers of bfloat16, of the largest output."""


def of_bfloat16() -> Graph:
    """Tiles of pixels in one row, even and odd, and in two; k that fills no tile of AMX."""
    b = Builder([1, 40, 27, 27], [1, 20, 133])

    def conv(x: str, out: int, kernel: int, stride: int = 1) -> str:
        w = b.weight(out, b.tensors[x].shape[1], kernel, kernel)
        return b.add(Conv2d, x, w, b.weight(out), padding=(kernel // 2,) * 4, stride=(stride, stride))

    x = conv("x0", 64, 3, stride=2)
    product = b.add(MatMul, "x1", b.weight(133, 50), b.weight(50))
    return b.graph(conv("x0", 48, 1), x, conv(x, 33, 3, stride=2), product)


def of_bytes() -> Graph:
    q = Quantised()
    x = q.bytes(q.conv(q.bytes(q.input(1, 40, 27, 27), 0.03, 117), 64, 3, stride=(2, 2)), 0.02, 100)
    return q.graph(q.bytes(q.add(q.conv(x, 64), x), 0.03, 110))


NETWORKS: dict[str, Callable[[], Graph]] = {"tdpbf16ps": of_bfloat16, "tdpbusd": of_bytes}
"""By the instruction that multiplies them."""


@pytest.mark.slow
@pytest.mark.parametrize("instruction", NETWORKS)
def test_only_code_for_a_machine_with_amx_has_its_instructions(instruction: str) -> None:
    found = []
    for target in (SAPPHIRE, WITHOUT):
        (source,) = backend.generate(NETWORKS[instruction](), "region", target).sources
        paths = compile_objects([source, *kernel_sources([source]).values()], target)
        code = subprocess.run(["objdump", "-d", *paths], text=True, capture_output=True, check=True).stdout
        found.append([word in code for word in ("ldtilecfg", instruction, "tilerelease")])
    assert found == [[True] * 3, [False] * 3]


@dataclass(frozen=True)
class Computed:
    """A network and what code of vectors computes of it here, where this machine has them."""

    graph: Graph
    arrays: Arrays
    vectors: Arrays

    @staticmethod
    def of(graph: Graph) -> Computed:
        if missing := {"avx512f", "avx512bf16", "avx512vnni"} - host().features:
            pytest.skip(f"this machine lacks {', '.join(sorted(missing))}, beside which tiles of AMX stand")
        random = np.random.default_rng(3)
        arrays = [random.standard_normal(graph.shape(name)).astype(np.float32) for name in graph.inputs]
        return Computed(graph, arrays, backend.load(graph, WITHOUT)(*arrays))

    def emulated(self, threads: str) -> Arrays:
        """The same with tiles of AMX in plain C."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CC", shlex.join([*find_compiler().command, "-DCV_EMULATE_AMX"]))
            patch.setenv("CONVOY_NUM_THREADS", threads)
            return backend.load(self.graph, WITHOUT)(*self.arrays)


def test_tiles_of_bfloat16_agree_with_float64() -> None:
    computed = Computed.of(of_bfloat16())
    steps = make_plan(computed.graph, WITHOUT, Options()).steps
    tiles = {(step.tile_rows, *step.rows.pixels) for step in steps if isinstance(step, DirectConv)}
    assert tiles == {(1, 14, 14), (1, 27, 27), (2, 7, 7)}
    found, wanted = computed.emulated("1"), run(computed.graph, computed.arrays, np.float64)
    for one, other in zip(found, computed.emulated("3"), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, vectors, want in zip(found, computed.vectors, wanted, strict=True):
        assert (one != vectors).any(), "nothing was multiplied in tiles: sums have the order of vectors"
        assert np.abs(one - want).max() <= BOUND * np.abs(want).max()


def test_tiles_of_bytes_give_the_bytes_that_vectors_give() -> None:
    computed = Computed.of(of_bytes())
    for threads in ("1", "3"):
        for one, other in zip(computed.emulated(threads), computed.vectors, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("instruction", NETWORKS)
def test_code_with_tiles_computes_in_vectors_where_it_may_not_use_them(
    instruction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVOY_AMX", "0")
    computed = Computed.of(NETWORKS[instruction]())
    for one, other in zip(
        backend.load(computed.graph, SAPPHIRE)(*computed.arrays), computed.vectors, strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_flags_are_those_of_what_is_multiplied() -> None:
    assert {"-mamx-tile", "-mamx-int8", "-mamx-bf16"} <= set(SAPPHIRE.flags)
    assert "-mamx-bf16" not in MACHINES["sapphirerapids"].flags
    assert not any("amx" in flag for flag in WITHOUT.flags)
