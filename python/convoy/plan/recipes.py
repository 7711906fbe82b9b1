"""How the weights of a plan are packed: each recipe says which constants it reads, and makes the bytes.

Frozen like the steps that read them; equal recipes share one buffer.  Those of one kernel stand beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy.graph.dtypes import DType
from convoy.plan.maps import make_map

Array = NDArray[Any]
Constants = Mapping[str, Array]


class Recipe(ABC):
    """A packed constant to be made."""

    @abstractmethod
    def pack(self, constants: Constants) -> Array:
        """What the kernel reads, of the graph's constants."""


def split_cells(cells: Array, vectors: int) -> Array:
    """Cells of four bytes [..., 4] for ``cv_dot`` in two parts.

    Of each ``vectors`` cells the even bytes come first, then the odd ones, each as two bytes.
    """
    parts = cells.reshape(-1, vectors, 2, 2).transpose(0, 3, 1, 2)
    split: Array = np.ascontiguousarray(parts, np.int16).view(np.int8)
    return split


@dataclass(frozen=True)
class PackVector(Recipe):
    """The sum of constants that hold ``size`` values or one, zero-padded to ``padded``."""

    constants: tuple[str, ...]
    size: int
    padded: int

    def pack(self, constants: Constants) -> Array:
        total = np.zeros(self.padded, np.float32)
        for name in self.constants:
            total[: self.size] += constants[name].reshape(-1)
        return total


@dataclass(frozen=True)
class PackMap(Recipe):
    """[…, C, H, W] (broadcast to ``shape``) → blocked without halo, its planes as ``make_map``'s."""

    constant: str
    shape: tuple[int, int, int]
    lanes: int
    dtype: DType = "float32"

    def pack(self, constants: Constants) -> Array:
        x = constants[self.constant]
        channels, height, width = self.shape
        full = np.broadcast_to(x.reshape((1,) * (4 - x.ndim) + x.shape)[0], self.shape)
        m = make_map(0, channels, height, width, self.lanes, dtype=self.dtype)
        planes = np.zeros((m.blocks, m.plane), x.dtype)
        padded = np.zeros((m.blocks * self.lanes, height, width), x.dtype)
        padded[:channels] = full
        pixels = padded.reshape(m.blocks, self.lanes, height, width).transpose(0, 2, 3, 1)
        planes[:, : height * m.row] = pixels.reshape(m.blocks, -1)
        return planes


@dataclass(frozen=True)
class PackRaw(Recipe):
    """The constant as it is."""

    constant: str

    def pack(self, constants: Constants) -> Array:
        return constants[self.constant]
