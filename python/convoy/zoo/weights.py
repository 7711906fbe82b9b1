"""Seeded weights: the same numbers on every machine.

A spec is a line of text: ``he:SEED`` (normal, scaled by the fan-in after He et al., "Delving deep into
rectifiers", 2015), ``normal:STD:SEED`` or ``uniform:LOW:HIGH:SEED``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray

from convoy.errors import ModelError


def fill(dims: Sequence[int], spec: str) -> NDArray[np.float32]:
    """An array of shape ``dims`` drawn as ``spec`` says.

    The fan-in of ``he`` is everything but the first axis: ``[O, I, KH, KW]``, ``[O, I]``.

    Raises
    ------
    ModelError
        If the spec is not one of the three.
    """
    kind, *numbers, seed = spec.split(":")
    bounds = [float(number) for number in numbers]
    rng = np.random.default_rng(int(seed))
    if (kind, len(bounds)) == ("he", 0):
        values = rng.standard_normal(dims) * math.sqrt(2 / math.prod(dims[1:]))
    elif (kind, len(bounds)) == ("normal", 1):
        values = rng.standard_normal(dims) * bounds[0]
    elif (kind, len(bounds)) == ("uniform", 2):
        values = rng.uniform(bounds[0], bounds[1], dims)
    else:
        problem = "expected he:SEED, normal:STD:SEED or uniform:LOW:HIGH:SEED"
        raise ModelError("zoo", f"weight spec {spec!r}", f"{problem}, got another", "correct the spec")
    return values.astype(np.float32)


def fill_initializer(initializer: onnx.TensorProto, spec: str) -> None:
    """Give ``initializer`` the values of ``spec``; its name and dims stay."""
    values = fill(tuple(initializer.dims), spec)
    initializer.data_type = onnx.TensorProto.FLOAT
    for field in ("float_data", "doc_string"):
        initializer.ClearField(field)
    initializer.raw_data = values.tobytes()


def fill_weightless(model: onnx.ModelProto) -> None:
    """Fill every empty initializer of a weightless graph by the spec in its ``doc_string``."""
    for initializer in model.graph.initializer:
        if initializer.doc_string and not (initializer.raw_data or initializer.float_data):
            fill_initializer(initializer, initializer.doc_string)
