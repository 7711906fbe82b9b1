"""What a ``Plan`` is made of: buffers, operands, weights, and one dataclass per kernel call.

Everything emit needs and nothing else; frozen, so that plans compare, print and hash.
Sizes, offsets and strides are in floats.  A step's fields bear the names of the kernel's
parameters in ``csrc/kernels``, where their meaning is written.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from convoy.graph.ops import Pair, Sides
from convoy.plan.recipes import Chunk, Recipe
from convoy.plan.row_points import RowPoints

Space = Literal["input", "output", "arena", "batch", "thread", "weights"]
"""arena: of the image at hand; batch: each image's own, one after the other; thread: scratch that each
thread has for itself, for one step."""
WEIGHTS_ALIGNMENT = 16
ARENA_ALIGNMENT = 16


@dataclass(frozen=True)
class Buffer:
    """Memory of one or several tensors: ``index`` is the number of the argument, or an offset."""

    space: Space
    size: int
    index: int = 0


@dataclass(frozen=True)
class Array:
    """A dense row-major tensor at ``offset`` in buffer number ``buffer``."""

    buffer: int
    offset: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        n = 1
        for d in self.shape:
            n *= d
        return n


@dataclass(frozen=True)
class Map:
    """A feature map (``csrc/kernels/map.h``); ``lanes`` is 1 for a planar one."""

    buffer: int
    offset: int
    """Of element (0, 0, 0)."""
    channels: int
    height: int
    width: int
    lanes: int
    plane: int
    row: int
    step: int
    halo: Sides = (0, 0, 0, 0)

    @property
    def blocks(self) -> int:
        return -(-self.channels // self.lanes)

    @property
    def flat(self) -> bool:
        """Its rows follow one another without a gap."""
        return self.step == self.lanes and self.row == self.width * self.step

    def as_row(self) -> Map:
        """The same pixels as one row."""
        assert self.flat
        return Map(
            self.buffer, self.offset, self.channels, 1, self.height * self.width,
            self.lanes, self.plane, self.height * self.row, self.step,
        )  # fmt: skip


Operand = Array | Map


@dataclass(frozen=True)
class Activation:
    """``cv_activation``: ``kind`` is a ``UnaryKind``; relu and clip are both clamps."""

    kind: str
    a: float = 0.0
    b: float = 0.0


IDENTITY = Activation("identity")


@dataclass(frozen=True)
class Epilogue:
    """``cv_epilogue``: outer(inner(acc + bias) + residual)."""

    bias: Array
    inner: Activation = IDENTITY
    residual: Operand | None = None
    outer: Activation = IDENTITY


@dataclass(frozen=True)
class Rows:
    """How one output row is cut into register tiles: ``tiles[i]`` tiles of ``pixels[i]`` pixels."""

    pixels: Pair
    tiles: Pair


@dataclass(frozen=True)
class Weight:
    buffer: int
    recipe: Recipe


# Steps: one call of one kernel by all threads.


@dataclass(frozen=True, kw_only=True)
class Step:
    note: str
    """What it computes and which op it came from, for the comment above its function."""
    y: Operand

    scratch: tuple[Array, ...] = ()
    """Memory the step writes and reads, and nobody else."""
    cycles: float = 0.0
    """Estimated, of the busiest thread."""

    @property
    def method(self) -> str:
        """The algorithm, where there is a choice of them."""
        return ""

    @property
    def writes(self) -> tuple[Operand, ...]:
        return (self.y, *self.scratch)

    @property
    def reads(self) -> tuple[Operand, ...]:
        found: list[Operand] = []
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in ("y", "scratch"):
                continue
            if isinstance(value, (Array, Map)):
                found.append(value)
            elif isinstance(value, Epilogue):
                found.append(value.bias)
                if value.residual is not None:
                    found.append(value.residual)
            elif isinstance(value, tuple):
                found.extend(v for v in value if isinstance(v, (Array, Map)))
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class Pack(Step):
    """Row-major → blocked, or planar where y.lanes is 1.  ``strides`` of channel, row, column."""

    x: Array
    y: Map
    strides: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class Unpack(Step):
    x: Map
    y: Array
    strides: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class ClearHalo(Step):
    y: Map


@dataclass(frozen=True)
class RowProducts:
    """What ``DirectConv`` multiplies instead, where no value of V is too large
    (``kernels/conv2d_winograd_rows.h``)."""

    points: RowPoints
    v: Map
    w: Array
    checks: Array
    chunks: tuple[Chunk, ...]
    rows: Rows


@dataclass(frozen=True, kw_only=True)
class DirectConv(Step):
    x: Map
    w: Array
    y: Map
    epilogue: Epilogue
    kernel: Pair
    stride: Pair
    dilation: Pair
    pad: Pair
    """Top and left; negative where the first tap lies inside the map."""
    chunks: tuple[Chunk, ...]
    group: Pair
    """Input and output channels of a group, where blocks hold several groups; else zeros."""
    blocks: Pair
    """Of a full chunk and of the last one."""
    tile_rows: int
    """Rows of a tile: 1; or 2, all of them (``rows`` is one tile); or 0, a run (``rows``: the map)."""
    rows: Rows
    tiles_per_block: int
    split_chunks: bool
    adds: bool = False
    """To what lies in y, in place of the bias."""
    in_rows: RowProducts | None = None

    @property
    def reads(self) -> tuple[Operand, ...]:
        more = (self.in_rows.v, self.in_rows.w, self.in_rows.checks) if self.in_rows else ()
        return (*super().reads, *more)

    @property
    def method(self) -> str:
        if self.in_rows:
            tile = self.in_rows.rows.pixels[0], self.in_rows.chunks[0].blocks
            return f"{self.in_rows.points.variant}, {tile[0]}x{tile[1]} tiles"
        layout = "planar, " if self.x.lanes == 1 else ""
        rows = {0: "runs of ", 1: "", 2: "2x"}[self.tile_rows]
        return f"direct, {layout}{rows}{max(self.rows.pixels)}x{self.blocks[0]} tiles"


@dataclass(frozen=True, kw_only=True)
class TransformRows(Step):
    """``kernels/conv2d_winograd_rows.h``: y is V."""

    x: Map
    y: Map
    checks: Array
    """[channels · rows]"""
    points: RowPoints
    tiles: int
    """Of a row."""
    pad_left: int

    @property
    def method(self) -> str:
        return f"{self.points.variant}, V"

    @property
    def writes(self) -> tuple[Operand, ...]:
        return (self.y, self.checks)

    @property
    def reads(self) -> tuple[Operand, ...]:
        return (self.x,)


@dataclass(frozen=True, kw_only=True)
class WinogradConv(Step):
    """``kernels/conv2d_winograd.h``, scratch is V, U and M; or ``conv2d_winograd_streamed.h``, V and M."""

    x: Map
    w: Array
    y: Map
    epilogue: Epilogue
    pad: Pair
    chunk_count: int
    blocks: Pair
    """Output blocks of a full chunk and of the last one."""
    tiles: Pair
    """Rows and columns of ``out`` x ``out`` output tiles."""
    groups: int
    room: int
    split_chunks: bool
    pixels: tuple[int, ...]
    """Of the register tiles, the most first."""
    slab: int
    """0: U is streamed, ``pixels`` are the kernel's own."""
    resident: bool
    out: Literal[2, 4, 6]
    last: Pair
    """Rows and columns of the last tile."""
    pool: Pool | None = None
    """Computed from the tiles of y."""
    keeps: bool = True
    """y is written; else it has no memory."""

    @property
    def writes(self) -> tuple[Operand, ...]:
        kept = (self.y,) if self.keeps else ()
        pooled = (self.pool.y,) if self.pool else ()
        return (*kept, *pooled, *self.scratch)

    @property
    def method(self) -> str:
        streamed = "" if self.slab else ", streamed"
        return f"winograd F({self.out}x{self.out}, 3x3), {self.pixels[0]}x{self.blocks[0]} tiles{streamed}"


@dataclass(frozen=True, kw_only=True)
class DepthwiseConv(Step):
    x: Map
    w: Array
    y: Map
    epilogue: Epilogue
    kernel: Pair
    stride: Pair
    dilation: Pair
    pad: Pair
    rows: Rows

    @property
    def method(self) -> str:
        return "depthwise"


@dataclass(frozen=True, kw_only=True)
class Gemm(Step):
    x: Array
    w: Array
    y: Array
    epilogue: Epilogue
    m: int
    k: int
    n: int
    panel: int
    """Columns of a packed panel."""


@dataclass(frozen=True, kw_only=True)
class Pool(Step):
    x: Map
    y: Map
    kind: Literal["max", "avg"]
    kernel: Pair
    stride: Pair
    dilation: Pair
    padding: Sides
    count_include_pad: bool
    outer: Activation


@dataclass(frozen=True, kw_only=True)
class ReduceMap(Step):
    """Over height and width."""

    x: Map
    y: Map
    kind: Literal["mean", "sum", "max", "min"]


@dataclass(frozen=True, kw_only=True)
class ReduceArray(Step):
    x: Array
    kind: Literal["mean", "sum", "max", "min"]
    outer: int
    axis: int
    inner: int


@dataclass(frozen=True, kw_only=True)
class SoftmaxArray(Step):
    x: Array
    outer: int
    axis: int
    inner: int
    log: bool


@dataclass(frozen=True, kw_only=True)
class CopyChannels(Step):
    """y[y_channel + i] = x[x_channel + i] for i < count."""

    x: Map
    y: Map
    y_channel: int
    x_channel: int
    count: int


@dataclass(frozen=True, kw_only=True)
class ShuffleMap(Step):
    x: Map
    y: Map
    groups: int


@dataclass(frozen=True, kw_only=True)
class ResizeNearest(Step):
    x: Map
    y: Map
    rows: tuple[int, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class ResizeBilinear(Step):
    x: Map
    y: Map
    rows: tuple[int, ...]
    row_weights: tuple[float, ...]
    columns: tuple[int, ...]
    column_weights: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class LrnMap(Step):
    x: Map
    y: Map
    size: int
    alpha: float
    beta: float
    bias: float


@dataclass(frozen=True, kw_only=True)
class TransposeArray(Step):
    """y[i…] = x[Σ i·strides]: permutation, slice and broadcast."""

    x: Array
    strides: tuple[int, ...]
    start: int = 0


@dataclass(frozen=True, kw_only=True)
class PadArray(Step):
    x: Array
    before: tuple[int, ...]
    value: float


@dataclass(frozen=True, kw_only=True)
class CopyRows(Step):
    """y[i·y_stride + j] = x[i·x_stride + j] from ``y_start``, for rows × columns."""

    x: Array
    rows: int
    columns: int
    y_start: int
    y_stride: int
    x_stride: int


@dataclass(frozen=True)
class Expr:
    """One operation of an elementwise chain.

    ``args`` number the chain's operands first, then the results of earlier operations.
    """

    op: str
    args: tuple[int, ...]
    a: float = 0.0
    b: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ElementwiseMap(Step):
    """A chain on blocked maps.  ``roles[i]`` says how operand i meets a pixel of y."""

    operands: tuple[Operand, ...]
    roles: tuple[Literal["map", "channel", "pixel", "scalar"], ...]
    """map: same shape · channel: one value per channel (a 1x1 map or a padded vector) · pixel: one
    channel, broadcast · scalar: an array of one."""
    exprs: tuple[Expr, ...]
    y: Map


@dataclass(frozen=True, kw_only=True)
class ElementwiseArray(Step):
    """A chain on row-major tensors: ``loops`` outermost first, ``strides[i]`` of operand i in each."""

    operands: tuple[Array, ...]
    loops: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    exprs: tuple[Expr, ...]
    y: Array


@dataclass(frozen=True)
class Plan:
    """A region, decided."""

    lanes: int
    threads: int
    """0: as many as the library is set to."""
    batch: int | None
    """Images of a call; None: known only at run time."""
    buffers: tuple[Buffer, ...]
    weights: tuple[Weight, ...]
    steps: tuple[Step, ...]
    barriers: tuple[bool, ...]
    """barriers[i]: the threads meet before step i."""
    inputs: tuple[int, ...]
    """Floats of one image of each input."""
    outputs: tuple[int, ...]
    arena_size: int
    weights_size: int
    thread_size: int
    """Of each thread's own scratch."""
    batch_size: int
    """Of each image's own memory."""
    batched: int
    """From this step on, a step computes all images before the next one begins (``plan/batch.py``)."""
    work: float
    """Cycles of one image on one core, as estimated."""
    team_images: int
    """A call of fewer images is computed by its caller alone; at least 1."""

    @property
    def apart(self) -> bool:
        """Threads take images of their own where there is one for each, in an arena of their own."""
        return self.batch != 1 and self.batched > 0
