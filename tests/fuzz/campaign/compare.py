"""When two outputs agree: the promise of docs/architecture.md, 1e-4 of the largest output."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

PROMISE = 1e-4


def find_difference(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> str | None:
    """What differs, in words; None if nothing does."""
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
        if error > PROMISE:
            return f"output {i}: off by {error:.1e} of the largest"
    return None


def relative_error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest error over the largest value, of those that are finite."""
    finite = np.isfinite(want) & np.isfinite(got)
    if not finite.any():
        return 0.0
    a, b = got[finite].astype(np.float64), want[finite].astype(np.float64)
    error = float(np.abs(a - b).max())
    return error / max(float(np.abs(b).max()), 1e-30) if error else 0.0
