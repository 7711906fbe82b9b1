"""A region called on NumPy arrays without TVM."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from convoy import target
from convoy.errors import ConvoyError, ToolchainError
from convoy.graph.graph import OpenAxis
from convoy.graph.ops import Tensor
from convoy.toolchain import compiler
from convoy.toolchain.loader import load_region

SOURCE = """
#include "convoy/region.h"
#include "convoy/runtime.h"
typedef struct call { const float *x, *y; float *sum, *difference; } call;
static void run(cv_thread thread, void *arena, void *context) {
  const call *c = context;
  (void)arena;
  for (int i = thread.id; i < 12; i += thread.count) {
    c->sum[i] = c->x[i] + c->y[i];
    c->difference[i] = c->x[i] - c->y[i];
  }
}
int region_pair(const float *const *inputs, float *const *outputs, int64_t images) {
  for (int64_t i = 0; i < images; ++i) {
    call c = {inputs[0] + 12 * i, inputs[1] + 12 * i, outputs[0] + 12 * i, outputs[1] + 12 * i};
    const int status = convoy_launch(run, &c, BYTES, 0, 1);
    if (status) return status;
  }
  return 0;
}
"""


@dataclass(frozen=True)
class Pair:
    symbol: str = "region_pair"
    inputs: tuple[Tensor, ...] = (Tensor("x", (1, 3, 4)), Tensor("y", (1, 3, 4)))
    outputs: tuple[Tensor, ...] = (Tensor("sum", (1, 3, 4)), Tensor("difference", (1, 3, 4)))
    batch: int | None = None
    open_axes: tuple[OpenAxis, ...] = ()


def load(code: Pair, arena: str = "64"):
    sources = [SOURCE.replace("BYTES", arena), *compiler.runtime_sources().values()]
    return load_region(compiler.link_shared(compiler.compile_objects(sources, target.host())), code)


def arrays(batch: int) -> list[np.ndarray]:
    random = np.random.default_rng(4)
    return [random.standard_normal((batch, 3, 4)).astype(np.float32) for _ in range(2)]


@pytest.mark.parametrize("batch", [0, 1, 4])
def test_region_computes_every_image(batch):
    x, y = arrays(batch)
    total, difference = load(Pair())(x, y)
    np.testing.assert_array_equal(total, x + y)
    np.testing.assert_array_equal(difference, x - y)


def test_fixed_batch_and_strided_input():
    x, y = arrays(2)
    run = load(Pair(batch=2))
    strided = np.ascontiguousarray(x.transpose(2, 1, 0)).transpose(2, 1, 0)
    np.testing.assert_array_equal(run(strided, y)[0], x + y)
    with pytest.raises(ConvoyError, match=r"region_pair x: expected float32 \[2, 3, 4\]"):
        run(x[:1], y[:1])


def test_arrays_that_do_not_fit():
    x, y = arrays(2)
    run = load(Pair())
    with pytest.raises(ConvoyError, match="expected 2 arrays, got 1"):
        run(x)
    with pytest.raises(ConvoyError, match=r"y: expected float32 .*got float64"):
        run(x, y.astype(np.float64))
    with pytest.raises(ConvoyError, match=r"y: expected float32 \[2, 3, 4\].*got float32 \[1, 3, 4\]"):
        run(x, y[:1])
    with pytest.raises(ConvoyError, match=r"x: expected float32 .*got list"):
        run(x.tolist(), y)


def test_out_of_memory():
    with pytest.raises(MemoryError, match="region_pair: expected memory"):
        load(Pair(), arena="(size_t)1 << 60")(*arrays(1))


def test_library_without_the_function():
    library = compiler.link_shared([compiler.compile_object("int other;", target.host())])
    with pytest.raises(ToolchainError, match="expected a library with the function region_pair"):
        load_region(library, Pair())


def test_a_library_is_the_file_of_that_name_here_and_no_other(tmp_path, monkeypatch):
    # a bare name is otherwise looked for among the system's libraries, where libm.so.6 is another
    source = SOURCE.replace("BYTES", "64")
    objects = compiler.compile_objects([source, *compiler.runtime_sources().values()], target.host())
    compiler.link_shared(objects, output=tmp_path / "libm.so.6")
    monkeypatch.chdir(tmp_path)
    x, y = arrays(1)
    np.testing.assert_array_equal(load_region(Path("libm.so.6"), Pair())(x, y)[0], x + y)


def test_loading_needs_no_tvm():
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", "import sys, convoy.toolchain.loader; assert 'tvm' not in sys.modules"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
