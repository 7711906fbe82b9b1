"""Carry out the weight recipes of a plan: constants → the bytes the kernels read."""

from __future__ import annotations

import numpy as np

from convoy.plan.plan import Plan
from convoy.plan.recipes import Array, Constants


def pack_weights(plan: Plan, constants: Constants) -> Array:
    """All packed weights of a plan as one array, each at its buffer's offset.

    Returns
    -------
    float32 [plan.weights_size]
    """
    packed = np.zeros(plan.weights_size, np.float32)
    for weight in plan.weights:
        buffer = plan.buffers[weight.buffer]
        values = weight.recipe.pack(constants)
        assert values.size <= buffer.size, f"{weight.recipe} made {values.size} of {buffer.size} floats"
        packed[buffer.index : buffer.index + values.size] = values.reshape(-1)
    return packed
