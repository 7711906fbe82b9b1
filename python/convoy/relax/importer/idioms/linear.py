"""Gemm: alpha belongs into the weight, not onto the activations."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

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
