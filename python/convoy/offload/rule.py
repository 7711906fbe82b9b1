"""What a backend needs of one op, as a table's row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Check = TypeVar("Check")


@dataclass(frozen=True)
class Rule(Generic[Check]):
    """What one op needs in order to be taken."""

    check: Check
    """Called with the door's form of a call: says why it is not taken, or None."""
    images: bool = False
    """The data is [N, C, H, W] (or [N, C, W]), whose axis 0 is the images."""
    constants: Mapping[int, str] = field(default_factory=dict)
    """Arguments that must be constants: position and what it is."""
    heavy: bool = False
    """Worth a call of its own, however small."""
