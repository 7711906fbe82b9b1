"""Products of matrices, and attention, which is two of them."""

from __future__ import annotations

from dataclasses import replace

from convoy.graph.ops import MatMul
from convoy.ops.operands import Operands
from convoy.ops.reader import Call, Reader
from convoy.ops.row import Lowering, OpRow


def _check_product(at: Reader, call: Call) -> str | None:
    if getattr(call.attrs, "transpose_a", False):
        return "expected data that is not transposed, got transpose_a"
    axes = len(at.dims(call.args[1]) or ())
    return None if axes == 2 else f"expected a weight of shape [K, N], got {axes} axes"


def _check_batch_matmul(at: Reader, call: Call) -> str | None:
    shape = at.dims(call.args[1]) or ()
    if shape[0] == 1:
        return None
    return f"expected one weight for the batch, got {shape[0]}"


def _product(pattern: str = "", *, transposed: bool = False) -> Lowering:
    def lower_product(at: Operands, call: Call) -> str:
        weight = at.array(call.args[1])
        weight = weight.reshape(
            weight.shape[-2:]
        )  # that of a batch_matmul has an axis of length 1 in front
        if transposed or getattr(call.attrs, "transpose_b", False):
            weight = weight.T
        names = (at.tensor(call.args[0]), at.build.constant(weight))
        return at.build.node(MatMul, names, at.shape(call), pattern=pattern)

    return lower_product


_PRODUCT = OpRow(
    cost="product", axis_zero="rows", heavy=True, constants={1: "weight"}, check=_check_product
)

ROWS = (
    replace(_PRODUCT, relax="matmul", relay="nn.matmul", lower=_product()),
    replace(_PRODUCT, relay="nn.dense", lower=_product("dense", transposed=True)),
    replace(_PRODUCT, relay="nn.batch_matmul", check=_check_batch_matmul, lower=_product("batch_matmul")),
    OpRow("nn.attention", cost="attention"),
    OpRow("nn.attention_bias", cost="attention"),
)
