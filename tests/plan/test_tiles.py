"""Rows are cut without a rest, chunks cover every channel once, tiles fit the registers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy.kernels.conv2d.panels import Chunk, choose_widths, cut_chunks, cut_runs, panel_size
from convoy.plan.tiles import (
    LEAST_SHARING,
    MOST_SPAN,
    Rows,
    choose_planar_tiling,
    choose_tiling,
    cut_blocks,
    cut_row,
)
from convoy.target import Target
from convoy.target.machines import MACHINES


@given(st.integers(1, 300), st.integers(1, 28))
def test_a_row_is_covered_exactly(width: int, most: int) -> None:
    rows = cut_row(width, most)
    assert sum(p * n for p, n in zip(rows.pixels, rows.tiles, strict=True)) == width
    assert max(rows.pixels) <= most
    assert rows.pixels[0] - rows.pixels[1] in (0, 1)


@pytest.mark.slow
@given(st.integers(1, 300), st.integers(1, 70), st.sampled_from(["avx512", "avx2", "portable"]))
def test_a_tile_fits_the_registers(width: int, out_blocks: int, isa: str) -> None:
    target = Target(isa)  # type: ignore[arg-type]
    tiling = choose_tiling(width, out_blocks, target)
    assert max(tiling.rows.pixels) * tiling.blocks <= target.accumulators
    assert tiling.blocks <= out_blocks


@pytest.mark.parametrize(
    ("kernel", "stride", "pixels"), [(3, 1, 12), (3, 2, 12), (7, 2, 8)], ids=["3x3", "3x3, stride 2", "7x7"]
)
def test_a_planar_tile_has_room_for_the_weights_of_a_kernel_row(
    kernel: int, stride: int, pixels: int
) -> None:
    tiling = choose_planar_tiling(224, 4, Target("avx512"), kernel, stride)
    assert (max(tiling.rows.pixels), tiling.blocks) == (pixels, 2)
    assert (pixels + kernel) * tiling.blocks + 1 <= Target("avx512").registers


@pytest.mark.parametrize(("kernel", "stride", "isa"), [(11, 4, "avx512"), (4, 4, "avx512"), (3, 1, "avx2")])
def test_a_planar_tile_is_as_any_other_where_they_leave_too_few_sums_or_share_no_pixel(
    kernel: int, stride: int, isa: str
) -> None:
    target = Target(isa)  # type: ignore[arg-type]
    assert choose_planar_tiling(224, 4, target, kernel, stride) == choose_tiling(224, 4, target)


@pytest.mark.parametrize(("kernel", "stride"), [(7, 3), (11, 3)])
def test_the_columns_under_a_planar_tile_are_no_more_than_a_loop_is_unrolled_for(
    kernel: int, stride: int
) -> None:
    # of one block, as of 16 channels; sums that a loop indexes are memory: a tenth of the speed
    tiling = choose_planar_tiling(224, 1, Target("avx512"), kernel, stride)
    assert LEAST_SHARING <= max(tiling.rows.pixels) <= (MOST_SPAN - kernel) // stride + 1


@given(st.integers(1, 300), st.integers(1, 8))
def test_chunks_are_as_equal_as_can_be(run: int, most: int) -> None:
    chunks = cut_blocks(run, most)
    assert sum(chunks) == run
    assert len(chunks) == -(-run // most)
    assert max(chunks) - min(chunks) <= 1


@pytest.mark.parametrize("out_blocks", [32, 128])
def test_a_tile_that_reads_fewer_weights_may_take_a_little_longer(out_blocks: int) -> None:
    # strip by strip, 14 = 5 + 5 + 4 pixels by 2 blocks, and not 4 + 4 + 3 + 3 by 3
    tiling = choose_tiling(14, out_blocks, Target("avx2"), height=14, whole=False)
    assert (tiling.rows.pixels, tiling.blocks) == ((5, 4), 2)


def test_short_rows_of_many_channels_leave_no_chunk_of_one_block() -> None:
    # 7 = 4 + 3 pixels, 64 blocks = 20 * 3 + 2 * 2: with one of 1, whose sums do not hide the latency
    tiling = choose_tiling(7, 64, Target("avx2"), height=7, whole=False)
    assert (tiling.rows.pixels, tiling.blocks) == ((4, 3), 3)
    assert cut_blocks(64, 3) == (3,) * 20 + (2,) * 2


@pytest.mark.parametrize(("size", "tiles"), [(7, (4, 5)), (14, (31, 2))])
def test_a_map_of_short_rows_is_cut_into_runs_of_full_tiles(size: int, tiles: tuple[int, int]) -> None:
    tiling = choose_tiling(size, 64, Target("avx2"), height=size)
    assert (tiling.tile_rows, tiling.rows, tiling.blocks) == (0, Rows((6, 5), tiles), 2)


ZEN3 = MACHINES["znver3"]


@pytest.mark.parametrize(
    ("width", "height", "out_blocks", "products", "tile_rows", "size"),
    [
        (56, 1, 3, 144, 1, (4, 3)),  # three blocks at once, and not one by one
        (14, 14, 48, 64, 0, (4, 3)),  # as many loads as it can do without
        (14, 14, 8, 384, 0, (6, 2)),  # three blocks would leave two
        (28, 28, 4, 144, 1, (6, 2)),
        (7, 7, 20, 960, 0, (6, 2)),  # a panel from L2
    ],
)
def test_where_a_machine_says_what_loads_cost_tiles_of_few_products_do_with_few(
    width: int, height: int, out_blocks: int, products: int, tile_rows: int, size: tuple[int, int]
) -> None:
    tiling = choose_tiling(width, out_blocks, ZEN3, height, products=products)
    assert (tiling.tile_rows, (max(tiling.rows.pixels), tiling.blocks)) == (tile_rows, size)


@pytest.mark.parametrize(
    ("width", "out_blocks", "products", "size"),
    [
        (14, 48, 16, (3, 4)),
        (7, 120, 40, (3, 4)),
        (28, 5, 60, (4, 3)),
        (28, 5, 0, (4, 3)),
        (14, 48, 0, (4, 3)),
    ],
)
def test_bytes_whose_pixels_are_put_apart_have_tiles_of_more_blocks(
    width: int, out_blocks: int, products: int, size: tuple[int, int]
) -> None:
    # the parts of a pixel serve four blocks; five blocks are three and two, and not four and one
    tiling = choose_tiling(width, out_blocks, ZEN3, width, parts=2, products=products)
    assert (max(tiling.rows.pixels), tiling.blocks) == size


@pytest.mark.parametrize("name", ["haswell", "znver2", "cascadelake", "znver5"])
@pytest.mark.parametrize("products", [16, 144, 2048])
def test_on_other_machines_the_number_of_products_tells_nothing(name: str, products: int) -> None:
    target = MACHINES[name]
    assert choose_tiling(56, 3, target, 56, products=products) == choose_tiling(56, 3, target, 56)
    assert choose_tiling(14, 48, target, 14, products=products) == choose_tiling(14, 48, target, 14)


def test_rows_of_full_tiles_stay_rows() -> None:
    assert choose_tiling(12, 64, Target("avx2"), height=12).tile_rows == 1
    assert choose_tiling(14, 64, Target("avx512"), height=14).tile_rows == 1


@pytest.mark.parametrize("width", [7, 14, 28, 56, 112, 224])
def test_common_widths_fill_all_accumulators(width: int) -> None:
    tiling = choose_tiling(width, 8, Target("avx512"))
    assert set(tiling.rows.pixels) == {tiling.rows.pixels[0]}
    assert tiling.rows.pixels[0] * tiling.blocks == 28


@given(
    st.integers(2, 6),
    st.integers(1, 40),
    st.integers(1, 40),
    st.sampled_from(["portable", "avx2", "avx512"]),
    st.sampled_from([None, 1, 2, 4]),
    st.none() | st.tuples(st.integers(1, 28), st.integers(1, 4)),
)
def test_chunks_cover_outputs_once_and_read_the_inputs_of_their_groups(
    groups: int, group_out: int, group_in: int, isa: str, cell: int | None, tile: tuple[int, int] | None
) -> None:
    target = Target(isa)  # type: ignore[arg-type]
    lanes, out, inn = target.lanes, groups * group_out, groups * group_in
    chunks: list[Chunk] = []
    size = 0
    for w in choose_widths(14, out, groups, lanes, target, tile=tile):
        assert {count for _, count in w.spans} == {w.tiling.blocks}
        assert w.tiling.blocks * max(w.tiling.rows.pixels) <= target.accumulators
        chunks += cut_chunks(out, inn, groups, w.spans, lanes, lanes, 9, cell=cell, begin=size)
        size = panel_size(tuple(chunks), 9, lanes, lanes)
    covered = [b for c in chunks for b in range(c.out_block, c.out_block + c.blocks)]
    assert sorted(covered) == list(range(-(-out // lanes)))
    begin = 0
    for c in chunks:
        outputs = range(c.out_block * lanes, min((c.out_block + c.blocks) * lanes, out))
        made_of = [o // group_out * group_in for o in outputs]
        needed = range(made_of[0], made_of[-1] + group_in)
        assert c.weights == begin
        begin += len(c.channels(lanes)) * 9 * c.blocks * lanes
        if cell:
            first, last = needed.start // cell * cell, -(-needed.stop // cell) * cell
            assert c.channels(lanes) == range(first, last)
        else:
            assert (c.before, c.behind) == (0, 0)
            assert set(needed) <= set(c.channels(lanes))
        assert max(c.before, c.behind) < lanes
        assert c.in_begin * lanes <= needed.start < (c.in_begin + 1) * lanes
        assert (c.in_begin + c.in_count - 1) * lanes < needed.stop
    assert size == begin


def test_a_run_of_blocks_is_of_the_same_groups() -> None:
    # 34 channels a group in blocks of 8: the fifth block is of two groups, and so on
    assert cut_runs(136, 4, 8) == [(0, 4), (4, 1), (5, 3), (8, 1), (9, 3), (12, 1), (13, 4)]
    assert cut_runs(96, 2, 16) == [(0, 3), (3, 3)]


def test_a_chunk_of_a_panel_that_is_cut_reads_what_is_left_of_its_group() -> None:
    # group 1 of 3 has channels 20 to 39: half of block 1, block 2, half of block 3 with 16 lanes
    chunks = cut_chunks(48, 60, 3, [(1, 1)], 16, 16, 1, most_floats=16 * 16, cell=1)
    assert [(c.in_begin, c.in_count, c.before, c.behind, c.adds, c.partial) for c in chunks] == [
        (1, 1, 4, 0, False, True), (2, 1, 0, 8, True, False),
    ]  # fmt: skip
    assert [c.weights for c in chunks] == [0, 12 * 16]


def test_blocks_of_several_groups_have_tiles_of_their_own() -> None:
    # 17 output blocks in pairs where groups let them; the others one by one, with twice the pixels
    pairs, singles = choose_widths(28 * 28, 136, 4, 8, Target("avx2"))
    assert pairs.spans == ((0, 2), (2, 2), (6, 2), (10, 2), (13, 2), (15, 2))
    assert singles.spans == ((4, 1), (5, 1), (8, 1), (9, 1), (12, 1))
    assert [max(w.tiling.rows.pixels) for w in (pairs, singles)] == [6, 12]


def test_whole_blocks_are_cut_as_those_of_one_group() -> None:
    (found,) = choose_widths(28 * 28, 128, 4, 16, Target("avx512"))
    assert found.tiling == choose_tiling(28 * 28, 2, Target("avx512"))


def test_two_short_rows_are_one_tile() -> None:
    tiling = choose_tiling(7, 16, Target("avx512"), height=7)
    assert (tiling.tile_rows, tiling.rows, tiling.blocks) == (2, Rows((7, 7), (0, 1)), 2)


def test_a_row_of_more_than_half_a_tile_stays_alone() -> None:
    assert choose_tiling(8, 16, Target("avx512"), height=8).tile_rows == 1


def test_a_single_row_has_no_second() -> None:
    assert choose_tiling(7, 16, Target("avx512")).tile_rows == 1
