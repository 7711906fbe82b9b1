"""All that is known of a CPU: what planning asks, and what the C compiler is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from convoy.options import Precision
from convoy.target.figures import Figures
from convoy.target.instructions import INSTRUCTIONS, InstructionSet
from convoy.target.kernels import CacheShares, DirectCosts, RowPointCosts, WinogradCosts

_DOTS: Mapping[InstructionSet, str] = {"avx512": "avx512vnni", "avx2": "avxvnni"}
"""The feature by which a set multiplies bytes."""
_AMX = frozenset({"amx-tile", "amx-int8", "amx-bf16"})


@dataclass(frozen=True)
class Target:
    """A CPU, as far as planning and code generation care.

    What a row of the table does not say is as on the machine that the model was made on: Cascade Lake, 2.42
    GHz under vector load (2026-11-21).  Cycles are those of that clock, rates are of one core, and only
    their ratios decide anything.
    """

    isa: InstructionSet
    """The instruction set its code is written in."""
    l2_bytes: int = 1 << 20
    """Bytes of one core's L2."""
    cores: int = 2
    """Threads the planner expects; the library asks its machine again."""
    name: str = ""
    """Name of the row, by LLVM; empty: no machine in particular."""
    features: frozenset[str] = frozenset()
    """All that are known of it, by LLVM's names."""
    architecture: str = ""
    """As Linux calls it; empty: any."""

    l1_bytes: int = 32 << 10
    """Data cache of one core."""
    l3_bytes: int = 32 << 20
    """The last cache, of the cores that share it."""
    placed_bytes: int = 4 << 20
    """Weights from here on fill huge pages; fewer are in the TLB as they are."""
    clock: float = 2.4e9
    """Cycles a second under vector load."""
    fma_pipes: int = 2
    """Vector multiply-adds begun a cycle, of vectors as wide as a pipe or narrower."""
    fma_pipe_bytes: int = 64
    fma_latency: float = 4.0
    """Cycles from a multiply-add to one that adds to its result."""
    adds_apart: bool = False
    """Vectors are added, compared and converted by units of their own, beside those that multiply."""
    load_pipes: int = 2
    """Vectors loaded from L1 a cycle, as wide as a pipe or narrower."""
    load_pipe_bytes: int = 64
    store_buffer: int = 96
    """Vectors that may be on their way to L2 before a thread waits: Granite Rapids has room for 112, 16 and
    more of them a register tile's."""
    store_line: float = 3.3
    """Cycles that a thread waits for each more of them."""

    copy_rate: float = 10.0
    """Bytes a cycle copied within L2."""
    cached_rate: float = 16.0
    """Bytes a cycle of maps, most of which are in some cache when they are read, and written to one."""
    stream_rate: float = 24.0
    """Bytes a cycle to and from beyond L2, in order and behind computing: what chains of MobileNetV2 and
    DenseNet-121 were measured to save."""
    between_cores_rate: float = 12.0
    """Bytes a cycle from the L2 of one core to another."""
    far_rate: float = 5.0
    """Bytes a cycle from beyond L2, in no order."""
    memory_rate: float = 4.0
    """Bytes a cycle from memory: weights are read once an image, and there is no cache they all fit."""

    barrier: float = 1500.0
    """Cycles until all threads have met."""
    step: float = 1500.0
    """Cycles to begin a step: a barrier, and the first misses."""
    member: float = 400.0
    """Cycles to start a member of a chain on a strip."""
    team: float = 38400.0
    """Cycles to wake a team that sleeps: 16 us (docs/threads.md)."""
    chain_gain: float = 10000.0
    """Cycles a chain has to promise: estimates are wrong by as much (with 3000 ShuffleNet took 3 % longer;
    with 4 % of the time apart asked for, too, DenseNet-121 and a ResNet-50 v2 took 4 and 2 % longer)."""

    direct: DirectCosts = field(default_factory=DirectCosts)
    row_points: RowPointCosts = field(default_factory=RowPointCosts)
    winograd: WinogradCosts = field(default_factory=WinogradCosts)
    shares: CacheShares = field(default_factory=CacheShares)
    expected: Figures = field(default_factory=Figures)
    """What the probe should read of it; its clock and units are those above."""
    bfloat16: bool = False
    """Its code may multiply bfloat16 and keep maps in it (``for_precision``)."""
    here: bool = False
    """It is this machine: what can be measured of it is."""

    @property
    def lanes(self) -> int:
        return INSTRUCTIONS[self.isa].lanes

    @property
    def registers(self) -> int:
        """Vector registers."""
        return INSTRUCTIONS[self.isa].registers

    @property
    def accumulators(self) -> int:
        """Vector registers a tile may hold results in; the rest feed them."""
        return INSTRUCTIONS[self.isa].accumulators

    @property
    def flags(self) -> tuple[str, ...]:
        """The C compiler's."""
        bfloat16 = ("-mavx512bf16",) if self.bfloat16 and self.multiplies_bfloat16 else ()
        dots = (f"-m{_DOTS[self.isa]}",) if self.dots else ()
        amx = ("-mamx-tile", "-mamx-int8", *(("-mamx-bf16",) if bfloat16 else ())) if self.amx else ()
        return INSTRUCTIONS[self.isa].flags + dots + bfloat16 + amx

    @property
    def dots(self) -> bool:
        """Whether one instruction multiplies and adds four bytes of each lane."""
        return _DOTS.get(self.isa) in self.features

    @property
    def dot_parts(self) -> int:
        """Parts in which four bytes are multiplied (``CV_DOT_PARTS``)."""
        return 1 if self.dots else 2

    @property
    def amx(self) -> bool:
        """It multiplies bytes and bfloat16 in tiles, where the system that runs lets it.

        Nothing is planned by it: no machine with AMX has been timed.
        """
        return self.dots and self.features >= _AMX  # weights of bytes are packed for both alike

    @property
    def multiplies_bfloat16(self) -> bool:
        """It has instructions for products of bfloat16 that the kernels use."""
        return self.isa == "avx512" and "avx512bf16" in self.features

    def products_at_once(self, precision: str) -> int:
        """Products of "bf16" or "int8" that take as long as one of float32, at the instructions' best."""
        if precision == "int8":
            return (4 // self.dot_parts) * (8 if self.amx else 1)
        return 2 * (8 if self.amx else 1) if precision == "bf16" else 1

    @property
    def fma_units(self) -> float:
        """Multiply-adds of ``lanes`` floats a cycle; a narrower pipe takes several for one."""
        return self.fma_pipes * min(1.0, self.fma_pipe_bytes / (4 * self.lanes))

    @property
    def load_units(self) -> float:
        """Vectors of ``lanes`` floats loaded from L1 a cycle."""
        return self.load_pipes * min(1.0, self.load_pipe_bytes / (4 * self.lanes))

    def for_precision(self, precision: Precision) -> Target:
        """The same for code of a precision; on a CPU without instructions for it for float32."""
        return replace(self, bfloat16=precision == "bf16" and self.multiplies_bfloat16)

    def with_said(self, cores: int, l2_bytes: int) -> Target:
        """The same with what a user says of the machine; 0: nothing."""
        return replace(self, cores=cores or self.cores, l2_bytes=l2_bytes or self.l2_bytes)
