"""Whether TVM's pass that makes views of copies would raise is known before."""

from __future__ import annotations

import pytest
import tvm
from tvm import relax

import convoy.relax.views as views
from convoy.relax.views import can_tell_views


def reshaped() -> tvm.IRModule:
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, tvm.tirx.Var("n", "int64"), 3), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(relax.op.flatten(x))
            z = bb.emit_output(bb.emit(relax.op.add(y, y)))
        bb.emit_func_output(z)
    return relax.transform.LegalizeOps()(bb.get())


def test_only_loops_that_read_one_tensor_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    module = reshaped()
    (asked,) = views._asked(module)
    assert asked.same_as(module["reshape"])
    assert can_tell_views(module)

    def raises(_: object) -> bool:
        raise tvm.error.InternalError("cannot tell")

    monkeypatch.setattr(relax.analysis, "has_reshape_pattern", raises)
    assert not can_tell_views(module)
