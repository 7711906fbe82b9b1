"""How far ONNX Runtime's own answer moves when its weights do, by one unit in the last place.

Where that is more than an error that is looked for, the answer is the rounding of a network's inner
numbers with these inputs: two engines that are right differ as much.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from convoy.bench.accuracy import compare_outputs, reference_outputs
from convoy.bench.inputs import Arrays

TRIES = 3
"""Directions in which the weights are moved."""


def nudge_weights(model: onnx.ModelProto, seed: int, folder: Path = Path()) -> onnx.ModelProto:
    """The model with half of its float32 weights the next larger number.

    Parameters
    ----------
    folder : Path
        Where the model has its external data, if that is not loaded.
    """
    random = np.random.default_rng(seed)
    nudged = onnx.ModelProto()
    nudged.CopyFrom(model)
    for tensor in nudged.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor, str(folder))
            larger = np.nextafter(values, np.float32(np.inf))
            moved = np.where(random.random(values.shape) < 0.5, larger, values)
            tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
    return nudged


def own_movement(
    model: onnx.ModelProto,
    inputs: Arrays,
    reference: list[NDArray[np.float32]],
    folder: Path = Path(),
) -> dict[str, float]:
    """How far each output of ONNX Runtime's moves at most, of its largest value.

    Raises
    ------
    ModelError
        If ONNX Runtime refuses the model.
    """
    names = [output.name for output in model.graph.output]
    moved = dict.fromkeys(names, 0.0)
    for seed in range(TRIES):
        outputs = reference_outputs(nudge_weights(model, seed, folder), inputs, folder)
        for d in compare_outputs(names, outputs, reference):
            moved[d.output] = max(moved[d.output], d.relative)
    return moved
