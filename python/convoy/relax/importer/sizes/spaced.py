"""Numbers a step apart, as many as fit below a limit: counted exactly, as whole numbers or in doubles."""

from __future__ import annotations

from math import ceil, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy.relax.importer.sizes.algebra import LARGEST


def count_spaced(start: float, limit: float, step: float) -> int | None:
    """How many they are; None of a step of 0, or of what is infinite or NaN."""
    if not step:
        return None
    if all(isinstance(n, int) for n in (start, limit, step)):
        return int(max(-((start - limit) // step), 0))
    parts = (float(limit) - float(start)) / float(step)
    return max(ceil(parts), 0) if isfinite(parts) else None


def spaced(start: Any, limit: Any, step: Any) -> NDArray[Any] | None:
    """The numbers, of the type of ``start``; None if there are none such, or more than a size may be."""
    first, end, pace = start.item(), limit.item(), step.item()
    count = count_spaced(first, end, pace)
    if count is None or count > LARGEST:
        return None
    made: NDArray[Any] = np.full(count, step, start.dtype)
    made[:1] = start
    return np.cumsum(made, dtype=start.dtype)  # one after the other, as ONNX Runtime adds floats
