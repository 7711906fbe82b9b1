"""Pipelined register tiles, for 1x1 convolutions of bytes (``csrc/kernels/conv2d_direct_pipelined.h``).

While a tile is added, the sums of the one before it become bytes.  That takes units which do not multiply,
as AMD's cores have them.  On Intel's, tiles that are half as large for it gain nothing (docs/lab/peers.md).
"""

from __future__ import annotations

from convoy.plan.buffers import Map
from convoy.plan.step import Epilogue
from convoy.plan.tiles import Tiling, cut_tiles
from convoy.target import Target

LEAST_REGISTERS = 32
"""Vector registers that hold the sums of two tiles."""
LEAST_TILES = 3
"""Tiles of a row, the fewest: half of two end alone, and of 512 channels that takes 2 % longer."""
PIXELS = {1: 16, 2: 8, 3: 4}
"""Pixels of a tile, the most, by its output blocks: four become bytes together, and 16 sums are enough."""
HELD_PIXELS = {1: 8, 2: 4, 3: 4}
"""The same where sums are rounded before a residual is added: what that needs takes registers, too."""


def choose_pipelined_tiling(
    x: Map, y: Map, epilogue: Epilogue, kernel: tuple[int, int], target: Target
) -> Tiling | None:
    """The tiles of such a convolution; None where it has others."""
    requantize = epilogue.requantize
    maps = [m for m in (x, y, epilogue.residual) if isinstance(m, Map)]
    if kernel != (1, 1) or requantize is None or not requantize.plain or x.lanes < y.lanes:
        return None
    if not target.adds_apart or target.dot_parts > 1 or target.amx or target.registers < LEAST_REGISTERS:
        return None
    if any(m.dtype != "uint8" or m.step != m.lanes for m in maps[1:]):
        return None
    blocks = min(y.blocks, 2 if y.blocks % 2 == 0 else 3)
    pixels = (HELD_PIXELS if requantize.held else PIXELS)[blocks]
    tiling = cut_tiles(y.width, y.blocks, pixels, blocks, target)
    return tiling if sum(tiling.rows.tiles) >= LEAST_TILES else None
