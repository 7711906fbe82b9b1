"""Packages only a benchmark needs."""

from __future__ import annotations

import importlib
from typing import Any

from convoy.errors import ModelError


def import_package(name: str) -> Any:
    """The package of a peer.

    Raises
    ------
    ModelError
        If it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ModelError(
            "bench", name, "expected the package, got an import error", f"pip install {name}"
        ) from None
