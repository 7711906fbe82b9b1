"""Packages only a benchmark needs."""

from __future__ import annotations

import importlib
import shutil
from importlib.util import find_spec
from os import pathsep
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


def find_program(package: str) -> str:
    """The program of a package's own name that lies in it.

    The package is not imported: pnnx's wants torch, which its program does without.

    Raises
    ------
    ModelError
        If there is none.
    """
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    found = shutil.which(package, path=pathsep.join(folders or ())) if folders else None
    if found is None:
        raise ModelError(
            "bench", package, "expected the package with its program, got none",
            f"pip install --no-deps {package}",
        )  # fmt: skip
    return found
