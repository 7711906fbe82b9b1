"""Panels of weights against their plain definition, for cells of one, two and four elements."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from convoy.graph.dtypes import ARRAYS, DType, cell_elements
from convoy.kernels.conv2d.panels import Chunk, PackConv, Tap, cut_chunks, cut_runs, panel_size
from convoy.plan.maps import make_map, map_size
from convoy.plan.recipes import PackMap

LANES = 8
CELLS: list[DType] = ["float32", "bfloat16", "int8", "uint8"]


def draw(dtype: DType, *shape: int) -> NDArray[Any]:
    values = np.random.default_rng(0).integers(1, 100, shape)
    return values.astype(ARRAYS[dtype])


def define(w: NDArray[Any], chunks: tuple[Chunk, ...], groups: int, inner: int, k: int) -> list[int]:
    """[in][kh][kw][inner / k][blocks][lanes][k] of every chunk, weight by weight, of what it reads."""
    out_channels, group_in, kh, kw = w.shape
    group_out = out_channels // groups
    found: list[int] = []
    for chunk in chunks:
        sizes = chunk.in_count, kh, kw, inner // k, chunk.blocks, LANES, k
        for i, y, x, cell, block, lane, element in product(*map(range, sizes)):
            out = (chunk.out_block + block) * LANES + lane
            channel = (chunk.in_begin + i) * inner + cell * k + element
            if channel not in chunk.channels(inner):
                continue
            within = channel - out // group_out * group_in
            known = out < out_channels and 0 <= within < group_in
            found.append(int(w[out, within, y, x]) if known else 0)
    return found


@pytest.mark.parametrize(
    ("dtype", "cell"),
    [*((dtype, None) for dtype in CELLS), ("float32", 1), ("bfloat16", cell_elements("bfloat16"))],
    ids=str,
)
@pytest.mark.parametrize(
    ("out_channels", "in_channels", "groups"),
    [(16, 16, 1), (20, 12, 1), (8, 3, 1), (32, 32, 2), (12, 12, 4), (48, 60, 3), (34, 34, 2)],
    ids=str,
)
def test_panels_are_as_defined(
    dtype: DType, cell: int | None, out_channels: int, in_channels: int, groups: int
) -> None:
    k = cell_elements(dtype)
    w = draw(dtype, out_channels, in_channels // groups, 3, 2)
    spans = [
        (first + i, min(2, count - i))
        for first, count in cut_runs(out_channels, groups, LANES)
        for i in range(0, count, 2)
    ]
    chunks = cut_chunks(out_channels, in_channels, groups, spans, LANES, LANES, 6, cell=cell)
    recipe = PackConv("w", chunks, LANES, LANES, groups, (Tap(0, 1, 3), Tap(0, 1, 2)), cell=k)
    packed = recipe.pack({"w": w})
    assert packed.dtype == ARRAYS[dtype]
    assert packed.size == panel_size(chunks, 6, LANES, LANES)
    assert packed.tolist() == define(w, chunks, groups, LANES, k)


def test_a_cell_holds_neighbouring_channels() -> None:
    # one pixel, one tap: lane after lane, the k channels that a product adds up
    w = np.arange(8 * 8, dtype=np.int8).reshape(8, 8, 1, 1)
    chunks = cut_chunks(8, 8, 1, [(0, 1)], LANES, LANES, 1)
    packed = PackConv("w", chunks, LANES, LANES, 1, (Tap(0, 1, 1), Tap(0, 1, 1)), cell=4).pack({"w": w})
    cells = packed.reshape(2, 8, 4)  # [cell][lane][element]
    np.testing.assert_array_equal(cells[0], w[:, :4, 0, 0])
    np.testing.assert_array_equal(cells[1], w[:, 4:, 0, 0])


@pytest.mark.parametrize("dtype", CELLS)
def test_planes_of_a_map_are_whole_cache_lines_of_any_type(dtype: DType) -> None:
    m = make_map(0, 12, 5, 7, LANES, (1, 1, 1, 1), dtype)
    size = ARRAYS[dtype].itemsize
    assert (m.step, m.row) == (LANES, 9 * LANES)  # in elements: a pixel has `lanes` of any type
    assert m.plane * size % 128 == 64
    assert m.plane >= 7 * m.row
    assert m.bytes == 2 * LANES * 5 * 7 * size
    assert map_size(m) * size == 2 * m.plane * size + 64


@pytest.mark.parametrize("dtype", CELLS)
def test_a_constant_map_keeps_its_type(dtype: DType) -> None:
    x = draw(dtype, 1, 12, 5, 7)
    m = make_map(0, 12, 5, 7, LANES, dtype=dtype)
    packed = PackMap("x", (12, 5, 7), LANES, dtype).pack({"x": x})
    assert packed.dtype == x.dtype
    pixels = packed[:, : 5 * m.row].reshape(2, 5, 7, LANES)
    np.testing.assert_array_equal(pixels[1, :, :, :4], x[0, 8:].transpose(1, 2, 0))
    assert not pixels[1, :, :, 4:].any()
