"""How the weights of a plan are packed: recipes that ``codegen/pack.py`` carries out on constants.

Frozen like the steps that read them; equal recipes share one buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

from convoy.plan.row_points import RowPoints


@dataclass(frozen=True)
class Chunk:
    """``cv_conv2d_chunk``: consecutive output blocks with one range of input blocks."""

    out_block: int
    blocks: int
    in_begin: int
    in_count: int
    weights: int
    adds: bool = False
    """To the sums the chunk before it left in y; the first one starts from the bias."""
    partial: bool = False
    """The next chunk adds to its sums."""


@dataclass(frozen=True)
class Tap:
    """Which taps of the kernel a convolution uses along one axis: begin, begin + step, … (count)."""

    begin: int
    step: int
    count: int


@dataclass(frozen=True)
class PackConv:
    """OIHW → per chunk [in_count][kh][kw][inner][blocks][lanes], zero-padded."""

    constant: str
    chunks: tuple[Chunk, ...]
    lanes: int
    inner: int
    groups: int
    taps: tuple[Tap, Tap]
    transposed: bool = False
    """The constant is [C, O/groups, KH, KW] of a transposed convolution."""


@dataclass(frozen=True)
class PackDepthwise:
    """[C, 1, KH, KW] → [block][kh][kw][lanes]."""

    constant: str
    lanes: int


@dataclass(frozen=True)
class PackMatrix:
    """[K, N] → panels [ceil(N / width)][K][width], zero-padded."""

    constant: str
    width: int


@dataclass(frozen=True)
class PackVector:
    """The sum of constants that hold ``size`` values or one, zero-padded to ``padded``."""

    constants: tuple[str, ...]
    size: int
    padded: int


@dataclass(frozen=True)
class PackMap:
    """[1, C, H, W] (broadcast to ``shape``) → the blocked layout without halo."""

    constant: str
    shape: tuple[int, int, int]
    lanes: int


@dataclass(frozen=True)
class PackRaw:
    """The constant as it is."""

    constant: str


@dataclass(frozen=True)
class PackRowPoints:
    """[O, C, KH, KW] → per chunk [C][kh][phase][point][blocks][lanes]: U of ``points``."""

    constant: str
    chunks: tuple[Chunk, ...]
    lanes: int
    points: RowPoints


Recipe = PackConv | PackRowPoints | PackDepthwise | PackMatrix | PackVector | PackMap | PackRaw
