"""How far ONNX Runtime's own answer moves when its weights do, by one unit in the last place.

Where that is more than an error that is looked for, the answer is the rounding of a network's inner
numbers with these inputs: two engines that are right differ as much.  Of a quantised network its scales are
such weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from convoy.bench.accuracy import compare_outputs, reference_outputs
from convoy.bench.inputs import Arrays
from convoy.bench.units import Units, count_units
from convoy.onnx_file import all_nodes

TRIES = 3
"""Directions in which the weights are moved."""

_SAYS_HOW = {"Pow": 1, "Range": 0, "Resize": 1, "Upsample": 1}
"""From which of its inputs on an op is told what to do: it does another thing where these move."""
_OF_BYTES = ("QuantizeLinear", "DequantizeLinear", "QLinear", "QGemm")
"""Ops that read scales, and behind their data no other float32 weights."""
_TURNS = ("QuantizeLinear", "DequantizeLinear")
"""Whose scales move, and the other's do not: numbers become smaller in steps, or larger."""


def nudge_weights(model: onnx.ModelProto, seed: int, folder: Path = Path()) -> onnx.ModelProto:
    """The model with half of its float32 weights the next larger number.

    A scale moves for each node that reads it by itself: of what was bytes of one scale, and is to be again,
    a tie stays one however far both move. With two seeds of three all ties of a network fall one way.

    Parameters
    ----------
    folder : Path
        Where the model has its external data, if that is not loaded.
    """
    random = np.random.default_rng(seed)
    nudged = onnx.ModelProto()
    nudged.CopyFrom(model)
    fixed = {
        name
        for node in all_nodes(model.graph)
        if node.op_type in _SAYS_HOW
        for name in node.input[_SAYS_HOW[node.op_type] :]
    }
    scales = _part_scales(nudged)
    for tensor in nudged.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT and tensor.name not in fixed:
            values = numpy_helper.to_array(tensor, str(folder))
            larger = np.nextafter(values, np.float32(np.inf))
            moves = random.random(values.shape) < 0.5
            reader = scales.get(tensor.name)
            if reader in _TURNS and seed % 3 < len(_TURNS):
                moves = np.full(values.shape, reader == _TURNS[seed % 3])
            tensor.CopyFrom(numpy_helper.from_array(np.where(moves, larger, values), tensor.name))
    return nudged


def _part_scales(model: onnx.ModelProto) -> dict[str, str]:
    """Scales of their own for nodes that are of bytes, where several read one; and whose each scale is."""
    known = {t.name: t for t in model.graph.initializer if t.data_type == TensorProto.FLOAT}
    found = {}
    for i, node in enumerate(model.graph.node):
        if not node.op_type.startswith(_OF_BYTES):
            continue
        for j, name in enumerate(node.input):
            if j and name in known:
                own = model.graph.initializer.add()
                own.CopyFrom(known[name])
                own.name = node.input[j] = f"{name}/{i}/{j}"
                found[own.name] = node.op_type
    return found


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
    for outputs in _moved_outputs(model, inputs, folder):
        for d in compare_outputs(names, outputs, reference):
            moved[d.output] = max(moved[d.output], d.relative)
    return moved


def allow_for_ties(
    model: onnx.ModelProto,
    inputs: Arrays,
    written: Sequence[NDArray[np.float32]],
    units: list[Units],
    folder: Path = Path(),
) -> list[Units]:
    """The units of a quantised network, ``own`` as far as ONNX Runtime's answer moves, if one is past it.

    Its two answers may come of the same kernels, or of the same float32 numbers; then they are one. A byte
    at a tie of the rounding still falls either way, and with it what follows.

    Parameters
    ----------
    written : Sequence[NDArray[np.float32]]
        ONNX Runtime's answer of the network as it is written.

    Raises
    ------
    ModelError
        If ONNX Runtime refuses the model.
    """
    if all(one.passed for one in units):
        return units
    for outputs in _moved_outputs(model, inputs, folder):
        found = count_units(model, outputs, written)
        units = [
            replace(
                one,
                own=max(one.own, moved.largest),
                own_cosine=min(one.own_cosine, moved.cosine),
                own_elsewhere=max(one.own_elsewhere, moved.elsewhere),
            )
            for one, moved in zip(units, found, strict=True)
        ]
    return units


def _moved_outputs(
    model: onnx.ModelProto, inputs: Arrays, folder: Path
) -> Iterator[list[NDArray[np.float32]]]:
    """ONNX Runtime's answers with weights that have moved, and scales among them."""
    for seed in range(TRIES):
        yield reference_outputs(nudge_weights(model, seed, folder), inputs, folder)
