"""Which algorithm a convolution gets, and that the choice is reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from building import Builder
from convoy.graph import Graph
from convoy.graph.ops import Conv2d, ConvTranspose2d
from convoy.graph.sizes import open_size
from convoy.kernels.conv2d.depthwise import DepthwiseConv
from convoy.kernels.conv2d.direct import DirectConv
from convoy.kernels.conv2d.schedules import (
    OUTS,
    Out,
    Schedule,
    choose_schedule,
    count_register_tiles,
    count_tiles,
    schedules,
)
from convoy.kernels.conv2d.winograd import WinogradConv
from convoy.kernels.planner import make_plan
from convoy.options import Accuracy, Options
from convoy.plan.maps import make_map
from convoy.report.decision import Report
from convoy.target import InstructionSet, Target
from convoy.target.machines import MACHINES

TARGET = Target("avx512")


def conv(channels: int, size: int, out: int, kernel: int = 3, **attributes: object) -> Graph:
    b = Builder([1, channels, size, size])
    groups = int(attributes.get("groups", 1))  # type: ignore[call-overload]
    pad = kernel // 2
    w = b.weight(out, channels // groups, kernel, kernel)
    return b.graph(b.add(Conv2d, "x0", w, padding=(pad, pad, pad, pad), **attributes))


def algorithm(graph: Graph, options: Options | None = None) -> type:
    steps = make_plan(graph, TARGET, options).steps
    (found,) = {type(s) for s in steps} & {DirectConv, DepthwiseConv, WinogradConv}
    return found


def tile_size(graph: Graph, accuracy: Accuracy = "fast", threads: int = 1) -> int:
    """Tile size of the graph's one Winograd convolution."""
    steps = make_plan(graph, TARGET, Options(threads=threads, accuracy=accuracy)).steps
    (step,) = [s for s in steps if isinstance(s, WinogradConv)]
    return step.out


def direct_estimate(graph: Graph) -> float:
    """Cycles of the graph's direct convolution."""
    plan = make_plan(graph, TARGET, Options(threads=1))
    steps = zip(plan.steps, plan.cycles, strict=True)
    return sum(cycles for step, cycles in steps if isinstance(step, DirectConv))


def test_estimate_counts_the_products_that_are_computed() -> None:
    b = Builder([1, 64, 28, 28])
    transposed = b.graph(b.add(ConvTranspose2d, "x0", b.weight(64, 64, 2, 2), stride=(2, 2)))

    # each pixel of 56 x 56 sees one of the four taps; a group's pixels see a quarter of the channels
    assert direct_estimate(transposed) == pytest.approx(
        direct_estimate(conv(64, 56, 64, kernel=1)), rel=0.05
    )
    whole, grouped = conv(256, 28, 256, kernel=1), conv(256, 28, 256, kernel=1, groups=4)
    assert direct_estimate(grouped) == pytest.approx(direct_estimate(whole) / 4)


def test_wide_3x3_is_winograd() -> None:
    assert algorithm(conv(64, 56, 64)) is WinogradConv


@pytest.mark.parametrize(
    "graph",
    [
        conv(64, 56, 64, kernel=1),
        conv(64, 56, 64, kernel=5),
        conv(64, 56, 64, stride=(2, 2)),
        conv(64, 56, 64, groups=4),
        conv(3, 56, 64),
        conv(512, 4, 512),
    ],
    ids=["1x1", "5x5", "strided", "grouped", "few channels", "one tile"],
)
def test_others_are_direct(graph: Graph) -> None:
    # what Winograd's algorithm cannot compute, and where transformed weights cost more than they save
    assert algorithm(graph) is DirectConv


@pytest.mark.parametrize("isa", ["avx512", "avx2"])
@pytest.mark.parametrize(("channels", "threads"), [(512, 1), (512, 2), (128, 2)])
def test_transformed_weights_of_few_tiles_are_streamed(
    isa: InstructionSet, channels: int, threads: int
) -> None:
    steps = make_plan(conv(channels, 7, channels), Target(isa), Options(threads=threads)).steps
    (step,) = [s for s in steps if isinstance(s, WinogradConv)]
    assert (step.out, step.slab, step.room, step.portions) == (4, 0, 4, 1)
    assert step.split_chunks
    assert [operand.size for operand in step.scratch] == [36 * 4 * channels, 36 * 4 * step.x.lanes]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("channels", "size", "streamed"), [(256, 14, False), (512, 7, True)])
def test_zen_3_streams_the_weights_of_four_tiles_and_not_of_sixteen(
    channels: int, size: int, streamed: bool, threads: int
) -> None:
    # 1.15 ms with stored weights and 1.82 with streamed ones at 14x14, 2.03 and 1.62 at 7x7
    steps = make_plan(conv(channels, size, channels), MACHINES["znver3"], Options(threads=threads)).steps
    (step,) = [s for s in steps if isinstance(s, WinogradConv)]
    assert (step.slab == 0) == streamed


def test_slabs_of_each_share_of_l2_are_tried() -> None:
    zen3 = MACHINES["znver3"]
    x = make_map(0, 128, 28, 28, zen3.lanes)

    def tried(target: Target) -> set[tuple[int, int]]:
        found = schedules(x, x, 4, target, 1)
        return {(s.slab, s.rows) for s in found if s.share == "chunks" and s.blocks == 2}

    assert tried(zen3) == {(4, 0), (8, 0), (8, 2), (16, 2)}
    whole = replace(zen3, shares=replace(zen3.shares, slab_rows=(0,)))
    assert tried(whole) == {(4, 0), (8, 0)}
    one = replace(zen3, shares=replace(zen3.shares, slabs=(0.15,)))
    assert tried(one) == {(4, 0), (8, 2)}


@pytest.mark.parametrize("size", [14, 28])
def test_those_of_many_tiles_are_stored(size: int) -> None:
    steps = make_plan(conv(256, size, 256), TARGET, Options(threads=2)).steps
    (step,) = [s for s in steps if isinstance(s, WinogradConv)]
    assert step.slab > 0


@pytest.mark.parametrize(
    ("graph", "share_chunks"),
    [(conv(128, 56, 256), True), (conv(256, 28, 512), True), (conv(64, 112, 128), False)],
    ids=["256 channels", "512 channels", "few weights"],
)
def test_weights_are_not_transformed_for_each_of_many_portions(graph: Graph, share_chunks: bool) -> None:
    # 1 MB of L2: V out of L3 took 0.84, 0.92 and 1.15 times as long as portions that fit (Zen 5)
    steps = make_plan(graph, TARGET, Options(threads=2)).steps
    (step,) = [s for s in steps if isinstance(s, WinogradConv)]
    assert step.split_chunks == share_chunks


def test_accuracy_direct_turns_winograd_off() -> None:
    assert algorithm(conv(64, 56, 64), Options(accuracy="direct")) is DirectConv


def test_one_filter_a_channel_is_depthwise() -> None:
    assert algorithm(conv(32, 28, 32, groups=32)) is DepthwiseConv


@pytest.mark.parametrize(("filters", "expected"), [(2, DepthwiseConv), (8, DepthwiseConv), (3, DirectConv)])
def test_filters_of_a_channel_that_divide_a_vector_are_depthwise(filters: int, expected: type) -> None:
    assert algorithm(conv(48, 28, 48 * filters, 7, groups=48)) is expected


@pytest.mark.parametrize(
    ("channels", "groups", "out", "kernel", "expected"),
    [
        pytest.param(128, 32, 128, 3, DepthwiseConv, id="four channels a group"),
        pytest.param(256, 32, 256, 3, DepthwiseConv, id="eight"),
        pytest.param(512, 32, 512, 3, DirectConv, id="a vector"),
        pytest.param(96, 32, 96, 3, DirectConv, id="three, which do not divide a vector"),
        pytest.param(64, 16, 128, 3, DirectConv, id="more channels out than in"),
        pytest.param(128, 16, 128, 1, DirectConv, id="as many permutations as products"),
        pytest.param(128, 64, 128, 1, DepthwiseConv, id="fewer of them than products with zeros"),
    ],
)
def test_groups_within_a_vector_are_depthwise(
    channels: int, groups: int, out: int, kernel: int, expected: type
) -> None:
    assert algorithm(conv(channels, 28, out, kernel, groups=groups)) is expected


def test_where_permuting_takes_many_instructions_filters_of_a_channel_are_direct() -> None:
    graph = conv(16, 14, 32, groups=16)
    assert any(isinstance(s, DirectConv) for s in make_plan(graph, Target("portable")).steps)


def test_where_permuting_takes_many_instructions_groups_are_direct() -> None:
    graph = conv(16, 14, 16, groups=8)
    (step,) = [s for s in make_plan(graph, Target("portable")).steps if isinstance(s, DirectConv)]
    assert step.group == (2, 2)


def test_a_filter_wider_than_a_tile_holds_is_direct() -> None:
    assert algorithm(conv(32, 28, 32, kernel=13, groups=32)) is DirectConv


def test_the_choice_is_a_decision_with_its_estimates() -> None:
    report = Report()
    make_plan(conv(64, 56, 64), TARGET, None, report)
    (decision,) = [d for d in report.decisions if d.step == "plan"]
    assert decision.choice == "winograd F(4x4, 3x3)"
    assert all(name in decision.reason for name in ("direct", "F(4x4, 3x3)", "F(2x2, 3x3)"))


@pytest.mark.parametrize(
    ("graph", "out"),
    [(conv(64, 56, 64), 4), (conv(256, 14, 256), 4), (conv(512, 9, 512), 2)],
    ids=["wide map", "many channels", "small map of many channels"],
)
def test_small_maps_get_small_tiles(graph: Graph, out: int) -> None:
    # a 4x4 tile wastes most where 9 pixels are cut into three, and transforms more weights a product
    assert tile_size(graph) == out


@pytest.mark.parametrize("graph", [conv(32, 256, 32), conv(48, 128, 48)], ids=["256", "128"])
@pytest.mark.parametrize("threads", [1, 2])
def test_the_largest_tiles_are_made_unless_they_are_asked_to_round_less(graph: Graph, threads: int) -> None:
    assert tile_size(graph, "fast", threads) == 4
    assert tile_size(graph, Options().accuracy, threads) == 6


def test_the_largest_tiles_pay_where_products_take_long() -> None:
    # a Zen 4 multiplies half as much a cycle as a Zen 5, and stores M less often with slabs of two rows
    graph = conv(512, 28, 512)
    assert tile_size(graph, "fastest") == 4
    (step,) = [s for s in make_plan(graph, MACHINES["znver4"]).steps if isinstance(s, WinogradConv)]
    assert (step.out, step.slab_rows) == (6, 2)


def test_sizes_that_a_call_gives_have_no_largest_tiles() -> None:
    # each of nine forms of a last tile would be compiled, and smaller maps be slower
    b = Builder([1, 48, open_size("height", 128), open_size("width", 128)])
    graph = b.graph(b.add(Conv2d, "x0", b.weight(48, 48, 3, 3), padding=(1, 1, 1, 1)))
    assert tile_size(conv(48, 128, 48), "fastest") == 6
    assert tile_size(graph, "fastest") == 4


@pytest.mark.parametrize(
    ("graph", "out"),
    [(conv(64, 14, 64), 4), (conv(128, 28, 128), 4), (conv(512, 28, 512), 4), (conv(512, 9, 512), 2)],
    ids=["14 = 4 + 4 + 4 + 2", "28 = 7 * 4", "many weights", "small map of many channels"],
)
def test_too_small_maps_get_smaller_tiles(graph: Graph, out: int) -> None:
    # three 6x6 tiles for 14 pixels compute 18, and their weights are transformed to 7.1 times as many
    assert tile_size(graph, "fastest") == out


def test_accepting_the_largest_tiles_leaves_others_direct() -> None:
    assert algorithm(conv(64, 56, 64, stride=(2, 2)), Options(accuracy="fastest")) is DirectConv
    assert algorithm(conv(512, 4, 512), Options(accuracy="fastest")) is DirectConv


@pytest.mark.parametrize("isa", ["avx512", "avx2", "portable"])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("out", OUTS["fastest"])
@pytest.mark.parametrize(("channels", "size"), [(16, 5), (64, 56), (100, 30), (256, 14), (512, 28)])
def test_schedules_cover_every_tile_and_block(
    channels: int, size: int, out: Out, threads: int, isa: InstructionSet
) -> None:
    target = Target(isa)
    x = make_map(0, channels, size, size, target.lanes)
    for s in schedules(x, x, out, target, threads):
        rows, columns = count_tiles((size, size), out)
        portions = -(-rows * columns // s.portions)
        assert s.room == portions or (s.share == "streamed" and s.room >= portions)
        assert s.pixels * s.blocks <= target.accumulators
        assert s.slab == 0 if s.share == "streamed" else 1 <= s.slab <= x.blocks
        assert s.share != "resident" or s.slab == x.blocks
        assert s.cycles > 0


@pytest.mark.parametrize(
    ("size", "portions", "products", "register_tiles"),
    [
        # three tiles of 4 and one of 2 a side: 22 points, so many as 3 * 6 + 4
        (14, 1, 22 * 22, {8: 32, 12: 16, 9: 4}),
        (16, 1, 24 * 24, {8: 72}),
        # 28 is seven whole tiles a side; cut evenly, where 4 register tiles of 13 would be 52
        (28, 1, 42 * 42, {13: 36, 12: 108}),
        # portions of 24 and 25 tiles
        (28, 2, 42 * 42, {12: 108, 13: 36}),
        # two portions: eight tiles, and those that have a point
        (14, 2, 22 * 22, {8: 40, 7: 8, 5: 12, 4: 12}),
    ],
)
def test_register_tiles_multiply_what_the_map_has(
    size: int, portions: int, products: int, register_tiles: dict[int, int]
) -> None:
    x = make_map(0, 64, size, size, 16)
    rows, columns = count_tiles((size, size), 4)
    schedule = Schedule(4, "chunks", portions, 14, -(-rows * columns // portions), 2, 2)
    cuts = count_register_tiles(schedule, x)
    assert sum(pixels * count for pixels, count in cuts.items()) == products
    assert cuts == register_tiles


def test_a_last_tile_is_what_is_left() -> None:
    last = {out: Schedule(out, "chunks", 1, 14, 16, 2, 2).last_tile(13, 15) for out in OUTS["fastest"]}
    assert last == {2: (2, 2), 4: (2, 3), 6: (2, 3)}
    whole = Schedule(4, "chunks", 1, 14, 16, 2, 2)
    assert whole.last_tile(12, 16) == (4, 4)


def test_streamed_tiles_are_smaller_only_where_four_are_the_map() -> None:
    schedule = Schedule(4, "streamed", 1, 4, 4, 1, 0)
    assert schedule.last_tile(7, 6) == (3, 2)
    assert schedule.last_tile(7, 9) == schedule.last_tile(4, 7) == (4, 4)


def test_an_input_has_the_zeros_that_the_last_tile_reads() -> None:
    (step,) = [s for s in make_plan(conv(256, 14, 256), TARGET).steps if isinstance(s, WinogradConv)]
    assert (step.last, step.x.halo) == ((2, 2), (1, 1, 1, 1))
    (step,) = [s for s in make_plan(conv(256, 13, 256), TARGET).steps if isinstance(s, WinogradConv)]
    assert (step.last, step.x.halo) == ((2, 2), (1, 1, 2, 2))


def test_portions_that_need_no_weights_of_their_own_fill_their_register_tiles() -> None:
    # 196 tiles as 14 portions of 14; four portions of 49, as many as L2 takes, would compute 52 each
    x = make_map(0, 64, 56, 56, 16)
    best = choose_schedule(x, x, 4, Target("avx512", l2_bytes=2 << 20), 2)
    assert (best.share, best.portions, best.pixels, best.room) == ("resident", 14, 14, 14)


def test_memory_of_a_schedule_stays_in_the_cache() -> None:
    # V, U and M of a thread that shares portions; two slabs of U where threads share chunks
    x = make_map(0, 128, 56, 56, TARGET.lanes)
    for s in schedules(x, x, 4, TARGET, 1):
        assert s.share != "streamed", "M of 196 tiles does not fit L1"
        slab = s.slab_points * s.slab * s.blocks * TARGET.lanes**2 * 4
        tile = s.points * (x.blocks + s.blocks) * TARGET.lanes * 4
        whole = 2 * slab if s.share == "portions" else slab // s.blocks * x.blocks
        if s.share == "chunks":
            assert 2 * slab <= TARGET.l2_bytes / 2
        else:
            assert whole + s.room * tile <= TARGET.l2_bytes
