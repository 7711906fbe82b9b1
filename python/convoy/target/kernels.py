"""What the kernels take on a machine, in its cycles: what no vendor publishes, and was measured.

The defaults are those of the machine the model was made on (Cascade Lake, 2.42 GHz under vector load,
2026-11-21, where nothing else is said).  A row of the table says what was found to differ elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class DirectCosts:
    """Direct convolutions and what runs row by row beside them."""

    efficiency: float = 0.92
    """Part of a full register tile's cycles that multiplies: the rest is address arithmetic and stores."""
    latency: float = 0.6
    """What a multiply-add waits beyond its own latency where a tile has few sums: 12, 10, 9, 8 and 6 sums
    of AVX2 take 6.06, 5.25, 5.03, 4.80 and 4.46 cycles, all in L1."""
    weight: float = 0.3
    """What a vector of weights adds to a tile because it comes from L2: among tiles that compute as fast
    the one that reads fewer wins (AVX-512: 14x2 against 7x4, ResNet-50's 1x1 layers 111 -> 125 GFLOP/s, 3x3
    129 -> 146; AVX2: 14 pixels as 5x2 and 4x2 against 4x3 and 3x3, stride 2, 1.46 -> 1.31 ms)."""
    load: float = 0.0
    """What each load of a tile adds to a channel where the panel of weights stays in L1; 0: as from L2."""
    run: float = 0.0
    """What a tile adds because it is of a run, however few it multiplies."""
    exposed: float = 0.5
    """Part of the time to read from beyond L2 that computing does not hide."""
    weights_exposed: float = 0.18
    """Part of the time to read weights from memory that computing does not hide: ResNet-50 waits 0.8 ms for
    100 MB."""
    ahead_gain: float = 3.0
    """A value of x that a thread need not read is worth so many weights that come ahead of time: 1024 to
    256 channels of 14x14, 1.3 weights a value, take 8 to 12 % less with shared pixels, 256 to 1024 up to
    4 % more (2026-11-21)."""
    kept_gain: float = 0.0
    """The same of a value of y that its reader finds in its own core's cache."""
    planar_gain: float = 1.2
    """A planar tile loops over taps instead of channels; it has to save this much work to pay."""
    bytes_apart: float = 2.8
    """Multiply-adds that four products of bytes cost where no instruction makes them: with 384 to 2048
    columns 0.67 to 0.75 of the time of floats with AVX2 and AVX-512 (Zen 5, 2026-11-25)."""
    dequantize: float = 1.0
    """What it takes to make floats of bytes, in the time of moving both between caches."""
    quantize: float = 1.0
    """The same to make bytes of floats, which divides."""
    depthwise_tap: float = 0.6
    """A tap of a vector of a depthwise convolution's result, in cache like the others here."""
    pool_tap: float = 1.0
    """A tap of a vector of a pool's result."""
    elementwise: float = 2.0
    """An operation or an operand of a vector."""
    activation: float = 16.0
    """An activation of a vector that is no clamp."""


@dataclass(frozen=True)
class RowPointCosts:
    """Winograd's algorithm along the rows of a first layer; measured on Zen 5, 2026-11-22."""

    tile: float = 15.0
    """A tile of a row of V."""
    efficiency: float = 0.85
    """Part of the loads, one or two for each multiply-add, or of the FMA units' cycles."""


@dataclass(frozen=True)
class WinogradCosts:
    """Winograd convolutions.  A line is one point of one tile, or of one weight."""

    efficiency: tuple[float, float, float, float] = (0.85, 0.97, 0.95, 0.82)
    """Part of the cycles of a register tile of 1 to 4 blocks that multiplies, its operands in L2."""
    channel: float = 1.5
    """What a register tile spends on a channel beside its products."""
    call: float = 130.0
    """To begin and end a register tile."""
    l2_line: float = 4.2
    """A register tile waits at least so long for each cache line of its operands."""
    input_line: tuple[float, float, float] = (10.0, 10.0, 12.0)
    output_line: tuple[float, float, float] = (7.0, 7.0, 10.0)
    """Lines of tiles of 2, 4 and 6 pixels a side; the last were 1.2 and 1.4 times the second on a machine
    with 2 MB of L2."""
    weight_line: float = 6.0
    hidden_weight_line: float = 1.0
    """Where U is made between register tiles: nobody waits for its stores."""
    hidden_reading: float = 0.4
    """Part of the time to read weights from memory that those tiles do not hide; so F(4x4) takes 94 cycles
    a vector (measured: 80; and 175 by itself, Granite Rapids)."""
    weight_again: float = 30.0
    """To read a vector's weights again, for two further rows of points: 256 channels of 14x14 take 465 us
    with slabs of two rows and 440 with all, of 32x32 1,636 and 1,718 (Zen 4, two threads, 2026-11-27)."""
    streamed_products: float = 15.0
    streamed_rest: float = 7.0
    """A register tile of streamed U, a row of points and an input channel: multiply-adds on two units, and
    what is beside them.  512, 256 and 128 channels of 7x7 take 0.72, 0.75 and 0.83 of a direct
    convolution's cycles (measured: 0.66, 0.79, 0.79; Granite Rapids, two threads, 2026-11-22, all tiles
    whole)."""
    streamed_weights: float = 20.0
    """To transform the weights of a channel and a block, before streamed U."""
    streamed_reading: float = 0.2
    """Part of the time to read those weights that this does not hide."""
    shorts: float = inf
    """Multiply-adds that a cell of two products of int16 costs, with what it takes beside; inf: nobody has
    timed them, or an instruction multiplies bytes."""
    scratch_byte: float = 1 / 32
    """A byte of V, U and M, when a step first writes them: other steps have driven them from L2."""
    shared_byte: float = 0.2
    """A byte of V that another thread made: it comes from the cache of that thread's core (ResNet-50's 128
    channels, two threads: 268 us with a common V, 243 with two, although each makes all of U)."""
    spilled_byte: float = 0.02
    """What computing does not hide of moving a byte of V to or from beyond L2.  With 0.07, 1 MB of L2 meant
    many portions of tiles, for each of which U was made anew: of 20 layers of 64 to 512 channels 5 were
    estimated on the right side, with this 18, and the others lost up to 25 % (Zen 5, one and two threads,
    2026-11-22)."""


@dataclass(frozen=True)
class CacheShares:
    """Parts of a cache that one of its users may take."""

    strips: float = 0.75
    """Share of L2 for strips and weights of a chain together."""
    panel: float = 0.125
    """Share of L2 for the panel of weights of a direct convolution's chunk."""
    near_panel: float = 0.75
    """Share of L1 for such a panel that is there still for the next tile."""
    winograd: float = 0.8
    """Share of L2 for V, U and M of one thread together."""
    slabs: tuple[float, ...] = (0.15,)
    """Shares of L2 to try for each of the two slabs of U; 0.15: 64 channels of F(4x4) with 2 MB of L2.
    With 80 a layer of 256 channels took 7 % longer, with 128 15 %, with 32 as long."""
    slab_rows: tuple[int, ...] = (0,)
    """Rows of points of a slab of U of F(4x4) and F(6x6) to try: 2, or 0: all."""
    point_bytes: int = 16 << 10
    """Bytes of one point of U that stay in L1 from one register tile to the next."""
    streamed_bytes: int = 24 << 10
    """Bytes of streamed M that stay in L1 beside V and weights."""
    row_point_bytes: int = 40 << 10
    """Bytes of a panel of row points in L1: a larger one comes from L2 for each register tile, and takes as
    long as the direct convolution's products (AlexNet's 11x11 of stride 4, Zen 5, 2026-11-22)."""
    last_bytes: int = 4 << 20
    """Bytes of a map, or of a V that all threads read, that stay in the last cache."""
