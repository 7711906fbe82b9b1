"""Kernels of bytes wherever there is one, for small maps too, on which floats are quicker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from convoy.kernels.conv2d import bytes as convolutions
from convoy.kernels.conv2d.choose import Choice, choose_bytes


@contextmanager
def integers_wherever_there_are(wanted: bool = True) -> Iterator[None]:
    """Within it, a convolution of bytes multiplies them, whatever that costs."""

    def choose(*given: Any) -> Choice:
        choice = choose_bytes(*given)
        return replace(choice, int8=choice.int8 or f"{choice.algorithm} int8" in choice.cycles)

    with patch.object(convolutions, "choose_bytes", choose if wanted else choose_bytes):
        yield
