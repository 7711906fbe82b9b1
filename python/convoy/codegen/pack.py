"""Carry out the weight recipes of a plan: constants → the bytes the kernels read."""

from __future__ import annotations

import numpy as np

from convoy.plan.plan import Plan
from convoy.plan.recipes import Array, Constants


def pack_weights(plan: Plan, constants: Constants) -> Array:
    """All packed weights of a plan as one array, each at its buffer's offset.

    Returns
    -------
    uint8 [plan.weight_bytes]
    """
    packed = np.zeros(plan.weight_bytes, np.uint8)
    for weight in plan.weights:
        buffer = plan.buffers[weight.buffer]
        values = np.ascontiguousarray(weight.recipe.pack(constants)).reshape(-1).view(np.uint8)
        assert values.size <= buffer.bytes, f"{weight.recipe} made {values.size} of {buffer.bytes} bytes"
        packed[buffer.index : buffer.index + values.size] = values
    return packed
