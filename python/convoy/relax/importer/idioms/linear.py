"""Products by constants: Gemm's alpha belongs into the weight, and rows that ones pick are looked up."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from convoy.relax.dataflow import dims
from convoy.relax.importer.idioms.definitions import Definitions, constant


def move_scale_to_weight(call: Any, defined: Definitions) -> Any:
    """matmul(multiply(x, scalar), W)  =>  matmul(x, scalar·W), W a float32 constant."""
    scaled = defined.call(call.args[0], "multiply")
    weight = defined.constant(call.args[1])
    if scaled is None or weight is None or weight.dtype != np.float32:
        return None
    for x, other in ((scaled.args[0], scaled.args[1]), (scaled.args[1], scaled.args[0])):
        factor = defined.constant(other)
        if factor is not None and factor.size == 1 and factor.ndim <= x.ty.ndim:
            product = weight.astype(np.float64) * float(factor.item())
            return relax.op.matmul(x, constant(product.astype(np.float32)), out_dtype=call.attrs.out_dtype)
    return None


def raise_lookup(call: Any, defined: Definitions) -> Any:
    """matmul(one_hot(i), W)  =>  take(W, i), W a constant; a row of zeros where no one is.

    So JAX writes an embedding: ``one_hot`` compares whole numbers with 0 up to the rows of W.
    """
    weight = defined.constant(call.args[1])
    ones = defined.call(call.args[0], "astype")
    equal = defined.call(ones.args[0], "equal") if ones is not None else None
    if equal is None or weight is None or weight.ndim != 2 or str(call.ty.dtype) != str(weight.dtype):
        return None
    rows = len(weight)
    for index, other in (tuple(equal.args), tuple(equal.args)[::-1]):
        listed, sizes = defined.constant(other), dims(index) or ()
        if listed is None or listed.dtype.kind not in "iu" or not sizes or sizes[-1] != 1:
            continue
        along = 0 < listed.ndim <= len(sizes) and listed.shape[-1] == listed.size
        if along and np.array_equal(listed.ravel(), np.arange(rows)) and np.isfinite(weight).all():
            at = relax.op.astype(relax.op.squeeze(index, [len(sizes) - 1]), "int64")
            none, end = constant(np.array(0)), constant(np.array(rows))
            inside = relax.op.logical_and(relax.op.greater_equal(at, none), relax.op.less(at, end))
            table = np.concatenate([weight, np.zeros_like(weight[:1])])
            return relax.op.take(constant(table), relax.op.where(inside, at, end), axis=0, mode="clip")
    return None
