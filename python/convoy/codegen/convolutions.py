"""The emitters of convolutions: see ``codegen/kernels.py``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from textwrap import indent

from convoy.codegen.writer import Writer, activation, epilogue, joined, number, wrap
from convoy.plan import steps as s

STRAIGHT_TAPS = 32
"""Of all channels of a planar x, at most, that a tile adds without loops: 3x3 of 3 are 7 KB of code."""


def emit_direct_conv(step: s.DirectConv, w: Writer) -> str:
    w.headers.add("conv2d_direct")
    channels = step.chunks[0].in_count
    dilated = step.x.lanes == 1 and step.dilation[1] != 1
    known = (0, 0) if dilated else step.kernel
    straight = (
        step.x.lanes == 1
        and not dilated
        and channels * math.prod(step.kernel) <= STRAIGHT_TAPS
        and all(c.in_count == channels for c in step.chunks)
    )
    tiles = []
    for height, pixels in zip((step.tile_rows, min(step.tile_rows, 1)), step.rows.pixels, strict=True):
        names = []
        for blocks in step.blocks:
            if straight:
                names.append(w.planar_tile(pixels, blocks, step.stride[1], step.kernel, channels))
            else:
                names.append(
                    w.conv_tile(
                        pixels, blocks, step.x.lanes, step.stride[1], known, height, any(step.group)
                    )
                )
        tiles.append(f"{{{joined(names)}}}")
    call = _call_direct(step, tiles, w)
    if step.in_rows is not None:
        checks = step.in_rows.checks
        fit = f"cv_winograd_rows_fit({w.pointer(checks)}, {checks.size})"
        products = indent(_call_row_products(step, step.in_rows, w), "  ")
        call = f"  if ({fit}) {{\n{products}    return;\n  }}\n{call}"
    return f"{w.map('y', step.y)}{epilogue(step.epilogue, w)}{call}"


def _call_direct(step: s.DirectConv, tiles: Sequence[str], w: Writer) -> str:
    rows = [
        f"{{{c.out_block}, {c.blocks}, {c.in_begin}, {c.in_count}, {c.weights}, {c.adds:d}, {c.partial:d}}}"
        for c in step.chunks
    ]
    chunks = w.table("cv_conv2d_chunk", rows)
    return (
        f"{w.map('x', step.x)}"
        f"  static const cv_conv2d c = {{{joined(step.kernel)}, {joined(step.stride)}, "
        f"{joined(step.dilation)}, {joined(step.pad)},\n"
        f"      {chunks}, {len(rows)}, {int(step.split_chunks)},\n"
        f"      {step.tile_rows}, {{{joined(step.rows.pixels)}}}, {{{joined(step.rows.tiles)}}}, "
        f"{step.tiles_per_block},\n"
        f"      {{{joined(tiles)}}}, {joined(step.blocks)}, {joined(step.group)}, {int(step.adds)}}};\n"
        f"  cv_conv2d_direct(t, &c, x, {w.pointer(step.w)}, y, &e);\n"
    )


def _call_row_products(step: s.DirectConv, r: s.RowProducts, w: Writer) -> str:
    """The same convolution of V, whose columns are taps no more."""
    w.headers.add("conv2d_winograd_rows")
    blocks = (r.chunks[0].blocks, r.chunks[-1].blocks)
    tiles = []
    for pixels in r.rows.pixels:
        names = [f"row_tile_{pixels}x{b}_{r.points.stride}_{r.points.taps}" for b in blocks]
        for name, b in zip(names, blocks, strict=True):
            sizes = joined((pixels, b, r.points.stride, *r.points.pairs))
            w.declare(f"CV_WINOGRAD_ROWS_TILE({name}, {sizes})")
        tiles.append(f"{{{joined(names)}}}")
    products = replace(
        step, x=r.v, w=r.w, kernel=(step.kernel[0], 1), stride=(step.stride[0], 1), pad=(step.pad[0], 0),
        chunks=r.chunks, blocks=blocks, tile_rows=1, rows=r.rows, in_rows=None,
    )  # fmt: skip
    return _call_direct(products, tiles, w)


def emit_transform_rows(step: s.TransformRows, w: Writer) -> str:
    w.headers.add("conv2d_winograd_rows")
    p = step.points
    name = f"row_points_{p.stride}_{p.points}"
    w.declare(f"CV_WINOGRAD_ROWS({name}, {p.stride}, {p.points})")
    rows = [f"{{{joined([number(value) for value in row])}}}" for row in p.transform(w.plan.lanes)]
    table = f"row_transform_{p.stride}_{p.taps}"
    w.declare(
        f"static const float {table}[{len(rows)}][CV_WINOGRAD_ROWS_CELL] __attribute__((aligned(64))) = "
        f"{{\n{wrap(rows)}}};"
    )
    return (
        f"{w.maps(x=step.x, v=step.y)}"
        f"  static const cv_winograd_rows c = {{{step.tiles}, {step.pad_left}, {table}}};\n"
        f"  {name}(t, &c, x, v, {w.pointer(step.checks)});\n"
    )


def emit_winograd(step: s.WinogradConv, w: Writer) -> str:
    base = (
        f"{{{joined(step.pad)}, {step.chunk_count}, {joined(step.blocks)}, {joined(step.tiles)}, "
        f"{step.groups}, {step.room}, {int(step.split_chunks)}}}"
    )
    pooled = int(step.pool is not None)
    rows, columns = step.last
    form = f"{rows}x{columns}{'_pooled' * pooled}"
    if step.slab:
        w.headers.add("conv2d_winograd")
        name = f"winograd_{step.out}_{form}"
        w.declare(f"CV_WINOGRAD({name}, {step.out}, {rows}, {columns}, {pooled})")
        row = f"{{{base}, {step.slab}, {int(step.resident)}, {step.pixels[0]}, {_winograd_tiles(step, w)}}}"
        c = w.table("cv_winograd_slabs", [row])
    else:
        w.headers.add("conv2d_winograd_streamed")
        name = f"winograd_streamed_{form}"
        w.declare(f"CV_WINOGRAD_STREAMED({name}, {rows}, {columns}, {pooled})")
        c = w.table("cv_winograd", [base])
    names = ("v", "u", "m") if step.slab else ("v", "m")
    scratch = zip(names, step.scratch, strict=True)
    return (
        f"{w.map('x', step.x)}  const cv_map y = {w.map_literal(step.y, step.keeps)};\n"
        f"{epilogue(step.epilogue, w)}{_winograd_pool(step, w)}"
        f"{''.join(f'  float *{n} = {w.pointer(a)};' + chr(10) for n, a in scratch)}"
        f"  {name}(t, {c}, x, {w.pointer(step.w)}, y, &e, {'&pool' if step.pool else 'NULL'}, "
        f"{', '.join(names)});\n"
    )


def _winograd_tiles(step: s.WinogradConv, w: Writer) -> str:
    """The name of the table of a step's register tiles."""
    name = f"tiles_{'_'.join(map(str, step.pixels))}x{'_'.join(map(str, step.blocks))}"
    rows = []
    for pixels in sorted(step.pixels):
        tiles = [w.conv_tile(pixels, blocks, step.x.lanes, 1) for blocks in step.blocks]
        rows.append(f"[{pixels}] = {{{joined(tiles)}}}")
    w.declare(f"static const cv_conv2d_tile {name}[][2] = {{{joined(rows)}}};")
    return name


def _winograd_pool(step: s.WinogradConv, w: Writer) -> str:
    """The declaration of ``pool``, where there is one."""
    if step.pool is None:
        return ""
    kind = {"max": "CV_POOL_MAX", "avg": "CV_POOL_MEAN"}[step.pool.kind]
    return (
        f"  const cv_winograd_pool pool = {{{kind}, {activation(step.pool.outer)}, "
        f"{w.map_literal(step.pool.y)}}};\n"
    )


def emit_depthwise(step: s.DepthwiseConv, w: Writer) -> str:
    w.headers.add("conv2d_depthwise")
    names = []
    for pixels in step.rows.pixels:
        kh, kw = step.kernel
        stride, dilation = step.stride[1], step.dilation[1]
        name = f"depthwise_{kh}x{kw}_s{stride}_d{dilation}_{pixels}"
        w.declare(f"CV_DEPTHWISE_TILE({name}, {kh}, {kw}, {stride}, {dilation}, {pixels})")
        names.append(name)
    return (
        f"{w.maps(x=step.x, y=step.y)}{epilogue(step.epilogue, w)}"
        f"  static const cv_depthwise c = {{{joined(step.kernel)}, {joined(step.stride)}, "
        f"{step.dilation[0]}, {joined(step.pad)},\n"
        f"      {{{joined(step.rows.pixels)}}}, {{{joined(step.rows.tiles)}}}, {{{joined(names)}}}}};\n"
        f"  cv_conv2d_depthwise(t, &c, x, {w.pointer(step.w)}, y, &e);\n"
    )
