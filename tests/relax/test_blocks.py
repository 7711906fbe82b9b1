"""What reads sizes that a call finds runs behind the cast that finds them, wherever TVM fuses it."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax

import convoy
from convoy.relax.blocks import end_blocks_at_sizes, reads_sizes_early


def network() -> tvm.IRModule:
    # a comparison is fused with what adds a size, found behind it: so the size comes to be read this early
    bb = relax.BlockBuilder()
    x, k = (relax.Var(n, relax.TensorType((s,), "int64")) for n, s in (("x", 3), ("k", 2)))
    with bb.function("main", [x, k]):
        with bb.dataflow():
            turned = bb.emit(relax.op.negative(x))
            sizes = [tvm.tirx.Var(name, "int64") for name in ("late", "later")]
            bb.match_cast(bb.emit(relax.op.tensor_to_shape(k)), relax.ShapeType(sizes))
            both = bb.emit(relax.op.shape_to_tensor(relax.ShapeExpr(sizes)))
            first = bb.emit(relax.op.strided_slice(both, [0], [0], [1]))
            below = bb.emit(relax.op.less(turned, relax.const(0, "int64")))
            y = bb.emit_output(bb.emit(relax.op.where(below, bb.emit(relax.op.add(turned, first)), turned)))
        bb.emit_func_output(y)
    return bb.get()


def test_a_size_is_read_behind_the_cast_that_finds_it(capfd: pytest.CaptureFixture[str]) -> None:
    x, k = np.array([1, -2, 3]), np.array([7, 9])
    (found,) = convoy.load(convoy.compile(network())).run([x, k])
    np.testing.assert_array_equal(found, [6, 2, 4])
    assert "Warning" not in capfd.readouterr().err  # as TVM writes of what an error leaves behind


def test_only_what_is_fused_reads_a_size_early() -> None:
    def fuse(module: tvm.IRModule) -> tvm.IRModule:
        return relax.transform.FuseOps()(
            relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps()(module))
        )

    assert not reads_sizes_early(network())
    assert reads_sizes_early(fuse(network()))
    assert not reads_sizes_early(fuse(end_blocks_at_sizes()(network())))


def blocks(module: tvm.IRModule) -> list[bool]:
    relax.analysis.well_formed(module)
    return [isinstance(b, relax.DataflowBlock) for b in module["main"].body.blocks]


def test_only_a_cast_that_finds_sizes_ends_a_block() -> None:
    assert blocks(end_blocks_at_sizes()(network())) == [True, False, True]
    bb = relax.BlockBuilder()
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 2), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            shape = bb.emit(relax.ShapeExpr([n]))
            bb.match_cast(shape, relax.ShapeType([n]))  # a check of a size that is known
            y = bb.emit_output(bb.emit(relax.op.exp(x)))
        bb.emit_func_output(y)
    assert blocks(end_blocks_at_sizes()(bb.get())) == [True]
