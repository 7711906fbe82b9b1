"""ONNX's own node tests: a model, its inputs, the outputs expected, and how near they must be."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

BOUND = "bound"
"""Suffix of the names of cases whose weights are constants."""


@dataclass(frozen=True)
class Case:
    name: str
    model: onnx.ModelProto
    data_sets: tuple[tuple[list[Any], list[Any]], ...]
    """Inputs and outputs."""
    rtol: float
    atol: float


def load_cases() -> list[Case]:
    """All node tests of the installed onnx, and each with more than one input once more, bound.

    In ONNX's node tests a weight is an input of the model, but Convoy takes a convolution only
    with a constant weight.  ``test_conv_…/bound`` is ``test_conv_…`` with every input but the first
    turned into a constant: what a network looks like.  Not so the ``_expanded`` forms of an op: the
    op itself is bound.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cases compute NaN and infinities when they are made
        given = [
            Case(
                test.name,
                test.model,
                tuple((_arrays(i), _arrays(o)) for i, o in test.data_sets),
                test.rtol,
                test.atol,
            )
            for test in load_model_tests(kind="node")
        ]
    whole = [case for case in given if not case.name.endswith("_expanded")]
    bound = [case for case in map(bind_weights, whole) if case is not None]
    return sorted([*given, *bound], key=lambda case: case.name)


def bind_weights(case: Case) -> Case | None:
    """The case with all inputs but the first as constants; None if there is no such case."""
    inputs, outputs = case.data_sets[0]
    rest = inputs[1:]
    names = [value.name for value in case.model.graph.input]
    if len(case.data_sets) > 1 or not rest or len(names) != len(inputs):
        return None
    if not all(isinstance(array, np.ndarray) and array.dtype != object for array in rest):
        return None
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    del model.graph.input[1:]
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for array, name in zip(rest, names[1:], strict=True)
    )
    return Case(f"{case.name}/{BOUND}", model, ((inputs[:1], outputs),), case.rtol, case.atol)


def _arrays(values: Sequence[Any]) -> list[Any]:
    return [
        numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value for value in values
    ]
