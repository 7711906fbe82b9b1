"""A split whose items are read in several regions: each has what the split reads."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import convoy


@I.ir_module
class Attention:
    """Values join the region that makes y; queries and keys, another: between the two is a cast."""

    @R.function
    def main(
        x: R.Tensor(("n", "t", 192), "float32"),
        places: R.Tensor((1, "t", 192), "float32"),
        keys: R.Tensor(("n", 4, "c", 16), "float32"),
        values: R.Tensor(("n", 4, "d", 16), "float32"),
    ) -> R.Tensor(("n", 4, "t", 16), "float32"):
        n, t, c = T.int64(), T.int64(), T.int64()
        with R.dataflow():
            y = R.add(x, places)
            s = R.split(y, indices_or_sections=3, axis=2)
            v0 = s[2]
            v1 = R.reshape(v0, R.shape([n, t, 4, 16]))
            v2 = R.permute_dims(v1, axes=[0, 2, 1, 3])
            v3 = R.concat((values, v2), axis=2)
            v = R.match_cast(v3, R.Tensor((n, 4, c + t, 16), "float32"))
            q0 = s[0]
            q1 = R.reshape(q0, R.shape([n, t, 4, 16]))
            q = R.permute_dims(q1, axes=[0, 2, 1, 3])
            k0 = s[1]
            k1 = R.reshape(k0, R.shape([n, t, 4, 16]))
            k2 = R.permute_dims(k1, axes=[0, 2, 1, 3])
            k3 = R.concat((keys, k2), axis=2)
            k = R.permute_dims(k3, axes=[0, 1, 3, 2])
            scores = R.matmul(q, k)
            shares = R.nn.softmax(scores, axis=-1)
            mixed = R.matmul(shares, v)
            R.output(mixed)
        return mixed


@pytest.mark.slow
def test_items_in_two_regions_compute_as_tvm_does() -> None:
    rng = np.random.default_rng(0)
    shapes = (2, 3, 192), (1, 3, 192), (2, 4, 5, 16), (2, 4, 5, 16)
    given = [tvm.runtime.tensor(rng.standard_normal(shape, np.float32)) for shape in shapes]
    built = convoy.compile(Attention, threads=1)
    assert len(built.report.regions) == 2
    found, wanted = (
        relax.VirtualMachine(executable, tvm.cpu())["main"](*given).numpy()
        for executable in (built, tvm.compile(Attention, "llvm"))
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
