"""Sizes that are the values of a tensor, known only when a model runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, tirx

from convoy.relax.importer.idioms.definitions import constant


def read_sizes(bb: relax.BlockBuilder, sizes: Any, count: int) -> relax.ShapeExpr:
    """The shape that a vector of ``count`` int64 holds when the model runs, of new symbols."""
    shape = bb.emit(relax.op.tensor_to_shape(bb.normalize(sizes)))
    symbols = [tirx.Var("late", "int64") for _ in range(count)]
    bb.match_cast(shape, relax.ShapeType(symbols))
    return relax.ShapeExpr(symbols)


def integers(values: Sequence[int]) -> Any:
    """A vector of int64."""
    return constant(np.array(values, np.int64))
