"""Inputs and outputs of a network, as a file between processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np


def write_arrays(file: Path, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
    named = {f"in{i}": a for i, a in enumerate(inputs)} | {f"out{i}": a for i, a in enumerate(outputs)}
    np.savez(file, **named)


def read_arrays(file: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Inputs and outputs of ``write_arrays``."""
    with np.load(file) as arrays:
        names = arrays.files
        inputs, outputs = (
            [arrays[f"{kind}{i}"] for i in range(sum(n.startswith(kind) for n in names))]
            for kind in ("in", "out")
        )
    return inputs, outputs
