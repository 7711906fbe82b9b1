"""Register tiles of a direct convolution: what the kernels' macros define them by, and their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from convoy.codegen.writer import Writer, joined
from convoy.graph.ops import Pair
from convoy.plan.step import Epilogue

SPREAD = 4
"""Blocks of the input over which a pipelined tile's predecessor ends, at most: the sums of 64 channels take
2 % longer where it is one (Zen 4, 2026-11-28)."""

TileKind = Literal["shorts", "", "bf16", "grouped", "ranged", "bf16_grouped", "bf16_ranged"]
"""Which ``CV_CONV2D_…_TILE``: of whole blocks of floats; of bfloat16; of results or cells of several
groups; of one group that ends within a block."""


@dataclass(frozen=True)
class RegisterTile:
    """A register tile of any number of pixels."""

    macro: str
    """Defines one, of the numbers of ``rows``, of pixels, and of ``sizes``."""
    rows: int | None
    """Rows of pixels; None where the macro has no such number."""
    sizes: tuple[int | str, ...]
    """The blocks of outputs, and what follows."""
    form: str
    """What its name ends with."""
    has: str = ""
    """What a unit has to say that it has."""
    prefix: str = "tile"

    def declare(self, w: Writer, pixels: int) -> str:
        """The name of the tile of so many pixels, of this region alone."""
        if self.has:
            w.has.add(self.has)
        rows = f"{self.rows}x" if self.rows not in (None, 1) else ""
        name = f"{self.prefix}_{rows}{pixels}x{self.form}"
        before = () if self.rows is None else (self.rows,)
        w.declare(f"{self.macro}({name}, {joined((*before, pixels, *self.sizes))})")
        return name

    def declare_up_to(self, w: Writer, pixels: int) -> str:
        """The name of what gives the tiles of 1 pixel to so many, which all regions share."""
        assert self.rows in (None, 1), "a row whose width is open is cut alone"
        w.headers.add("conv2d_direct_tiles")
        name = f"{self.prefix}s_to_{pixels}x{self.form}"
        of_rows = "_OF_ONE_ROW" * (self.rows is not None)
        w.declare(f"CV_CONV2D_TILES{of_rows}({name}, {pixels}, {self.macro}, {joined(self.sizes)})")
        return name


def plain_tile(
    blocks: int, inner: int, stride: int, kernel: Pair = (1, 1), rows: int = 1, kind: TileKind = ""
) -> RegisterTile:
    """A tile of ``inner`` cells a pixel."""
    known = (0, kernel[1]) if inner == 1 and kind != "bf16" else kernel if kernel == (1, 1) else (0, 0)
    form = f"{blocks}_{inner}_{stride}_{known[0]}x{known[1]}{kind and '_'}{kind}"
    step: tuple[int, ...] = (inner, stride * inner)
    if kind:
        step = (stride * inner,) if kind == "shorts" else (stride,)
    macro = f"CV_CONV2D_{kind.upper()}{'_' if kind else ''}TILE"
    # without the rest GCC 12 allots those of several groups other registers
    has = "CV_CONV2D_BYTES" if kind.endswith("grouped") else ""
    return RegisterTile(macro, rows, (blocks, *step, *known), form, has)


def bytes_tile(blocks: int, stride: int, kernel: Pair, rows: int) -> RegisterTile:
    """A tile of blocks of bytes."""
    known = kernel if kernel == (1, 1) else (0, 0)
    form = f"{blocks}_bytes_{stride}_{known[0]}x{known[1]}"
    return RegisterTile("CV_CONV2D_BYTES_TILE", rows, (blocks, stride, *known), form, has="CV_CONV2D_BYTES")


def planar_bytes_tile(blocks: int, stride: int, kernel: Pair, count: int) -> RegisterTile:
    """A tile of planar bytes; without loops where ``count`` says of how many channels."""
    known = kernel if count else (0, kernel[1])
    form = f"{blocks}_cells{count or ''}_{stride}_{known[0]}x{known[1]}"
    return RegisterTile(
        "CV_CONV2D_PLANAR_BYTES_TILE", None, (blocks, stride, *known, count), form, has="CV_CONV2D_BYTES"
    )


def planar_tile(blocks: int, stride: int, kernel: Pair, channels: int) -> RegisterTile:
    """A tile without loops: of a planar x of ``channels``, for few taps."""
    form = f"{blocks}_planar{channels}_{stride}_{kernel[0]}x{kernel[1]}"
    return RegisterTile("CV_CONV2D_PLANAR_TILE", None, (blocks, stride, *kernel, channels), form)


def pipelined_tile(blocks: int, stride: int, in_blocks: int, epilogue: Epilogue) -> RegisterTile:
    """Neighbouring tiles of a row, of bytes: each is stored while the next one is computed."""
    requantize = epilogue.requantize
    assert requantize is not None
    ending = "HELD" if requantize.held else "ADDING" if epilogue.residual is not None else "ALONE"
    spread = min(SPREAD, in_blocks)
    form = f"{blocks}_{stride}_{spread}_{ending.lower()}"
    sizes = (blocks, stride, spread, f"CV_ENDS_{ending}")
    return RegisterTile("CV_CONV2D_PIPELINED_TILE", None, sizes, form, "CV_CONV2D_BYTES", "pipelined")
