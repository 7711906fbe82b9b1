"""Many tensors of late lengths are joined by copying one after the other.

TVM finds for each number which tensor it is of, by sums of all lengths before it: of the boxes of a
detector's 90 classes that is half a megabyte of text, and its passes took minutes (0.27).
"""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import tirx as T

from convoy.relax.dataflow import dims, op_name
from convoy.relax.rewriting import APART, rewriting, write_loops

LEAST = 5
"""Tensors that are joined so."""


def join_by_copying() -> Pass:
    """Pass that joins many tensors of open lengths."""
    return rewriting(_Joining, "convoy.join_by_copying")


@mutator
class _Joining(PyExprMutator):  # type: ignore[misc]  # mypy knows nothing of TVM's classes
    def visit_call_(self, op: Call) -> Any:
        op = super().visit_call_(op)
        if op_name(op) != "concat" or not isinstance(op.args[0], relax.Tuple) or op.attrs.axis is None:
            return op
        parts = list(op.args[0].fields)
        shapes = [shape for shape in map(dims, parts) if shape is not None]
        if len(parts) < LEAST or len(shapes) < len(parts):
            return op
        axis = int(op.attrs.axis) % len(shapes[0])
        if all(isinstance(shape[axis], int) for shape in shapes):
            return op
        return self.builder_.call_te(_join, axis, *parts, primfunc_name_hint="join", primfunc_attrs=APART)


def _join(axis: int, *parts: te.Tensor) -> te.Tensor:
    lengths = [part.shape[axis] for part in parts]
    before, behind = list(parts[0].shape[:axis]), list(parts[0].shape[axis + 1 :])

    def write(*buffers: Any) -> None:
        *sources, made = buffers
        begin = T.buffer_proxy(T.alloc_buffer((1,), "int64", scope="local"))
        begin[0] = tirx.IntImm("int64", 0)
        for source, length in zip(sources, lengths, strict=True):
            with T.grid(*before, length, *behind) as found:
                at = list(found) if before or behind else [found]
                made_at = (*at[:axis], begin[0] + at[axis], *at[axis + 1 :])
                made[made_at] = source[tuple(at)]
            begin[0] = begin[0] + length

    return write_loops(parts, [*before, sum(lengths[1:], lengths[0]), *behind], write, "join")
