"""When two outputs agree: the promise of docs/architecture.md, 1e-4 of the largest output."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PROMISE = 1e-4
UNITS = 0.04
"""The most that a unit at a tie makes of a later tensor, of its largest value, in a quantised network."""
SHARE = 0.1
"""Of the numbers of an output that units at ties reach, beside a few."""


def find_difference(
    got: Sequence[np.ndarray], want: Sequence[np.ndarray], *, quantised: bool = False
) -> str | None:
    """What differs, in words; None if nothing does.

    Where numbers are rounded to bytes between the nodes, a tie may fall either way: some numbers are off by
    what a byte's unit is worth.
    """
    if len(got) != len(want):
        return f"{len(got)} outputs, expected {len(want)}"
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i}: {a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}"
        if b.size == 0:
            continue
        finite = np.isfinite(b)
        if not np.array_equal(np.where(finite, 0, b), np.where(np.isfinite(a), 0, a), equal_nan=True):
            return f"output {i}: values that are not finite elsewhere than expected"
        error = relative_error(a, b)
        if quantised and error <= UNITS and _is_rare(a, b):
            continue
        if error > PROMISE:
            return f"output {i}: off by {error:.1e} of the largest"
    return None


def _is_rare(got: np.ndarray, want: np.ndarray) -> bool:
    a, b = np.nan_to_num(got.astype(np.float64)), np.nan_to_num(want.astype(np.float64))
    off = np.abs(a - b) > PROMISE * max(float(np.abs(b).max()), 1e-30)
    return int(off.sum()) <= 3 + SHARE * off.size


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest error over the largest value, of those that are finite."""
    finite = np.isfinite(want) & np.isfinite(got)
    if not finite.any():
        return 0.0
    a, b = got[finite].astype(np.float64), want[finite].astype(np.float64)
    error = float(np.abs(a - b).max())
    return error / max(float(np.abs(b).max()), 1e-30) if error else 0.0
