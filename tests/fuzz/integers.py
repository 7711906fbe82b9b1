"""Kernels of bytes wherever there is one, for small maps too, on which floats are quicker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from convoy.kernels import matmul_bytes
from convoy.kernels.conv2d import bytes as conv2d_bytes
from convoy.kernels.conv2d.choose import Choice, choose_bytes
from convoy.kernels.matmul_bytes import matmul_cycles


@contextmanager
def integers_wherever_there_are(wanted: bool = True) -> Iterator[None]:
    """Within it, convolutions and products of bytes multiply them, whatever that costs."""

    def choose(*given: Any) -> Choice:
        choice = choose_bytes(*given)
        return replace(choice, int8=choice.int8 or f"{choice.algorithm} int8" in choice.cycles)

    def cycles(*given: Any) -> dict[str, float]:
        return {**matmul_cycles(*given), "matmul int8": 0.0}

    with (
        patch.object(conv2d_bytes, "choose_bytes", choose if wanted else choose_bytes),
        patch.object(matmul_bytes, "matmul_cycles", cycles if wanted else matmul_cycles),
    ):
        yield
