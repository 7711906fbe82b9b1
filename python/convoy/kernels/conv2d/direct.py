"""A convolution by its definition (``csrc/kernels/conv2d_direct.h``), on blocked input or planar one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convoy.codegen.writer import Writer, epilogue, fields, fill_halo, joined
from convoy.graph.dtypes import BYTES, cell_elements
from convoy.graph.ops import Pair
from convoy.graph.sizes import bounds, hint, is_open
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.conv2d.panels import (
    Chunk,
    PackConv,
    Tap,
    Width,
    choose_widths,
    cut_chunks,
    cut_spans,
    panel_size,
)
from convoy.kernels.conv2d.pipelined import choose_pipelined_tiling
from convoy.kernels.conv2d.register_tiles import (
    RegisterTile,
    TileKind,
    bytes_tile,
    pipelined_tile,
    plain_tile,
    planar_bytes_tile,
    planar_tile,
)
from convoy.kernels.values import Values
from convoy.plan.buffers import Array, Map
from convoy.plan.step import Epilogue, Note, Step
from convoy.plan.tiles import (
    Rows,
    choose_open_tiling,
    choose_planar_tiling,
    choose_tiling,
    cut_blocks,
    cut_tiles,
)
from convoy.target import Target

AHEAD_TILES = 4
"""Tiles of a thread that use one panel and meanwhile ask for all of the next (CV_ASK_EVERY)."""
STRAIGHT_TAPS = 32
"""Taps of all channels of a planar x that a tile adds without loops, at most; 3x3 of 3 are 7 KB of code."""


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
    """Input and output channels of a group, where blocks of results or cells hold several; else zeros."""
    blocks: Pair
    """Output blocks of a full chunk and of the last one."""
    tile_rows: int
    """Rows of a tile: 1; or 2, all of them (``rows`` is one tile); or 0, a run (``rows``: the map)."""
    rows: Rows
    """Where y's width is known at the call: the most pixels of a tile, and no tiles."""
    tiles_per_block: int
    split_chunks: bool
    adds: bool
    """To what lies in y, in place of the bias."""
    straight: bool
    """Tiles add all taps of all channels of a planar x without loops."""
    parts: int
    """In which bytes are multiplied."""
    pipelined: bool = False
    """While a tile is added, the one before it ends (``pipelined.py``)."""
    also: DirectConv | None = None
    """The same convolution's chunks of other widths, which have tiles of their own."""

    @property
    def algorithm(self) -> str:
        kind = {"bfloat16": ", bf16", "uint8": ", int8"}.get(self.x.dtype, "")
        return f"direct{kind}, planar" if self.planar else f"direct{kind}"

    @property
    def planar(self) -> bool:
        """A pixel of x is one cell, where a block would be mostly padding."""
        return self.x.lanes < self.y.lanes

    @property
    def tiling(self) -> str:
        rows = {0: "runs of ", 1: "", 2: "2x"}[self.tile_rows]
        size = f"{rows}{max(self.rows.pixels)}x{self.blocks[0]}"
        tiles = "pipelined tiles" if self.pipelined else "tiles"
        return f"{size} and {self.also.tiling}" if self.also else f"{size} {tiles}"


def direct_step(
    note: Note, constant: str, taps: tuple[Tap, Tap], x: Map, y: Map, epilogue: Epilogue, stride: Pair,
    dilation: Pair, pad: Pair, groups: int, transposed: bool, values: Values, threads: int,
    choice: Choice, cycles: float | None, whole: bool = True, adds: bool = False,
    kept: bool = False,
) -> DirectConv:  # fmt: skip
    """A direct convolution with its tiling, packed weights and split between threads.

    ``kept``: a thread that computes some channels of y reads them, too.
    """
    target = values.target
    dtype = "bfloat16" if x.dtype == "bfloat16" else values.graph.dtype(constant)
    parts = target.dot_parts if dtype == "int8" else 1
    floats = x.dtype == y.dtype == "float32"
    count = taps[0].count * taps[1].count
    panel = int(target.l2_bytes * target.shares.panel) // BYTES[dtype]
    cell = min(cell_elements(x.dtype), x.lanes)
    found = []
    size = 0
    products = -(-x.channels // groups // cell) * count
    pipelined = None
    if groups == 1 and choice.tile is None and not is_open(y):
        pipelined = choose_pipelined_tiling(x, y, epilogue, (taps[0].count, taps[1].count), target)
    widths = [Width(pipelined, cut_spans(cut_blocks(y.blocks, pipelined.blocks)))] if pipelined else None
    for w in widths or _choose_widths(
        x, y, groups, taps[1], stride[1], target, parts, choice.tile, whole, products
    ):
        chunks = cut_chunks(
            y.channels, x.channels, groups, w.spans, values.lanes, x.lanes, count,
            panel if floats else None,  # others have no sums to add to
            cell if groups > 1 and dtype != "int8" else None, size,
        )  # fmt: skip
        size = panel_size(chunks, count, x.lanes, values.lanes)
        found.append((w.tiling, chunks))
    recipe = PackConv(
        constant, tuple(chunk for _, chunks in found for chunk in chunks), values.lanes, x.lanes, groups,
        taps, cell, transposed, parts,
    )  # fmt: skip
    weights = values.weight(recipe, size * parts, dtype=dtype)
    step: DirectConv | None = None
    for tiling, chunks in reversed(found):
        tiles = -(-hint(y.height) // (tiling.tile_rows or y.height)) * sum(tiling.rows.tiles)
        split_chunks = choice.split_chunks
        if split_chunks is None:
            split_chunks = shares_chunks(size, hint(x), hint(y), tiles, threads, target, kept)
        apart = max(min(stride[0], taps[0].count), 1)  # 1x1 passes over the rows between
        rows_read = max(tiling.tile_rows, 1) * apart
        tile_input = rows_read * max(tiling.rows.pixels) * stride[1] * x.channels
        fitting = target.l2_bytes // 2 // BYTES[x.dtype] // tile_input
        inputs = {chunk.in_count for chunk in chunks}
        straight = (
            x.lanes < values.lanes
            and dilation[1] == 1
            and len(inputs) == 1
            and max(inputs) * count <= STRAIGHT_TAPS
        )
        step = DirectConv(
            note=note, x=x, w=weights, y=y, epilogue=epilogue, kernel=(taps[0].count, taps[1].count),
            stride=stride, dilation=dilation, pad=pad, chunks=chunks,
            group=_mixed_groups(x, y, groups, chunks, cell) if groups > 1 else (0, 0),
            blocks=(tiling.blocks, chunks[-1].blocks), tile_rows=tiling.tile_rows,
            rows=Rows((max(tiling.rows.pixels),) * 2, (0, 0)) if is_open(y.width) else tiling.rows,
            tiles_per_block=max(1, fitting if is_open(y) else min(tiles, fitting)),
            split_chunks=split_chunks, cycles=cycles, straight=straight, adds=adds, parts=parts,
            pipelined=pipelined is not None, also=step,
        )  # fmt: skip
    assert step is not None
    return step


def _choose_widths(
    x: Map, y: Map, groups: int, columns: Tap, stride: int, target: Target, parts: int, tile: Pair | None,
    whole: bool, products: int,
) -> list[Width]:  # fmt: skip
    any_width, width = is_open(y.width), hint(y.width)
    planar = x.lanes < y.lanes
    height = 1 if planar or any_width else hint(y.height)
    whole = whole and not is_open(y)
    if groups > 1:
        return choose_widths(width, y.channels, groups, y.lanes, target, height, whole, parts, tile)
    if tile is not None:
        tiling = cut_tiles(width, y.blocks, tile[0], min(tile[1], y.blocks), target, parts=parts)
    elif planar:
        tiling = choose_planar_tiling(width, y.blocks, target, columns.count, stride, parts)
    elif any_width:
        tiling = choose_open_tiling(width, y.blocks, target, parts)
    else:
        tiling = choose_tiling(width, y.blocks, target, height, whole, parts, products)
    return [Width(tiling, cut_spans(cut_blocks(y.blocks, tiling.blocks)))]


def _mixed_groups(x: Map, y: Map, groups: int, chunks: Sequence[Chunk], cell: int) -> Pair:
    """``DirectConv.group`` of these chunks."""
    each = y.channels // groups
    mixed = (x.channels // groups) % cell > 0 or any(
        chunk.out_block * y.lanes // each
        != (min((chunk.out_block + chunk.blocks) * y.lanes, y.channels) - 1) // each
        for chunk in chunks
    )
    return (x.channels // groups, each) if mixed else (0, 0)


def share_cycles(choice: Choice, products: Sequence[int]) -> list[float | None]:
    """The estimate of a convolution, shared by steps of so many products; None for one that has none."""
    likely = [hint(count) for count in products]
    total = max(sum(likely), 1)
    return [choice.chosen_cycles / total * count or None for count in likely]


def shares_chunks(
    weights: int, x: Map, y: Map, tiles: int, threads: int, target: Target, kept: bool = False
) -> bool:
    """Whether threads share chunks of weights, not pixels: they share what there is more of.

    Who shares pixels reads all weights, which come ahead of time where a panel serves tiles enough; who
    shares weights reads all of x, half of it from another core's cache, and waits for it.  Where y is
    ``kept``, who shares pixels waits for half of it later.
    """
    read, written = (m.blocks * m.height * m.width * m.lanes for m in (x, y))
    ahead = target.direct.ahead_gain * read
    if kept:
        weights += int(target.direct.kept_gain * written)
    return weights > (ahead if tiles >= AHEAD_TILES * threads else read + written)


def emit_direct_conv(step: DirectConv, w: Writer) -> str:
    if step.y.dtype == "uint8":
        made = f"{w.bytes_map('made', step.y)}{fill_halo('made', step.y, w)}"
        made += "  const cv_map y = cv_map_of_cells(made);\n"
    else:
        made = w.result("y", step.y)
    return f"{made}{_return_without_pixels(step.y)}{epilogue(step.epilogue, w)}{emit_call(step, w)}"


def _return_without_pixels(y: Map) -> str:
    """A phase of a transposed convolution has none where an open size of x is 1."""
    may_have_none = any(bounds(n)[0] < 1 for n in (y.height, y.width))
    return "  if (y.height < 1 || y.width < 1) return;\n" if may_have_none else ""


def emit_call(step: DirectConv, w: Writer) -> str:
    """x and the call of the kernel, after y and the epilogue."""
    w.headers.add("conv2d_direct")
    if step.x.dtype == "uint8":
        w.expect_parts(step.parts)
    return _call(step, _define_all(step, w), w)


def _define_all(step: DirectConv, w: Writer, name: str = "c") -> str:
    """The ``cv_conv2d`` of a step, and those of other widths before it."""
    also = f"{name}_also"
    others = _define_all(step.also, w, also) if step.also else ""
    named = f"&{also}" if step.also else ""
    if is_open(step.y.width):
        return others + _define(step, (), w, _cut_at_the_call(step, name, w), name, named)
    tiles = []
    for height, pixels in zip((step.tile_rows, min(step.tile_rows, 1)), step.rows.pixels, strict=True):
        names = [_register_tile(step, blocks, height).declare(w, pixels) for blocks in step.blocks]
        tiles.append(f"{{{joined(names)}}}")
    return others + _define(step, tiles, w, "", name, named)


def _cut_at_the_call(step: DirectConv, name: str, w: Writer) -> str:
    """Statements that cut rows, and take the register tiles for that."""
    w.headers.add("rows")
    most, tiles = step.rows.pixels[0], f"tiles_of_{name}"
    return (
        f"  cv_cut_row({name}.pixels, {name}.tiles, y.width, {most});\n"
        f"{take_up_to(w, most, tiles, [_register_tile(step, blocks, 1) for blocks in step.blocks])}"
        f"  cv_conv2d_take_tiles(&{name}, {tiles});\n"
    )


def take_up_to(w: Writer, most: int, name: str, of_blocks: Sequence[RegisterTile]) -> str:
    """The declaration of tiles by their pixels, of full chunks and the last one."""
    filled = [f"  {tile.declare_up_to(w, most)}({name}, {i});\n" for i, tile in enumerate(of_blocks)]
    return f"  cv_conv2d_tile_pair {name}[{most + 1}];\n{''.join(filled)}"


def take_tiles(w: Writer, of_pixels: Sequence[str], cut: str) -> str:
    """As ``_cut_at_the_call``, of tiles that have these names, by their pixels."""
    w.headers.add("rows")
    table = w.table("cv_conv2d_tile_pair", ["{0}", *of_pixels])
    return f"  {cut};\n  cv_conv2d_take_tiles(&c, {table});\n"


def _register_tile(step: DirectConv, blocks: int, height: int) -> RegisterTile:
    """The register tile of so many blocks of outputs, and rows."""
    stride = step.stride[1]
    channels = step.chunks[0].in_count
    # columns of a planar x that are known stand next to one another
    known = (0, 0) if step.planar and step.dilation[1] != 1 else step.kernel
    if step.pipelined:
        return pipelined_tile(blocks, stride, channels, step.epilogue)
    if step.x.dtype == "uint8" and step.planar:
        return planar_bytes_tile(
            blocks, stride, step.kernel if step.straight else known, channels * step.straight
        )
    if step.x.dtype == "uint8":
        return bytes_tile(blocks, stride, known, height)
    if step.straight:
        return planar_tile(blocks, stride, step.kernel, channels)
    return plain_tile(blocks, step.x.cells, stride, known, height, _tile_kind(step))


def _tile_kind(step: DirectConv) -> TileKind:
    narrow = step.x.dtype == "bfloat16"
    if any(step.group):
        return "bf16_grouped" if narrow else "grouped"
    if any(chunk.before or chunk.behind for chunk in step.chunks):
        return "bf16_ranged" if narrow else "ranged"
    return "bf16" if narrow else ""


def call_with_tiles(step: DirectConv, tiles: Sequence[str], w: Writer, cut: str = "") -> str:
    """As ``emit_call``, with register tiles of these names; or statements that cut rows at the call."""
    return _call(step, _define(step, tiles, w, cut), w)


def _call(step: DirectConv, defined: str, w: Writer) -> str:
    x = (
        f"{w.bytes_map('bytes', step.x)}  const cv_map x = cv_map_of_cells(bytes);\n"
        if step.x.dtype == "uint8"
        else w.source("x", step.x)
    )
    return f"{x}{defined}  cv_conv2d_direct(t, &c, x, {w.cells(step.w)}, y, &e);\n"


def _define(
    step: DirectConv, tiles: Sequence[str], w: Writer, cut: str, name: str = "c", also: str = ""
) -> str:
    """The ``cv_conv2d`` of a step alone."""
    cell = cell_elements(step.w.dtype)
    rows = [
        f"{{{c.out_block}, {c.blocks}, {c.in_begin}, {c.in_count}, {c.weights // cell}, "
        f"{c.adds:d}, {c.partial:d}, {c.before // cell}, {c.behind // cell}}}"
        for c in step.chunks
    ]
    chunks = w.table("cv_conv2d_chunk", rows)
    conv = fields(
        kernel_h=step.kernel[0], kernel_w=step.kernel[1], stride_h=step.stride[0], stride_w=step.stride[1],
        dilation_h=step.dilation[0], dilation_w=step.dilation[1], pad_top=step.pad[0], pad_left=step.pad[1],
        inner=0 if step.x.dtype == "float32" else step.x.cells, chunks=chunks, chunk_count=len(rows),
        split_chunks=int(step.split_chunks), rows=step.tile_rows,
        pixels="" if cut else f"{{{joined(step.rows.pixels)}}}",
        tiles="" if cut else f"{{{joined(step.rows.tiles)}}}", tiles_per_block=step.tiles_per_block,
        tile="" if cut else f"{{{joined(tiles)}}}", blocks=step.blocks[0],
        tail_blocks=step.blocks[1], group_in=step.group[0], group_out=step.group[1], adds=int(step.adds),
        pipelined=int(step.pipelined), also=also,
    )  # fmt: skip
    return f"  {'' if cut or is_open(step.pad) else 'static const '}cv_conv2d {name} = {conv};\n{cut}"
