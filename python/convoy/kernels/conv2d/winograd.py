"""A 3x3 convolution by Winograd's algorithm (``csrc/kernels/conv2d_winograd.h``, ``…_streamed.h``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from convoy.codegen.writer import Writer, activation, epilogue, joined, result_cells, source_cells
from convoy.graph.dtypes import QUANTISED, DType, cell_elements
from convoy.graph.ops import Conv2d, Pair
from convoy.graph.sizes import is_open
from convoy.kernels.conv2d.direct import DirectConv, emit_call, take_up_to
from convoy.kernels.conv2d.panels import PackConv, Tap, cut_chunks, cut_spans, panel_size
from convoy.kernels.conv2d.pools import TilePool
from convoy.kernels.conv2d.register_tiles import RegisterTile, TileKind, plain_tile
from convoy.kernels.conv2d.schedules import Out, count_register_tiles, count_tiles, in_cells
from convoy.kernels.pool import Pool, make_pool
from convoy.kernels.values import Values
from convoy.plan.buffers import Array, Map, Operand
from convoy.plan.maps import group_of
from convoy.plan.step import Arithmetic, Epilogue, Note, Step
from convoy.plan.tiles import cut_any_row


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
    """Rows and columns of ``out`` x ``out`` output tiles, of each phase."""
    portions: int
    """0: counted at the call, for at most ``room`` tiles each."""
    room: int
    split_chunks: bool
    pixels: tuple[int, ...]
    """Winograd tiles in each register tile, the most first."""
    slab: int
    """0: U is streamed, ``pixels`` are the kernel's own."""
    slab_rows: int
    """Rows of points of a slab of U; 0: all."""
    resident: bool
    out: Out
    last: Pair
    """Rows and columns of the last tile; of one that is known at the call, zeros."""
    dilation: Pair
    few: int = 0
    """Outputs of a channel, up to which ``direct`` computes y instead, where it is known at the call."""
    direct: DirectConv | None = None
    """The same convolution of the same panels."""
    streams: bool = False
    """Where tiles are counted at the call, two rows and columns of them are computed with U streamed."""
    pool: Pool | None = None
    """Computed from the tiles of y."""
    keeps: bool = True
    """y is written; else it has no memory."""
    groups: int = 1
    """All but x, y and w is of one of them."""
    x_zero: int = 0
    """The zero point, where x is bytes."""
    exact: bool = False
    """All is integers."""
    alone: bool = False
    """Threads take groups in turns, each alone; else all compute one after the other."""

    @property
    def writes(self) -> tuple[Operand, ...]:
        kept = (self.y,) if self.keeps else ()
        pooled = (self.pool.y,) if self.pool else ()
        return (*kept, *pooled, *self.scratch)

    @property
    def algorithm(self) -> str:
        kind = {"bf16": ", bf16", "int8": ", int16", "float32": ""}[self.precision]
        return f"winograd F({self.out}x{self.out}, 3x3){kind}"

    @property
    def precision(self) -> Arithmetic:
        return "int8" if self.exact else "bf16" if self.w.dtype == "bfloat16" else "float32"

    @property
    def share_of_products(self) -> float:
        return ((self.out + 2) / (3 * self.out)) ** 2

    @property
    def tiling(self) -> str:
        streamed = "" if self.slab else ", streamed"
        return f"{self.pixels[0]}x{self.blocks[0]} tiles{streamed}"


def winograd_step(
    note: Note, node: Conv2d, x: Map, y: Map, epilogue: Epilogue, pool: TilePool | None, values: Values,
    x_zero: int = 0, weights: str = "",
) -> WinogradConv:  # fmt: skip
    """The step of a convolution under the schedule chosen for it, with the pool that it computes.

    ``x_zero``: the zero point of an x of bytes.  ``weights``: a constant of int8 that it multiplies.
    """
    choice, lanes = values.choices[node.output], values.lanes
    s = choice.schedule
    assert s is not None
    x_group, y_group = group_of(x, node.groups, 0), group_of(y, node.groups, 0)
    full, tail = divmod(y_group.blocks, s.blocks)
    spans = cut_spans(((s.blocks,) * full + (tail,) * (tail > 0)) * node.groups)
    inner = 2 * lanes if s.exact else lanes
    chunks = cut_chunks(y.channels, x.channels, node.groups, spans, lanes, inner, 9)
    size = panel_size(chunks, 9, inner, lanes)
    taps = Tap(0, 1, 3), Tap(0, 1, 3)
    if s.exact:
        panels = PackConv(weights, chunks, lanes, inner, node.groups, taps, 2)
        w = values.weight(panels, size, dtype="int8")
    else:
        dtype: DType = "bfloat16" if s.rounds else "float32"
        panels = PackConv(node.inputs[1], chunks, lanes, lanes, node.groups, taps, cell_elements(dtype))
        w = values.weight(panels, size, dtype=dtype)
    v, u, m = s.sizes(in_cells(x_group) if s.exact else x_group, y_group)
    shared_v = s.share in ("chunks", "streamed")
    stored = (values.scratch_array(u, private=s.alone or s.share != "resident"),) if u else ()
    scratch = (
        values.scratch_array(v, private=s.alone or not shared_v),
        *stored,
        values.scratch_array(m, private=True),
    )
    pooled = make_pool(pool.fusion, values) if pool else None
    if pooled:
        note = Note(note.op, f"{note.text}, then {pooled.note.text}")
    any_size = is_open(y)
    direct = None
    if choice.few and pool is None and x.dtype not in QUANTISED:  # of bytes its weights are others
        width = values.target.accumulators // s.blocks
        direct = DirectConv(
            note=note, x=x, w=w, y=y, epilogue=epilogue, kernel=(3, 3), stride=(1, 1), dilation=(1, 1),
            pad=node.padding[:2], chunks=chunks, group=(0, 0), blocks=(s.blocks, chunks[-1].blocks),
            tile_rows=1, rows=cut_any_row(y.width, width), tiles_per_block=choice.few, split_chunks=True,
            adds=False, straight=False, parts=1,
        )  # fmt: skip
    whole = chunks[-1].blocks == s.blocks and x.dtype == y.dtype == w.dtype == "float32"
    plain = node.groups == 1 and pool is None and whole
    streams = any_size and plain and choice.streams
    pixels = range(1, s.pixels + 1) if any_size else count_register_tiles(s, y) if s.slab else (s.pixels,)
    return WinogradConv(
        note=note, x=x, w=w, y=y, epilogue=epilogue, few=choice.few, direct=direct, streams=streams,
        groups=node.groups, x_zero=x_zero, exact=s.exact, alone=s.alone, pad=node.padding[:2],
        chunk_count=len(chunks) // node.groups,
        blocks=(s.blocks, chunks[-1].blocks),
        tiles=count_tiles((y.height, y.width), s.out, s.dilation),
        portions=0 if any_size else s.portions, room=s.room,
        split_chunks=shared_v,
        pixels=tuple(sorted(pixels, reverse=True)),
        slab=s.slab, slab_rows=s.rows, resident=s.share == "resident", out=s.out,
        last=(0, 0) if any_size else s.last_tile(y.height, y.width),
        dilation=s.dilation, pool=pooled, keeps=pool is None or pool.keeps, scratch=scratch,
        cycles=choice.chosen_cycles + (pool.together if pool else 0.0),
    )  # fmt: skip


def emit_winograd(step: WinogradConv, w: Writer) -> str:
    if not step.portions:
        return _emit_open(step, w)
    zero = f", {step.x_zero}" * (step.x.dtype in QUANTISED)
    base = (
        f"{{{joined(step.pad)}, {step.chunk_count}, {joined(step.blocks)}, {joined(step.tiles)}, "
        f"{step.portions}, {step.room}, {int(step.split_chunks)}{zero}}}"
    )
    pooled = int(step.pool is not None)
    macro, form_of_types, types = _types(step)
    rows, columns = step.last
    dilated = f"_dilated_{step.dilation[0]}x{step.dilation[1]}" * (step.dilation != (1, 1))
    form = f"{rows}x{columns}{dilated}{'_pooled' * pooled}{form_of_types}"
    arguments = f"{rows}, {columns}, {joined(step.dilation)}, {pooled}"
    if step.slab:
        w.headers.add("conv2d_winograd")
        name = f"winograd_{step.out}_{form}"
        w.declare(f"CV_WINOGRAD{macro}({name}, {types}{step.out}, {arguments})")
        row = (
            f"{{{base}, {step.slab}, {step.slab_rows}, {int(step.resident)}, {step.pixels[0]}, "
            f"{_table_of_tiles(step, w)}}}"
        )
        c = w.table("cv_winograd_slabs", [row])
    else:
        w.headers.add("conv2d_winograd_streamed")
        name = f"winograd_streamed_{form}"
        w.declare(f"CV_WINOGRAD_STREAMED{macro}({name}, {arguments})")
        c = w.table("cv_winograd", [base])
    return _emit_call(step, w, "", name, c)


def _types(step: WinogradConv) -> tuple[str, str, str]:
    """What a macro's and a function's name say of the types of x and the weights, and the macro is told."""
    narrow = step.x.dtype == "bfloat16"
    if step.exact:
        return "_EXACT", "_exact", ""
    if step.x.dtype in QUANTISED:
        return "_BYTES", "_bytes", ""
    if step.w.dtype == "bfloat16":
        return "_ROUNDED", f"_rounded{'_bf16' * narrow}", f"{int(narrow)}, "
    return "_BF16" * narrow, "_bf16" * narrow, ""


def _emit_open(step: WinogradConv, w: Writer) -> str:
    """Tiles are counted at the call; the last of them have an even number of rows and of columns."""
    w.headers.add("conv2d_winograd")
    sides = range(2, step.out + 1, 2)
    pooled = int(step.pool is not None)
    macro, form_of_types, types = _types(step)
    form = f"{'_pooled' * pooled}{form_of_types}"
    for rows, columns in product(sides, sides):
        name = f"winograd_{step.out}_{rows}x{columns}{form}"
        w.declare(f"CV_WINOGRAD{macro}({name}, {types}{step.out}, {rows}, {columns}, 1, 1, {pooled})")
    pick = f"winograd_{step.out}{form}"
    rows_of_names = [
        f"{{{joined([f'winograd_{step.out}_{rows}x{columns}{form}' for columns in sides])}}}"
        for rows in sides
    ]
    w.declare(f"static const cv_winograd_function {pick}[][{len(sides)}] = {{{joined(rows_of_names)}}};")
    threads = "1" if step.alone else "t.count"
    zero = f", .x_zero = {step.x_zero}" * (step.x.dtype in QUANTISED)
    statements = (
        f"{take_up_to(w, step.pixels[0], 'tiles', _register_tiles(step, w))}"
        f"  cv_winograd_slabs c = {{{{.pad_top = {step.pad[0]}, .pad_left = {step.pad[1]},\n"
        f"    .chunk_count = {step.chunk_count}, .blocks = {step.blocks[0]}, "
        f".tail_blocks = {step.blocks[1]},\n    .split_chunks = {int(step.split_chunks)}{zero}}}, "
        f"{step.slab}, {step.slab_rows}, {int(step.resident)}, {step.pixels[0]}, "
        f"tiles}};\n"
        f"  cv_winograd_cut(&c.base, {step.out}, y.height, y.width, {step.room}, {threads});\n"
    )
    last = [f"[(y.{side} - 1) % {step.out} / 2]" for side in ("height", "width")]
    instead = _emit_streamed(step, w, last) if step.streams else ""
    if step.direct is not None:
        instead += (
            f"  if (y.height * y.width <= {step.few}) {{\n{emit_call(step.direct, w)}    return;\n  }}\n"
        )
    return _emit_call(step, w, statements, f"{pick}{''.join(last)}", "&c", instead)


def _emit_streamed(step: WinogradConv, w: Writer, last: Sequence[str]) -> str:
    """The call for two rows and columns of tiles, which returns."""
    w.headers.add("conv2d_winograd_streamed")
    pick = f"winograd_streamed_{step.blocks[0]}_blocks"
    sides = range(2, step.out + 1, 2)
    for rows, columns in product(sides, sides):
        arguments = joined((step.blocks[0], rows, columns, 1, 1, 0))
        w.declare(f"CV_WINOGRAD_STREAMED_BLOCKS({pick}_{rows}x{columns}, {arguments})")
    names = [f"{{{joined([f'{pick}_{rows}x{columns}' for columns in sides])}}}" for rows in sides]
    w.declare(f"static const cv_winograd_streamed_function {pick}[][{len(sides)}] = {{{joined(names)}}};")
    return (
        "  if (c.base.tile_rows == 2 && c.base.tile_columns == 2) {\n"
        f"    {pick}{''.join(last)}(t, &c.base, x, {w.cells(step.w)}, y, &e, NULL, v, m);\n"
        "    return;\n  }\n"
    )


def _emit_call(step: WinogradConv, w: Writer, statements: str, name: str, c: str, instead: str = "") -> str:
    """The call of the function ``name`` with schedule ``c``, after what it needs and what may return."""
    names = ("v", "u", "m") if step.slab else ("v", "m")
    scratch = zip(names, step.scratch, strict=True)
    x, y = (group_of(m, step.groups, 0) for m in (step.x, step.y))
    residual = step.epilogue.residual
    if isinstance(residual, Map):
        residual = group_of(residual, step.groups, 0)
    weights, end = w.cells(step.w), f"{'&pool' if step.pool else 'NULL'}, {', '.join(names)});\n"
    call = f"  {name}(t, {c}, x, {weights}, y, &e, {end}"
    if step.groups > 1:
        call = _by_groups(step, w, f"{name}(own, {c}", weights, end)
    made = f"  const cv_map y = {w.map_literal(y, step.keeps)};\n"
    if y.dtype in QUANTISED:
        made = result_cells("y", y, w)
    return (
        f"{source_cells('x', x, w)}{made}"
        f"{epilogue(replace(step.epilogue, residual=residual), w)}{_winograd_pool(step, w)}{statements}"
        f"{''.join(f'  float *{n} = {w.pointer(a)};' + chr(10) for n, a in scratch)}{instead}{call}"
    )


def _by_groups(step: WinogradConv, w: Writer, call: str, weights: str, end: str) -> str:
    """A loop over groups."""
    x, y = "cv_map_group(x, g)", "cv_map_group(y, g)"
    size = step.w.size // step.groups // cell_elements(step.w.dtype)
    first, next_group, own = ("t.id", "g += t.count", "{0, 1}") if step.alone else ("0", "g++", "t")
    residual = waits = ""
    if step.epilogue.residual is not None:
        residual = "    const cv_map added = cv_map_group(residual, g);\n    of_group.residual = &added;\n"
    if not step.alone:  # others may still read what it shares
        waits = "    if (g > 0) convoy_barrier(t);\n"
    return (
        f"  const cv_thread own = {own};\n"
        f"  for (int g = {first}; g < {step.groups}; {next_group}) {{\n"
        f"    cv_epilogue of_group = e;\n    of_group.bias += g * y.channels;\n{residual}{waits}"
        f"    {call}, {x}, {weights} + g * {size}, {y}, &of_group, {end}  }}\n"
    )


def _register_tiles(step: WinogradConv, w: Writer) -> list[RegisterTile]:
    """Those of full chunks and of the last one."""
    kind: TileKind = "shorts" if step.exact else "bf16" if step.w.dtype == "bfloat16" else ""
    inner = w.plan.lanes if step.exact else w.plan.lanes // cell_elements(step.w.dtype)
    return [plain_tile(blocks, inner, 1, kind=kind) for blocks in step.blocks]


def _table_of_tiles(step: WinogradConv, w: Writer) -> str:
    """The name of the table of a step's register tiles."""
    tiles = _register_tiles(step, w)
    name = f"tiles_{'_'.join(map(str, step.pixels))}x{'_'.join(tile.form for tile in tiles)}"
    rows = [
        f"[{pixels}] = {{{joined([tile.declare(w, pixels) for tile in tiles])}}}"
        for pixels in sorted(step.pixels)
    ]
    w.declare(f"static const cv_conv2d_tile {name}[][2] = {{{joined(rows)}}};")
    return name


def _winograd_pool(step: WinogradConv, w: Writer) -> str:
    """The declaration of ``pool``, where there is one."""
    if step.pool is None:
        return ""
    kind = {"max": "CV_POOL_MAX", "avg": "CV_POOL_MEAN"}[step.pool.reduction]
    return (
        f"  const cv_winograd_pool pool = {{{kind}, {activation(step.pool.outer)}, "
        f"{w.map_literal(step.pool.y)}}};\n"
    )
