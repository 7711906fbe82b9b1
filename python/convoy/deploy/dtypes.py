"""Types of elements by their names: those that NumPy has only by the package ``ml_dtypes``, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from convoy.errors import ModelError

DLPACK: Mapping[str, int] = {
    "bfloat16": 4,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
}
"""Types that NumPy lends nobody by DLPack, and what that calls them."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The type of this name, for NumPy.

    Raises
    ------
    ModelError
        If there is none, or ``ml_dtypes`` is wanted and not installed.
    """
    try:
        if name not in DLPACK:
            return np.dtype(name)
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
    except ImportError:
        problem = f"expected the package ml_dtypes for {name}, got an import error"
        raise ModelError("run", "types", problem, "pip install ml_dtypes") from None
    except TypeError:
        problem = f"expected a type of NumPy's, got {name}"
        raise ModelError("run", "types", problem, "compile the model again") from None


def is_float(name: str) -> bool:
    """Whether its elements are floats of any size."""
    return name in DLPACK or numpy_dtype(name).kind == "f"
